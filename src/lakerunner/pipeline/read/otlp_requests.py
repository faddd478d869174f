"""The export requests of the three signals: their messages for the wire check, and how odd ones are mended."""

from __future__ import annotations

from typing import Any

from lakerunner.pipeline.read.otlp import COMMON, KEY_VALUE, Request
from lakerunner.pipeline.read.repair import (
    Repair,
    add_kept_value,
    mend_fields,
    mend_resource,
    mend_scope,
    mend_text,
    mend_time,
    mend_value,
    replace_invalid_utf8,
)
from lakerunner.pipeline.read.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    FIXED64S,
    MESSAGE,
    STRING,
    TIME,
    VARINT,
    VARINTS,
    Field,
    Messages,
    tag_of,
)


def _envelope(request: str, kind: str, items: Field) -> Messages:
    """Return the messages around the items, which have the same fields for every signal."""
    resource, scope = f"Resource{kind}", f"Scope{kind}"
    return {
        request: {1: Field(f"resource_{kind.lower()}", MESSAGE, resource, many=1)},
        resource: {
            1: Field("resource", MESSAGE, "Resource"),
            2: Field(f"scope_{kind.lower()}", MESSAGE, scope, many=1),
            3: Field("schema_url", STRING),
        },
        scope: {1: Field("scope", MESSAGE, "Scope"), 2: items, 3: Field("schema_url", STRING)},
    }


def _items(messages: Messages, *inner: str) -> dict[str, dict[int, str]]:
    """Return the tags and types of each message's items, as Repair has them: a ResourceX, a ScopeX, and `inner`."""
    _, resource, scope, *_ = messages
    items = {resource, scope, *inner}
    found = {
        name: {tag_of(number, MESSAGE): field.child for number, field in fields.items() if field.child in items}
        for name, fields in messages.items()
    }
    return {name: tags for name, tags in found.items() if tags}


# ---- logs

_LOGS_MESSAGES: Messages = {
    **_envelope("ExportLogsServiceRequest", "Logs", Field("log_records", MESSAGE, "LogRecord")),
    "LogRecord": {
        1: Field("time_unix_nano", TIME),
        2: Field("severity_number", VARINT),
        3: Field("severity_text", STRING),
        5: Field("body", MESSAGE, "AnyValue", once=1),
        6: Field("attributes", MESSAGE, "LogRecord.attributes"),
        7: Field("dropped_attributes_count", VARINT),
        8: Field("flags", FIXED32),
        9: Field("trace_id", BYTES),
        10: Field("span_id", BYTES),
        11: Field("observed_time_unix_nano", TIME),
        12: Field("event_name", STRING),
    },
    "LogRecord.attributes": KEY_VALUE,
    **COMMON,
}


def _mend_record(record: Any) -> None:
    mend_fields(record, record.attributes, "severity_text", "event_name")
    if record.body.WhichOneof("value") == "string_value":
        original = record.body.string_value
        text = replace_invalid_utf8(original)
        if text != original:
            record.body.string_value = text
            add_kept_value(record.attributes, "body").bytes_value = original
    elif record.HasField("body"):
        mend_value(record.body)
    for field in ("time_unix_nano", "observed_time_unix_nano"):
        mend_time(record, field, record.attributes)


LOGS_REQUEST = Request(
    "logs",
    _LOGS_MESSAGES,
    "LogRecord",
    Repair(
        _items(_LOGS_MESSAGES, "LogRecord"),
        {"ResourceLogs": mend_resource, "ScopeLogs": mend_scope, "LogRecord": _mend_record},
        "opentelemetry.proto.logs.v1.logs_pb2",
    ),
)


# ---- metrics

_TIMES = {2: Field("start_time_unix_nano", TIME), 3: Field("time_unix_nano", TIME)}
_POINTS = ("NumberDataPoint", "HistogramDataPoint", "ExponentialHistogramDataPoint", "SummaryDataPoint")
_EXEMPLAR = Field("exemplars", MESSAGE, "Exemplar")
_ATTRIBUTES = Field("attributes", MESSAGE, "Point.attributes")


def _data(point: str) -> dict[int, Field]:
    """Return the fields of a Gauge, Sum, Histogram, ... with points of this type."""
    return {1: Field("data_points", MESSAGE, point)}


