"""What PromQL answers about OTLP metrics of every kind, against totals worked out here from what was sent; and about
real telemetry, every metric of it, against a decoding of our own."""

from __future__ import annotations

import gzip
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.prometheus import escaped_label_name, escaped_metric_name
from servers.lake import Lake, wait_until
from suites.otlp_metrics import CUMULATIVE, DELTA, SECOND, Api, Otlp, SmallLake, counter, gauge, label

EVERY = 15
COUNT = 40
NOW = int(time.time()) // 60 * 60 - 120  # metadata is that of the last day
TIMES = [NOW - EVERY * (COUNT - 1 - number) for number in range(COUNT)]
START = TIMES[0] - EVERY
# Twenty samples, the first of which is 15 s inside of five minutes: what lies between them is spread over all of it.
SPREAD = 300 / 285
TRACE, SPAN = bytes(range(16)), bytes(range(8))
BOUNDS = [0.1, 0.5, 2.0]
CART = {"job": "shop/cart", "instance": "i1"}


def observed(number: int) -> list[int]:
    """New observations in each bucket before this point; zero, and a negative number of none."""
    return [number % 3, 2, (number * 7) % 5, 1]


def fill(made: Otlp) -> None:
    for instance in ("i1", "i2"):
        scope = made.resource(
            service_name="cart", service_namespace="shop", service_instance_id=instance, host_name=f"host-{instance}"
        )
        running = _orders()
        orders = counter(scope, "orders", [(START, *one) for one in running], CUMULATIVE, kind="new")
        orders.description, orders.unit = "Orders taken.", "{order}"
        exemplar = orders.sum.data_points[-1].exemplars.add(time_unix_nano=NOW * SECOND, as_double=7.5)
        exemplar.trace_id, exemplar.span_id = TRACE, SPAN
        counter(scope, "hits", [(at - EVERY, at, _hits(n)) for n, at in enumerate(TIMES)], DELTA)
        _histogram(scope, DELTA)
        _histogram(scope, CUMULATIVE)
        _exponential(scope)
        _summary(scope)
        gauge(scope, "heat", [(at, -0.5 * n) for n, at in enumerate(TIMES)]).unit = "Cel"


def _orders() -> list[tuple[float, float]]:
    """Time and value; the counter begins again at the 30th point."""
    total = 1000.0
    found: list[tuple[float, float]] = []
    for number, at in enumerate(TIMES):
        total = 3.0 if number == 30 else total + number % 4
        found.append((at, total))
    return found


def _hits(number: int) -> float:
    return 0.25 * (number % 9)


def _histogram(scope: Any, temporality: int) -> None:
    metric = scope.metrics.add(name="wait" if temporality == DELTA else "work", unit="s")
    metric.histogram.aggregation_temporality = temporality
    counts = [0] * (len(BOUNDS) + 1)
    for number, at in enumerate(TIMES):
        new = observed(number)
        counts = new if temporality == DELTA else [a + b for a, b in zip(counts, new, strict=True)]
        start = at - EVERY if temporality == DELTA else START
        point = metric.histogram.data_points.add(time_unix_nano=at * SECOND, start_time_unix_nano=start * SECOND)
        point.count, point.sum = sum(counts), 0.5 * sum(counts)
        point.explicit_bounds.extend(BOUNDS)
        point.bucket_counts.extend(counts)


def _exponential(scope: Any) -> None:
    """Buckets (1, 2], (2, 4], (4, 8] and what is zero."""
    metric = scope.metrics.add(name="size", unit="By")
    metric.exponential_histogram.aggregation_temporality = CUMULATIVE
    for number, at in enumerate(TIMES, 1):
        point = metric.exponential_histogram.data_points.add(time_unix_nano=at * SECOND, scale=0)
        point.start_time_unix_nano = START * SECOND
        point.positive.bucket_counts.extend([number, 2 * number, number])
        point.zero_count, point.count, point.sum = number, 5 * number, 16.0 * number


