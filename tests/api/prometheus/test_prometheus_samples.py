"""Samples as they are stored over HTTP: /federate in text, remote read decoded by protobuf itself; the status of the
head, and what says that nothing is scraped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from lakerunner.api.formats.remote_read import read_response
from lakerunner.api.prometheus.prometheus_api import MetricsLimits
from lakerunner.model.errors import TooLarge
from lakerunner.model.labels import NAME
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.contract.account import Account
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint
from lakerunner.series.values import Samples
from pipeline.remote_write_oracle import message_type
from suites.metrics_lake import MemoryLake, metrics_server
from suites.pushed import OTHER

NOW = 1_714_564_800_000
T = NOW - 30_000
PLAIN = {"accept": "text/plain"}
UTF8 = {"accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8,text/plain;q=0.3"}
NATIVE = Histogram(
    2,
    6.5,
    4.5,
    1e-128,
    1.0,
    BucketCounts(np.array([-3, -2, 4], np.int32), np.array([1.0, 2.0, 0.5])),
    BucketCounts(np.array([7], np.int32), np.array([2.0])),
    reset_hint=ResetHint.NOT_RESET,
)
CUSTOM = Histogram(
    CUSTOM_BUCKETS,
    3.5,
    4.5,
    positive=BucketCounts(np.array([0, 2], np.int32), np.array([2.0, 1.5])),
    custom_values=(1, 2.5),
)


def lake_at(now: int) -> MemoryLake:
    """Samples of every kind, half a minute before now."""
    made, t = MemoryLake(), now - 30_000
    made.add({NAME: "up", "job": "a", "instance": "x:1"}, [(t - 30_000, 1.0), (t, 0.25)])
    made.add({NAME: "up", "job": 'b"\\\n'}, [(t, 1e21)])
    made.add({NAME: "http.size", "k8s.pod": "p", "instance": "i"}, [(t, 1e-7)])
    made.add({NAME: "gone", "instance": "i"}, [(t - 30_000, 1.0), (t, float(STALE))])
    made.add({NAME: "old", "instance": "i"}, [(now - 300_001, 1.0)])
    made.add({NAME: "odd", "instance": "1"}, [(t, math.inf)])
    made.add({NAME: "odd", "instance": "2"}, [(t, math.nan)])
    made.add({NAME: "native", "instance": "i"}, [(t, 2.0), (t + 1, NATIVE)])
    made.add({NAME: "custom", "instance": "i"}, [(t, CUSTOM)])
    return made


@pytest.fixture(scope="module")
def lake() -> MemoryLake:
    made = lake_at(NOW)
    made.add({NAME: "up", "job": "theirs", "instance": "t"}, [(T, 1.0)], OTHER.id)
    return made


@pytest.fixture(scope="module")
def url(lake: MemoryLake) -> Iterator[str]:
    with metrics_server(lake, NOW * 1_000_000) as found:
        yield f"{found}/prometheus"


# ---- federation


def federated(url: str, *selectors: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{url}/federate", params={"match[]": list(selectors)}, headers=headers or PLAIN)


def test_the_latest_samples_as_text(url: str) -> None:
    """Byte for byte what Prometheus 3.15 answers, asked for the same."""
    response = federated(url, '{__name__=~".+"}', "up")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    assert response.text.splitlines() == [
        "# TYPE custom histogram",
        f'custom_bucket{{instance="i",le="1"}} 2 {T}',
        f'custom_bucket{{instance="i",le="2.5"}} 2 {T}',
        f'custom_bucket{{instance="i",le="+Inf"}} 3.5 {T}',
        f'custom_sum{{instance="i"}} 4.5 {T}',
        f'custom_count{{instance="i"}} 3.5 {T}',
        "# TYPE http_size untyped",
        f'http_size{{instance="i",k8s_pod="p"}} 1e-07 {T}',
        "# TYPE odd untyped",
        f'odd{{instance="1"}} +Inf {T}',
        f'odd{{instance="2"}} NaN {T}',
        "# TYPE up untyped",
        f'up{{instance="x:1",job="a"}} 0.25 {T}',
        f'up{{job="b\\"\\\\\\n",instance=""}} 1e+21 {T}',
    ]


def test_names_that_are_not_plain_are_quoted_for_those_who_take_it(url: str) -> None:
    response = federated(url, '{"http.size"}', **UTF8)
    assert response.headers["content-type"].endswith("escaping=allow-utf-8")
    assert response.text == (f'# TYPE "http.size" untyped\n{{"http.size",instance="i","k8s.pod"="p"}} 1e-07 {T}\n')


def test_what_federation_is_not_given(url: str) -> None:
    assert (federated(url).status_code, federated(url).text) == (200, "")
    wrong = federated(url, "{")
    assert (wrong.status_code, wrong.json()["errorType"]) == (400, "bad_data")


def test_what_a_reader_must_know_is_in_a_header(lake: MemoryLake) -> None:
    away = MemoryLake(lake.series_of, account=Account(degraded="the index\nis away"))
    with metrics_server(away, NOW * 1_000_000) as url:
        warned = federated(f"{url}/prometheus", "up").headers["lakerunner-warnings"]
        assert warned == "this answer may be out of date: the index is away"


# ---- remote read


def request_of(*queries: dict[str, Any], accepted: tuple[int, ...] = (1, 0)) -> bytes:
    request = message_type("read")(accepted_response_types=accepted)
    for query in queries:
        request.queries.add(**query)
    return bytes(pa.compress(request.SerializeToString(), "snappy", asbytes=True))


def read(url: str, body: bytes, **headers: str) -> httpx.Response:
    given = {"content-type": "application/x-protobuf", "content-encoding": "snappy", **headers}
    return httpx.post(f"{url}/api/v1/read", content=body, headers=given)


def results(response: httpx.Response) -> list[Any]:
    """Each query's series: labels, (time, value) and histograms."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-protobuf"
    assert response.headers["content-encoding"] == "snappy"
    size, shift, at = 0, 0, 0
    while True:
        byte = response.content[at]
        size |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    message = pa.decompress(response.content, size, "snappy", asbytes=True)
    found = message_type("read", "Response").FromString(message)
    return [
        [
            ({one.name: one.value for one in series.labels}, [(s.timestamp, s.value) for s in series.samples], series)
            for series in result.timeseries
        ]
        for result in found.results
    ]


