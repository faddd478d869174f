"""Limits of one organization, over real sockets: it hears of them by name, and the others do not feel them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from lakerunner.api import limits as limits_module
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.model.errors import Busy, Unavailable, UserError
from lakerunner.model.organization import Caller, Organization, Role, Share
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.sql import Question
from servers.lake import wait_until
from suites.leaving import leaving

READ = frozenset({Role.READ})
ACME, OTHER = Organization(UUID(int=7), "acme"), Organization(UUID(int=8), "other")
CALLERS = {
    "lrk_acme": Caller(ACME, "a", READ),
    "lrk_acme_too": Caller(ACME, "b", READ),
    "lrk_other": Caller(OTHER, "o", READ),
    "lrk_small": Caller(Organization(UUID(int=9), "small"), "s", READ, Share(0.5, 1)),
}
SCHEMA = pa.schema([("n", pa.int64())])


class Gated:
    """An engine whose query `wait` goes on when the gate opens; any other answers one row at once."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = 0
        self.running = 0

    def sql(self, organization: UUID, question: Question) -> Answer:
        self.asked += 1
        return _Row(self, question.text == "wait")


class _Row:
    schema = SCHEMA
    account = Account()

    def __init__(self, engine: Gated, waits: bool) -> None:
        self.engine, self.waits = engine, waits

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.waits:
            self.engine.running += 1
            assert self.engine.gate.wait(240)
        yield pa.record_batch([pa.array([1])], SCHEMA)

    def close(self) -> None:
        pass


class Service:
    """A served SQL endpoint; `now` is the clock of its rates."""

    def __init__(self, capacity: Capacity) -> None:
        self.now = 0.0
        self.engine = Gated()
        limits = QueryLimits(capacity, lambda: self.now)
        service = QueryService(Authenticator(CALLERS.get, None), limits, time.time_ns)
        api = SqlApi(self.engine, service)  # type: ignore[arg-type]
        self.server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
        self.threads = ThreadPoolExecutor(16)

    def ask(self, key: str, query: str = "go") -> httpx.Response:
        headers = {"api-key": f"lrk_{key}"}
        return httpx.post(f"{self.server.url}/api/v1/sql", json={"query": query}, headers=headers, timeout=240)

    def start(self, key: str, count: int) -> list[Future[httpx.Response]]:
        """So many queries that wait, all of them running when this returns."""
        wanted = self.engine.running + count
        asked = [self.threads.submit(self.ask, key, "wait") for _ in range(count)]
        wait_until(lambda: self.engine.running == wanted, f"{wanted} queries running", 60)
        return asked


@contextmanager
def serving(capacity: Capacity) -> Iterator[Service]:
    service = Service(capacity)
    service.server.start()
    try:
        yield service
    finally:
        service.engine.gate.set()
        service.threads.shutdown()
        service.server.stop()


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.headers["retry-after"], answer.json()["error"]["message"]


def test_one_query_a_second_too_many() -> None:
    with serving(Capacity(8, 2.0, 6)) as service:
        assert [service.ask("acme").status_code for _ in range(4)] == [200] * 4  # a burst of two seconds' worth
        assert refusal(service.ask("acme_too")) == (
            429,
            "1",
            "your organization may send 2 queries per second (queries_per_second): wait 0.5 s",
        )
        assert service.ask("other").status_code == 200
        service.now += 0.5
        assert service.ask("acme_too").status_code == 200
        assert service.ask("acme").status_code == 429
        service.now += 3600
        assert [service.ask("acme").status_code for _ in range(5)] == [200] * 4 + [429]


def test_an_organization_with_limits_of_its_own() -> None:
    with serving(Capacity(8, 100.0, 6, queue_seconds=0.3)) as service:
        running = service.start("small", 1)
        status, wait, message = refusal(service.ask("small"))
        assert (status, wait) == (429, "2")
        assert message == "your organization may send 0.5 queries per second (queries_per_second): wait 2.0 s"
        service.now += 2
        status, wait, message = refusal(service.ask("small"))
        assert (status, wait) == (429, "2")
        assert message.startswith("your organization may run 1 query at once (concurrent_queries), and none of them")
        assert service.ask("acme").status_code == 200
        service.engine.gate.set()
        assert running[0].result(20).status_code == 200
        service.now += 2
        assert service.ask("small").status_code == 200


def test_one_organization_at_its_limit_holds_up_no_other() -> None:
    with serving(Capacity(4, 1000.0, 3, queue_seconds=20.0)) as service:
        running = service.start("acme", 3)
        waiting = [service.threads.submit(service.ask, "acme_too") for _ in range(6)]
        assert [service.ask("other").status_code for _ in range(10)] == [200] * 10
        assert not any(answer.done() for answer in waiting)
        service.engine.gate.set()
        assert [answer.result(20).status_code for answer in running + waiting] == [200] * 9


