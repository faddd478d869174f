"""The tables of LakeQL: their columns in the order of `SELECT *`, and what each column means (docs/formats/lakeql.md).

Names and types are those that a query sees, not those of the Parquet files: query/segment_cache/relation.py makes the
one from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from lakerunner.model.signal import ATTRIBUTES, LOGS, METRICS, RESOURCE, SCOPE, SIGNALS, TIME, TRACES, SignalSpec


class ColumnKind(Enum):
    """What a query may do with a column beyond what its type allows."""

    PLAIN = auto()
    TIME = auto()  # compared with texts and zoned times; exact to the ns
    ID = auto()  # bytes, shown and compared as hexadecimal text
    HEX = auto()  # an id that is not stored as bytes: compared as hexadecimal text
    MAP = auto()  # attributes, each of which can be read alone
    SEVERITY = auto()  # upper case, compared without regard to case
    ITEMS = auto()  # a list of structs, whose fields are shown as columns of their kind are
    ITEM = auto()  # one of these structs
    ORGANIZATION = auto()  # compared with the caller's own id only


@dataclass(frozen=True)
class TableColumn:
    """`type` is DuckDB's. `scope` is the Parquet map of a MAP, `fields` are those of each struct of ITEMS."""

    name: str
    type: str
    kind: ColumnKind = ColumnKind.PLAIN
    scope: str = ""
    fields: tuple[TableColumn, ...] = ()


@dataclass(frozen=True)
class Table:
    """`aliases` are further names of columns. A query may name the `hidden` columns too, but no star shows them: they
    describe how a row arrived, not what it is."""

    spec: SignalSpec
    columns: tuple[TableColumn, ...]
    aliases: dict[str, str] = field(default_factory=dict)
    hidden: tuple[TableColumn, ...] = ()

    def named(self) -> dict[str, TableColumn]:
        """Return every name that a query may use, aliases too."""
        columns = {column.name: column for column in (*self.columns, *self.hidden)}
        return columns | {alias: columns[name] for alias, name in self.aliases.items()}


_ATTRIBUTE_MAP = "MAP(VARCHAR, VARCHAR)"
# What a query sees of the stored types of an item's fields.
_SHOWN_TYPES = {
    TIME: "TIMESTAMP_NS",
    pa.string(): "VARCHAR",
    pa.binary(): "VARCHAR",
    pa.uint32(): "UINTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
}
_KINDS = {TIME: ColumnKind.TIME, pa.binary(): ColumnKind.HEX}


def _items(spec: SignalSpec, name: str) -> TableColumn:
    """Return the column of this name of the signal's schema, a list of structs."""
    item = spec.schema.field(name).type.value_type
    fields = tuple(
        TableColumn(
            f.name,
            _ATTRIBUTE_MAP if pa.types.is_map(f.type) else _SHOWN_TYPES[f.type],
            _KINDS.get(f.type, ColumnKind.PLAIN),
        )
        for f in item
    )
    listed = ", ".join(f'"{field.name}" {field.type}' for field in fields)
    return TableColumn(name, f"STRUCT({listed})[]", ColumnKind.ITEMS, fields=fields)


_OWNER_COLUMNS = (
    TableColumn("scope_name", "VARCHAR"),
    TableColumn("scope_version", "VARCHAR"),
    TableColumn("scope_schema_url", "VARCHAR"),
    TableColumn("resource_schema_url", "VARCHAR"),
    TableColumn("scope_dropped_attributes", "UINTEGER"),
    TableColumn("resource_dropped_attributes", "UINTEGER"),
    TableColumn("attributes", _ATTRIBUTE_MAP, ColumnKind.MAP, ATTRIBUTES.map_column),
    TableColumn("resource_attrs", _ATTRIBUTE_MAP, ColumnKind.MAP, RESOURCE.map_column),
    TableColumn("scope_attrs", _ATTRIBUTE_MAP, ColumnKind.MAP, SCOPE.map_column),
)
_OWNER_ALIASES = {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}

