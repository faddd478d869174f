"""A real `lakerunner up` with two organizations: A attacks, B's rows carry marks that must never reach A.

Every value of B begins with a random word (suites/tenants.py), the server's environment holds random canaries, and the
limits are small, so that what outgrows them does so within seconds.
"""

from __future__ import annotations

import json
import resource
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from hostile.process_tree import MIB, Tree, alive
from lakerunner.index.embedded import EmbeddedPostgres
from servers.lake import Lake, lake, query_api, wait_until
from suites.requests import request_of
from suites.tenants import Tenant

QUERY_MEMORY_MIB = 256
QUERY_CONCURRENCY = 4
QUERY_SECONDS = 4
SETTINGS = {
    "QUERY_MEMORY": f"{QUERY_MEMORY_MIB}MB",
    "QUERY_SECONDS": str(QUERY_SECONDS),
    "QUERY_THREADS": "1",
    "QUERY_CONCURRENCY": str(QUERY_CONCURRENCY),
    "QUERY_MAX_ROWS": "100000",
    "QUERY_SPOOL_BYTES": str(64 * MIB),
    "ORG_QUERIES_PER_SECOND": "100000",
    "METRICS_MAX_SAMPLES": "2000000",
    "METRICS_CACHE_BYTES": str(64 * MIB),
    "RESULT_CACHE_BYTES": str(8 * MIB),
    "REQUEST_MAX_BYTES": str(4 * MIB),
    "PUSH_MAX_WAITING_BYTES": str(64 * MIB),
    "WORKER_UNITS": "2",
}
# Safety net for the machine, not a limit of the product: a build without the sandbox may take all memory there is.
PROCESS_MIB = 8192
# An answer may take as long as a query may, and what a busy machine adds to that.
ANSWER_SECONDS = QUERY_SECONDS + 60
_CANARIES = (
    *("LAKERUNNER_WORKER_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AZURE_STORAGE_KEY", "HOSTILE_CANARY"),
)
_SPARK_CANARY = "spark.hostile.canary"


@dataclass(frozen=True)
class Fault:
    """What was wrong with the answer to one input."""

    place: str
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what} {self.detail[:400]}".rstrip()


