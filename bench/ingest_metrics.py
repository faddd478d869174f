"""Ingest of OTLP metrics through Spark, the same code without Spark, and a upb loop (the frame is _ingest.py); and what
a sample of regular counters takes in storage.

The metrics are those of a fleet: pods that export every 15 s, each its counters, gauges and histograms with a few
attributes. The demo's own are too few to measure speed with.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from _ingest import OPENING_NS, Bench, Columns, attributes, main, until
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import SECOND_NS
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner_demo.shop import Batch, Shop

EXPORT_NS = 15 * SECOND_NS
EXPORTS_PER_HOUR = 240
PODS, COUNTERS, GAUGES, HISTOGRAMS = 40, 24, 12, 4
BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0]
ROUTES = ("/cart", "/checkout", "/search", "/item/{id}")


class Fleet:
    """Keep the pods' totals so far."""

    def __init__(self, histograms: int = HISTOGRAMS, gauges: int = GAUGES) -> None:
        self._chance = random.Random(7)
        self._totals: dict[tuple[int, int], int] = defaultdict(int)
        self._buckets: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._histograms, self._gauges = histograms, gauges

    def export(self, at_ns: int) -> tuple[bytes, int]:
        """Build one request of all pods; return it with the number of its points."""
        request = ExportMetricsServiceRequest()
        for pod in range(PODS):
            resource_metrics = request.resource_metrics.add()
            for key, value in (("service.name", f"service-{pod % 8}"), ("service.instance.id", f"pod-{pod}")):
                resource_metrics.resource.attributes.add(key=key).value.string_value = value
            scope_metrics = resource_metrics.scope_metrics.add()
            scope_metrics.scope.name = "fleet"
            for number in range(COUNTERS):
                self._add_counter(scope_metrics.metrics.add(), pod, number, at_ns)
            for number in range(self._gauges):
                metric = scope_metrics.metrics.add(name=f"gauge.{number}", unit="1")
                point = metric.gauge.data_points.add(time_unix_nano=at_ns, as_double=self._chance.random())
                _label(point, number)
            for number in range(self._histograms):
                self._add_histogram(scope_metrics.metrics.add(), pod, number, at_ns)
        return request.SerializeToString(), PODS * (COUNTERS + self._gauges + self._histograms)

    def _add_counter(self, metric: Any, pod: int, number: int, at_ns: int) -> None:
        metric.name, metric.unit, metric.description = f"counter.{number}", "{request}", "Requests that were served."
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True
        self._totals[pod, number] += self._chance.randrange(40)
        point = metric.sum.data_points.add(
            time_unix_nano=at_ns, start_time_unix_nano=OPENING_NS, as_int=self._totals[pod, number]
        )
        _label(point, number)

    def _add_histogram(self, metric: Any, pod: int, number: int, at_ns: int) -> None:
        metric.name, metric.unit = f"duration.{number}", "s"
        metric.histogram.aggregation_temporality = 2
        buckets = self._buckets[pod, number]
        for _ in range(5):
            buckets[self._chance.randrange(len(buckets))] += self._chance.randrange(9)
        point = metric.histogram.data_points.add(
            time_unix_nano=at_ns, start_time_unix_nano=OPENING_NS, count=sum(buckets), sum=sum(buckets) / 7
        )
        point.bucket_counts.extend(buckets)
        point.explicit_bounds.extend(BOUNDS)
        _label(point, number)


def _label(point: Any, number: int) -> None:
    point.attributes.add(key="http.route").value.string_value = ROUTES[number % len(ROUTES)]
    point.attributes.add(key="http.request.method").value.string_value = "GET"
    point.attributes.add(key="http.response.status_code").value.int_value = 200 + number


def batches(_: Shop, records: int) -> Iterator[Batch]:
    fleet = Fleet()

    def every() -> Iterator[Batch]:
        for number in count():
            at_ns = OPENING_NS + number * EXPORT_NS
            data, points = fleet.export(at_ns)
            yield Batch("metrics", at_ns, at_ns + 1, points, data)

    return until(every(), records)


def columns_of(request: Any) -> Columns:
    """Append each field of each point to the list of its column."""
    columns: Columns = defaultdict(list)
    for resource_metrics in request.resource_metrics:
        resource = attributes(resource_metrics.resource.attributes)
        service = resource.get("service.name", "")
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    columns["service_name"].append(service)
                    columns["resource_attributes"].append(resource)
                    columns["scope_name"].append(scope_metrics.scope.name)
                    columns["metric_name"].append(metric.name)
                    columns["metric_type"].append(kind)
                    columns["unit"].append(metric.unit)
                    columns["description"].append(metric.description)
                    columns["timestamp"].append(point.time_unix_nano)
                    columns["start_timestamp"].append(point.start_time_unix_nano)
                    columns["flags"].append(point.flags)
                    columns["attributes"].append(attributes(point.attributes))
                    if kind == "histogram":
                        columns["count"].append(point.count)
                        columns["sum"].append(point.sum)
                        columns["bounds"].append(list(point.explicit_bounds))
                        columns["bucket_counts"].append(list(point.bucket_counts))
                    else:
                        given = point.WhichOneof("value")
                        columns["value"].append(getattr(point, given) if given else None)
    return columns


def storage() -> None:
    """Build the counters that every pod exports every 15 s for an hour."""
    fleet, raws, raw_bytes = Fleet(histograms=0, gauges=0), [], 0
    for number in range(EXPORTS_PER_HOUR):
        data, _ = fleet.export(OPENING_NS + number * EXPORT_NS)
        raw_bytes += len(data)
        raws.append(Raw(SourceObject("bench", f"{number:05}", "etag", len(data), 0), memoryview(data)))
    made = make_segments(METRICS, DEFAULT_ORGANIZATION.id, "bench", raws, lambda _path, _data: None)
    rows = sum(segment.rows for segment in made.segments)
    stored = sum(segment.bytes + sum(segment.statistics["side_bytes"].values()) for segment in made.segments)
    print(f"regular counters: {stored / rows:.2f} B per sample with the table of series (target <= 2.5 B)")
    print(f"raw / stored: {raw_bytes / stored:.0f}x (target >= 10x)")


if __name__ == "__main__":
    storage()
    main(Bench("metrics", ExportMetricsServiceRequest, batches, columns_of, (1.5, 1.25)))
