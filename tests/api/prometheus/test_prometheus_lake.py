"""Prometheus' API and the native API's metrics over real segments: OTLP and remote-write under Prometheus' names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from api.prometheus.test_prometheus_samples import federated, named, read, request_of, results
from lakerunner.api.formats.series_text import warm
from lakerunner.model.organization import Organization
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.query.workers import OneWorker
from pipeline.remote_write_oracle import framed, message_type, raw_of
from query.sample_lake import HOUR, OTHER, OWN, START, Lake
from suites.metrics_lake import metrics_server
from suites.queries import metric_queries
from suites.scripted import events_of

NOW = START + HOUR
SECONDS = START // 1_000_000_000
KEYS = {"own": Organization(OWN, "own"), "other": Organization(OTHER, "other")}
DAY = {"s": "2023-12-31T00:00:00Z", "e": "2024-01-02T00:00:00Z"}
REQUESTS = "http_requests_total"
INSTANCE = {"instance": "cart-1", "job": "shop/cart"}


class Served:
    def __init__(self, directory: Path) -> None:
        self.lake = Lake(directory)
        self.engine = metric_queries(self.lake, OneWorker(self.lake.worker()))
        self.url = ""

    def add(self, raw: Raw, organization: UUID = OWN) -> None:
        put = self.lake.store.put
        made = make_segments(METRICS, organization, "edge", [raw], lambda path, file: put(path, bytes(file)))
        self.lake.all += made.segments

    def prometheus(self, path: str, key: str = "own", **given: Any) -> Any:
        parameters = {name.replace("match", "match[]"): value for name, value in given.items()}
        response = httpx.get(
            f"{self.url}/prometheus/api/v1/{path}", params=parameters, headers={"x-api-key": key}, timeout=120
        )
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def native(self, path: str, body: Any, key: str = "own") -> httpx.Response:
        return httpx.post(f"{self.url}/api/v1/metrics/{path}", json=body, headers={"x-api-key": key}, timeout=120)


def requests(prefix: str = "") -> Raw:
    found = ExportMetricsServiceRequest()
    resource = found.resource_metrics.add()
    for name, value in (("service.name", "cart"), ("service.namespace", "shop"), ("service.instance.id", "cart-1")):
        resource.resource.attributes.add(key=name).value.string_value = value
    scope = resource.scope_metrics.add()
    counter = scope.metrics.add(name=f"{prefix}http.requests", unit="1", description="Served.")
    counter.sum.aggregation_temporality, counter.sum.is_monotonic = 2, True
    for route, rate in (("/a", 2), ("/b", 10)):
        for n in range(5):
            point = counter.sum.data_points.add(time_unix_nano=START + n * 60_000_000_000, as_int=n * rate)
            point.start_time_unix_nano = START
            point.attributes.add(key="http.route").value.string_value = route
    sized = scope.metrics.add(name="sizes", unit="By").histogram
    sized.aggregation_temporality = 2
    sized.data_points.add(time_unix_nano=START, count=3, sum=4.5, explicit_bounds=[1.0], bucket_counts=[2, 1])
    data = found.SerializeToString()
    source = SourceObject("bucket", f"{prefix}metrics.binpb", "etag", len(data), START)
    return Raw(source, memoryview(data))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    warm()
    made = Served(tmp_path_factory.mktemp("metrics"))
    made.add(requests())
    made.add(requests("secret."), OTHER)
    with metrics_server(made.engine, NOW, keys=KEYS) as made.url:
        yield made


def test_a_range_over_segments(served: Served) -> None:
    asked: dict[str, Any] = {"start": SECONDS + 120, "end": SECONDS + 240, "step": 60}
    answer = served.prometheus("query_range", query=f"sum by (http_route) ({REQUESTS})", **asked)
    assert answer["result"] == [
        {"metric": {"http_route": route}, "values": [[SECONDS + 60 * n, str(n * rate)] for n in (2, 3, 4)]}
        for route, rate in (("/a", 2), ("/b", 10))
    ]


def test_an_instant_has_job_and_instance(served: Served) -> None:
    (row,) = served.prometheus("query", query=f"{REQUESTS}{{http_route='/a'}}", time=SECONDS + 240)["result"]
    assert row["metric"].items() >= {"__name__": REQUESTS, "http_route": "/a", **INSTANCE}.items()
    assert row["value"] == [SECONDS + 240, "8"]


def test_lists_over_segments(served: Served) -> None:
    within: dict[str, Any] = {"start": SECONDS, "end": SECONDS + 300}
    names = served.prometheus("label/__name__/values", **within)
    assert {REQUESTS, "sizes_bytes_bucket", "sizes_bytes_count", "sizes_bytes_sum"} <= set(names)
    assert served.prometheus("label/http_route/values", match=REQUESTS, **within) == ["/a", "/b"]
    labels = served.prometheus("labels", match=REQUESTS, **within)
    assert {"__name__", "http_route", "instance", "job"} <= set(labels)
    series = served.prometheus("series", match=REQUESTS, **within)
    assert [labels["http_route"] for labels in series] == ["/a", "/b"]
    metadata = served.prometheus("metadata", metric=REQUESTS)
    assert [(one["type"], one["help"]) for one in metadata[REQUESTS]] == [("counter", "Served.")]


def test_what_the_native_api_lists_can_be_asked(served: Served) -> None:
    listed = served.native("metadata", DAY).json()
    assert {one["name"]: one["type"] for one in listed["metrics"]}.items() >= {
        REQUESTS: "counter",
        "sizes_bytes": "histogram",
    }.items()
    tags = served.native("tags", DAY | {"metric": REQUESTS}).json()
    assert tags["metric"] == {"name": REQUESTS, "type": "counter"}
    assert {"http_route", "instance", "job"} <= set(tags["tags"])
    *values, done = events_of(served.native("tagvalues?tagName=job", DAY | {"q": REQUESTS}))
    assert ([one["data"]["value"] for one in values], done["data"]["status"]) == (["shop/cart"], "ok")


def test_the_native_query_over_segments(served: Served) -> None:
    minute = {"s": SECONDS + 180, "e": SECONDS + 240, "step": 60}
    *points, done = events_of(served.native("query", {"q": f"sum({REQUESTS})", **minute}))
    found = [one["data"] for one in points if one["type"] == "result"]
    assert [(one["timestamp"], one["value"]) for one in found] == [(1000 * (SECONDS + 60 * n), 12 * n) for n in (3, 4)]
    assert (done["type"], done["data"]["complete"]) == ("done", True)
    assert done["data"]["stats"]["read"] > 0


def test_explain_shows_the_plan_and_what_running_it_took(served: Served) -> None:
    body = DAY | {"q": f"sum(rate({REQUESTS}[5m]))", "step": "15m"}
    plan = [line.strip() for line in served.native("explain", body).json()["plan"]]
    assert "evaluate <given 0>" in plan
    assert f"partials of sum(rate({REQUESTS}[5m]))" in plan
    assert "cut by series" in plan
    assert "segments 1 considered, 1 to read" in plan
    assert "measured" not in plan
    measured = [line.strip() for line in served.native("explain", body | {"analyze": True}).json()["plan"]]
    assert measured[: len(plan)] == plan
    assert "segments 1 considered, 1 read" in measured
    wrong = served.native("explain", body | {"q": "sum("})
    assert (wrong.status_code, wrong.json()["error"]["position"]) == (400, {"line": 1, "column": 5})


def test_another_organizations_metrics_are_never_told(served: Served) -> None:
    for key, theirs in (("own", False), ("other", True)):
        names = served.prometheus("label/__name__/values", key=key)
        assert any("secret" in name for name in names) == theirs
        assert (REQUESTS in names) != theirs
    found = served.prometheus("query", query='{__name__=~".*secret.*"}', time=SECONDS + 240)
    assert found["result"] == []


def test_stored_samples_of_segments_are_read_and_federated(served: Served) -> None:
    body = request_of(
        *(named(name, START // 1_000_000, NOW // 1_000_000) for name in (REQUESTS, "secret_x", "sizes_bytes"))
    )
    requests, secret, sizes = results(read(f"{served.url}/prometheus", body, **{"x-api-key": "own"}))
    assert [(labels["http_route"], points) for labels, points, _ in requests] == [
        (route, [(1000 * (SECONDS + 60 * n), float(n * rate)) for n in range(5)])
        for route, rate in (("/a", 2), ("/b", 10))
    ]
    assert secret == []
    ((_, _, native),) = sizes
    assert [(one.schema, one.count_float, list(one.custom_values)) for one in native.histograms] == [(-53, 3.0, [1.0])]
    head = served.prometheus("status/tsdb", limit=2)
    series = served.prometheus("series", match='{__name__=~".+"}')
    assert head["headStats"]["numSeries"] == len(series)
    assert {"name": REQUESTS, "value": 2} in head["seriesCountByMetricName"]
    assert head["headStats"]["chunkCount"] > 0
    with metrics_server(served.engine, START + 250_000_000_000, keys=KEYS) as url:
        found = federated(f"{url}/prometheus", REQUESTS, **{"x-api-key": "own"})
    assert found.text.splitlines() == [
        f"# TYPE {REQUESTS} untyped",
        *(
            f'{REQUESTS}{{http_route="{route}",instance="cart-1",job="shop/cart"}} {value} {1000 * (SECONDS + 240)}'
            for route, value in (("/a", 8), ("/b", 40))
        ),
    ]


def test_metadata_that_remote_write_sent_apart_is_told_of_the_metric(tmp_path: Path) -> None:
    served = Served(tmp_path)
    ms = START // 1_000_000
    series = [
        {"labels": [{"name": "__name__", "value": name}], "samples": [{"timestamp": ms, "value": 1}]}
        for name in ("requests_total", "untold")
    ]
    metadata = [{"metric_family_name": "requests_total", "type": 1, "help": "Served.", "unit": "1"}]
    message = message_type("prw1")(timeseries=series, metadata=metadata).SerializeToString()
    served.add(raw_of(framed(message), "prw1", modified_ns=START))
    with metrics_server(served.engine, NOW, keys=KEYS) as served.url:
        assert served.native("metadata", DAY).json()["metrics"] == [
            {"name": "requests_total", "type": "counter", "unit": "1", "description": "Served."},
            {"name": "untold", "type": "unknown", "unit": "", "description": ""},
        ]
