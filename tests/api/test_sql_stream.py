"""The SQL endpoint over a real socket, on answers that are slow, long or fail on the way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import httpx
import pyarrow as pa
import pytest

from lakerunner.api import sql as sql_module
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.sql import SqlApi
from lakerunner.model.errors import TooLarge
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.query.answer import Answer
from lakerunner.query.engine import Question

SCHEMA = pa.schema([("n", pa.int64())])


class Scripted:
    """An answer that gives batches, waits or fails as its script says."""

    def __init__(self, script: list[int | str]) -> None:
        self.script = script
        self.closed = threading.Event()

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for step in self.script:
            if step == "fail":
                raise TooLarge("more rows than query_max_rows: add a LIMIT")
            if step == "wait":
                self.closed.wait(20)
            elif isinstance(step, int):
                yield pa.record_batch([pa.array([step])], SCHEMA)

    def close(self) -> None:
        self.closed.set()


class ScriptedEngine:
    """Gives the answer that the query's text names."""

    def __init__(self, answers: dict[str, Scripted]) -> None:
        self.answers = answers

    def sql(self, organization: UUID, question: Question) -> Answer:
        return self.answers[question.text]


@pytest.fixture
def answers() -> dict[str, Scripted]:
    return {}


@pytest.fixture
def url(answers: dict[str, Scripted]) -> Iterator[str]:
    authenticator = Authenticator({}.get, DEFAULT_ORGANIZATION)
    limits = QueryLimits(Capacity(2, 1000.0, 2, queue_seconds=0.3), time.monotonic)
    api = SqlApi(ScriptedEngine(answers), authenticator, time.time_ns, limits)  # type: ignore[arg-type]
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
    server.start()
    yield f"{server.url}/api/v1/sql"
    server.stop()


def ask(url: str, query: str, accept: str) -> httpx.Response:
    return httpx.post(url, json={"query": query}, headers={"accept": accept}, timeout=20)


def test_rows_come_before_the_answer_is_whole(url: str, answers: dict[str, Scripted]) -> None:
    answers["slow"] = Scripted([1, "wait", 2])
    headers = {"accept": "application/x-ndjson"}
    with httpx.stream("POST", url, json={"query": "slow"}, headers=headers, timeout=20) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines)) == {"n": 1}
        answers["slow"].closed.set()
        assert json.loads(next(lines)) == {"n": 2}


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/event-stream"])
def test_a_client_that_leaves_stops_the_query(url: str, answers: dict[str, Scripted], accept: str) -> None:
    answers["endless"] = Scripted(["wait"])
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.stream(
            "POST", url, json={"query": "endless"}, headers={"accept": accept}, timeout=httpx.Timeout(0.5)
        ) as response,
    ):
        for _ in response.iter_lines():
            pass
    assert answers["endless"].closed.wait(2)


def test_a_failure_on_the_way_is_never_taken_for_the_end(url: str, answers: dict[str, Scripted]) -> None:
    answers["events"] = Scripted([1, "fail"])
    events = [json.loads(line[6:]) for line in ask(url, "events", "text/event-stream").text.split("\n\n") if line]
    assert [event["type"] for event in events] == ["schema", "result", "error"]
    assert events[-1]["error"]["message"] == "more rows than query_max_rows: add a LIMIT"
    answers["lines"] = Scripted([1, "fail"])
    lines = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream(
            "POST", url, json={"query": "lines"}, headers={"accept": "application/x-ndjson"}, timeout=20
        ) as response,
    ):
        lines.extend(json.loads(line) for line in response.iter_lines())
    answers["json"] = Scripted([1, "fail"])
    whole = ask(url, "json", "application/json")
    assert whole.status_code == 413
    assert whole.json()["error"]["kind"] == "TooLarge"


def test_a_query_that_fails_at_once_has_its_status(url: str, answers: dict[str, Scripted]) -> None:
    answers["lines"] = Scripted(["fail"])
    assert ask(url, "lines", "application/x-ndjson").status_code == 413


def test_a_silent_query_sends_heartbeats(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_module, "HEARTBEAT_SECONDS", 0.1)
    answers["slow"] = Scripted(["wait", 5])
    threading.Timer(0.5, answers["slow"].closed.set).start()
    events = [json.loads(line[6:]) for line in ask(url, "slow", "text/event-stream").text.split("\n\n") if line]
    kinds = [event["type"] for event in events]
    assert kinds.count("heartbeat") >= 2
    assert [kind for kind in kinds if kind != "heartbeat"] == ["schema", "result", "done"]


def test_a_json_answer_past_its_bound_is_refused(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_module, "JSON_MAX_BYTES", 16)
    answers.update({"fits": Scripted([1, 2]), "over": Scripted([1, 2, 3])})
    assert ask(url, "fits", "application/json").status_code == 200
    over = ask(url, "over", "application/json")
    assert over.status_code == 413
    assert "16 bytes" in over.json()["error"]["message"]
    assert answers["over"].closed.is_set()
