"""Streams and lists of the native API while their queries are slow: heartbeats, clients that leave, no free slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import httpx
import pyarrow as pa
import pytest

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.native import native_api as native
from lakerunner.api.native.native_api import NativeApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import SegmentPick
from lakerunner.model.time import TimeRange
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.sql import Question
from servers.lake import wait_until
from suites.leaving import leaving

LIMITS = Capacity(concurrent=1, org_concurrent=1, org_queries_per_second=1000.0, queue_seconds=2.0)
SCHEMA = pa.schema([("value", pa.string())])
VALUES = "logs/tagvalues?tagName=service_name"


class Waiting:
    """An answer that gives one value, once it is let go or closed."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.closed = threading.Event()
        self.account = Account()

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.begun.set()
        self.go.wait(240)
        yield pa.record_batch([pa.array(["cart"])], SCHEMA)

    def close(self) -> None:
        self.closed.set()
        self.go.set()


class WaitingEngine:
    """Every query waits; nothing is in the index."""

    def __init__(self) -> None:
        self.answers: list[Waiting] = []

    def sql(self, _organization: UUID, _question: Question) -> Answer:
        self.answers.append(Waiting())
        return self.answers[-1]

    def pick(self, organization: UUID, signal: str, time: TimeRange, *, frequency_ms: int = 0) -> SegmentPick:
        return SegmentPick((), 0)


@pytest.fixture
def engine() -> WaitingEngine:
    return WaitingEngine()


@pytest.fixture
def url(engine: WaitingEngine) -> Iterator[str]:
    who = Authenticator(lambda _secret: None, DEFAULT_ORGANIZATION)
    service = QueryService(who, QueryLimits(LIMITS, time.monotonic), time.time_ns)
    api = NativeApi(engine, engine, service)  # type: ignore[arg-type]
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
    server.start()
    yield f"{server.url}/api/v1"
    server.stop()


def until(met: Callable[[], bool]) -> None:
    wait_until(met, "what was waited for", 60)


def test_a_silent_stream_sends_heartbeats(url: str, engine: WaitingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "HEARTBEAT_SECONDS", 0.05)
    lines = []
    with httpx.stream("POST", f"{url}/{VALUES}", json={}, timeout=60) as response:
        for line in response.iter_lines():
            lines.append(line)
            if lines.count('data: {"type":"heartbeat"}') == 3:
                engine.answers[0].go.set()
    told = [line for line in lines if line and "heartbeat" not in line]
    assert told == ['data: {"type":"result","data":{"value":"cart"}}', 'data: {"type":"done","data":{"status":"ok"}}']
    assert engine.answers[0].closed.is_set()


@pytest.mark.parametrize("path", [VALUES, "spans/tags"])
def test_a_client_that_leaves_stops_the_query_and_its_slot_comes_back(
    url: str, engine: WaitingEngine, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"q": '{service_name="cart"}'}
    for _ in range(2):  # one slot: the second could not begin if the first still had it
        before = len(engine.answers)
        with leaving(f"{url}/{path}", body):
            until(lambda: len(engine.answers) > before)  # noqa: B023 it is called here
            asked = engine.answers[before]
            assert asked.begun.wait(60)
        assert asked.closed.wait(60)
    until(lambda: all(answer.closed.is_set() for answer in engine.answers))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_one_more_than_may_run_is_turned_away(url: str, engine: WaitingEngine) -> None:
    first = threading.Thread(target=httpx.post, args=(f"{url}/{VALUES}",), kwargs={"json": {}, "timeout": 240})
    first.start()
    until(lambda: bool(engine.answers))
    for path in (VALUES, "logs/tags"):
        refused = httpx.post(f"{url}/{path}", json={}, timeout=60)
        assert refused.status_code == 429
        assert "none of them ended within 2 s" in refused.json()["error"]["message"]
    engine.answers[0].go.set()
    first.join(60)
    assert len(engine.answers) == 1
