"""What Prometheus sees of OTLP histograms, summaries and resources, and of native histograms that it sent itself."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.prometheus import escaped_label_name, escaped_metric_name
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.metrics.compound_points import number_text
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from query.metric_lake import EVERY, NS, T0, MetricLake, bits, gauge, label, metric, named, plain, prom, written

RESOURCE = {"service.name": "cart", "service.namespace": "shop", "service.instance.id": "i1", "host.name": "h1"}
OF_CART = {"job": "shop/cart", "instance": "i1"}


@pytest.fixture
def lake(tmp_path: Path) -> MetricLake:
    return MetricLake(tmp_path)


def histogram(temporality: int = 2, bounds: tuple[float, ...] = (0.5, 1.0, 250000.0), flags: int = 0) -> Any:
    def fill(one: Any) -> None:
        one.histogram.aggregation_temporality = temporality
        for n in range(2):
            point = one.histogram.data_points.add(
                time_unix_nano=(T0 + n) * NS, start_time_unix_nano=(T0 - 9) * NS, count=10 + n, sum=1.5 + n, flags=flags
            )
            point.explicit_bounds.extend(bounds)
            point.bucket_counts.extend([*[1, 0, 4 + n, 5][: len(bounds)], 5])
            label(point, {"le": "odd", "http.route": "/"})

    return fill


def numbers(h: Histogram) -> tuple[Any, ...]:
    sides = (h.positive, h.negative)
    return (h.schema, h.count, h.sum, h.zero_count, *((s.indexes.tolist(), s.counts.tolist()) for s in sides))


def test_a_histogram_is_buckets_sum_and_count(lake: MetricLake) -> None:
    lake.add(metric("lat", histogram(), unit="s"))
    base = {"http_route": "/"}
    found = lake.samples(named("lat_seconds_bucket"))
    assert found == {
        prom("lat_seconds_bucket", le="0.5", **base): [(T0, 1.0), (T0 + 1, 1.0)],
        prom("lat_seconds_bucket", le="1", **base): [(T0, 1.0), (T0 + 1, 1.0)],
        prom("lat_seconds_bucket", le="250000", **base): [(T0, 5.0), (T0 + 1, 6.0)],
        prom("lat_seconds_bucket", le="+Inf", **base): [(T0, 10.0), (T0 + 1, 11.0)],
    }
    own = {"http_route": "/", "le": "odd"}
    assert lake.samples(named("lat_seconds_sum")) == {prom("lat_seconds_sum", **own): [(T0, 1.5), (T0 + 1, 2.5)]}
    assert lake.samples(named("lat_seconds_count")) == {prom("lat_seconds_count", **own): [(T0, 10.0), (T0 + 1, 11.0)]}
    assert lake.samples(named("lat_seconds_bucket", Matcher("le", "=", "1"))).keys() == {
        prom("lat_seconds_bucket", le="1", **base)
    }
    assert len(lake.samples(named("lat_seconds_bucket", Matcher("le", "=~", ".*5.*")))) == 2


def test_a_histogram_is_a_native_one_with_custom_buckets(lake: MetricLake) -> None:
    lake.add(metric("lat", histogram()))
    ((labels, samples),) = lake.samples(named("lat")).items()
    assert labels == prom("lat", le="odd", http_route="/")
    assert numbers(samples[1][1]) == (-53, 11.0, 2.5, 0.0, ([0, 2, 3], [1.0, 5.0, 5.0]), ([], []))
    assert samples[1][1].custom_values == (0.5, 1.0, 250000.0)
    assert samples[1][1].reset_hint is ResetHint.UNKNOWN


def test_a_delta_histogram_has_starts_in_every_bucket_and_is_a_gauge(lake: MetricLake) -> None:
    lake.add(metric("lat", histogram(temporality=1)))
    for name, series in (("lat_bucket", 4), ("lat_count", 1), ("lat", 1)):
        (found,) = lake.blocks(named(name))
        assert found.starts is not None
        assert found.starts.tolist() == [T0 - 9] * 2 * series
    assert found.histograms is not None
    assert found.histograms[0].reset_hint is ResetHint.GAUGE


def test_no_recorded_value_is_a_stale_marker_everywhere(lake: MetricLake) -> None:
    lake.add(metric("lat", histogram(flags=1)))
    samples = [value for series in lake.samples(EVERY).values() for _, value in series]
    assert len(samples) == 2 * 7
    assert set(samples) == {bits(float(STALE))}


def test_bounds_may_change_and_meet_a_series_that_was_sent(lake: MetricLake) -> None:
    lake.add(metric("lat", histogram(bounds=(0.5,))))
    lake.add_written(
        written({"__name__": "lat_bucket", "le": "0.5", "http_route": "/"}, [(T0 + 1, 77.0), (T0 + 2, 78.0)])
    )
    found = lake.samples(named("lat_bucket"))
    assert found[prom("lat_bucket", le="0.5", http_route="/")] == [(T0, 1.0), (T0 + 1, 77.0), (T0 + 2, 78.0)]
    assert found[prom("lat_bucket", le="+Inf", http_route="/")] == [(T0, 10.0), (T0 + 1, 11.0)]


def exponential(scale: int) -> Any:
    def fill(one: Any) -> None:
        point = one.exponential_histogram.data_points.add(time_unix_nano=T0 * NS, count=9, sum=2.5, scale=scale)
        point.zero_count, point.zero_threshold = 2, 0.25
        point.positive.offset = -3
        point.positive.bucket_counts.extend([1, 0, 2, 3])
        point.negative.offset = 5
        point.negative.bucket_counts.append(1)
        one.exponential_histogram.aggregation_temporality = 2

    return fill


def test_an_exponential_histogram_is_native(lake: MetricLake) -> None:
    lake.add(metric("exp", exponential(3)))
    (((_, found),),) = lake.samples(named("exp")).values()
    assert numbers(found) == (3, 9.0, 2.5, 2.0, ([-2, 0, 1], [1.0, 2.0, 3.0]), ([6], [1.0]))
    assert found.zero_threshold == 1e-128


def test_a_finer_scale_is_reduced_and_a_coarser_one_refused(lake: MetricLake) -> None:
    lake.add(metric("exp", exponential(9)))
    (((_, found),),) = lake.samples(named("exp")).values()
    # OTLP's -3, -2, -1, 0 become -2, -1, -1, 0, and Prometheus counts one more
    assert numbers(found) == (8, 9.0, 2.5, 2.0, ([-1, 0, 1], [1.0, 2.0, 3.0]), ([3], [1.0]))
    lake.add(metric("exp", exponential(-5)))
    with pytest.raises(UserError, match=r"exp: .*scale -5"):
        lake.samples(named("exp"))


def test_a_summary_is_quantiles_sum_and_count(lake: MetricLake) -> None:
    def fill(one: Any) -> None:
        point = one.summary.data_points.add(time_unix_nano=T0 * NS, count=4, sum=2.5)
        for quantile, value in ((0.5, 1.0), (0.99, 2.0), (1.0, 3.0)):
            point.quantile_values.add(quantile=quantile, value=value)

    lake.add(metric("s", fill))
    assert lake.samples(EVERY) == {
        prom("s", quantile="0.5"): [(T0, 1.0)],
        prom("s", quantile="0.99"): [(T0, 2.0)],
        prom("s", quantile="1"): [(T0, 3.0)],
        prom("s_sum"): [(T0, 2.5)],
        prom("s_count"): [(T0, 4.0)],
    }


def test_target_info_is_there_whenever_the_resource_is(lake: MetricLake) -> None:
    lake.add(gauge("a", [(T0, 1.0), (T0 + 10, 1.0)], RESOURCE), gauge("b", [(T0 + 5, 1.0), (T0 + 10, 1.0)], RESOURCE))
    lake.add(gauge("a", [(T0 + 20, 1.0)], RESOURCE), gauge("c", [(T0, 1.0)], {"service.name": "x"}))
    info = prom("target_info", host_name="h1", **OF_CART)
    assert lake.samples(named("target_info")) == {info: [(T0 + n, 1.0) for n in (0, 5, 10, 20)]}
    assert lake.samples((Matcher("host.name", "=", "h1"),)) == {
        labels_of({"__name__": "target_info", "host.name": "h1", **OF_CART}): [(T0 + n, 1.0) for n in (0, 5, 10, 20)]
    }
    assert set(lake.samples((Matcher("job", "=", "shop/cart"),))) == {info, prom("a", **OF_CART), prom("b", **OF_CART)}


def native(time: int, **fields: Any) -> bytes:
    """Schema 1, buckets 0 and 1 of counts 2 and 3 (integers) or of float counts."""
    is_float = fields.get("is_float", False)
    made = b"\x11" + struct.pack("<d", 5.5) if is_float else b"\x08\x05"
    made += b"\x19" + struct.pack("<d", fields.get("sum", 2.5)) + b"\x20\x02"  # sum, schema 1
    made += b"\x29" + struct.pack("<d", 0.125)  # zero threshold
    made += b"\x5a\x04\x08\x00\x10\x02"  # positive span: offset 0, length 2
    made += b"\x6a\x10" + struct.pack("<dd", 2.5, 3.0) if is_float else b"\x62\x02\x04\x02"
    return made + bytes([0x70, fields.get("hint", 0)]) + b"\x78" + _varint(time)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_native_histograms_that_prometheus_sent(lake: MetricLake) -> None:
    histograms = [
        native(T0, hint=2),
        native(T0 + 1, is_float=True, hint=3),
        native(T0 + 2, sum=float(STALE)),
    ]
    lake.add_written(
        written({"__name__": "n", "job": "x"}, [(T0 + 3, 7.0)], histograms),
        written({"__name__": "f", "job": "x"}, [(T0, 1.0)]),
    )
    found = lake.samples((Matcher("job", "=", "x"),))
    assert found[prom("f", job="x")] == [(T0, 1.0)]
    (_, first), (_, second), stale, number = found[prom("n", job="x")]
    assert numbers(first) == (1, 5.0, 2.5, 0.0, ([0, 1], [2.0, 3.0]), ([], []))
    assert (first.reset_hint, first.zero_threshold) == (ResetHint.NOT_RESET, 0.125)
    assert numbers(second) == (1, 5.5, 2.5, 0.0, ([0, 1], [2.5, 3.0]), ([], []))
    assert second.reset_hint is ResetHint.GAUGE
    assert (stale, number) == ((T0 + 2, bits(float(STALE))), (T0 + 3, 7.0))


def test_metadata_entries_and_series_without_points_are_no_samples(lake: MetricLake) -> None:
    lake.add_written(written({"__name__": "empty"}))
    assert lake.samples(EVERY) == {}


def test_bounds_are_written_as_the_receiver_does() -> None:
    written_as = {
        0.1: "0.1",
        1.0: "1",
        1e21: "1" + "0" * 21,
        1e-7: "0.0000001",
        math.inf: "+Inf",
        -2.5: "-2.5",
        0.0: "0",
    }
    assert {number: number_text(number) for number in written_as} == written_as


# Real telemetry, read with protobuf alone


def expected(request: Any) -> Iterator[tuple[Labels, int, Any]]:
    for resource_metrics in request.resource_metrics:
        attributes = resource_metrics.resource.attributes
        own = {one.key: _text(one.value) for one in attributes if one.key.startswith("service.")}
        ours = {"instance": own.get("service.instance.id", "")}
        ours["job"] = "/".join(
            own[k] for k in ("service.namespace", "service.name") if k in own and "service.name" in own
        )
        for scope in resource_metrics.scope_metrics:
            for one in scope.metrics:
                yield from _points(one, {k: v for k, v in ours.items() if v})


def _points(one: Any, ours: dict[str, str]) -> Iterator[tuple[Labels, int, Any]]:
    kind = one.WhichOneof("data")
    body = getattr(one, kind)
    name = escaped_metric_name(one.name, one.unit, kind, monotonic=kind == "sum" and body.is_monotonic)
    for point in body.data_points:
        given = _labels(point) | ours
        at = point.time_unix_nano // NS
        if kind in ("gauge", "sum"):
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield prom(str(name), **given), at, bits(float(STALE) if point.flags & 1 else float(value))
        elif kind == "histogram":
            assert not point.flags & 1
            yield prom(f"{name}_count", **given), at, float(point.count)
            yield prom(f"{name}_sum", **given), at, bits(point.sum)
            total = 0
            for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
                total += count
                le = str(int(bound)) if bound == int(bound) else repr(bound)
                yield prom(f"{name}_bucket", **given | {"le": le}), at, float(total)
            yield prom(f"{name}_bucket", **given | {"le": "+Inf"}), at, float(point.count)
        else:
            raise AssertionError(kind)


def _labels(point: Any) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for attribute in sorted(point.attributes, key=lambda one: one.key.encode()):
        found.setdefault(escaped_label_name(attribute.key), []).append(_text(attribute.value))
    return {name: ";".join(values) for name, values in found.items()}


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return str(value.bool_value).lower()
    assert kind in ("string_value", "int_value"), kind
    return str(getattr(value, kind))


@pytest.mark.slow
def test_real_telemetry_is_seen_as_protobuf_says(lake: MetricLake, shared_data: Path) -> None:
    wanted: dict[Labels, dict[int, Any]] = {}
    for path in sorted((shared_data / "metrics").glob("*.gz")):
        data = gzip.decompress(path.read_bytes())
        lake.add_data(data)
        for labels, at, value in expected(ExportMetricsServiceRequest.FromString(data)):
            wanted.setdefault(labels, {})[at] = value
    found = lake.samples((*EVERY, Matcher("__name__", "!=", "target_info")))
    natives = {labels for labels, samples in found.items() if isinstance(samples[0][1], Histogram)}
    rest = {labels: samples for labels, samples in found.items() if labels not in natives}
    assert {dict(labels)["__name__"] + "_count" for labels in natives} <= {dict(labels)["__name__"] for labels in rest}
    assert len(rest) > 100
    assert rest.keys() == wanted.keys()
    for labels, samples in rest.items():
        assert samples == sorted(wanted[labels].items()), labels
    blocks = [plain(one) for one in lake.blocks((*EVERY, Matcher("__name__", "!=", "target_info")), most=50_000)]
    assert sum(map(len, blocks)) == len(found)
