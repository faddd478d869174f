"""The tables of LakeQL: their columns in the order of `SELECT *`, and what each column means (docs/formats/lakeql.md).

Names and types are those that a query sees, not those of the Parquet files: query/segment_cache/relation.py makes the
one from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from lakerunner.model.signal import ATTRIBUTES, LOGS, METRICS, RESOURCE, SCOPE, SIGNALS, TIME, TRACES, Scope, SignalSpec


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
    """`type` is DuckDB's. `meaning` is shown to people. `scope` is the Parquet map of a MAP, `fields` are those of each
    struct of ITEMS."""

    name: str
    type: str
    meaning: str = field(default="", compare=False)
    kind: ColumnKind = ColumnKind.PLAIN
    scope: str = ""
    fields: tuple[TableColumn, ...] = ()


@dataclass(frozen=True)
class Table:
    """`aliases` are further names of columns. A query may name the `hidden` columns too, but no star shows them: they
    describe how a row arrived, not what it is."""

    spec: SignalSpec
    meaning: str
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


def _text(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, "VARCHAR", meaning)


def _time(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, "TIMESTAMP_NS", meaning, ColumnKind.TIME)


def _id(name: str, meaning: str = "lower-case hexadecimal") -> TableColumn:
    return TableColumn(name, "VARCHAR", meaning, ColumnKind.ID)


def _attributes(name: str, meaning: str, scope: Scope) -> TableColumn:
    return TableColumn(name, _ATTRIBUTE_MAP, meaning, ColumnKind.MAP, scope.map_column)


def _dropped(name: str, what: str) -> TableColumn:
    return TableColumn(name, "UINTEGER", f"number of {what} before it was sent")


def _items(spec: SignalSpec, name: str, meaning: str) -> TableColumn:
    """Return the column of this name of the signal's schema, a list of structs."""
    item = spec.schema.field(name).type.value_type
    fields = tuple(
        TableColumn(
            f.name,
            _ATTRIBUTE_MAP if pa.types.is_map(f.type) else _SHOWN_TYPES[f.type],
            kind=_KINDS.get(f.type, ColumnKind.PLAIN),
        )
        for f in item
    )
    listed = ", ".join(f'"{field.name}" {field.type}' for field in fields)
    return TableColumn(name, f"STRUCT({listed})[]", meaning, ColumnKind.ITEMS, fields=fields)


_TIMESTAMP = _time("timestamp", "when it happened, UTC, exact to the nanosecond")
_FLAGS = TableColumn("flags", "UINTEGER", "flags, as in OTLP")
_SENDER = (
    TableColumn("organization_id", "VARCHAR", "your organization, always", ColumnKind.ORGANIZATION),
    _text("collector", "collector that sent the record"),
    _text("service_name", "service that sent the record"),
)
_OWNER_COLUMNS = (
    _text("scope_name", "the instrumentation scope"),
    _text("scope_version", "its version"),
    _text("scope_schema_url", "the schema of the scope"),
    _text("resource_schema_url", "the schema of the resource"),
    _dropped("scope_dropped_attributes", "attributes that the scope lost"),
    _dropped("resource_dropped_attributes", "attributes that the resource lost"),
    _attributes("attributes", "attributes, by key: attributes['http.route']", ATTRIBUTES),
    _attributes("resource_attrs", "the resource's attributes; also called resource_attributes", RESOURCE),
    _attributes("scope_attrs", "the scope's attributes; also called scope_attributes", SCOPE),
)
_OWNER_ALIASES = {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}
_SEVERITY = "text and number reconciled, upper case; compared without regard to case"

