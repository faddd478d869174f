"""The tables of LakeQL and their columns, in the order that `SELECT *` gives them. docs/formats/lakeql.md shows them.

Names and types are those a query sees, not those of the Parquet files: query/scan.py makes the one from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import pyarrow as pa

from lakerunner.model.signal import ATTRIBUTES, LOGS, METRICS, RESOURCE, SCOPE, SIGNALS, TIME, TRACES, SignalSpec


class Kind(Enum):
    """What a query may do with a column beyond what its type says."""

    PLAIN = auto()
    TIME = auto()  # compared with texts and zoned times; exact to the ns
    ID = auto()  # bytes, shown and compared as hexadecimal text
    HEX = auto()  # an id that is no column of bytes: compared as hexadecimal text
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
    kind: Kind = Kind.PLAIN
    scope: str = ""
    fields: tuple[TableColumn, ...] = ()


@dataclass(frozen=True)
class Table:
    """`aliases` are further names a column is known by. A query may name the `hidden` columns too, but no star shows
    them: they say how a row came here, not what it is."""

    spec: SignalSpec
    columns: tuple[TableColumn, ...]
    aliases: dict[str, str] = field(default_factory=dict)
    hidden: tuple[TableColumn, ...] = ()

    def named(self) -> dict[str, TableColumn]:
        """Every name a query may use, aliases too."""
        columns = {column.name: column for column in (*self.columns, *self.hidden)}
        return columns | {alias: columns[name] for alias, name in self.aliases.items()}


_ATTRIBUTE_MAP = "MAP(VARCHAR, VARCHAR)"
# What a query sees of the stored types of an item's fields.
_SHOWN = {
    TIME: "TIMESTAMP_NS",
    pa.string(): "VARCHAR",
    pa.binary(): "VARCHAR",
    pa.uint32(): "UINTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
}
_KINDS = {TIME: Kind.TIME, pa.binary(): Kind.HEX}


def _items(spec: SignalSpec, name: str) -> TableColumn:
    """The column of this name of the signal's schema, a list of structs."""
    item = spec.schema.field(name).type.value_type
    fields = tuple(
        TableColumn(
            f.name, _ATTRIBUTE_MAP if pa.types.is_map(f.type) else _SHOWN[f.type], _KINDS.get(f.type, Kind.PLAIN)
        )
        for f in item
    )
    listed = ", ".join(f'"{field.name}" {field.type}' for field in fields)
    return TableColumn(name, f"STRUCT({listed})[]", Kind.ITEMS, fields=fields)


_OWNER_COLUMNS = (
    TableColumn("scope_name", "VARCHAR"),
    TableColumn("scope_version", "VARCHAR"),
    TableColumn("scope_schema_url", "VARCHAR"),
    TableColumn("resource_schema_url", "VARCHAR"),
    TableColumn("scope_dropped_attributes", "UINTEGER"),
    TableColumn("resource_dropped_attributes", "UINTEGER"),
    TableColumn("attributes", _ATTRIBUTE_MAP, Kind.MAP, ATTRIBUTES.map_column),
    TableColumn("resource_attrs", _ATTRIBUTE_MAP, Kind.MAP, RESOURCE.map_column),
    TableColumn("scope_attrs", _ATTRIBUTE_MAP, Kind.MAP, SCOPE.map_column),
)
_OWNER_ALIASES = {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}

LOGS_TABLE = Table(
    LOGS,
    (
        TableColumn("timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("observed_timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("organization_id", "VARCHAR", Kind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("severity", "VARCHAR", Kind.SEVERITY),
        TableColumn("severity_number", "INTEGER"),
        TableColumn("severity_text", "VARCHAR"),
        TableColumn("message", "VARCHAR"),
        TableColumn("body", "VARCHAR"),
        TableColumn("event_name", "VARCHAR"),
        TableColumn("trace_id", "VARCHAR", Kind.ID),
        TableColumn("span_id", "VARCHAR", Kind.ID),
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
        TableColumn("timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("start_timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("organization_id", "VARCHAR", Kind.ORGANIZATION),
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
        TableColumn("exemplar_trace", "VARCHAR", Kind.HEX),
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
        TableColumn("timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("end_timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("duration", "BIGINT"),
        TableColumn("organization_id", "VARCHAR", Kind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("name", "VARCHAR"),
        TableColumn("kind", "INTEGER"),
        TableColumn("status_code", "INTEGER"),
        TableColumn("status_message", "VARCHAR"),
        TableColumn("trace_id", "VARCHAR", Kind.ID),
        TableColumn("span_id", "VARCHAR", Kind.ID),
        TableColumn("parent_span_id", "VARCHAR", Kind.ID),
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
