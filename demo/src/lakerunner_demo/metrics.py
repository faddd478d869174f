"""Metrics of the pods, exported every EXPORT_NS of the shop's time.

Comes in: traffic and the instants to export at. Goes out: one OTLP export request with the points of these instants.
Counters and duration histograms are cumulative since the pod started and agree with the spans: a point at T counts
those that ended before T. Database durations are exponential histograms of the last interval (delta).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    ScopeMetrics,
)

from lakerunner.model.time import SECOND_NS, TimeRange
from lakerunner_demo.flows import State
from lakerunner_demo.gauges import Instrument, Kind, Reading, readings
from lakerunner_demo.records import SCOPE_VERSION
from lakerunner_demo.services import SERVICES, Pod, resource_codes
from lakerunner_demo.spans import grpc_status, http_status, rpc_service
from lakerunner_demo.stream import Traffic
from lakerunner_demo.tally import BOUNDS_S, Ended, Series, Tally, ended, merged, release_of, still_live, tally, totals

EXPORT_NS = 15 * SECOND_NS
SCALE = 3
_AT_ONCE = 40  # instants whose spans are played together
_FIRST_BUCKET = -160  # 2^-20 s: no span is shorter
_BUCKETS_NS = np.array([2 ** (index / 2**SCALE) * SECOND_NS for index in range(_FIRST_BUCKET, 80)])

REQUESTS = Instrument("shop.requests", Kind.COUNTER, "{request}", "Requests served, by operation and outcome.")
HTTP_DURATION = Instrument("http.server.request.duration", Kind.HISTOGRAM, "s", "Duration of HTTP server requests.")
RPC_DURATION = Instrument(
    "rpc.server.call.duration", Kind.HISTOGRAM, "s", "Duration of inbound remote procedure calls."
)
MESSAGE_DURATION = Instrument("messaging.process.duration", Kind.HISTOGRAM, "s", "Duration of processing a message.")
DB_DURATION = Instrument(
    "db.client.operation.duration", Kind.EXPONENTIAL, "s", "Duration of database client operations."
)
_OUTCOMES = {State.OK: "ok", State.REFUSED: "refused", State.ERROR: "error"}
_DATABASES = ("postgresql", "redis")


@dataclass(frozen=True)
class Export:
    """What is exported at one instant: totals since the pods started, and the spans of the last interval."""

    at_ns: int
    totals: Tally
    recent: Ended


def instants(traffic: Traffic, time: TimeRange) -> list[int]:
    """Return the times at which the pods export, within this time."""
    opening = traffic.schedule.start_ns
    first = max(1, -((opening - time.start_ns) // EXPORT_NS))
    last = -((opening - time.end_ns) // EXPORT_NS)
    return [opening + tick * EXPORT_NS for tick in range(first, last)]


def exports(traffic: Traffic, at: Sequence[int]) -> Iterator[Export]:
    """Yield the exports of consecutive instants, which are EXPORT_NS apart."""
    if not at:
        return
    total = totals(traffic, at[0] - EXPORT_NS)
    for first in range(0, len(at), _AT_ONCE):
        run = at[first : first + _AT_ONCE]
        spans = ended(traffic, TimeRange(run[0] - EXPORT_NS, run[-1]))
        for at_ns in run:
            recent = spans.between(TimeRange(at_ns - EXPORT_NS, at_ns))
            total = still_live(traffic, merged([total, tally(recent)]), at_ns)
            yield Export(at_ns, total, recent)


class Request:
    """An export request that is being built. Each pod has one resource, which has each of its metrics once."""

    def __init__(self, traffic: Traffic) -> None:
        self.points = 0
        self._traffic = traffic
        self._message = ExportMetricsServiceRequest()
        self._scopes: dict[int, ScopeMetrics] = {}
        self._metrics: dict[tuple[int, str], Metric] = {}

    def data(self) -> bytes:
        return bytes(self._message.SerializeToString(deterministic=True))

    def add(self, export: Export) -> None:
        for pod, code in _live_pods(self._traffic, export.at_ns):
            for reading in readings(self._traffic.schedule, pod, export.at_ns):
                self._add_reading(code, export.at_ns, reading)
        recent = {code: row for row, code in enumerate(export.recent.code.tolist())}
        for row, code in enumerate(export.totals.code.tolist()):
            series = Series.of(code)
            if series.system not in _DATABASES:
                self._add_requests(series, export, row, recent.get(code))
        for code in sorted(recent):
            series = Series.of(code)
            if series.system in _DATABASES:
                self._add_database(series, export, code)

    def _add_reading(self, code: int, at_ns: int, reading: Reading) -> None:
        point = self._point(code, reading.instrument, at_ns, reading.attributes)
        if isinstance(reading.value, int):
            point.as_int = reading.value
        else:
            point.as_double = reading.value

    def _add_requests(self, series: Series, export: Export, row: int, exemplar: int | None) -> None:
        counts, sum_ns = export.totals.counts[row].tolist(), int(export.totals.sum_ns[row])
        labels = {"shop.operation": series.operation, "shop.outcome": _OUTCOMES[State(series.state)]}
        self._point(series.resource, REQUESTS, export.at_ns, labels).as_int = sum(counts)
        instrument, attributes = _duration(self._traffic, series)
        point = self._point(series.resource, instrument, export.at_ns, attributes)
        point.count, point.sum = sum(counts), sum_ns / SECOND_NS
        point.explicit_bounds.extend(BOUNDS_S)
        point.bucket_counts.extend(counts)
        if exemplar is not None:
            point.exemplars.add(
                time_unix_nano=int(export.recent.end_ns[exemplar]),
                as_double=int(export.recent.duration_ns[exemplar]) / SECOND_NS,
                trace_id=export.recent.trace_id[exemplar].tobytes(),
                span_id=export.recent.span_id[exemplar].tobytes(),
            )

    def _add_database(self, series: Series, export: Export, code: int) -> None:
        durations = export.recent.duration_ns[export.recent.code == code]
        attributes = {"db.system.name": series.system, "db.query.summary": series.operation}
        if series.state == State.ERROR:
            attributes["error.type"] = "timeout"
        point = self._point(series.resource, DB_DURATION, export.at_ns, attributes)
        point.start_time_unix_nano = export.at_ns - EXPORT_NS
        point.count, point.sum = len(durations), int(durations.sum()) / SECOND_NS
        point.min, point.max = int(durations.min()) / SECOND_NS, int(durations.max()) / SECOND_NS
        point.scale = SCALE
        bucket = _FIRST_BUCKET - 1 + np.searchsorted(_BUCKETS_NS, durations, side="left")
        point.positive.offset = int(bucket.min())
        point.positive.bucket_counts.extend(np.bincount(bucket - bucket.min()).tolist())

    def _point(self, code: int, instrument: Instrument, at_ns: int, attributes: Mapping[str, str | int]) -> Any:
        """Add a point to the metric, which is created if it does not exist yet."""
        self.points += 1
        metric = self._metrics.get((code, instrument.name))
        if metric is None:
            metric = self._metrics[code, instrument.name] = self._scope(code).metrics.add()
            metric.name, metric.unit, metric.description = (
                instrument.name,
                instrument.unit,
                instrument.description,
            )
        point = _data(metric, instrument.kind).data_points.add(time_unix_nano=at_ns)
        if instrument.kind != Kind.GAUGE:
            point.start_time_unix_nano = release_of(self._traffic, code).start_ns
        for key, value in attributes.items():
            held = point.attributes.add(key=key).value
            if isinstance(value, int):
                held.int_value = value
            else:
                held.string_value = value
        return point

    def _scope(self, code: int) -> ScopeMetrics:
        if code not in self._scopes:
            pod = Pod.of(self._traffic.schedule.world, code)
            resource = self._message.resource_metrics.add()
            resource.MergeFromString(pod.resource())
            scope = resource.scope_metrics.add()
            scope.scope.name, scope.scope.version = f"{pod.service.package}/metrics", SCOPE_VERSION
            self._scopes[code] = scope
        return self._scopes[code]


def _data(metric: Metric, kind: Kind) -> Any:
    """Return the part of the metric that holds its points."""
    match kind:
        case Kind.GAUGE:
            return metric.gauge
        case Kind.UP_DOWN | Kind.COUNTER:
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            metric.sum.is_monotonic = kind == Kind.COUNTER
            return metric.sum
        case Kind.HISTOGRAM:
            metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            return metric.histogram
        case Kind.EXPONENTIAL:
            metric.exponential_histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            return metric.exponential_histogram


def _duration(traffic: Traffic, series: Series) -> tuple[Instrument, dict[str, str | int]]:
    operation = series.operation
    match series.system:
        case "http":
            method, route = operation.split(" ", 1)
            status = http_status(series.state, operation)
            return HTTP_DURATION, {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
            }
        case "grpc":
            service = Pod.of(traffic.schedule.world, series.resource).service.name
            return RPC_DURATION, {
                "rpc.system": "grpc",
                "rpc.service": rpc_service(service),
                "rpc.method": operation,
                "rpc.grpc.status_code": grpc_status(series.state, operation),
            }
    return MESSAGE_DURATION, {"messaging.system": "kafka", "messaging.destination.name": "orders"}


def _live_pods(traffic: Traffic, at_ns: int) -> Iterator[tuple[Pod, int]]:
    """Return the pods that serve at this instant."""
    for service in SERVICES:
        releases = np.repeat(traffic.schedule.releases(service.name, np.array([at_ns])), service.pods)
        for code in resource_codes(service.name, releases, np.arange(service.pods)).tolist():
            yield Pod.of(traffic.schedule.world, code), code
