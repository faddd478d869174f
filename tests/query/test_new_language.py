"""A language of its own (grep_language.py) has everything that SQL and PromQL have, without a line elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
import pytest
from anyio import CapacityLimiter

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers, WorkerApi
from lakerunner.model.errors import Corrupt, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment, SegmentPick
from lakerunner.model.time import MINUTE_NS, TimeRange
from lakerunner.plan.explain import Explain
from lakerunner.plan.operator import Operator
from lakerunner.query.contract.failures import Limits
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.operator_table import OPERATORS
from lakerunner.query.options import Options
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.worker import QueryWorker
from query.grep_language import Grep, GrepApi, compile_grep, parse
from query.real_lake import RealLake
from query.sample_lake import OWN, START
from suites.no_points import NoPoints

KEY = "of the cluster"
NOW = START + 60 * MINUTE_NS
DAY = TimeRange(NOW - 24 * 60 * MINUTE_NS, NOW)
LINES = [  # (minute, line) of each segment; one has the only needle
    [(n, f"payment {n} refused" if n % 2 else f"payment {n} taken") for n in range(3)],
    [(n, f"user {n} refused") for n in range(2, 6)],
    [(n, f"payment {n} refused") for n in range(10, 14)],
    [(20, "a needle in payment"), (21, "payment taken"), (21, "payment refused")],
    *([(30 + n, f"idle {n}")] for n in range(12)),
]


@dataclass
class Index(NoPoints):
    all: Sequence[Segment]

    @property
    def segments(self) -> Index:
        return self

    def pick(self, organization: UUID, signal: str, time: TimeRange, *, conditions: Any = ()) -> SegmentPick:
        own = tuple(s for s in self.all if s.organization == organization and s.time.overlaps(time))
        return SegmentPick(own, len(own))

    def pick_tiers(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("no rollups of lines")


@dataclass
class Served:
    engine: Engine
    lake: RealLake
    workers: list[QueryWorker]
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three workers over HTTP, and the API of the language, each on its own port."""
    lake = RealLake(tmp_path_factory.mktemp("grep"))
    for lines in LINES:
        lake.add(partial(_fill, lines=lines))
    workers = [_worker(lake, f"cache-{n}") for n in range(3)]
    operators: Mapping[str, type[Operator]] = {**OPERATORS, "grep": Grep}
    servers = [_serve(WorkerApi(one.run, KEY, CapacityLimiter(20), operators=operators)) for one in workers]
    remote = RemoteWorkers(Addresses(lookups(",".join(server.url for server in servers))), KEY, 60)
    sandboxes = _sandboxes(lake, "coordinator")
    results = ResultCache(1 << 20, 300.0, time.monotonic)
    engine = Engine(KnownSegments(Index(lake.segments)), remote, Coordinator(sandboxes), results=results, first_bytes=1)
    who = Authenticator(lambda _: None, Organization(OWN, "own"))
    limits = QueryLimits(Capacity(4, 1000.0, 4), time.monotonic)
    api = GrepApi(engine, QueryService(who, limits, lambda: NOW))
    servers.append(_serve(api))
    yield Served(engine, lake, workers, servers[-1].url)
    for server in servers:
        server.stop()
    remote.close()


def _fill(request: Any, lines: Sequence[tuple[int, str]]) -> None:
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    records = resource.scope_logs.add().log_records
    for minute, line in lines:
        records.add(time_unix_nano=START + minute * MINUTE_NS).body.string_value = line


def _sandboxes(lake: RealLake, name: str) -> Sandboxes:
    return Sandboxes(Limits("500MB", 60.0, 1_000_000), threads=1, spill_directory=lake.directory / f"spill-{name}")


def _worker(lake: RealLake, name: str) -> QueryWorker:
    return QueryWorker(lake.cache(name), _sandboxes(lake, name))


def _serve(api: Any) -> HttpServer:
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), print)
    server.start()
    return server


def lines_of(*words: str) -> list[str]:
    """Newest first; those of one time by their text."""
    found = [(minute, line) for lines in LINES for minute, line in lines if all(word in line for word in words)]
    return [line for _, line in sorted(found, key=lambda one: (-one[0], one[1]))]


def rows(engine: Engine, text: str, **options: Any) -> tuple[list[dict[str, Any]], Any]:
    answer = engine.answer(OWN, compile_grep(text, DAY), Options(NOW, **options))
    found = pa.Table.from_batches(list(answer), schema=answer.schema).to_pylist()
    return found, answer.account