def _summary(scope: Any) -> None:
    metric = scope.metrics.add(name="rpc", unit="ms")
    for number, at in enumerate(TIMES, 1):
        point = metric.summary.data_points.add(time_unix_nano=at * SECOND, count=10 * number, sum=2.5 * number)
        for quantile in (0.5, 0.99):
            point.quantile_values.add(quantile=quantile, value=quantile * number)
        label(point, {"rpc.method": "Get"})


@pytest.fixture(scope="module")
def api(small: SmallLake) -> Api:
    """In two files, each with half of the points of every series."""
    whole = Otlp()
    fill(whole)
    for half in (0, 1):
        part = ExportMetricsServiceRequest()
        part.CopyFrom(whole.request)
        for metric in _metrics(part):
            points = getattr(metric, metric.WhichOneof("data")).data_points
            kept = list(points)[: COUNT // 2] if half == 0 else list(points)[COUNT // 2 :]
            del points[:]
            points.extend(kept)
        small.add(part.SerializeToString())
    return small.api()


def _metrics(request: Any) -> Iterator[Any]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def test_counters(api: Api) -> None:
    orders = dict(_orders())
    last = [orders[at] for at in TIMES[-20:]]
    grown = sum(after - before if after >= before else after for before, after in pairwise(last))
    assert min(last) == last[10] == 3.0  # it began again inside the window
    assert api.number("increase(orders_total{instance='i1'}[5m])", NOW) == pytest.approx(grown * SPREAD, rel=1e-12)
    assert api.number("rate(orders_total{instance='i1'}[5m])", NOW) == pytest.approx(grown * SPREAD / 300, rel=1e-12)
    assert api.number("resets(orders_total{instance='i1'}[10m])", NOW) == 1
    assert api.number("sum(orders_total)", NOW) == 2 * last[-1]
    first, *rest = [_hits(number) for number in range(COUNT - 20, COUNT)]
    deltas = extrapolated(first, sum(rest))
    assert api.number("sum(increase(hits_total[5m]))", NOW) == pytest.approx(2 * deltas, rel=1e-12)
    assert api.number("avg(rate(hits_total[5m]))", NOW) == pytest.approx(deltas / 300, rel=1e-12)
    assert api.number("sum(sum_over_time(hits_total[5m]))", NOW) == 2 * (first + sum(rest))
    # The first of all began in the range, and counts too: nothing is guessed.
    assert api.number("sum(increase(hits_total[1d]))", NOW) == 2 * sum(map(_hits, range(COUNT)))


def extrapolated(first: float, grown: float) -> float:
    """As Prometheus spreads what came after the first of 20 samples over five minutes: also over the 15 s before it,
    but not to before it was zero."""
    before = min(15.0, 285 * first / grown) if grown else 15.0
    return grown * (285 + before) / 285


def median(bounds: Sequence[float], below: Sequence[float]) -> float:
    """Of buckets, in proportion inside of the one where it lies."""
    rank = below[-1] / 2
    bucket = next(n for n, count in enumerate(below) if count >= rank)
    low, before = [0.0, *bounds][bucket], [0.0, *below][bucket]
    return low + (bounds[bucket] - low) * (rank - before) / (below[bucket] - before)


def running(counts: list[int]) -> list[int]:
    return [sum(counts[: n + 1]) for n in range(len(counts))]


@pytest.mark.parametrize("name", ["wait_seconds", "work_seconds"])
def test_histograms(api: Api, name: str) -> None:
    """Of delta and of cumulative temporality: the first sample is what came since the one before, or all that came."""
    began = COUNT - 20
    counted = [began] if name == "wait_seconds" else range(began + 1)
    first = running([sum(column) for column in zip(*map(observed, counted), strict=True)])
    grown = running([sum(column) for column in zip(*map(observed, range(began + 1, COUNT)), strict=True)])
    below = [extrapolated(*pair) for pair in zip(first, grown, strict=True)]
    found = api.instant(f"sum by (le) (increase({name}_bucket{{instance='i1'}}[5m]))", NOW)
    assert {labels[0][1]: float(value) for labels, value in found.items()} == pytest.approx(
        dict(zip(("0.1", "0.5", "2", "+Inf"), below, strict=True)), rel=1e-12
    )
    assert api.number(f"increase({name}_count{{instance='i1'}}[5m])", NOW) == pytest.approx(below[-1], rel=1e-12)
    assert api.number(f"increase({name}_sum{{instance='i1'}}[5m])", NOW) == pytest.approx(below[-1] / 2, rel=1e-12)
    classic = f"histogram_quantile(0.5, sum by (le) (rate({name}_bucket[5m])))"
    assert api.number(classic, NOW) == pytest.approx(median(BOUNDS, below), rel=1e-12)
    every = sum(sum(observed(number)) for number in range(COUNT))
    if name == "wait_seconds":
        assert api.number("sum(increase(wait_seconds_count[1d]))", NOW) == 2 * every
        # As native histograms deltas are gauges, as in Prometheus: they are added up.
        native = "sum(sum_over_time(wait_seconds[5m]))"
        natively = [float(sum(pair)) for pair in zip(first, grown, strict=True)]
    else:
        assert api.number("sum(work_seconds_count)", NOW) == 2 * every
        native, natively = "sum(rate(work_seconds[5m]) * 300)", below
    assert api.number(f"histogram_count({native})", NOW) == pytest.approx(2 * natively[-1], rel=1e-12)
    assert api.number(f"histogram_quantile(0.5, {native})", NOW) == pytest.approx(median(BOUNDS, natively), rel=1e-12)


def test_exponential_histograms_and_summaries(api: Api) -> None:
    assert api.number("histogram_count(size_bytes{instance='i1'})", NOW) == 5 * COUNT
    assert api.number("histogram_sum(sum(size_bytes))", NOW) == 2 * 16.0 * COUNT
    grown = 5 * 19 * SPREAD
    assert api.number("histogram_count(increase(size_bytes{instance='i1'}[5m]))", NOW) == pytest.approx(
        grown, rel=1e-12
    )
    # Of five observations one is zero and one in (1, 2]: the median is a quarter into (2, 4], on a scale of powers.
    median = 2 * 2**0.25
    assert api.number("histogram_quantile(0.5, sum(size_bytes))", NOW) == pytest.approx(median, rel=1e-12)
    assert api.number("histogram_fraction(0, 2, sum(size_bytes))", NOW) == pytest.approx(0.4, rel=1e-12)
    assert api.instant("rpc_milliseconds{instance='i1'}", NOW) == {
        tuple(sorted({"__name__": "rpc_milliseconds", **CART, "rpc_method": "Get", "quantile": q}.items())): value
        for q, value in (("0.5", f"{0.5 * COUNT:g}"), ("0.99", f"{0.99 * COUNT:g}"))
    }
    assert api.number("sum(rpc_milliseconds_sum) / sum(rpc_milliseconds_count)", NOW) == 0.25


def test_resources_join(api: Api) -> None:
    joined = api.instant("orders_total * on (job, instance) group_left (host_name) target_info", NOW)
    value = f"{_orders()[-1][1]:g}"
    assert joined == {
        tuple(sorted({**CART, "instance": one, "kind": "new", "host_name": f"host-{one}"}.items())): value
        for one in ("i1", "i2")
    }
    by_info = api.instant("info(orders_total, {host_name=~'.+'})", NOW)
    assert {dict(labels)["host_name"] for labels in by_info} == {"host-i1", "host-i2"}
    assert api.instant('{"orders_total", "instance"="i1"}', NOW) == {
        tuple(sorted({"__name__": "orders_total", **CART, "kind": "new"}.items())): value
    }


def test_exemplars_and_metadata(api: Api) -> None:
    found = api.get("query_exemplars", query="rate(orders_total{instance='i1'}[5m])", start=START, end=NOW)
    assert found == [
        {
            "seriesLabels": {"__name__": "orders_total", **CART, "kind": "new"},
            "exemplars": [
                {"labels": {"trace_id": TRACE.hex(), "span_id": SPAN.hex()}, "value": "7.5", "timestamp": NOW}
            ],
        }
    ]
    told = api.get("metadata")
    wanted = {
        "orders_total": ("counter", "Orders taken.", ""),
        "hits_total": ("unknown", "", ""),
        "wait_seconds": ("unknown", "", "seconds"),
        "work_seconds": ("histogram", "", "seconds"),
        "size_bytes": ("histogram", "", "bytes"),
        "rpc_milliseconds": ("summary", "", "milliseconds"),
        "heat_celsius": ("gauge", "", "celsius"),
    }
    for name, (type_, help_, unit) in wanted.items():
        assert told[name] == [{"type": type_, "help": help_, "unit": unit}]
    assert api.get("metadata", metric="heat_celsius") == {"heat_celsius": told["heat_celsius"]}
    listed = api.get("series", **{"match[]": "heat_celsius", "start": START, "end": NOW})
    assert [one["instance"] for one in listed] == ["i1", "i2"]
    values = api.get("label/le/values", **{"match[]": "wait_seconds_bucket"})
    assert values == ["+Inf", "0.1", "0.5", "2"]


# ---- real telemetry


Series = dict[str, dict[Labels, tuple[int, float]]]  # by name and labels the last time, in ns, and value


def last_values(request: Any) -> Series:
    """Of plain metrics and of the counts of histograms. Of two points at one time the later one counts."""
    found: Series = defaultdict(dict)
    for resource in request.resource_metrics:
        own = {one.key: one.value.string_value for one in resource.resource.attributes}
        job = "/".join(own[name] for name in ("service.namespace", "service.name") if own.get(name))
        who = {"job": job if own.get("service.name") else "", "instance": own.get("service.instance.id", "")}
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            monotonic = kind == "sum" and data.is_monotonic
            name = escaped_metric_name(metric.name, metric.unit, kind, monotonic=monotonic)
            assert kind in ("gauge", "sum", "histogram")
            assert name is not None
            series = found[f"{name}_count" if kind == "histogram" else name]
            for point in data.data_points:
                pairs = {escaped_label_name(one.key): _text(one.value) for one in point.attributes}
                labels = labels_of({name: value for name, value in {**pairs, **who}.items() if value})
                value = float(point.count if kind == "histogram" else getattr(point, point.WhichOneof("value")))
                if labels not in series or point.time_unix_nano >= series[labels][0]:
                    series[labels] = point.time_unix_nano, value
    return found


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    assert kind in ("string_value", "int_value", "bool_value", None)
    given = getattr(value, kind) if kind else ""
    return str(given).lower() if kind == "bool_value" else str(given)


def real_requests(shared_data: Path) -> dict[str, Any]:
    files = sorted((shared_data / "metrics").iterdir())
    return {one.name: ExportMetricsServiceRequest.FromString(gzip.decompress(one.read_bytes())) for one in files}


def check_real(api: Api, request: Any) -> int:
    """Every metric's series and their last values; how many metrics that is."""
    wanted = last_values(request)
    times = [at for series in wanted.values() for at, _ in series.values()]
    first, end = min(times) // SECOND, max(times) // SECOND + 1
    for name, series in wanted.items():
        asked = f'last_over_time({{__name__="{name}"}}[{end - first + 5}s])'
        values = [value for _, value in series.values()]
        assert api.number(f"count({asked})", end) == len(values), name
        assert api.number(f"sum({asked})", end) == pytest.approx(math.fsum(values), rel=1e-12), name
    return len(wanted)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_telemetry_through_ingest(up: Lake, shared_data: Path) -> None:
    requests = real_requests(shared_data)
    with httpx.Client(base_url=up.url, timeout=60) as http:
        done = up.objects()["counts"]["done"]
        for request in requests.values():
            headers = {"content-type": "application/x-protobuf"}
            assert http.post("/v1/metrics", content=request.SerializeToString(), headers=headers).status_code == 200
        wait_until(lambda: up.objects()["counts"]["done"] >= done + len(requests), "the files", 120, up.process.text)
        for name, request in requests.items():
            assert check_real(Api(http), request) > 0, name


def test_some_real_telemetry(small: SmallLake, shared_data: Path) -> None:
    request = real_requests(shared_data)["metrics_187312485.binpb.gz"]
    small.add(request.SerializeToString())
    assert check_real(small.api(), request) == 20
