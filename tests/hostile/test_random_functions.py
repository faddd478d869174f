"""Random calls of allowed functions by A, while B asks for its marked rows.

What always holds: no mark of B in an answer to A, no process ends but a child that runs queries, B's answers stay
right, and the memory of all processes stays below a bound: what they held at the start, `query_memory` for each query
and unit that may run, the caches, 512 MiB (two_tenants.py).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hostile.process_tree import MIB, Tree, alive, watched
from hostile.random_calls import call, signatures, statements
from hostile.two_tenants import SETTINGS, TwoTenants, answer_text
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.warm import warm_ingest
from servers.lake import query_api
from servers.postgres import fresh_database
from suites.tenants import ROLES, Tenant

_PATIENT: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # a smaller call may need the state that the larger one left
    "database": None,
}


@pytest.fixture(scope="module")
def asked(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    """A query-api in a process of its own, without Java, over segments of both."""
    warm_ingest()
    home, url = tmp_path_factory.mktemp("functions") / "home", fresh_database(embedded_postgres_url)
    a, b = Tenant(f"a{secrets.token_hex(6)}", 0xA1, 7), Tenant(f"b{secrets.token_hex(6)}", 0xB2, 11)
    canaries = {"HOSTILE_CANARY": f"canary{secrets.token_hex(8)}", "LAKERUNNER_WORKER_KEY": secrets.token_hex(8)}
    environment = {f"LAKERUNNER_{name}": value for name, value in SETTINGS.items()} | canaries | {"DATABASE_URL": url}
    with query_api(home, environment) as running, closing(Index.open(url, connections=2)) as index:
        keys = {}
        for tenant in (a, b):
            index.organizations.create(tenant.organization)
            segments, files = tenant.segments
            (home / "store").mkdir(exist_ok=True)
            for path, data in files.items():
                LocalStore(home / "store").put(path, data)
            index.commit(Commit(segments, (), ()))
            for name, role in ROLES.items():
                keys[tenant.name, name] = index.keys.create(tenant.organization.id, name, frozenset({role}))
        made = TwoTenants(running, a, b, keys, canaries, Tree(running.process.popen.pid, home))
        assert made.ask(a, "SELECT count(*) AS n FROM logs").json()["rows"] == [{"n": 2 * a.rows}]
        made.lasting, made.idle_bytes = made.tree.lasting(), made.tree.pss()
        yield made
        made.http.close()


_statuses: Counter[int] = Counter()


def rows_of_b(lake: TwoTenants) -> list[dict[str, Any]]:
    answer = lake.ask(lake.b, "SELECT DISTINCT service_name AS s, attributes['tier'] AS t FROM logs")
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return rows


def call_at_random(lake: TwoTenants, sql: str) -> None:
    """Send one statement and judge its answer."""
    try:
        answer = lake.http.post("/api/v1/sql", json={"query": sql}, headers=lake.headers(lake.a, "reader"))
    except httpx.HTTPError as error:
        raise AssertionError(f"{error!r} for {sql}\n{lake.lake.process.text()[-2000:]}") from error
    assert answer.status_code < 500 or answer.status_code in (503, 504), (sql, answer.text)
    _statuses[answer.status_code] += 1
    leaked = lake.leaks(sql, answer_text(answer))
    assert not leaked, (sql, leaked, answer.text[:2000])


def hold_while(lake: TwoTenants, run: Any) -> None:
    """Run it while B asks again and again; check processes, memory and B's answers."""
    ended, wanted = Event(), [{"s": lake.b.word("svc"), "t": lake.b.word("tier")}]

    def ask_as_b() -> int:
        turns = 0
        while not ended.is_set():
            assert rows_of_b(lake) == wanted
            turns += 1
            ended.wait(0.05)
        return turns

    bound = lake.memory_bound()
    with ThreadPoolExecutor(1) as pool, watched(lake.tree, bound) as memory:
        asking = pool.submit(ask_as_b)
        try:
            run()
        finally:
            ended.set()
        assert asking.result() > 0
    assert alive(lake.lasting) == lake.lasting
    assert memory.highest <= bound, f"{memory.highest // MIB} MiB, more than {bound // MIB}"


def test_every_function_is_drawn_with_its_types() -> None:
    unknown = [name for name, types in signatures().items() if types == (("VARCHAR",),)]
    assert len(signatures()) > 350
    assert len(unknown) < 60


def test_random_calls_reach_nothing(asked: TwoTenants) -> None:
    @settings(max_examples=100, **_PATIENT)
    @given(sql=statements())
    def tried(sql: str) -> None:
        call_at_random(asked, sql)

    hold_while(asked, tried)
    assert _statuses[200] >= 20, "most calls are refused: the pools of arguments do not fit"


@pytest.mark.slow
def test_many_random_calls_reach_nothing(asked: TwoTenants) -> None:
    @settings(max_examples=5000, **_PATIENT)
    @given(sql=statements())
    def tried(sql: str) -> None:
        call_at_random(asked, sql)

    hold_while(asked, tried)


@pytest.mark.heavy
def test_each_function_once(asked: TwoTenants) -> None:
    """Every allowed function with arguments of its types, by itself."""

    @settings(max_examples=1, **_PATIENT)
    @given(data=st.data())
    def tried(data: st.DataObject) -> None:
        for name in signatures():
            call_at_random(asked, f"SELECT {data.draw(call(name, 1))} AS x FROM logs")

    hold_while(asked, tried)