def test_when_all_slots_are_taken_the_service_is_full_and_slots_come_back() -> None:
    with serving(Capacity(2, 1000.0, 2, queue_seconds=0.3)) as service:
        running = service.start("acme", 2)
        assert refusal(service.ask("other")) == (
            503,
            "2",
            "the query could not start within 0.3 s: 2 queries are running (query_concurrency)",
        )
        service.engine.gate.set()
        assert [answer.result(20).status_code for answer in running] == [200, 200]
        assert [service.ask(key).status_code for key in ("acme", "other") * 3] == [200] * 6


def test_a_client_that_leaves_while_it_waits_takes_no_slot() -> None:
    def waiting() -> float | None:
        return REGISTRY.get_sample_value("lakerunner_query_waiting")

    with serving(Capacity(2, 1000.0, 1, queue_seconds=600.0)) as service:
        running = service.start("acme", 1)
        with leaving(f"{service.server.url}/api/v1/sql", {"query": "go"}, {"api-key": "lrk_acme"}):
            wait_until(lambda: waiting() == 1, "one waiting", 60)
        wait_until(lambda: waiting() == 0, "nobody waiting", 60)
        service.engine.gate.set()
        assert running[0].result(20).status_code == 200
        assert service.engine.asked == 1
        assert [service.ask("acme").status_code for _ in range(3)] == [200] * 3


def test_one_more_than_may_wait_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "WAITING_MAX", 2)

    async def check() -> None:
        limits = QueryLimits(Capacity(4, 1000.0, 1, queue_seconds=60.0), lambda: 0.0)
        caller = CALLERS["lrk_acme"]
        held = await limits.slot(caller)
        waiting = [asyncio.create_task(limits.slot(caller)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match=r"may run 1 query at once \(concurrent_queries\), and 2 are waiting"):
            await limits.slot(caller)
        with await limits.slot(CALLERS["lrk_other"]):
            pass
        for task in waiting:
            held.release()
            held.release()
            held = await asyncio.wait_for(task, 10)
        held.release()
        with await limits.slot(caller):
            pass

    asyncio.run(check())


@given(
    st.lists(st.tuples(st.sampled_from(sorted(CALLERS)), st.sampled_from(["ask", "end", "leave"])), max_size=60),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_whatever_comes_nobody_runs_more_than_they_may_and_nothing_leaks(
    steps: list[tuple[str, str]], concurrent: int, of_one: int
) -> None:
    async def check() -> None:
        limits = QueryLimits(Capacity(concurrent, 1e6, of_one, queue_seconds=60.0), lambda: 0.0)
        tasks: dict[str, list[asyncio.Task[limits_module.Slot]]] = {key: [] for key in CALLERS}
        for key, verb in steps:
            if verb == "ask":
                tasks[key].append(asyncio.create_task(limits.slot(CALLERS[key])))
            elif tasks[key]:
                await give_back(tasks[key].pop(0))
            for _ in range(10):
                await asyncio.sleep(0)
            holding = {key: sum(has_slot(task) for task in asked) for key, asked in tasks.items()}
            assert sum(holding.values()) <= concurrent
            assert holding["lrk_acme"] + holding["lrk_acme_too"] <= of_one
            assert holding["lrk_small"] <= 1
        for asked in tasks.values():
            for task in asked:
                await give_back(task)
        others = [Caller(Organization(UUID(int=100 + n), f"o{n}"), "k", READ) for n in range(concurrent)]
        for slot in [await asyncio.wait_for(limits.slot(caller), 10) for caller in others]:
            slot.release()
        for _ in range(of_one if of_one <= concurrent else concurrent):
            await asyncio.wait_for(limits.slot(CALLERS["lrk_acme"]), 10)

    asyncio.run(check())


def has_slot(task: asyncio.Task[limits_module.Slot]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def give_back(task: asyncio.Task[limits_module.Slot]) -> None:
    """As a client that leaves does, wherever its query is."""
    task.cancel()
    await asyncio.wait([task])
    if has_slot(task):
        task.result().release()
        await asyncio.sleep(0)
    elif not task.cancelled():
        assert isinstance(task.exception(), Busy | Unavailable)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((0, 1.0, 1), "query_concurrency must be 1 or more, not 0"),
        ((1, 0.0, 1), "org_queries_per_second must be more than 0, not 0"),
        ((1, float("nan"), 1), "org_queries_per_second must be more than 0, not nan"),
        ((1, 1.0, -1), "org_concurrent_queries must be 1 or more, or 0 for the default, not -1"),
    ],
)
def test_a_capacity_for_nobody_is_refused(wrong: tuple[int, float, int], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Capacity(*wrong)


@pytest.mark.parametrize("clock", [lambda: 0.0, time.monotonic])
def test_a_slot_comes_back_from_another_thread(clock: Callable[[], float]) -> None:
    async def check() -> None:
        limits = QueryLimits(Capacity(1, 1000.0, 1, queue_seconds=10.0), clock)
        for _ in range(3):
            slot = await limits.slot(CALLERS["lrk_acme"])
            threading.Thread(target=slot.release).start()

    asyncio.run(check())
