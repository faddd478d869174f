"""Queries that a stop of the server cuts off: the client learns that, as 503 or as the last event of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from lakerunner.api import server as server_module
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.native.metrics_api import NativeMetricsApi
from lakerunner.api.native.native_api import NativeApi
from lakerunner.api.prometheus.prometheus_api import PrometheusApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from suites.metrics_lake import ScriptedLake, ScriptedMetrics
from suites.scripted import Scripted, ScriptedEngine, events_of

SAID = "the server is stopping: send the request again"
SQL, PROMQL = "/api/v1/sql", "/api/v1/metrics/query"


class Waiting(ScriptedEngine):
    """Every query waits, after a row if its text says so."""

    def __init__(self) -> None:
        super().__init__({"wait": Scripted(["wait"]), "row": Scripted([1, "wait"])})

    def sql(self, organization: Any, question: Any) -> Scripted:
        return self.answers.get(question.text) or self.answers["wait"]


@contextmanager
def stopped(path: str, body: dict[str, Any] | None, waits: str, log: pytest.LogCaptureFixture) -> Iterator[Any]:
    """The future response to a request that was under way when the server stopped."""
    engine, metrics = Waiting(), ScriptedMetrics(["wait"])
    lake = ScriptedLake(answers={"wait": metrics})
    who = Authenticator(lambda _secret: None, DEFAULT_ORGANIZATION)
    service = QueryService(who, QueryLimits(Capacity(2, 1000.0, 2), time.monotonic), time.time_ns)
    apis: tuple[Any, ...] = (
        SqlApi(engine, service),  # type: ignore[arg-type]
        NativeApi(engine, engine, service),  # type: ignore[arg-type]
        NativeMetricsApi(lake, service),
        PrometheusApi(lake, service),
    )
    app = build_app(*(api.routes() for api in apis))
    server = HttpServer(app, bind("127.0.0.1", 0), lambda _: None)
    server.start()
    with ThreadPoolExecutor() as pool:
        response = pool.submit(httpx.request, "POST" if body else "GET", server.url + path, json=body, timeout=60)
        waiting = metrics if waits == "metrics" else engine.answers[waits]
        assert waiting.waits.wait(60)
        server.stop()
        yield response
    assert waiting.closed.is_set()
    assert [record.getMessage() for record in log.records if record.levelname == "ERROR"] == []


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_DRAIN_SECONDS", 0.1)


@pytest.mark.parametrize(
    ("path", "body", "waits"),
    [
        (SQL, {"query": "wait", "format": "json"}, "wait"),
        (SQL, {"query": "row", "format": "json"}, "row"),
        (SQL, {"query": "row", "format": "parquet"}, "row"),
        (SQL, {"query": "wait", "format": "ndjson"}, "wait"),
        (PROMQL, {"q": "wait", "format": "json"}, "metrics"),
        ("/api/v1/spans/tags", {"q": '{service_name="cart"}'}, "wait"),
    ],
)
def test_an_answer_that_has_not_begun_is_503(
    path: str, body: dict[str, Any], waits: str, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped(path, body, waits, caplog) as response:
        answer = response.result()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json() == {"error": {"kind": "Unavailable", "message": SAID}}


@pytest.mark.parametrize("path", ["query?query=wait", "query_range?query=wait&start=0&end=60&step=15"])
def test_prometheus_says_it_in_its_form(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with stopped(f"/prometheus/api/v1/{path}", None, "metrics", caplog) as response:
        answer = response.result()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json() == {"status": "error", "errorType": "unavailable", "error": SAID}


@pytest.mark.parametrize(
    ("path", "body", "waits", "last"),
    [
        (SQL, {"query": "wait", "format": "sse"}, "wait", {"error": {"kind": "Unavailable", "message": SAID}}),
        (SQL, {"query": "row", "format": "sse"}, "row", {"error": {"kind": "Unavailable", "message": SAID}}),
        (PROMQL, {"q": "wait"}, "metrics", {"data": {"code": "Unavailable", "message": SAID}}),
        (
            "/api/v1/spans/tagvalues?tagName=service_name",
            {"q": '{service_name="cart"}'},
            "wait",
            {"data": {"code": "Unavailable", "message": SAID}},
        ),
    ],
)
def test_events_end_with_the_error(
    path: str, body: dict[str, Any], waits: str, last: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with stopped(path, body, waits, caplog) as response:
        events = events_of(response.result())
    assert events[-1] == {"type": "error", **last}


def test_rows_that_went_out_with_200_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """No client may take them for all."""
    with (
        stopped(SQL, {"query": "row", "format": "ndjson"}, "row", caplog) as response,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        response.result()