def events(url: str, **body: Any) -> list[dict[str, Any]]:
    text = httpx.post(f"{url}/grep", json=body, timeout=60).text
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: ")]


@pytest.mark.parametrize("words", [("refused",), ("payment", "refused"), ("payment",), ("nothing",)])
def test_lines_come_newest_first(served: Served, words: tuple[str, ...]) -> None:
    found, _ = rows(served.engine, " ".join(words))
    assert [row["message"] for row in found] == lines_of(*words)


def test_counts_are_those_of_every_line(served: Served) -> None:
    found, _ = rows(served.engine, "count refused")
    expected = Counter(minute for lines in LINES for minute, line in lines if "refused" in line)
    start = datetime(2024, 1, 1)
    minutes = [((row["minute"] - start).total_seconds() / 60, row["n"]) for row in found]
    assert minutes == sorted(expected.items())


def test_a_limit_counts_the_newest_lines(served: Served) -> None:
    found, account = rows(served.engine, "payment -n 2")
    assert [row["message"] for row in found] == lines_of("payment")[:2]
    assert account.considered == account.done


def test_segments_are_left_out_by_the_text_index(served: Served) -> None:
    found, account = rows(served.engine, "needle")
    assert [row["message"] for row in found] == ["a needle in payment"]
    assert (account.considered, account.read, account.pruned) == (16, 1, {"text index": 15})


def test_several_workers_take_part(served: Served) -> None:
    _, account = rows(served.engine, "count idle")
    assert account.read == 12
    assert 1 < len(account.workers) <= 3


def test_the_same_again_is_kept(served: Served) -> None:
    first, once = rows(served.engine, "user refused")
    again, kept = rows(served.engine, "user refused")
    assert (again, once.from_cache, kept.from_cache) == (first, False, True)


def test_explain_analyze(served: Served) -> None:
    found, _ = rows(served.engine, 'needle "in payment"', explain=Explain.ANALYZE)
    lines = [row["plan"].strip() for row in found]
    assert "in rounds, newest first" in lines
    assert "find lines with 'needle' and 'in payment'" in lines
    assert "where message contains 'in payment'" in lines
    assert "segments 16 considered, 1 read, 15 left out by text index" in lines
    assert "rows 1" in lines


def test_a_damaged_segment_is_an_error_or_a_gap(served: Served) -> None:
    victim = served.lake.segments[1]
    path = served.lake.store.root / victim.path
    sound = path.read_bytes()
    workers = [_worker(served.lake, "after-damage")]
    engine = Engine(
        KnownSegments(Index(served.lake.segments)),
        _Here(workers),
        Coordinator(_sandboxes(served.lake, "damage")),
    )
    try:
        path.write_bytes(b"x" * len(sound))
        with pytest.raises(Corrupt, match=str(victim.id)):
            rows(engine, "refused")
        found, account = rows(engine, "refused", partial=True)
    finally:
        path.write_bytes(sound)
    assert [row["message"] for row in found] == [line for line in lines_of("refused") if "user" not in line]
    assert [(gap.segments, str(victim.id) in gap.reason) for gap in account.missing] == [(1, True)]


@dataclass
class _Here:
    workers: Sequence[QueryWorker]

    def here(self) -> Sequence[QueryWorker]:
        return self.workers


def test_time_groups_come_as_events(served: Served) -> None:
    found = events(served.url, q="count refused")
    kinds = [one["type"] for one in found]
    assert (kinds[0], kinds[-1]) == ("schema", "done")
    assert found[-1]["complete"] is True
    minutes = [one["data"]["minute"] for one in found if one["type"] == "result"]
    assert minutes == sorted(minutes)
    assert len(minutes) == len({minute for lines in LINES for minute, line in lines if "refused" in line})


def test_what_is_wrong_has_a_position(served: Served) -> None:
    assert parse('count "a b" c -n 3').words == ("a b", "c")
    with pytest.raises(UserError, match=r"-n needs a number of lines \(line 1, column 3\)"):
        compile_grep("a -n x", DAY)
    refused = httpx.post(f"{served.url}/grep", json={"q": " "}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["position"]) == (400, {"line": 1, "column": 1})


def test_a_query_is_cancelled_from_another_thread(served: Served) -> None:
    answer = served.engine.answer(OWN, compile_grep("payment taken", DAY), Options(NOW))
    batches = iter(answer)
    closing = threading.Thread(target=answer.close)
    closing.start()
    closing.join()
    with pytest.raises(UserError, match="cancelled"):
        list(batches)