def _buckets(side: str) -> dict[int, Field]:
    return {1: Field("offset", VARINT), 2: Field("bucket_counts", VARINTS, f"{side}.counts")}


_METRICS_MESSAGES: Messages = {
    **_envelope("ExportMetricsServiceRequest", "Metrics", Field("metrics", MESSAGE, "Metric", many=1)),
    "Metric": {
        1: Field("name", STRING),
        2: Field("description", STRING),
        3: Field("unit", STRING),
        5: Field("gauge", MESSAGE, "Gauge", once=1, many=1),
        7: Field("sum", MESSAGE, "Sum", once=1, many=1),
        9: Field("histogram", MESSAGE, "Histogram", once=1, many=1),
        10: Field("exponential_histogram", MESSAGE, "ExponentialHistogram", once=1, many=1),
        11: Field("summary", MESSAGE, "Summary", once=1, many=1),
        12: Field("metadata", MESSAGE, "Metadata.attributes"),
    },
    "Gauge": _data("NumberDataPoint"),
    "Sum": {
        **_data("NumberDataPoint"),
        2: Field("aggregation_temporality", VARINT),
        3: Field("is_monotonic", VARINT),
    },
    "Histogram": {**_data("HistogramDataPoint"), 2: Field("aggregation_temporality", VARINT)},
    "ExponentialHistogram": {
        **_data("ExponentialHistogramDataPoint"),
        2: Field("aggregation_temporality", VARINT),
    },
    "Summary": _data("SummaryDataPoint"),
    "NumberDataPoint": {
        **_TIMES,
        4: Field("as_double", FIXED64),
        5: _EXEMPLAR,
        6: Field("as_int", FIXED64),
        7: _ATTRIBUTES,
        8: Field("flags", VARINT),
    },
    "HistogramDataPoint": {
        **_TIMES,
        4: Field("count", FIXED64),
        5: Field("sum", FIXED64),
        6: Field("bucket_counts", FIXED64S, "bucket_counts"),
        7: Field("explicit_bounds", FIXED64S, "explicit_bounds"),
        8: _EXEMPLAR,
        9: _ATTRIBUTES,
        10: Field("flags", VARINT),
        11: Field("min", FIXED64),
        12: Field("max", FIXED64),
    },
    "ExponentialHistogramDataPoint": {
        1: _ATTRIBUTES,
        **_TIMES,
        4: Field("count", FIXED64),
        5: Field("sum", FIXED64),
        6: Field("scale", VARINT),
        7: Field("zero_count", FIXED64),
        8: Field("positive", MESSAGE, "positive"),
        9: Field("negative", MESSAGE, "negative"),
        10: Field("flags", VARINT),
        11: _EXEMPLAR,
        12: Field("min", FIXED64),
        13: Field("max", FIXED64),
        14: Field("zero_threshold", FIXED64),
    },
    "SummaryDataPoint": {
        **_TIMES,
        4: Field("count", FIXED64),
        5: Field("sum", FIXED64),
        6: Field("quantile_values", MESSAGE, "ValueAtQuantile"),
        7: _ATTRIBUTES,
        8: Field("flags", VARINT),
    },
    "positive": _buckets("positive"),
    "negative": _buckets("negative"),
    "ValueAtQuantile": {1: Field("quantile", FIXED64), 2: Field("value", FIXED64)},
    "Exemplar": {
        2: Field("time_unix_nano", TIME),
        3: Field("as_double", FIXED64),
        4: Field("span_id", BYTES),
        5: Field("trace_id", BYTES),
        6: Field("as_int", FIXED64),
        7: Field("filtered_attributes", MESSAGE, "Exemplar.attributes"),
    },
    "Point.attributes": KEY_VALUE,
    "Exemplar.attributes": KEY_VALUE,
    "Metadata.attributes": KEY_VALUE,
    # Not messages: the names under which repeated numbers are counted.
    "bucket_counts": {},
    "explicit_bounds": {},
    "positive.counts": {},
    "negative.counts": {},
    **COMMON,
}


def _mend_metric(metric: Any) -> None:
    """Mend the head alone: the points are items of their own."""
    mend_fields(metric, metric.metadata, "name", "description", "unit")


