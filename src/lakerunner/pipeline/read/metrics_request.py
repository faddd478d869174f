"""OTLP's metrics request: its messages for the wire check, and how what is odd in them is mended."""

from __future__ import annotations

from typing import Any

from lakerunner.pipeline.read.otlp import COMMON, KEY_VALUE, Request
from lakerunner.pipeline.read.repair import Repair, mend_pairs, mend_resource, mend_scope, mend_text, mend_time
from lakerunner.pipeline.read.wire import (
    BYTES,
    FIXED64,
    FIXED64S,
    MESSAGE,
    STRING,
    TIME,
    VARINT,
    VARINTS,
    Field,
    Messages,
)

_TIMES = {2: Field("start_time_unix_nano", TIME), 3: Field("time_unix_nano", TIME)}
_POINTS = ("NumberDataPoint", "HistogramDataPoint", "ExponentialHistogramDataPoint", "SummaryDataPoint")
_EXEMPLAR = Field("exemplars", MESSAGE, "Exemplar")
_ATTRIBUTES = Field("attributes", MESSAGE, "Point.attributes")


def _data(point: str) -> dict[int, Field]:
    return {1: Field("data_points", MESSAGE, point)}


def _buckets(side: str) -> dict[int, Field]:
    return {1: Field("offset", VARINT), 2: Field("bucket_counts", VARINTS, f"{side}.counts")}


_MESSAGES: Messages = {
    "ExportMetricsServiceRequest": {1: Field("resource_metrics", MESSAGE, "ResourceMetrics", many=1)},
    "ResourceMetrics": {
        1: Field("resource", MESSAGE, "Resource"),
        2: Field("scope_metrics", MESSAGE, "ScopeMetrics", many=1),
        3: Field("schema_url", STRING),
    },
    "ScopeMetrics": {
        1: Field("scope", MESSAGE, "Scope"),
        2: Field("metrics", MESSAGE, "Metric", many=1),
        3: Field("schema_url", STRING),
    },
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
    # Not messages, but what repeated numbers are counted as.
    "bucket_counts": {},
    "explicit_bounds": {},
    "positive.counts": {},
    "negative.counts": {},
    **COMMON,
}


def _mend_metric(metric: Any) -> None:
    """Of its head alone: the points are items."""
    mend_pairs(metric.metadata)
    for field in ("name", "description", "unit"):
        mend_text(metric, field, metric.metadata)


def _mend_summary_point(point: Any) -> None:
    mend_pairs(point.attributes)
    mend_time(point, "time_unix_nano", point.attributes)
    mend_time(point, "start_time_unix_nano", point.attributes)


def _mend_point(point: Any) -> None:
    _mend_summary_point(point)
    for exemplar in point.exemplars:
        mend_pairs(exemplar.filtered_attributes)
        mend_time(exemplar, "time_unix_nano", exemplar.filtered_attributes)


METRICS_REQUEST = Request(
    "metrics",
    _MESSAGES,
    "Metric",
    Repair(
        {
            "ExportMetricsServiceRequest": {0x0A: "ResourceMetrics"},
            "ResourceMetrics": {0x12: "ScopeMetrics"},
            "ScopeMetrics": {0x12: "Metric"},
            "Metric": {
                0x2A: "Gauge",
                0x3A: "Sum",
                0x4A: "Histogram",
                0x52: "ExponentialHistogram",
                0x5A: "Summary",
            },
            "Gauge": {0x0A: "NumberDataPoint"},
            "Sum": {0x0A: "NumberDataPoint"},
            "Histogram": {0x0A: "HistogramDataPoint"},
            "ExponentialHistogram": {0x0A: "ExponentialHistogramDataPoint"},
            "Summary": {0x0A: "SummaryDataPoint"},
        },
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
    # Flat, in the batch of a row group, and in Parquet's own buffers.
    weights={
        **dict.fromkeys(("bucket_counts", "explicit_bounds", "positive.counts", "negative.counts"), 24),
        "ValueAtQuantile": 48,
        "Exemplar": 200,
        "Metric": 100,
        **dict.fromkeys(_POINTS[1:], 600),
    },
)