LOGS_TABLE = Table(
    LOGS,
    "one row for each log record",
    (
        _TIMESTAMP,
        _time("observed_timestamp", "when it was collected; may be null"),
        *_SENDER,
        TableColumn("severity", "VARCHAR", _SEVERITY, ColumnKind.SEVERITY),
        TableColumn("severity_number", "INTEGER", "1 to 24, as OTLP counts"),
        _text("severity_text", "as it came"),
        _text("message", "the body as text"),
        _text("body", "the body as typed JSON where it is not a string, else null"),
        _text("event_name", "the event's name, where it is one"),
        _id("trace_id"),
        _id("span_id"),
        _FLAGS,
        TableColumn("fingerprint", "BIGINT", "fingerprint of the message's pattern: similar messages have the same"),
        _dropped("dropped_attributes_count", "attributes that were lost"),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
    hidden=(TableColumn("delivery", "BIGINT"), TableColumn("delivery_row", "UINTEGER")),
)
_BUCKETS = 'STRUCT("offset" INTEGER, counts UBIGINT[], float_counts DOUBLE[])'
_BOUNDS = "histograms only: upper bounds of all buckets but the last, which ends at +Inf"
_PARTS = "points of rules only, which add up"
METRICS_TABLE = Table(
    METRICS,
    "one row for each data point",
    (
        _TIMESTAMP,
        _time("start_timestamp", "start of the time that the value covers; may be null"),
        *_SENDER,
        _text("metric_name", "the metric's name"),
        _text("metric_type", "gauge, sum, histogram, exponential_histogram or summary"),
        _text("temporality", "cumulative, delta or null"),
        TableColumn("monotonic", "BOOLEAN", "sums only: whether it only grows"),
        _text("unit", "the metric's unit"),
        _text("description", "description of the metric"),
        TableColumn("series", "BIGINT", "time series of the point"),
        TableColumn("value", "DOUBLE", "the number of a gauge or sum, as a double"),
        TableColumn("int_value", "BIGINT", "the number if it was sent as an integer, exactly"),
        TableColumn("count", "UBIGINT", "histograms and summaries only: number of values"),
        TableColumn("float_count", "DOUBLE", "Prometheus' float histograms only: number of values"),
        TableColumn("sum", "DOUBLE", "sum of the values; null if not sent"),
        TableColumn("min", "DOUBLE", "smallest value; null if not sent"),
        TableColumn("max", "DOUBLE", "largest value; null if not sent"),
        TableColumn("bounds", "DOUBLE[]", _BOUNDS),
        TableColumn("bucket_counts", "UBIGINT[]", "histograms only: number of values in each bucket"),
        TableColumn("float_bucket_counts", "DOUBLE[]", "float histograms only: number of values in each bucket"),
        TableColumn("scale", "INTEGER", "exponential histograms only"),
        TableColumn("zero_count", "UBIGINT", "exponential histograms only: number of values close to zero"),
        TableColumn("float_zero_count", "DOUBLE", "float histograms only: number of values close to zero"),
        TableColumn("zero_threshold", "DOUBLE", "largest distance from zero that counts as close to zero"),
        TableColumn("positive", _BUCKETS, "exponential histograms only: buckets above zero"),
        TableColumn("negative", _BUCKETS, "exponential histograms only: buckets below zero"),
        TableColumn("quantiles", "DOUBLE[]", "summaries only: the quantiles"),
        TableColumn("quantile_values", "DOUBLE[]", "summaries only: values of the quantiles"),
        _items(METRICS, "exemplars", "single values with their traces; empty if there are none"),
        TableColumn("exemplar_trace", "VARCHAR", "trace id of the first exemplar", ColumnKind.HEX),
        _text("reset_hint", "Prometheus' native histograms only"),
        TableColumn("flags", "UINTEGER", "bit 0: no recorded value"),
        TableColumn("chq_rollup_count", "BIGINT", f"{_PARTS}: rows, negative if they are taken back"),
        TableColumn("chq_rollup_sum", "DOUBLE", f"{_PARTS}: sum of the values"),
        TableColumn("chq_rollup_sum_error", "DOUBLE", f"{_PARTS}: what the sum lost by rounding"),
        TableColumn("chq_rollup_min", "DOUBLE", f"{_PARTS}: smallest value"),
        TableColumn("chq_rollup_max", "DOUBLE", f"{_PARTS}: largest value"),
        TableColumn("metadata", _ATTRIBUTE_MAP, "attributes of the metric itself; null if there are none"),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
)
KINDS = "1 internal, 2 server, 3 client, 4 producer, 5 consumer"
STATUS_CODES = "0 unset, 1 ok, 2 error"
SPANS_TABLE = Table(
    TRACES,
    "one row for each span of a trace",
    (
        _time("timestamp", "when the span began, UTC, exact to the nanosecond"),
        _time("end_timestamp", "when it ended; may be null"),
        TableColumn("duration", "BIGINT", "nanoseconds; null where a time is missing"),
        *_SENDER,
        _text("name", "the operation"),
        TableColumn("kind", "INTEGER", KINDS),
        TableColumn("status_code", "INTEGER", STATUS_CODES),
        _text("status_message", "reason, if it is an error"),
        _id("trace_id"),
        _id("span_id"),
        _id("parent_span_id", "lower-case hexadecimal; null for a root span"),
        _text("trace_state", "as in W3C trace context"),
        _FLAGS,
        _items(TRACES, "events", "events within the span: time, name, attributes; empty if there are none"),
        _items(TRACES, "links", "links to spans of other traces"),
        _dropped("dropped_attributes_count", "attributes that were lost"),
        _dropped("dropped_events_count", "events that were lost"),
        _dropped("dropped_links_count", "links that were lost"),
        *_OWNER_COLUMNS,
    ),
    _OWNER_ALIASES,
)
TABLES = {table.spec.table: table for table in (LOGS_TABLE, METRICS_TABLE, SPANS_TABLE)}


def table_of_signal(signal: str) -> Table:
    return TABLES[SIGNALS[signal].table]


def describe_tables() -> list[dict[str, Any]]:
    """Return name, description, aliases and columns of every table, columns in the order of `SELECT *`."""
    return [
        {
            "name": name,
            "description": table.meaning,
            "columns": [
                {"name": column.name, "type": column.type, "description": column.meaning} for column in table.columns
            ],
            "aliases": dict(table.aliases),
        }
        for name, table in TABLES.items()
    ]
