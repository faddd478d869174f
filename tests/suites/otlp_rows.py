"""An independent reading of OTLP files: upb and plain Python, to hold the lake's answers against.

Both sides become multisets of rows. A row is the canonical JSON of what the signal's query in QUERIES gives for it, so
that every field that OTLP has is compared, in nested values too.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, type[Message]] = {
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
}
_COMMON = """service_name, scope_name, scope_version, resource_schema_url, scope_schema_url,
    attributes, resource_attrs, scope_attrs"""
QUERIES = {
    "logs": f"""select epoch_ns(timestamp) as ns, epoch_ns(observed_timestamp) as observed_ns, severity_number,
    severity_text, message, event_name, trace_id, span_id, flags, dropped_attributes_count, {_COMMON} from logs""",
    "metrics": f"""select epoch_ns(timestamp) as ns, epoch_ns(start_timestamp) as start_ns, metric_name, metric_type,
    temporality, monotonic, unit, description, value, int_value, count, sum, min, max, bounds, bucket_counts, scale,
    zero_count, zero_threshold, positive, negative, quantiles, quantile_values, exemplars, metadata, flags, {_COMMON}
    from metrics""",
    "traces": f"""select epoch_ns(timestamp) as ns, epoch_ns(end_timestamp) as end_ns, duration, trace_id, span_id,
    parent_span_id, trace_state, name, kind, status_code, status_message, flags, events, links,
    dropped_attributes_count, dropped_events_count, dropped_links_count, {_COMMON} from spans""",
}
Row = dict[str, Any]


def read_request(signal: str, path: Path) -> Any:
    data = path.read_bytes()
    return REQUESTS[signal].FromString(gzip.decompress(data) if path.suffix == ".gz" else data)


def expected_rows(signal: str, request: Any) -> Counter[str]:
    """Every item with all it says, as a multiset."""
    return Counter(_canonical(row) for row in _EXPECTED[signal](request))


def answered_rows(rows: list[Row]) -> Counter[str]:
    return Counter(_canonical(_answered(row)) for row in rows)


def _canonical(row: Row) -> str:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS).decode()


def _answered(row: Row) -> Row:
    """A row as the API gives it, with nested JSON texts made canonical and empty lists taken for none."""
    found = {name: _plain_answer(name, value) for name, value in row.items()}
    return {name: None if value == [] else value for name, value in found.items()}


def _plain_answer(name: str, value: Any) -> Any:
    if name == "attributes" or name.endswith("_attrs") or name == "metadata":
        return {key: _canonical_text(text) for key, text in (value or {}).items()}
    if isinstance(value, list):
        return [_plain_answer("", item) for item in value]
    if isinstance(value, dict):
        return {field: _plain_answer(field, item) for field, item in value.items()}
    return value


@cache
def _canonical_text(value: str | None) -> str:
    if value is None:
        return "null"
    if value[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


def attributes(pairs: Any) -> dict[str, str]:
    """The plain text that `attributes['key']` gives; of a key that is there twice, the first."""
    found: dict[str, str] = {}
    for pair in pairs:
        found.setdefault(pair.key, text(pair.value))
    return found


def text(value: Any) -> str:
    plain = plain_value(value)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, bytes):
        return base64.b64encode(plain).decode()
    if isinstance(plain, float) and not math.isfinite(plain):
        return _NOT_FINITE[str(plain)]
    return json.dumps(_jsonable(plain), sort_keys=True)


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def plain_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain_value(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, kind) if kind else None


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"doubleValue": _NOT_FINITE[str(value)]}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return value


def number(value: float) -> Any:
    """A double as the API writes it: JSON has no signs for these."""
    return value if math.isfinite(value) else _NOT_FINITE[str(value)]


def iso(ns: int) -> str | None:
    """A time in a nested value, as the API writes it."""
    if not ns:
        return None
    seconds, fraction = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09}Z"


def _scopes(resources: Any, scopes: str) -> Iterator[tuple[Any, Row]]:
    """Each scope's message, and what its items share."""
    for resource_items in resources:
        resource = attributes(resource_items.resource.attributes)
        for scope_items in getattr(resource_items, scopes):
            yield (
                scope_items,
                {
                    "service_name": resource.get("service.name", ""),
                    "resource_attrs": resource,
                    "resource_schema_url": resource_items.schema_url,
                    "scope_name": scope_items.scope.name,
                    "scope_version": scope_items.scope.version,
                    "scope_attrs": attributes(scope_items.scope.attributes),
                    "scope_schema_url": scope_items.schema_url,
                },
            )


def _logs(request: Any) -> Iterator[Row]:
    for scope_logs, common in _scopes(request.resource_logs, "scope_logs"):
        for record in scope_logs.log_records:
            yield common | {
                "ns": record.time_unix_nano or record.observed_time_unix_nano,
                "observed_ns": record.observed_time_unix_nano or None,
                "severity_number": record.severity_number,
                "severity_text": record.severity_text,
                "message": text(record.body) if record.body.WhichOneof("value") else "",
                "event_name": record.event_name,
                "trace_id": record.trace_id.hex() or None,
                "span_id": record.span_id.hex() or None,
                "flags": record.flags,
                "dropped_attributes_count": record.dropped_attributes_count,
                "attributes": attributes(record.attributes),
            }


