"""Metric segments as the pipeline makes them, of OTLP requests and of remote-write messages, and what MetricSegments
sees of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.plan.plan import Shard
from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.metric_segments import Blocks, MetricSegments
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.series.values import Samples
from query.sample_lake import OWN, Elsewhere

ALL = (-(2**53), 2**53)
WHOLE = Shard()
T0 = 1_704_067_200_000  # 2024-01-01, ms
NS = 1_000_000
WHOLE = Shard()
EVERY = (Matcher("__name__", "!=", ""),)


def named(name: str, *more: Matcher) -> tuple[Matcher, ...]:
    return (Matcher("__name__", "=", name), *more)


def plain(samples: Samples) -> dict[Labels, list[tuple[int, Any]]]:
    """By labels the times with their values; a NaN as the bits it has. Series without samples are left out."""
    found: dict[Labels, list[tuple[int, Any]]] = {}
    for n, labels in enumerate(samples.labels):
        assert labels not in found
        span = range(int(samples.offsets[n]), int(samples.offsets[n + 1]))
        times = samples.times[span.start : span.stop]
        assert np.all(np.diff(times) > 0)
        if len(span):
            found[labels] = [(int(samples.times[at]), _value(samples, at)) for at in span]
    return found


def bits(value: float) -> float | str:
    return value if value == value else struct.pack(">d", value).hex()


def _value(samples: Samples, at: int) -> Any:
    if samples.histograms is not None and samples.histograms[at] is not None:
        return samples.histograms[at]
    return bits(float(samples.values[at]))


class MetricLake:
    def __init__(self, directory: Path) -> None:
        (directory / "store").mkdir(parents=True)
        self.directory = directory
        self.store = Elsewhere(directory / "store")
        self.segments: list[Segment] = []
        self.metrics = MetricSegments(SegmentCache(self.store, directory / "cache", 1 << 30))

    def fresh(self) -> MetricSegments:
        """One that has seen nothing yet."""
        return MetricSegments(
            SegmentCache(self.store, self.directory / f"cache-{id(self)}-{len(self.segments)}", 1 << 30)
        )

    def add(self, *fills: Callable[[Any], None], organization: Any = OWN, collector: str = "default") -> list[Segment]:
        """The segments of one request that these fill, in the order of ingest."""
        request = ExportMetricsServiceRequest()
        for fill in fills:
            fill(request)
        return self.add_data(request.SerializeToString(), organization=organization, collector=collector)

    def add_data(
        self, data: bytes, form: str = "otlp", organization: Any = OWN, collector: str = "default"
    ) -> list[Segment]:
        source = SourceObject("b", f"{len(self.segments)}.{form}", "etag", len(data), T0 * NS)
        raw = Raw(source, memoryview(data), form)
        made = make_segments(METRICS, organization, collector, [raw], self.store.put)
        assert not made.failed, made.failed
        given = [replace(one, ingested=len(self.segments) + n + 1) for n, one in enumerate(made.segments)]
        self.segments += given
        return given

    def add_written(self, *series: bytes) -> list[Segment]:
        """Of one remote-write message of version 1.0."""
        message = b"".join(_field(1, one) for one in series)
        return self.add_data(_varint(len(message)) + message, "prw1")

    def blocks(
        self, matchers: Sequence[Matcher], between: tuple[int, int] = ALL, shard: Shard = WHOLE, **how: Any
    ) -> list[Samples]:
        return list(Blocks(self.metrics, self.segments, Selection(tuple(matchers), *between, shard), **how))

    def samples(
        self, matchers: Sequence[Matcher], between: tuple[int, int] = ALL
    ) -> dict[Labels, list[tuple[int, Any]]]:
        (found,) = [plain(one) for one in self.blocks(matchers, between)] or [{}]
        return found


def gauge(
    name: str, points: Iterable[tuple[int, float | int]], resource: Any = (), **labels: str
) -> Callable[[Any], None]:
    """Points are (ms, value)."""

    def fill(request: Any) -> None:
        metric = _scope(request, resource).metrics.add(name=name)
        for time, value in points:
            point = metric.gauge.data_points.add(time_unix_nano=time * NS)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            label(point, labels)

    return fill


def metric(name: str, fill_metric: Callable[[Any], None], resource: Any = (), unit: str = "") -> Callable[[Any], None]:
    return lambda request: fill_metric(_scope(request, resource).metrics.add(name=name, unit=unit))


def _scope(request: Any, resource: Any) -> Any:
    metrics = request.resource_metrics.add()
    for key, value in dict(resource).items():
        metrics.resource.attributes.add(key=key).value.string_value = value
    return metrics.scope_metrics.add()


def label(point: Any, labels: dict[str, str]) -> None:
    for key, value in labels.items():
        point.attributes.add(key=key).value.string_value = value


def prom(name: str, **labels: str) -> Labels:
    return labels_of({"__name__": name, **labels})


# Remote-write 1.0, by hand


def written(
    labels: dict[str, str], samples: Iterable[tuple[int, float]] = (), histograms: Iterable[bytes] = ()
) -> bytes:
    parts = [_field(1, _field(1, n.encode()) + _field(2, v.encode())) for n, v in labels.items()]
    parts += [_field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(time)) for time, value in samples]
    return b"".join(parts) + b"".join(_field(4, one) for one in histograms)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