def named(name: str, start: int = T - 60_000, end: int = NOW) -> dict[str, Any]:
    matcher = {"type": 0, "name": NAME, "value": name}
    return {"start_timestamp_ms": start, "end_timestamp_ms": end, "matchers": [matcher]}


def test_samples_of_several_queries(url: str) -> None:
    two = {**named("up", T, T), "hints": {"step_ms": 15_000, "func": "rate", "start_ms": 1, "end_ms": 2}}
    two["matchers"] = [*two["matchers"], {"type": 3, "name": "job", "value": "b.*|x"}]
    first, second, third = results(read(url, request_of(named("up"), two, named("up", T, T - 1))))
    assert [(labels, points) for labels, points, _ in first] == [
        ({NAME: "up", "instance": "x:1", "job": "a"}, [(T - 30_000, 1.0), (T, 0.25)]),
        ({NAME: "up", "job": 'b"\\\n'}, [(T, 1e21)]),
    ]
    assert [points for _, points, _ in second] == [[(T, 0.25)]]
    assert third == []


def test_stale_markers_and_histograms_are_samples(url: str) -> None:
    (gone,), (native,), (custom,) = results(read(url, request_of(named("gone"), named("native"), named("custom"))))
    assert np.array([gone[1][1][1]]).view(np.uint64)[0] == np.array([STALE]).view(np.uint64)[0]
    assert native[1] == [(T, 2.0)]
    (found,) = native[2].histograms
    assert (found.timestamp, found.count_float, found.sum, found.schema) == (T + 1, 6.5, 4.5, 2)
    assert (found.zero_threshold, found.zero_count_float, found.reset_hint) == (1e-128, 1.0, 2)
    assert [(span.offset, span.length) for span in found.positive_spans] == [(-3, 2), (5, 1)]
    assert list(found.positive_counts) == [1.0, 2.0, 0.5]
    assert [(span.offset, span.length) for span in found.negative_spans] == [(7, 1)]
    assert list(found.negative_counts) == [2.0]
    (found,) = custom[2].histograms
    assert (found.schema, list(found.custom_values), list(found.positive_counts)) == (-53, [1, 2.5], [2.0, 1.5])
    assert [(span.offset, span.length) for span in found.positive_spans] == [(0, 1), (1, 1)]


def test_times_of_any_length() -> None:
    times = np.array([-5, 0, 127, (1 << 35) - 1, 1 << 35, NOW, (1 << 42) - 1, 1 << 42])
    for some in (times, times[4:7]):
        samples = Samples([((NAME, "a"),)], np.array([0, len(some)]), some, np.arange(len(some)) / 2)
        response = message_type("read", "Response").FromString(read_response([samples]))
        (series,) = response.results[0].timeseries
        assert [(one.timestamp, one.value) for one in series.samples] == [
            (time, place / 2) for place, time in enumerate(some.tolist())
        ]