LOGS_TABLE = Table(
    LOGS,
    (
        TableColumn("timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("observed_timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("organization_id", "VARCHAR", ColumnKind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("severity", "VARCHAR", ColumnKind.SEVERITY),
        TableColumn("severity_number", "INTEGER"),
        TableColumn("severity_text", "VARCHAR"),
        TableColumn("message", "VARCHAR"),
        TableColumn("body", "VARCHAR"),
        TableColumn("event_name", "VARCHAR"),
        TableColumn("trace_id", "VARCHAR", ColumnKind.ID),
        TableColumn("span_id", "VARCHAR", ColumnKind.ID),
        TableColumn("flags", "UINTEGER"),
        TableColumn("fingerprint", "BIGINT"),
        TableColumn("dropped_attributes_count", "UINTEGER"),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
    hidden=(TableColumn("delivery", "BIGINT"), TableColumn("delivery_row", "UINTEGER")),
)
_BUCKETS = 'STRUCT("offset" INTEGER, counts UBIGINT[], float_counts DOUBLE[])'
METRICS_TABLE = Table(
    METRICS,
    (
        TableColumn("timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("start_timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("organization_id", "VARCHAR", ColumnKind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("metric_name", "VARCHAR"),
        TableColumn("metric_type", "VARCHAR"),
        TableColumn("temporality", "VARCHAR"),
        TableColumn("monotonic", "BOOLEAN"),
        TableColumn("unit", "VARCHAR"),
        TableColumn("description", "VARCHAR"),
        TableColumn("series", "BIGINT"),
        TableColumn("value", "DOUBLE"),
        TableColumn("int_value", "BIGINT"),
        TableColumn("count", "UBIGINT"),
        TableColumn("float_count", "DOUBLE"),
        TableColumn("sum", "DOUBLE"),
        TableColumn("min", "DOUBLE"),
        TableColumn("max", "DOUBLE"),
        TableColumn("bounds", "DOUBLE[]"),
        TableColumn("bucket_counts", "UBIGINT[]"),
        TableColumn("float_bucket_counts", "DOUBLE[]"),
        TableColumn("scale", "INTEGER"),
        TableColumn("zero_count", "UBIGINT"),
        TableColumn("float_zero_count", "DOUBLE"),
        TableColumn("zero_threshold", "DOUBLE"),
        TableColumn("positive", _BUCKETS),
        TableColumn("negative", _BUCKETS),
        TableColumn("quantiles", "DOUBLE[]"),
        TableColumn("quantile_values", "DOUBLE[]"),
        _items(METRICS, "exemplars"),
        TableColumn("exemplar_trace", "VARCHAR", ColumnKind.HEX),
        TableColumn("reset_hint", "VARCHAR"),
        TableColumn("flags", "UINTEGER"),
        TableColumn("metadata", _ATTRIBUTE_MAP),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
)
SPANS_TABLE = Table(
    TRACES,
    (
        TableColumn("timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("end_timestamp", "TIMESTAMP_NS", ColumnKind.TIME),
        TableColumn("duration", "BIGINT"),
        TableColumn("organization_id", "VARCHAR", ColumnKind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("name", "VARCHAR"),
        TableColumn("kind", "INTEGER"),
        TableColumn("status_code", "INTEGER"),
        TableColumn("status_message", "VARCHAR"),
        TableColumn("trace_id", "VARCHAR", ColumnKind.ID),
        TableColumn("span_id", "VARCHAR", ColumnKind.ID),
        TableColumn("parent_span_id", "VARCHAR", ColumnKind.ID),
        TableColumn("trace_state", "VARCHAR"),
        TableColumn("flags", "UINTEGER"),
        _items(TRACES, "events"),
        _items(TRACES, "links"),
        TableColumn("dropped_attributes_count", "UINTEGER"),
        TableColumn("dropped_events_count", "UINTEGER"),
        TableColumn("dropped_links_count", "UINTEGER"),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
)
TABLES = {table.spec.table: table for table in (LOGS_TABLE, METRICS_TABLE, SPANS_TABLE)}


def table_of_signal(signal: str) -> Table:
    return TABLES[SIGNALS[signal].table]


# ---- descriptions, as `\d` and the API show them

KINDS = "1 internal, 2 server, 3 client, 4 producer, 5 consumer"
STATUS_CODES = "0 unset, 1 ok, 2 error"
TABLE_MEANINGS = {
    "logs": "one row for each log record",
    "metrics": "one row for each data point",
    "spans": "one row for each span of a trace",
}
_COMMON_MEANINGS = {
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
        **_COMMON_MEANINGS,
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
        **_COMMON_MEANINGS,
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
        **_COMMON_MEANINGS,
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


def describe_tables() -> list[dict[str, Any]]:
    """Return name, description, aliases and columns of every table, columns in the order of `SELECT *`."""
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
