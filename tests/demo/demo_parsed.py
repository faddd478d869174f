"""Batches of the demo shop read back with protobuf's own parser, as flat rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from lakerunner_demo.shop import Batch

REQUESTS: dict[str, Any] = {
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
}


@dataclass(frozen=True)
class Row:
    """One log record or span."""

    service: str
    pod: str
    version: str
    record: Any


@dataclass(frozen=True)
class Point:
    service: str
    pod: str
    metric: Any
    attributes: dict[str, Any]
    point: Any


def value_of(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "array_value":
            return [value_of(item) for item in value.array_value.values]
        case str(field):
            return getattr(value, field)
    return None


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


def parse(batch: Batch) -> Any:
    return REQUESTS[batch.signal].FromString(batch.data)


def rows(batches: Iterable[Batch]) -> Iterator[Row]:
    for batch in batches:
        request = parse(batch)
        logs = batch.signal == "logs"
        for resource in request.resource_logs if logs else request.resource_spans:
            about = attributes_of(resource.resource.attributes)
            named = (about["service.name"], about["k8s.pod.name"], about["service.version"])
            for scope in resource.scope_logs if logs else resource.scope_spans:
                for record in scope.log_records if logs else scope.spans:
                    yield Row(*named, record)


def points(batches: Iterable[Batch]) -> Iterator[Point]:
    for batch in batches:
        for resource in parse(batch).resource_metrics:
            about = attributes_of(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in getattr(metric, metric.WhichOneof("data")).data_points:
                        told = attributes_of(point.attributes)
                        yield Point(about["service.name"], about["k8s.pod.name"], metric, told, point)
