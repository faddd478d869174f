"""Prometheus' API on real evaluation over a small lake: values and shapes, errors and limits, keys, partial answers."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from lakerunner.api.formats.series_text import warm
from lakerunner.api.prometheus.prometheus_api import MetricsLimits
from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, TooLarge, TooLong, Unavailable, UserError
from lakerunner.model.labels import NAME, labels_of
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from lakerunner.model.time import TimeRange
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.options import SparkIsOff
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.values import Steps, Vector
from suites.leaving import leaving
from suites.metrics_lake import (
    MemoryLake,
    ScriptedLake,
    ScriptedMetrics,
    metrics_server,
    sample_lake,
    with_groups,
)
from suites.pushed import OTHER

NOW = 1_714_564_800_000
UP = [{"__name__": "up", "instance": f"{job}-1:80", "job": job} for job in ("cart", "pay")]


@pytest.fixture(scope="module", autouse=True)
def warmed_writer() -> None:
    warm()


@pytest.fixture(scope="module")
def lake() -> MemoryLake:
    made = sample_lake(NOW)
    made.add({NAME: "up", "job": "theirs"}, [(NOW, 1.0)], OTHER.id)
    traced = labels_of({"trace_id": "abc"})
    up = labels_of(UP[0])
    made.exemplars_of = {up: [{"labels": traced, "value": 0.25, "timestamp": NOW - 500}]}
    return made


@pytest.fixture(scope="module")
def api(lake: MemoryLake) -> Iterator[str]:
    with metrics_server(lake, NOW * 1_000_000) as url:
        yield f"{url}/prometheus/api/v1"


def data(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["status"] == "success"
    return body["data"]


def get(url: str, **parameters: Any) -> httpx.Response:
    return httpx.get(
        url, params={name.replace("match", "match[]"): one for name, one in parameters.items()}, timeout=60
    )


def test_an_instant(api: str) -> None:
    assert data(get(f"{api}/query", query="up")) == {
        "resultType": "vector",
        "result": [{"metric": labels, "value": [NOW / 1000, "1"]} for labels in UP],
    }
    before = data(get(f"{api}/query", query="http_requests_total{job='cart', code='200'}", time=NOW / 1000 - 30))
    assert [row["value"] for row in before["result"]] == [[NOW / 1000 - 30, "1140"]]
    assert data(get(f"{api}/query", query="1/3")) == {
        "resultType": "scalar",
        "result": [NOW / 1000, "0.3333333333333333"],
    }
    assert data(get(f"{api}/query", query="'a'"))["result"] == [NOW / 1000, "a"]
    window = data(get(f"{api}/query", query="up{job='pay'}[30s]"))
    assert window["resultType"] == "matrix"
    assert window["result"] == [{"metric": UP[1], "values": [[NOW / 1000 - 15, "1"], [NOW / 1000, "1"]]}]


RANGE = {"start": NOW // 1000 - 60, "end": NOW // 1000, "step": "20s"}


def test_a_range_is_the_same_whole_and_in_groups(api: str, lake: MemoryLake) -> None:
    query = {"query": "sum by (job) (rate(http_requests_total[1m]))", **RANGE}
    whole = data(get(f"{api}/query_range", **query))
    assert whole["resultType"] == "matrix"
    assert [row["metric"] for row in whole["result"]] == [{"job": "cart"}, {"job": "pay"}]
    assert [time for time, _ in whole["result"][0]["values"]] == [NOW // 1000 - back for back in (60, 40, 20, 0)]
    assert [float(value) for _, value in whole["result"][0]["values"]] == pytest.approx([2.2] * 4)
    with metrics_server(with_groups(lake, 1), NOW * 1_000_000) as url:
        assert data(get(f"{url}/prometheus/api/v1/query_range", **query)) == whole


def test_get_and_post_are_the_same(api: str) -> None:
    asked = {"query": "up", "time": "2024-05-01T12:00:00Z"}
    forms: tuple[tuple[str, dict[str, Any]], ...] = (
        ("query", asked),
        ("query_range", {"query": "up", **RANGE}),
        ("labels", {}),
        ("series", {"match[]": "up"}),
    )
    for path, form in forms:
        posted = httpx.post(f"{api}/{path}", data=form, timeout=60)
        assert data(posted) == data(httpx.get(f"{api}/{path}", params=form, timeout=60)), path
    both = httpx.post(f"{api}/query", params={"query": "1"}, data={"query": "2"})
    assert data(both)["result"][1] == "2"
    wrong = httpx.post(f"{api}/query", json={"query": "2"})
    assert (wrong.status_code, wrong.json()["errorType"]) == (400, "bad_data")


def test_lists(api: str) -> None:
    assert data(get(f"{api}/series", match=["up", '{job="pay",code="500"}'])) == [
        {"__name__": "http_requests_total", "code": "500", "instance": "pay-1:80", "job": "pay"},
        *UP,
    ]
    assert data(get(f"{api}/labels")) == ["__name__", "code", "instance", "job", "k8s.pod"]
    assert data(get(f"{api}/labels", match="up")) == ["__name__", "instance", "job"]
    assert data(get(f"{api}/label/job/values")) == ["cart", "pay"]
    assert data(get(f"{api}/label/job/values", match='up{job!="pay"}')) == ["cart"]
    assert data(get(f"{api}/label/U__k8s_2e_pod/values")) == data(get(f"{api}/label/k8s.pod/values")) == ["a"]
    assert data(get(f"{api}/label/job/values", end=NOW / 1000 - 3600)) == []
    assert data(get(f"{api}/series", match="up", start=NOW / 1000 + 1)) == []
    assert data(get(f"{api}/labels", start=2, end=1)) == []


def test_limits_cut_and_say_so(api: str, lake: MemoryLake) -> None:
    for path, given in (
        ("series", {"match": "up"}),
        ("labels", {}),
        ("label/job/values", {}),
        ("query", {"query": "up"}),
    ):
        body = get(f"{api}/{path}", limit=1, **given).json()
        rows = body["data"]["result"] if path == "query" else body["data"]
        assert (len(rows), body["warnings"]) == (1, ["results truncated due to limit"]), path
    assert "warnings" not in get(f"{api}/labels", limit=5).json()
    with metrics_server(lake, NOW * 1_000_000, most=MetricsLimits(series=3)) as url:
        body = get(f"{url}/prometheus/api/v1/labels").json()
        assert body["warnings"] == ["results truncated due to limit metrics_max_series 3"]


def test_metadata(api: str) -> None:
    up = {"up": [{"type": "gauge", "help": "Whether it lives.", "unit": ""}]}
    assert data(get(f"{api}/metadata", metric="up")) == up
    assert list(data(get(f"{api}/metadata"))) == ["http_requests_total", "up"]
    assert list(data(get(f"{api}/metadata", limit=1))) == ["http_requests_total"]
    assert data(get(f"{api}/metadata", limit=0)) == {}
    assert get(f"{api}/metadata", limit="x").json()["error"] == "limit must be a number"


def test_exemplars(api: str) -> None:
    found = data(get(f"{api}/query_exemplars", query="sum(rate(up[5m]))", start=NOW / 1000 - 60, end=NOW / 1000))
    exemplar = {"labels": {"trace_id": "abc"}, "value": "0.25", "timestamp": NOW / 1000 - 0.5}
    assert found == [{"seriesLabels": UP[0], "exemplars": [exemplar]}]
    assert data(get(f"{api}/query_exemplars", query="1")) == []


def test_queries_are_formatted_and_parsed(api: str) -> None:
    assert data(get(f"{api}/format_query", query="sum( up )by(job)")) == "sum by (job) (up)"
    tree = data(get(f"{api}/parse_query", query="up"))
    assert (tree["type"], tree["name"]) == ("vectorSelector", "up")


def test_what_it_says_of_itself(api: str) -> None:
    build = data(get(f"{api}/status/buildinfo"))
    assert build["version"] == "3.15.0"
    assert build["application"].startswith("Lakerunner")
    assert data(get(f"{api}/rules")) == {"groups": []}
    assert data(get(f"{api}/alerts")) == {"alerts": []}
    root = api.removesuffix("/api/v1")
    assert get(f"{root}/-/healthy").text == "Lakerunner is healthy.\n"
    assert get(f"{root}/-/ready").text == "Lakerunner is ready.\n"


BAD = [
    ("query", {}, 'invalid parameter "query": unknown position: parse error: no expression found in input'),
    ("query", {"query": "up{"}, 'invalid parameter "query": 1:4: parse error: unexpected end of input inside braces'),
    (
        "query",
        {"query": "up", "time": "x"},
        'invalid parameter "time": invalid time value for \'time\': cannot parse "x" ',
    ),
    ("query", {"query": "up", "timeout": "x"}, 'invalid parameter "timeout": cannot parse "x" to a valid duration'),
    ("query", {"query": "up", "limit": "-1"}, 'invalid parameter "limit": limit must be non-negative'),
    (
        "query_range",
        {**RANGE, "query": "up", "start": ""},
        'invalid parameter "start": cannot parse "" to a valid timestamp',
    ),
    (
        "query_range",
        {**RANGE, "query": "up", "end": "1"},
        'invalid parameter "end": end timestamp must not be before start time',
    ),
    (
        "query_range",
        {**RANGE, "query": "up", "step": "0"},
        'invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive ',
    ),
    (
        "query_range",
        {**RANGE, "query": "up", "step": "0.005"},
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
    ),
    ("series", {}, "no match[] parameter provided"),
    ("series", {"match[]": "{"}, 'invalid parameter "match[]": 1:2: parse error: '),
    ("labels", {"match[]": '{a=""}'}, "match[] must contain at least one non-empty matcher"),
    (
        "series",
        {"match[]": '{a=""}'},
        'invalid parameter "match[]": match[] must contain at least one non-empty matcher',
    ),
    ("query", {"query": "up", "lookback_delta": "x"}, 'error parsing lookback delta duration: cannot parse "x" to a '),
    (
        "query_range",
        {**RANGE, "query": "'x'"},
        'invalid parameter "query": invalid expression type "string" for range ',
    ),
    (
        "query_range",
        {**RANGE, "query": "up[1m]"},
        'invalid parameter "query": invalid expression type "range vector" for ',
    ),
    ("query_exemplars", {"query": "up", "start": "2", "end": "1"}, "end timestamp must not be before start timestamp"),
    ("query_exemplars", {"query": "("}, "1:2: parse error: "),
    ("format_query", {"query": "a b"}, 'invalid parameter "query": 1:3: parse error: '),
    (
        "labels",
        {"limit": "9" * 20},
        f'invalid parameter "limit": strconv.Atoi: parsing "{"9" * 20}": value out of range',
    ),
    ("labels", {"limit": "1_0"}, 'invalid parameter "limit": strconv.Atoi: parsing "1_0": invalid syntax'),
    ("metadata", {"limit": "1_0"}, "limit must be a number"),
    ("metadata", {"limit_per_metric": "9" * 20}, "limit_per_metric must be a number"),
    ("label/U__/values", {}, 'invalid label name: ""'),
]


@pytest.mark.parametrize(("path", "given", "error"), BAD)
def test_what_is_wrong_is_bad_data(api: str, path: str, given: dict[str, str], error: str) -> None:
    response = httpx.get(f"{api}/{path}", params=given)
    body = response.json()
    assert (response.status_code, body["status"], body["errorType"]) == (400, "error", "bad_data")
    assert error in body["error"]


def test_exactly_11000_points_are_allowed(api: str) -> None:
    start = NOW / 1000 - 11_000
    (series,) = data(get(f"{api}/query_range", query="1", start=start, end=NOW / 1000, step=1))["result"]
    assert len(series["values"]) == 11_001


def test_a_query_that_fails_as_it_runs_is_422(api: str) -> None:
    response = get(f"{api}/query", query="up * on () group_left up")
    assert (response.status_code, response.json()["errorType"]) == (422, "execution")


def test_notes_are_warnings_and_infos(api: str) -> None:
    told = get(f"{api}/query", query="histogram_quantile(2, up)").json()
    assert any("quantile value should be between 0 and 1" in text for text in told["warnings"])
    assert get(f"{api}/query", query="rate(up[1m])").json()["infos"] == [
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "up" (1:6)'
    ]


def test_gzip_for_those_who_take_it(api: str) -> None:
    with httpx.stream("GET", f"{api}/query", params={"query": "up"}, headers={"accept-encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        packed = b"".join(response.iter_raw())
    plain = httpx.get(f"{api}/query", params={"query": "up"}, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed) == plain.content
    refused = httpx.get(f"{api}/query", params={"query": "up"}, headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


def test_a_large_answer_comes_in_pieces(lake: MemoryLake) -> None:
    wide = MemoryLake()
    for n in range(400):
        wide.add({NAME: "wide", "n": f"{n:03}"}, [(NOW, n / 3)])
    with metrics_server(wide, NOW * 1_000_000) as url:
        asked = {"query": "wide", "start": NOW / 1000, "end": NOW / 1000 + 250, "step": 1}
        for encoding in ("identity", "gzip"):
            response = httpx.post(
                f"{url}/prometheus/api/v1/query_range", data=asked, headers={"accept-encoding": encoding}, timeout=60
            )
            assert response.headers["transfer-encoding"] == "chunked"
            result = data(response)["result"]
            assert [len(row["values"]) for row in result] == [251] * 400
            assert result[1]["values"][0] == [NOW / 1000, "0.3333333333333333"]


def test_stats_are_told(api: str) -> None:
    stats = data(get(f"{api}/query", query="up", stats="true"))["stats"]
    assert set(stats["timings"]) == {"evalTotalTime", "queryPreparationTime", "execQueueTime", "execTotalTime"}
    assert stats["lakerunner"]["reads"] == []
    assert "stats" not in data(get(f"{api}/query", query="up"))


def test_raw_points_alone_can_be_asked_for(api: str) -> None:
    assert data(get(f"{api}/query", query="up", tier="raw"))["resultType"] == "vector"
    refused = get(f"{api}/query", query="up", tier="5m")
    assert (refused.status_code, refused.json()["errorType"]) == (400, "bad_data")
    assert "tier" in refused.json()["error"]


def test_the_engine_can_be_named() -> None:
    lake = ScriptedLake(answers={"up": SparkIsOff()})
    with metrics_server(lake, NOW * 1_000_000) as url:
        for path, more in (("query", {}), ("query_range", {"start": 1, "end": 2, "step": 1})):
            off = get(f"{url}/prometheus/api/v1/{path}", query="up", engine="spark", **more)
            assert lake.asked[-1].engine == "spark"
            assert (off.status_code, off.json()["errorType"]) == (400, "bad_data")
            why = "engine=spark is not available: the setting query_spark is off"
            assert off.json()["error"] == f'invalid parameter "engine": {why}'
            get(f"{url}/prometheus/api/v1/{path}", query="up", **more)
            assert lake.asked[-1].engine == "duckdb"
            refused = get(f"{url}/prometheus/api/v1/{path}", query="up", engine="presto", **more)
            assert (refused.status_code, refused.json()["errorType"]) == (400, "bad_data")
            wrong = """invalid parameter "engine": unknown engine 'presto': use one of duckdb, spark"""
            assert refused.json()["error"] == wrong


def test_the_lookback_and_partial_answers_are_asked_for(lake: MemoryLake) -> None:
    missing = Missing(3, TimeRange(NOW * 1_000_000, NOW * 1_000_000 + 1), "the store is away")
    partial = MemoryLake(lake.series_of, account=Account(missing=(missing,), degraded="the index is away"))
    with metrics_server(partial, NOW * 1_000_000) as url:
        api = f"{url}/prometheus/api/v1"
        body = get(
            f"{api}/query", query="up", partial_response="true", lookback_delta="1m", time=NOW / 1000 + 61
        ).json()
        assert body["data"]["result"] == []
        assert body["warnings"] == [
            "this answer may be out of date: the index is away",
            "this answer is not complete: 3 segments of 2024-05-01T12:00:00.000000000Z to "
            "2024-05-01T12:00:00.000000001Z missing: the store is away",
        ]
        get(f"{api}/query", query="up")
    assert [(one.partial, one.lookback_ms) for one in partial.asked] == [(True, 60_000), (False, 300_000)]


def test_a_key_alone_says_whose_metrics(lake: MemoryLake) -> None:
    keys = {"ours": DEFAULT_ORGANIZATION, "theirs": Organization(OTHER.id, "other")}
    with metrics_server(lake, NOW * 1_000_000, keys=keys) as url:
        api = f"{url}/prometheus/api/v1"
        for headers, jobs in (
            ({"authorization": "Bearer ours", "x-scope-orgid": "other"}, ["cart", "pay"]),
            ({"x-api-key": "theirs"}, ["theirs"]),
        ):
            assert data(httpx.get(f"{api}/label/job/values", headers=headers)) == jobs
        basic = httpx.get(f"{api}/query", params={"query": "count(up)"}, auth=("grafana", "theirs"), timeout=60)
        assert data(basic)["result"][0]["value"][1] == "1"
        for headers in ({}, {"x-api-key": "wrong"}):
            refused = httpx.get(f"{api}/query", params={"query": "up"}, headers=headers)
            assert (refused.status_code, refused.json()["errorType"]) == (401, "unauthorized")


FAILURES: list[tuple[LakerunnerError, int, str]] = [
    (UserError("vector cannot contain metrics with the same labelset"), 422, "execution"),
    (TooLarge("more than metrics_max_samples 50000000"), 422, "execution"),
    (Unavailable("the store is away"), 503, "unavailable"),
    (Busy("too many"), 429, "too_many_requests"),
    (Corrupt("a segment cannot be read"), 500, "internal"),
]


def test_the_engines_own_end_of_time_is_a_timeout_too() -> None:
    late = ScriptedMetrics([TooLong("stopped after 300 s: limit query_seconds")])
    with metrics_server(ScriptedLake(answers={"q": late}), NOW * 1_000_000) as url:
        response = get(f"{url}/prometheus/api/v1/query", query="q")
        assert (response.status_code, response.json()["errorType"]) == (503, "timeout")


@pytest.mark.parametrize(("error", "status", "type_"), FAILURES)
def test_failures_have_their_status_and_type(error: LakerunnerError, status: int, type_: str) -> None:
    lake = ScriptedLake(answers={"late": ScriptedMetrics([error])}, listing=error)
    with metrics_server(lake, NOW * 1_000_000) as url:
        for path, given in (("query", {"query": "late"}), ("query_range", {"query": "late", **RANGE}), ("labels", {})):
            response = get(f"{url}/prometheus/api/v1/{path}", **given)
            assert response.status_code == status
            assert response.json() == {"status": "error", "errorType": type_, "error": str(error)}
            assert ("retry-after" in response.headers) == (status in (429, 503))


def test_a_bug_is_not_told() -> None:
    lake = ScriptedLake(answers={"q": ScriptedMetrics([RuntimeError("the secret of the bug")])})
    with metrics_server(lake, NOW * 1_000_000) as url:
        response = get(f"{url}/prometheus/api/v1/query", query="q")
        assert (response.status_code, response.json()["errorType"]) == (500, "internal")
        assert "secret" not in response.text


@pytest.mark.parametrize("timeout", ["0", "0s", "-1"])
def test_no_time_at_all_is_a_timeout(api: str, timeout: str) -> None:
    for path, times in (("query", {}), ("query_range", RANGE)):
        response = get(f"{api}/{path}", query="up", timeout=timeout, **times)
        assert (response.status_code, response.json()["errorType"]) == (503, "timeout")


def test_a_query_past_its_time_is_a_timeout_and_is_stopped() -> None:
    slow = ScriptedMetrics(["wait"])
    with metrics_server(ScriptedLake(answers={"slow": slow}), NOW * 1_000_000) as url:
        response = get(f"{url}/prometheus/api/v1/query", query="slow", timeout="50ms")
        assert (response.status_code, response.json()["errorType"]) == (503, "timeout")
        assert response.json()["error"] == "query timed out in expression evaluation: it ran for 0.05 s"
        assert slow.closed.is_set()


def test_a_client_that_leaves_ends_its_query() -> None:
    slow = ScriptedMetrics(["wait"])
    with metrics_server(ScriptedLake(answers={"slow": slow}), NOW * 1_000_000) as url:
        with leaving(f"{url}/prometheus/api/v1/query?query=slow"):
            assert slow.waits.wait(60)
        assert slow.closed.wait(60)


def test_nothing_is_sent_before_all_is_known() -> None:
    """A failure in the last group has its status."""
    group = StepGroup(Steps(0, 0), Vector([()], np.ones((1, 1)), np.ones((1, 1), bool)))
    answer = ScriptedMetrics([group, "wait", UserError("late")])
    with metrics_server(ScriptedLake(answers={"q": answer}), NOW * 1_000_000) as url:
        threading.Timer(0.1, answer.go.set).start()
        response = get(f"{url}/prometheus/api/v1/query_range", query="q", **RANGE)
        assert (response.status_code, response.json()["error"]) == (422, "late")


def test_head_has_no_body(api: str) -> None:
    response = httpx.head(f"{api}/query", params={"query": "up"})
    assert (response.status_code, response.content) == (200, b"")
