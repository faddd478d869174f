"""The tables of LakeQL for people: every column with its type and what it means, as `\\d` and the API show them."""

from __future__ import annotations

from typing import Any

from lakerunner.lakeql.tables import TABLES

KINDS = "1 internal, 2 server, 3 client, 4 producer, 5 consumer"
STATUS_CODES = "0 unset, 1 ok, 2 error"
TABLE_MEANINGS = {
    "logs": "one row for each log record",
    "metrics": "one row for each data point",
    "spans": "one row for each span of a trace",
}
_OF_ALL = {
    "timestamp": "when it happened, UTC, exact to the nanosecond",
    "organization_id": "your organization, always",
    "collector": "collector that sent the record",
    "service_name": "service that sent the record",
    "flags": "flags, as in OTLP",
    "scope_name": "the instrumentation scope",
    "scope_version": "its version",
    "scope_schema_url": "the schema of the scope",
    "resource_schema_url": "the schema of the resource",
    "scope_dropped_attributes": "number of attributes that the scope lost before it was sent",
    "resource_dropped_attributes": "number of attributes that the resource lost before it was sent",
    "attributes": "attributes, by key: attributes['http.route']",
    "resource_attrs": "the resource's attributes; also called resource_attributes",
    "scope_attrs": "the scope's attributes; also called scope_attributes",
}
_TRACE_IDS = {
    "trace_id": "lower-case hexadecimal",
    "span_id": "lower-case hexadecimal",
}
_DROPPED = {"dropped_attributes_count": "number of attributes that were lost before it was sent"}
COLUMN_MEANINGS: dict[str, dict[str, str]] = {
    "logs": {
        **_OF_ALL,
        **_TRACE_IDS,
        **_DROPPED,
        "observed_timestamp": "when it was collected; may be null",
        "severity": "text and number reconciled, upper case; compared without regard to case",
        "severity_number": "1 to 24, as OTLP counts",
        "severity_text": "as it came",
        "message": "the body as text",
        "body": "the body as typed JSON where it is not a string, else null",
        "event_name": "the event's name, where it is one",
        "fingerprint": "fingerprint of the message's pattern: similar messages have the same",
    },
    "metrics": {
        **_OF_ALL,
        "start_timestamp": "start of the time that the value covers; may be null",
        "metric_name": "the metric's name",
        "metric_type": "gauge, sum, histogram, exponential_histogram or summary",
        "temporality": "cumulative, delta or null",
        "monotonic": "sums only: whether it only grows",
        "unit": "the metric's unit",
        "description": "description of the metric",
        "series": "time series of the point",
        "value": "the number of a gauge or sum, as a double",
        "int_value": "the number if it was sent as an integer, exactly",
        "count": "histograms and summaries only: number of values",
        "float_count": "Prometheus' float histograms only: number of values",
        "sum": "sum of the values; null if not sent",
        "min": "smallest value; null if not sent",
        "max": "largest value; null if not sent",
        "bounds": "histograms only: upper bounds of all buckets but the last, which ends at +Inf",
        "bucket_counts": "histograms only: number of values in each bucket",
        "float_bucket_counts": "float histograms only: number of values in each bucket",
        "scale": "exponential histograms only",
        "zero_count": "exponential histograms only: number of values close to zero",
        "float_zero_count": "float histograms only: number of values close to zero",
        "zero_threshold": "largest distance from zero that counts as close to zero",
        "positive": "exponential histograms only: buckets above zero",
        "negative": "exponential histograms only: buckets below zero",
        "quantiles": "summaries only: the quantiles",
        "quantile_values": "summaries only: values of the quantiles",
        "exemplars": "single values with their traces; empty if there are none",
        "exemplar_trace": "trace id of the first exemplar",
        "reset_hint": "Prometheus' native histograms only",
        "flags": "bit 0: no recorded value",
        "metadata": "attributes of the metric itself; null if there are none",
    },
    "spans": {
        **_OF_ALL,
        **_TRACE_IDS,
        **_DROPPED,
        "timestamp": "when the span began, UTC, exact to the nanosecond",
        "end_timestamp": "when it ended; may be null",
        "duration": "nanoseconds; null where a time is missing",
        "name": "the operation",
        "kind": KINDS,
        "status_code": STATUS_CODES,
        "status_message": "reason, if it is an error",
        "parent_span_id": "lower-case hexadecimal; null for a root span",
        "trace_state": "as in W3C trace context",
        "events": "events within the span: time, name, attributes; empty if there are none",
        "links": "links to spans of other traces",
        "dropped_events_count": "number of events that were lost before it was sent",
        "dropped_links_count": "number of links that were lost before it was sent",
    },
}


def described_tables() -> list[dict[str, Any]]:
    """Name, description, aliases and columns of every table, columns as `SELECT *` gives them."""
    return [
        {
            "name": name,
            "description": TABLE_MEANINGS[name],
            "columns": [
                {"name": column.name, "type": column.type, "description": COLUMN_MEANINGS[name][column.name]}
                for column in table.columns
            ],
            "aliases": dict(table.aliases),
        }
        for name, table in TABLES.items()
    ]
