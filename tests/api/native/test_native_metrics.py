"""The native API on metrics: PromQL as events while it is worked out, as JSON, and what there is to ask about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from lakerunner.api.formats.series_text import warm
from lakerunner.api.native import metrics_api as native_metrics
from lakerunner.api.native.metrics_request import default_step
from lakerunner.model.errors import TooLarge
from lakerunner.model.labels import NAME
from lakerunner.model.time import TimeRange
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.values import Steps, Vector
from suites.leaving import leaving
from suites.metrics_lake import ScriptedLake, ScriptedMetrics, metrics_server, sample_lake, with_groups
from suites.scripted import events_of

NOW = 1_714_564_800_000
MINUTE: dict[str, Any] = {"s": "now-1m", "e": "now", "step": "30s"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    warm()
    lake = with_groups(sample_lake(NOW), 1)
    lake.add({NAME: "latency_bucket", "job": "cart", "le": "1"}, [(NOW - 15_000, 1.0)])
    lake.types.append(("latency", "histogram", "How long.", "seconds"))
    with metrics_server(lake, NOW * 1_000_000) as base:
        yield f"{base}/api/v1/metrics"


def ask(url: str, q: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{url}/query", json={"q": q, **MINUTE, **more}, timeout=60)


def points(response: httpx.Response) -> list[tuple[str, int, Any]]:
    assert response.status_code == 200, response.text
    found = [event["data"] for event in events_of(response) if event["type"] == "result"]
    return [(data["label"], data["timestamp"], data["value"]) for data in found]


def test_a_range_comes_by_groups_of_time(url: str) -> None:
    response = ask(url, 'sum by (job) (http_requests_total{code="200"})')
    assert response.headers["content-type"].startswith("text/event-stream")
    assert points(response) == [
        (f'{{job="{job}"}}', NOW - back, (600_000 - back) / 1000 * rate)
        for back in (60_000, 30_000, 0)
        for job, rate in (("cart", 2.0), ("pay", 0.5))
    ]
    last = events_of(response)[-1]
    assert last["type"] == "done"
    assert {name: last["data"][name] for name in ("status", "step", "warnings", "infos", "complete", "missing")} == {
        "status": "ok",
        "step": 30_000,
        "warnings": [],
        "infos": [],
        "complete": True,
        "missing": [],
    }


def test_the_plugin_says_no_step_and_times_in_ms(url: str) -> None:
    body = {"s": str(NOW - 60_000), "e": str(NOW), "q": "up{job='pay'}"}
    found = points(httpx.post(f"{url}/query", json=body, timeout=60))
    assert [time for _, time, _ in found] == list(range(NOW - 60_000, NOW + 1, 1000))


@pytest.mark.parametrize(
    ("range_ms", "step_ms"),
    [(60_000, 1000), (3_600_000, 10_000), (86_400_000, 300_000), (365 * 86_400_000, 86_400_000)],
)
def test_a_step_fits_its_range(range_ms: int, step_ms: int) -> None:
    assert default_step(range_ms) == step_ms


def test_an_instant_a_text_and_what_is_no_number(url: str) -> None:
    assert points(ask(url, "up{job='pay'}", instant=True)) == [('up{instance="pay-1:80", job="pay"}', NOW, 1)]
    assert points(ask(url, "vector(NaN) or vector(1)", instant=True)) == [("{}", NOW, "NaN")]
    assert points(ask(url, "-vector(Inf)", instant=True)) == [("{}", NOW, "-Inf")]
    assert len(points(ask(url, "up{job='pay'}[1m]", instant=True))) == 4
    (text, done) = events_of(ask(url, "'x'", instant=True))
    assert (text["data"]["text"], done["type"]) == ("x", "done")


def test_json_for_those_who_take_nothing_else(url: str) -> None:
    for headers, form in (({"accept": "application/json"}, {}), ({}, {"format": "json"})):
        body = {"q": "rate(up{job='pay'}[1m])", **MINUTE, **form}
        answer = httpx.post(f"{url}/query", json=body, headers=headers, timeout=60).json()
        assert answer["resultType"] == "matrix"
        assert [value for _, value in answer["result"][0]["values"]] == ["0", "0", "0"]
        assert (answer["complete"], len(answer["infos"])) == (True, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`q` is not PromQL"),
        ({"q": "up", "summary": True}, "summary is not supported"),
        ({"q": "up", "step": "x"}, "step must be seconds, or 500ms, 15s, 5m, 1h, 1d, not 'x'"),
        ({"q": "up", "step": 0}, "not '0'"),
        ({"q": "up", "s": "now-1d", "step": 1}, "more than 11000 points"),
        ({"q": "up", "format": "csv"}, "`format` must be one of sse, json"),
        ({"q": "up", "engine": "presto"}, "unknown engine 'presto': use one of duckdb, spark"),
        ({"q": "up", "partial": 1}, "`partial` must be true or false"),
        ({"q": "up", "s": "tomorrow"}, "s 'tomorrow' is not a time"),
        ({"q": "up[1m]"}, 'invalid expression type "range vector" for range query'),
    ],
)
def test_what_is_not_understood_is_refused(url: str, body: dict[str, Any], message: str) -> None:
    response = httpx.post(f"{url}/query", json=body, timeout=30)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_an_error_in_the_query_has_its_place(url: str) -> None:
    response = ask(url, "sum(\n  up")
    assert response.status_code == 400
    assert response.json()["error"]["position"] == {"line": 2, "column": 5}


def group(second: int, value: float = 1.0) -> StepGroup:
    return StepGroup(Steps(second * 1000, second * 1000), Vector([()], np.full((1, 1), value), np.ones((1, 1), bool)))


def test_points_do_not_wait_for_what_is_still_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_metrics, "PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr(native_metrics, "HEARTBEAT_SECONDS", 0.1)
    hour = TimeRange(0, 1)
    answer = ScriptedMetrics(
        [
            group(1),
            Account(considered=4, read=1),
            "wait",
            group(2),
            Account(considered=4, read=3, missing=(Missing(1, hour, "away"),)),
        ]
    )
    with metrics_server(ScriptedLake(answers={"q": answer}), NOW * 1_000_000) as base:
        seen: list[dict[str, Any]] = []
        with httpx.stream("POST", f"{base}/api/v1/metrics/query", json={"q": "q"}, timeout=60) as response:
            for line in response.iter_lines():
                if line:
                    seen.append(json.loads(line[6:]))
                    if seen[-1]["type"] == "heartbeat" and "progress" in [event["type"] for event in seen]:
                        answer.go.set()
    kinds = [event["type"] for event in seen]
    assert [kind for kind in dict.fromkeys(kinds) if kind != "heartbeat"] == ["result", "progress", "done"]
    assert kinds.index("result") < kinds.index("progress") < len(kinds) - 1 - kinds[::-1].index("heartbeat")
    assert seen[kinds.index("progress")]["data"] == {"segments_done": 1, "segments_total": 4}
    assert kinds.count("done") == 1
    assert seen[-1]["data"]["complete"] is False
    assert seen[-1]["data"]["missing"][0]["reason"] == "away"


def test_a_failure_on_the_way_is_the_last_event() -> None:
    answers = {
        "late": ScriptedMetrics([group(1), TooLarge("more than metrics_max_samples")]),
        "bug": ScriptedMetrics([RuntimeError("the secret of the bug")]),
    }
    with metrics_server(ScriptedLake(answers=dict(answers)), NOW * 1_000_000) as base:
        late = events_of(httpx.post(f"{base}/api/v1/metrics/query", json={"q": "late"}))
        assert [event["type"] for event in late] == ["result", "error"]
        assert late[-1]["data"] == {"code": "TooLarge", "message": "more than metrics_max_samples"}
        bug = httpx.post(f"{base}/api/v1/metrics/query", json={"q": "bug"})
        assert events_of(bug)[-1]["data"]["code"] == "InternalError"
        assert "secret" not in bug.text
        whole = httpx.post(f"{base}/api/v1/metrics/query", json={"q": "late", "format": "json"})
        assert (whole.status_code, whole.json()["error"]["kind"]) == (413, "TooLarge")


def test_a_client_that_leaves_ends_its_query() -> None:
    answers = {name: ScriptedMetrics(["wait"]) for name in ("sse", "json")}
    with metrics_server(ScriptedLake(answers=dict(answers)), NOW * 1_000_000) as base:
        for name, answer in answers.items():
            with leaving(f"{base}/api/v1/metrics/query", {"q": name, "format": name}):
                assert answer.waits.wait(60)
            assert answer.closed.wait(60)


def test_partial_answers_are_the_default_of_events() -> None:
    lake = ScriptedLake(answers={"q": ScriptedMetrics([])})
    with metrics_server(lake, NOW * 1_000_000) as base:
        for more in ({}, {"partial": False}, {"format": "json"}, {"format": "json", "partial": True}):
            httpx.post(f"{base}/api/v1/metrics/query", json={"q": "q", **more}, timeout=60)
    assert [question.partial for question in lake.asked] == [True, False, False, True]


def test_tags_are_labels(url: str) -> None:
    def tags(**body: Any) -> Any:
        response = httpx.post(f"{url}/tags", json=body, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    assert tags() == {"tags": ["__name__", "code", "instance", "job", "k8s.pod", "le"], "truncated": False}
    assert tags(q='sum by (x) (rate(http_requests_total{job="cart"}[5m]))')["tags"] == [
        "__name__",
        "code",
        "instance",
        "job",
    ]
    assert tags(metric="up") == {
        "metric": {"name": "up", "type": "gauge"},
        "tags": ["__name__", "instance", "job"],
        "truncated": False,
    }
    missing = httpx.post(f"{url}/tags", json={"metric": "no'such"}, timeout=60)
    assert missing.status_code == 404


def test_values_of_a_tag_are_events(url: str) -> None:
    def values(name: str, **body: Any) -> list[str]:
        events = events_of(httpx.post(f"{url}/tagvalues", params={"tagName": name}, json=body, timeout=60))
        assert events[-1] == {"type": "done", "data": {"status": "ok"}}
        return [event["data"]["value"] for event in events[:-1]]

    assert values("job") == ["cart", "pay"]
    assert values("job", q="up{instance=~'p.*'}") == ["pay"]
    assert values("job", s="now-2h", e="now-1h") == []
    assert values("k8s.pod") == ["a"]
    assert "tagName is missing" in httpx.post(f"{url}/tagvalues", json={}).text


def test_metrics_have_prometheus_names_and_types(url: str) -> None:
    def metrics(**body: Any) -> Any:
        return httpx.post(f"{url}/metadata", json=body, timeout=60).json()

    assert metrics() == {
        "metrics": [
            {"name": "http.size", "type": "unknown", "unit": "", "description": ""},
            {"name": "http_requests_total", "type": "counter", "unit": "", "description": "Requests."},
            {"name": "latency", "type": "histogram", "unit": "seconds", "description": "How long."},
            {"name": "up", "type": "gauge", "unit": "", "description": "Whether it lives."},
        ],
        "truncated": False,
    }
    assert [one["name"] for one in metrics(q='{code="500"}')["metrics"]] == ["http_requests_total"]
    assert metrics(s="now-2h", e="now-1h")["metrics"] == []