@dataclass
class TwoTenants:
    """`keys` by (tenant's name, role), `canaries` by their variables; `lasting` are processes that must not end.
    `whole` is the lake itself where `lake` is a query-api beside it, which takes no pushes."""

    lake: Lake
    a: Tenant
    b: Tenant
    keys: Mapping[tuple[str, str], str]
    canaries: Mapping[str, str]
    tree: Tree
    lasting: dict[int, str] = field(default_factory=dict)
    idle_bytes: int = 0
    pushed: list[str] = field(default_factory=list)
    answer_seconds: float = ANSWER_SECONDS
    whole: Lake | None = None

    def headers(self, tenant: Tenant, role: str = "admin") -> dict[str, str]:
        return {"x-api-key": self.keys[tenant.name, role]}

    @cached_property
    def http(self) -> httpx.Client:
        # A connection for each request: the server may close one after an answer that it gives.
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=0)
        return httpx.Client(base_url=self.lake.url, timeout=self.answer_seconds, limits=limits)

    @cached_property
    def marks(self) -> frozenset[str]:
        """What no answer to A may hold, in lower case: B's values and ids, the server's secrets and directories."""
        b = self.b
        kinds = ("svc", "pod", "podval", "scope", "msg", "key", "val", "tier", "metric", "unit", "about", "span", "org")
        words = {b.word(what) for what in kinds} | {f"{b.name}.after."}
        words |= {word.replace(".", "_") for word in words} | {b.name[::-1], b.name.encode().hex()}
        ids = {str(b.organization.id), b.trace.hex()}
        homes = {str(one.home) for one in (self.lake, self.whole) if one}
        secret = {*self.canaries.values(), *self.keys.values(), *homes}
        return frozenset(word.lower() for word in words | ids | secret)

    @cached_property
    def facts(self) -> dict[str, str]:
        """What inputs may name: `{{b_organization}}` and the like."""
        found = {"home": str(self.lake.home), "port": self.lake.url.rpartition(":")[2]}
        for letter, tenant in (("a", self.a), ("b", self.b)):
            found |= {
                f"{letter}_organization": str(tenant.organization.id),
                f"{letter}_name": tenant.organization.name,
                f"{letter}_service": tenant.word("svc"),
                f"{letter}_metric": tenant.word("metric").replace(".", "_"),
                f"{letter}_segment": self._segment(tenant),
            }
        found |= {f"a_{role}_key": self.keys[self.a.name, role] for role in ("admin", "reader", "writer")}
        return found

    def leaks(self, sent: str, answer: str) -> list[str]:
        """Return the marks in the answer which its request did not hold itself."""
        low, said = answer.lower(), sent.lower()
        return sorted(mark for mark in self.marks if mark in low and mark not in said)

    def judge(self, place: str, sent: str, expect: Sequence[str], response: httpx.Response) -> list[Fault]:
        """Return what is wrong with an answer to A: what it holds, and its status."""
        text = answer_text(response)
        found = [Fault(place, f"the answer holds {leak!r}", text) for leak in self.leaks(sent, text)]
        if not any(_is_expected(one, response.status_code) for one in expect):
            what = f"expected {' or '.join(expect)}, got {response.status_code}"
            found.append(Fault(place, what, f"{text[:200]} <- {sent}"))
        return found

    def faults_after(self, batch: str) -> list[Fault]:
        """Check that the server lives on as before: health, B's push and query, the processes."""
        found = []
        lost = {pid: what for pid, what in self.lasting.items() if pid not in alive(self.lasting)}
        if lost:
            found.append(Fault(batch, f"processes ended: {lost}", self.lake.process.text()[-400:]))
        try:
            health = self.http.get("/healthz")
            if health.status_code != 200:
                found.append(Fault(batch, f"/healthz is {health.status_code}", health.text))
            found += self._faults_of_b(batch)
        except httpx.HTTPError as error:
            found.append(Fault(batch, f"the server does not answer: {error!r}", self.lake.process.text()[-400:]))
        return found

    def memory_bound(self, *, spark: bool = False) -> int:
        """Return the most bytes that the tree may hold, from the settings.

        Every query may have a child with `query_memory`, and every unit of the worker one; the caches fill up; pushes
        wait. The JVM's heap may grow to `spark_driver_memory`, and queries in Spark have a second JVM with its workers.
        """
        children = (QUERY_CONCURRENCY + int(SETTINGS["WORKER_UNITS"])) * QUERY_MEMORY_MIB * MIB
        caches = sum(int(SETTINGS[name]) for name in ("METRICS_CACHE_BYTES", "RESULT_CACHE_BYTES"))
        caches += int(SETTINGS["METRICS_MAX_SAMPLES"]) * 16 * QUERY_CONCURRENCY
        jvms = 1536 * MIB * (2 if spark else 1)
        return self.idle_bytes + children + caches + int(SETTINGS["PUSH_MAX_WAITING_BYTES"]) + jvms + 512 * MIB

    def push_as_b(self) -> str:
        """Push one new line as B and remember it; return what went wrong, or nothing."""
        line = f"{self.b.name}.after.{len(self.pushed)}"
        data = request_of(line, service=self.b.word("svc"), time_ns=time.time_ns())
        headers = self.headers(self.b, "writer") | {"content-type": "application/x-protobuf"}
        push = self.http.post(f"{(self.whole or self.lake).url}/v1/logs", content=data, headers=headers)
        if push.status_code != 200:
            return f"push: {push.status_code} {push.text[:200]}"
        self.pushed.append(line)
        return ""

    def _faults_of_b(self, batch: str) -> list[Fault]:
        failed = self.push_as_b()
        if failed:
            return [Fault(batch, f"B's {failed}")]
        answer = self._ask_patiently("SELECT count(*) AS n FROM logs WHERE starts_with(message, 'never')")
        if answer.status_code != 200 or answer.json()["rows"] != [{"n": 0}]:
            return [Fault(batch, f"B's query is {answer.status_code}", answer.text)]
        word = self.b.word("msg")
        known = self._ask_patiently(f"SELECT count(*) AS n FROM logs WHERE contains(message, '{word}')")
        if known.status_code != 200 or known.json()["rows"] != [{"n": self.b.rows}]:
            return [Fault(batch, f"B's rows are not what they were: {known.status_code}", known.text)]
        return []

    def _ask_patiently(self, sql: str) -> httpx.Response:
        """Ask as B, again while the machine is too busy for the limit on seconds, which is short for A's sake."""
        answer, deadline = self.ask(self.b, sql), time.monotonic() + ANSWER_SECONDS
        while "limit query_seconds" in answer.text and time.monotonic() < deadline:
            answer = self.ask(self.b, sql)
        return answer

    def ask(self, tenant: Tenant, sql: str, **more: Any) -> httpx.Response:
        return self.http.post("/api/v1/sql", json={"query": sql, **more}, headers=self.headers(tenant))

    def all_of_b_is_there(self, seconds: float = 120) -> None:
        """Wait until each line that B pushed and had acknowledged is in the lake, once."""
        wanted, found = sorted(self.pushed), list[str]()

        def settled() -> bool:
            answer = self.ask(self.b, f"SELECT message FROM logs WHERE starts_with(message, '{self.b.name}.after.')")
            found[:] = sorted(row["message"] for row in answer.json().get("rows", ()))
            return found == wanted

        wait_until(settled, f"{len(wanted)} lines of B", seconds, lambda: f"{len(found)} of {len(wanted)}")

    def _segment(self, tenant: Tenant) -> str:
        """A stored segment's path, for statements that try to open it."""
        store = (self.whole or self.lake).store
        found = sorted((store / "db" / str(tenant.organization.id)).rglob("*.parquet"))
        return str(found[0]) if found else f"/db/{tenant.organization.id}/none.parquet"