def _mend_summary_point(point: Any) -> None:
    mend_fields(point, point.attributes, "time_unix_nano", "start_time_unix_nano")


def _mend_point(point: Any) -> None:
    _mend_summary_point(point)
    for exemplar in point.exemplars:
        mend_fields(exemplar, exemplar.filtered_attributes, "time_unix_nano")


METRICS_REQUEST = Request(
    "metrics",
    _METRICS_MESSAGES,
    "Metric",
    Repair(
        _items(_METRICS_MESSAGES, "Metric", "Gauge", "Sum", "Histogram", "ExponentialHistogram", "Summary", *_POINTS),
        {
            "ResourceMetrics": mend_resource,
            "ScopeMetrics": mend_scope,
            "Metric": _mend_metric,
            "NumberDataPoint": _mend_point,
            "HistogramDataPoint": _mend_point,
            "ExponentialHistogramDataPoint": _mend_point,
            "SummaryDataPoint": _mend_summary_point,
        },
        "opentelemetry.proto.metrics.v1.metrics_pb2",
        either=frozenset({"Metric"}),
    ),
    rows=_POINTS,
    # Each number is held in the flat arrays, in the batch of a row group, and in Parquet's own buffers.
    weights={
        **dict.fromkeys(("bucket_counts", "explicit_bounds", "positive.counts", "negative.counts"), 24),
        "ValueAtQuantile": 48,
        "Exemplar": 200,
        "Metric": 100,
        **dict.fromkeys(_POINTS[1:], 600),
    },
)


# ---- traces

_TRACES_MESSAGES: Messages = {
    **_envelope("ExportTraceServiceRequest", "Spans", Field("spans", MESSAGE, "Span")),
    "Span": {
        1: Field("trace_id", BYTES),
        2: Field("span_id", BYTES),
        3: Field("trace_state", STRING),
        4: Field("parent_span_id", BYTES),
        5: Field("name", STRING),
        6: Field("kind", VARINT),
        7: Field("start_time_unix_nano", TIME),
        8: Field("end_time_unix_nano", TIME),
        9: Field("attributes", MESSAGE, "Span.attributes"),
        10: Field("dropped_attributes_count", VARINT),
        11: Field("events", MESSAGE, "Event"),
        12: Field("dropped_events_count", VARINT),
        13: Field("links", MESSAGE, "Link"),
        14: Field("dropped_links_count", VARINT),
        15: Field("status", MESSAGE, "Status"),
        16: Field("flags", FIXED32),
    },
    "Span.attributes": KEY_VALUE,
    "Event": {
        1: Field("time_unix_nano", TIME),
        2: Field("name", STRING),
        3: Field("attributes", MESSAGE, "Event.attributes"),
        4: Field("dropped_attributes_count", VARINT),
    },
    "Event.attributes": KEY_VALUE,
    "Link": {
        1: Field("trace_id", BYTES),
        2: Field("span_id", BYTES),
        3: Field("trace_state", STRING),
        4: Field("attributes", MESSAGE, "Link.attributes"),
        5: Field("dropped_attributes_count", VARINT),
        6: Field("flags", FIXED32),
    },
    "Link.attributes": KEY_VALUE,
    "Status": {2: Field("message", STRING), 3: Field("code", VARINT)},
    **COMMON,
}


def _mend_span(span: Any) -> None:
    mend_fields(span, span.attributes, "trace_state", "name")
    mend_text(span.status, "message", span.attributes, "status.message")
    for field in ("start_time_unix_nano", "end_time_unix_nano"):
        mend_time(span, field, span.attributes)
    for event in span.events:
        mend_fields(event, event.attributes, "name", "time_unix_nano")
    for link in span.links:
        mend_fields(link, link.attributes, "trace_state")


TRACES_REQUEST = Request(
    "traces",
    _TRACES_MESSAGES,
    "Span",
    Repair(
        _items(_TRACES_MESSAGES, "Span"),
        {"ResourceSpans": mend_resource, "ScopeSpans": mend_scope, "Span": _mend_span},
        "opentelemetry.proto.trace.v1.trace_pb2",
    ),
    weights={"Event": 150, "Link": 150},
)
