"""The tables of LakeQL and their columns, in the order that `SELECT *` gives them. docs/formats/lakeql.md shows them.

Names and types are those a query sees, not those of the Parquet files: query/scan.py makes the one from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from lakerunner.model.signal import ATTRIBUTES, LOGS, RESOURCE, SCOPE, SIGNALS, SignalSpec


class Kind(Enum):
    """What a query may do with a column beyond what its type says."""

    PLAIN = auto()
    TIME = auto()  # compared with texts and zoned times; exact to the ns
    ID = auto()  # bytes, shown and compared as hexadecimal text
    MAP = auto()  # attributes, each of which can be read alone
    ORGANIZATION = auto()  # compared with the caller's own id only


@dataclass(frozen=True)
class TableColumn:
    """`type` is DuckDB's. `scope` is the Parquet map of a MAP."""

    name: str
    type: str
    kind: Kind = Kind.PLAIN
    scope: str = ""


@dataclass(frozen=True)
class Table:
    """`aliases` are further names a column is known by."""

    spec: SignalSpec
    columns: tuple[TableColumn, ...]
    aliases: dict[str, str] = field(default_factory=dict)

    def named(self) -> dict[str, TableColumn]:
        """Every name a query may use, aliases too."""
        columns = {column.name: column for column in self.columns}
        return columns | {alias: columns[name] for alias, name in self.aliases.items()}


_ATTRIBUTE_MAP = "MAP(VARCHAR, VARCHAR)"

LOGS_TABLE = Table(
    LOGS,
    (
        TableColumn("timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("observed_timestamp", "TIMESTAMP_NS", Kind.TIME),
        TableColumn("organization_id", "VARCHAR", Kind.ORGANIZATION),
        TableColumn("collector", "VARCHAR"),
        TableColumn("service_name", "VARCHAR"),
        TableColumn("severity", "VARCHAR"),
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
        TableColumn("scope_name", "VARCHAR"),
        TableColumn("scope_version", "VARCHAR"),
        TableColumn("attributes", _ATTRIBUTE_MAP, Kind.MAP, ATTRIBUTES.map_column),
        TableColumn("resource_attrs", _ATTRIBUTE_MAP, Kind.MAP, RESOURCE.map_column),
        TableColumn("scope_attrs", _ATTRIBUTE_MAP, Kind.MAP, SCOPE.map_column),
    ),
    {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"},
)
TABLES = {table.spec.table: table for table in (LOGS_TABLE,)}
NOT_YET = {spec.table: spec for spec in SIGNALS.values() if not spec.ingested}


def table_of_signal(signal: str) -> Table:
    return TABLES[SIGNALS[signal].table]