@contextmanager
def two_tenants(
    home: Path, more: Mapping[str, str] | None = None, answer_seconds: float = ANSWER_SECONDS
) -> Iterator[TwoTenants]:
    """Start it, create both organizations with keys of every role, push their rows and wait until they are there."""
    canaries = {name: f"canary{secrets.token_hex(8)}" for name in (*_CANARIES, _SPARK_CANARY)}
    a = Tenant(f"a{secrets.token_hex(6)}", 0xA1, 7)
    b = Tenant(f"b{secrets.token_hex(6)}", 0xB2, 11)
    with lake(home, _environment(canaries, more or {})) as running:
        with ThreadPoolExecutor(2) as pool:
            keys = dict(pair for made in pool.map(lambda one: _keys(running, one), (a, b)) for pair in made.items())
        tree = Tree(running.process.popen.pid, home)
        made = TwoTenants(running, a, b, keys, canaries, tree, answer_seconds=answer_seconds)
        _push_rows(made)
        limit_processes(tree)
        made.lasting, made.idle_bytes = tree.lasting(), tree.pss()
        yield made
        made.http.close()


@contextmanager
def beside(besieged: TwoTenants, home: Path, more: Mapping[str, str]) -> Iterator[TwoTenants]:
    """Start a query-api over the same index and store with other settings: its queries, its processes, its memory. B
    pushes to the lake itself."""
    url = EmbeddedPostgres.running(besieged.lake.home / "postgres")
    assert url
    environment = _environment(besieged.canaries, {"STORE": besieged.lake.store.as_uri(), **more})
    with query_api(home, environment | {"DATABASE_URL": url}) as running:
        tree = Tree(running.process.popen.pid, besieged.lake.home)
        limit_processes(tree)
        made = replace(
            besieged, lake=running, whole=besieged.lake, tree=tree, lasting=tree.lasting(), idle_bytes=tree.pss()
        )
        yield made
        made.http.close()


def _environment(canaries: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    made = {f"LAKERUNNER_{name}": value for name, value in (SETTINGS | dict(more)).items()}
    made |= {name: canaries[name] for name in _CANARIES}
    return made | {"LAKERUNNER_SPARK_CONF": f"{_SPARK_CANARY}={canaries[_SPARK_CANARY]}"}


def _keys(running: Lake, tenant: Tenant) -> dict[tuple[str, str], str]:
    organization = tenant.organization
    made = running.command("orgs", "create", organization.name, "--id", str(organization.id))
    assert made.returncode == 0, made.stderr
    key = running.command("keys", "create", "admin", "--org", organization.name, "--role", "admin")
    assert key.returncode == 0, key.stderr
    found = {(tenant.name, "admin"): key.stdout.strip()}
    for name, role in (("reader", "read"), ("writer", "write")):
        answer = httpx.post(
            f"{running.url}/api/v1/keys",
            json={"name": name, "roles": [role]},
            headers={"x-api-key": found[tenant.name, "admin"]},
        )
        assert answer.status_code == 201, answer.text
        found[tenant.name, name] = answer.json()["secret"]
    return found


def _push_rows(made: TwoTenants) -> None:
    tables = {"logs": "logs", "metrics": "metrics", "traces": "spans"}
    for tenant in (made.a, made.b):
        for signal in tables:
            headers = made.headers(tenant, "writer") | {"content-type": "application/x-protobuf"}
            answer = made.http.post(f"/v1/{signal}", content=bytes(tenant.raw(signal, 0).data), headers=headers)
            assert answer.status_code == 200, answer.text

    def queryable() -> bool:
        return all(
            made.ask(tenant, f"SELECT count(*) AS n FROM {table}").json().get("rows", [{"n": 0}])[0]["n"] > 0
            for tenant in (made.a, made.b)
            for table in tables.values()
        )

    wait_until(queryable, "the rows of both", 180, made.lake.process.text)


def limit_processes(tree: Tree) -> None:
    """Hold each process to PROCESS_MIB of addresses; a JVM reserves more than it uses."""
    for process in tree.processes():
        if process.name() != "java":
            with suppress(ProcessLookupError, PermissionError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (PROCESS_MIB * MIB, PROCESS_MIB * MIB))


def _is_expected(expect: str, status: int) -> bool:
    """Prometheus' API answers 422 for what cannot be evaluated and 503 for a timeout."""
    match expect:
        case "any":
            return status < 500 or status == 503
        case "refused":
            return 400 <= status < 500
        case "rows":
            return status == 200
        case "taken":
            return status in (200, 204)
    return str(status) == expect


def answer_text(response: httpx.Response) -> str:
    """Return all that a response says, its headers too."""
    return "\n".join((response.content.decode("utf-8", "replace"), json.dumps(dict(response.headers))))