def _traces(request: Any) -> Iterator[Row]:
    for scope_spans, common in _scopes(request.resource_spans, "scope_spans"):
        for span in scope_spans.spans:
            start, end = span.start_time_unix_nano, span.end_time_unix_nano
            yield common | {
                "ns": start or end,
                "end_ns": end or None,
                "duration": end - start if start and end else None,
                "trace_id": span.trace_id.hex(),
                "span_id": span.span_id.hex(),
                "parent_span_id": span.parent_span_id.hex() or None,
                "trace_state": span.trace_state,
                "name": span.name,
                "kind": span.kind,
                "status_code": span.status.code,
                "status_message": span.status.message,
                "flags": span.flags,
                "events": [_event(event) for event in span.events] or None,
                "links": [_link(link) for link in span.links] or None,
                "dropped_attributes_count": span.dropped_attributes_count,
                "dropped_events_count": span.dropped_events_count,
                "dropped_links_count": span.dropped_links_count,
                "attributes": attributes(span.attributes),
            }


def _event(event: Any) -> Row:
    return {
        "timestamp": iso(event.time_unix_nano),
        "name": event.name,
        "attributes": attributes(event.attributes),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Any) -> Row:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": link.trace_state,
        "flags": link.flags,
        "attributes": attributes(link.attributes),
        "dropped_attributes_count": link.dropped_attributes_count,
    }


_TEMPORALITY = {0: None, 1: "delta", 2: "cumulative"}
_NO_POINT = dict.fromkeys(
    [
        *("temporality", "monotonic", "value", "int_value", "count", "sum", "min", "max", "bounds", "bucket_counts"),
        *("scale", "zero_count", "zero_threshold", "positive", "negative", "quantiles", "quantile_values", "exemplars"),
    ]
)


def _metrics(request: Any) -> Iterator[Row]:
    for scope_metrics, common in _scopes(request.resource_metrics, "scope_metrics"):
        for metric in scope_metrics.metrics:
            kind = metric.WhichOneof("data")
            if kind is None:
                continue
            data = getattr(metric, kind)
            of_metric = common | _NO_POINT | _of_metric(metric, kind, data)
            for point in data.data_points:
                yield of_metric | _of_point(point) | _POINTS[kind](point)


def _of_metric(metric: Any, kind: str, data: Any) -> Row:
    return {
        "metric_name": metric.name,
        "metric_type": kind,
        "unit": metric.unit,
        "description": metric.description,
        "metadata": attributes(metric.metadata),
        "temporality": _TEMPORALITY[getattr(data, "aggregation_temporality", 0)],
        "monotonic": data.is_monotonic if kind == "sum" else None,
    }


def _of_point(point: Any) -> Row:
    return {
        "ns": point.time_unix_nano,
        "start_ns": point.start_time_unix_nano or None,
        "flags": point.flags,
        "attributes": attributes(point.attributes),
        "exemplars": [_exemplar(exemplar) for exemplar in getattr(point, "exemplars", ())] or None,
    }


def _exemplar(exemplar: Any) -> Row:
    kind = exemplar.WhichOneof("value")
    return {
        "timestamp": iso(exemplar.time_unix_nano),
        "double_value": number(exemplar.as_double) if kind == "as_double" else None,
        "int_value": exemplar.as_int if kind == "as_int" else None,
        "trace_id": exemplar.trace_id.hex() or None,
        "span_id": exemplar.span_id.hex() or None,
        "attributes": attributes(exemplar.filtered_attributes),
    }


def _number_point(point: Any) -> Row:
    kind = point.WhichOneof("value")
    if kind == "as_int":
        return {"value": float(point.as_int), "int_value": point.as_int}
    return {"value": number(point.as_double) if kind else None}


def _given(point: Any, *fields: str) -> Row:
    return {field: number(getattr(point, field)) if point.HasField(field) else None for field in fields}


def _histogram_point(point: Any) -> Row:
    return _given(point, "sum", "min", "max") | {
        "count": point.count,
        "bounds": [number(bound) for bound in point.explicit_bounds] or None,
        "bucket_counts": list(point.bucket_counts) or None,
    }


def _exponential_point(point: Any) -> Row:
    return _given(point, "sum", "min", "max") | {
        "count": point.count,
        "scale": point.scale,
        "zero_count": point.zero_count,
        "zero_threshold": number(point.zero_threshold),
        "positive": _buckets(point, "positive"),
        "negative": _buckets(point, "negative"),
    }


def _buckets(point: Any, side: str) -> Row | None:
    if not point.HasField(side):
        return None
    buckets = getattr(point, side)
    return {"offset": buckets.offset, "counts": list(buckets.bucket_counts), "float_counts": None}


def _summary_point(point: Any) -> Row:
    return {
        "count": point.count,
        "sum": number(point.sum),
        "quantiles": [number(value.quantile) for value in point.quantile_values] or None,
        "quantile_values": [number(value.value) for value in point.quantile_values] or None,
    }


_POINTS: dict[str, Callable[[Any], Row]] = {
    "gauge": _number_point,
    "sum": _number_point,
    "histogram": _histogram_point,
    "exponential_histogram": _exponential_point,
    "summary": _summary_point,
}
_EXPECTED = {"logs": _logs, "metrics": _metrics, "traces": _traces}