def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.api.formats.remote_read.MAX_BYTES", 1 << 20)
    samples = Samples([()], np.array([0, 1 << 16]), np.arange(1 << 16) + NOW, np.zeros(1 << 16))
    with pytest.raises(TooLarge, match="larger than 1 MiB: request fewer series or a shorter time"):
        read_response([samples])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (request_of(named("up"), accepted=(1,)), "accepts only STREAMED_XOR_CHUNKS: also list SAMPLES"),
        (b"no snappy", "cannot read the snappy body"),
        (bytes(pa.compress(b"\x0a\x7f", "snappy", asbytes=True)), "is not a prometheus.ReadRequest"),
        (request_of({"matchers": [{"type": 9}]}), "unknown matcher type 9"),
        (request_of({"matchers": [{"type": 2, "name": "a", "value": "("}]}), "missing closing"),
        (request_of(*[named("up")] * 257), "257 queries in one request, the limit is 256"),
    ],
)
def test_wrong_requests_are_refused(url: str, body: bytes, says: str) -> None:
    response = read(url, body)
    assert response.status_code == 400
    assert says in response.json()["error"]


def test_no_other_form_is_read(url: str) -> None:
    response = read(url, b"{}", **{"content-type": "application/json"})
    assert (response.status_code, response.json()["errorType"]) == (400, "bad_data")


def test_a_key_opens_its_own_organization(lake: MemoryLake) -> None:
    keys = {"own": DEFAULT_ORGANIZATION, "other": OTHER}
    with metrics_server(lake, NOW * 1_000_000, keys=keys) as url:
        base, body = f"{url}/prometheus", request_of(named("up"))
        (theirs,) = results(read(base, body, **{"x-api-key": "other"}))
        assert [labels["job"] for labels, _, _ in theirs] == ["theirs"]
        assert federated(base, "up", **{"x-api-key": "other"}).text == (
            f'# TYPE up untyped\nup{{instance="t",job="theirs"}} 1 {T}\n'
        )
        head = httpx.get(f"{base}/api/v1/status/tsdb", headers={"x-api-key": "other"}).json()["data"]
        assert head["headStats"]["numSeries"] == 1
        assert read(base, body).status_code == 401
        assert federated(base, "up").status_code == 401


# ---- what Prometheus tells of itself


def status(url: str, path: str, **given: Any) -> Any:
    return httpx.get(f"{url}/api/v1/{path}", params=given).json()


def test_the_head_is_the_series_of_the_last_two_hours(url: str) -> None:
    found = status(url, "status/tsdb", limit=3)
    assert set(found) == {"status", "data"}
    assert found["data"] == {
        "headStats": {
            "numSeries": 9,
            "numLabelPairs": 14,
            "chunkCount": 0,
            "minTime": NOW - 7_200_000,
            "maxTime": NOW,
        },
        "seriesCountByMetricName": [
            {"name": "odd", "value": 2},
            {"name": "up", "value": 2},
            {"name": "custom", "value": 1},
        ],
        "labelValueCountByLabelName": [
            {"name": "__name__", "value": 7},
            {"name": "instance", "value": 4},
            {"name": "job", "value": 2},
        ],
        "memoryInBytesByLabelName": [
            {"name": "__name__", "value": 128},
            {"name": "instance", "value": 90},
            {"name": "job", "value": 15},
        ],
        "seriesCountByLabelValuePair": [
            {"name": "instance=i", "value": 5},
            {"name": "__name__=odd", "value": 2},
            {"name": "__name__=up", "value": 2},
        ],
    }


@pytest.mark.parametrize(
    ("limit", "says"),
    [("0", "limit must be a positive number"), ("x", "limit must be a positive number"),
     ("10001", "limit must not exceed 10000")],
)  # fmt: skip
def test_a_wrong_limit_of_the_head(url: str, limit: str, says: str) -> None:
    assert status(url, "status/tsdb", limit=limit) == {"status": "error", "errorType": "bad_data", "error": says}


def test_a_head_that_is_too_large_says_so(lake: MemoryLake) -> None:
    with metrics_server(lake, NOW * 1_000_000, most=MetricsLimits(series=4)) as url:
        found = status(f"{url}/prometheus", "status/tsdb")
        assert found["data"]["headStats"]["numSeries"] == 4
        assert found["warnings"] == ["only 4 series were counted (metrics_max_series)"]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("targets", {"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}),
        ("targets/metadata", []),
        ("scrape_pools", {"scrapePools": []}),
        ("rules", {"groups": []}),
        ("alerts", {"alerts": []}),
        ("alertmanagers", {"activeAlertmanagers": [], "droppedAlertmanagers": []}),
    ],
)
def test_what_is_not_there_says_what_to_do(url: str, path: str, data: Any) -> None:
    found = status(url, path)
    assert (found["status"], found["data"]) == ("success", data)
    (info,) = found["infos"]
    assert "does not scrape" in info if "target" in path or "scrape" in path else "does not evaluate rules" in info
