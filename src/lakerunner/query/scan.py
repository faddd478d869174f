"""A scan and its segments, as the DuckDB SQL of a relation.

One projection for each group of segments with the same columns, NULL for what a group lacks, UNION ALL between them:
the index knows what is in each file, so none is opened to find out. Only what the query uses is read.
The macros named here are in query/macros.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from lakerunner.lakeql.tables import Kind, TableColumn, table_of_signal
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SCOPES, signal_named
from lakerunner.plan.scan import Attribute, Scan, attribute_column, id_column
from lakerunner.query.held import HeldFile
from lakerunner.query.unit import WorkUnit

_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
_TEXT_OF = {
    "string": "{0}",
    "int64": "CAST({0} AS VARCHAR)",
    "double": "double_text({0})",
    "bool": "CAST({0} AS VARCHAR)",
    "bytes": "base64({0})",
    "json": "typed_text({0})",
}
_MAP = "MAP(VARCHAR, VARCHAR)"
_ENTRIES = "STRUCT(key VARCHAR, value VARCHAR)[]"


@dataclass(frozen=True)
class Made:
    """A column that is not stored as it is shown: the expression of stored columns, and their types."""

    expression: str
    stored: Mapping[str, str]


# A number stands in `value` or in `int_value`, wherever it takes less room, and `is_int` says what it came as.
_NUMBER = {"value": "DOUBLE", "int_value": "BIGINT", "is_int": "BOOLEAN"}
_MADE = {
    ("metrics", "value"): Made("COALESCE({value}, CAST({int_value} AS DOUBLE))", _NUMBER),
    ("metrics", "int_value"): Made(
        "CASE WHEN {is_int} THEN COALESCE({int_value}, CAST({value} AS BIGINT)) END", _NUMBER
    ),
    ("metrics", "exemplar_trace"): Made(
        "lower(hex({exemplars}[1].trace_id))", {"exemplars": "STRUCT(trace_id BLOB)[]"}
    ),
    ("metrics", "metadata"): Made(
        f"CASE WHEN {{metadata}} IS NOT NULL THEN attribute_map(CAST([] AS {_ENTRIES}), {{metadata}}) END",
        {"metadata": _MAP},
    ),
}


def relation_sql(unit: WorkUnit, files: Mapping[UUID, HeldFile]) -> str:
    """The SELECT that gives what the scan states, in its order."""
    scan = unit.leaf.scan
    held = [segment for segment in unit.segments if segment.id in files]
    selects = [
        _group_sql(scan, segments, [files[segment.id].path for segment in segments]) for segments in _groups(scan, held)
    ]
    return "\nUNION ALL\n".join(selects) if selects else empty_sql(scan)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _groups(scan: Scan, segments: Iterable[Segment]) -> list[list[Segment]]:
    """By columns, and by collector where the query asks for it: no file states its own."""
    by_collector = "collector" in scan.columns
    groups: dict[tuple[tuple[Column, ...], str], list[Segment]] = {}
    for segment in segments:
        key = (segment.columns, segment.collector if by_collector else "")
        groups.setdefault(key, []).append(segment)
    return list(groups.values())


def _group_sql(scan: Scan, segments: list[Segment], files: list[Path]) -> str:
    reader = _Reader(segments[0])
    outputs = [(reader.column(column), column.name) for column in _columns(scan)]
    outputs += [
        (reader.attribute(attribute), attribute_column(scan.relation, attribute)) for attribute in scan.attributes
    ]
    outputs += [(reader.stored(name, "BLOB"), id_column(scan.relation, name)) for name in scan.ids]
    listed = ", ".join(text(str(file)) for file in files)
    return f"{_select(outputs)}\nFROM read_parquet([{listed}], hive_partitioning = false)"


def empty_sql(scan: Scan) -> str:
    """No rows, but the names and types a query can be bound to."""
    outputs = [(f"CAST(NULL AS {column.type})", column.name) for column in _columns(scan)]
    outputs += [("CAST(NULL AS VARCHAR)", attribute_column(scan.relation, a)) for a in scan.attributes]
    outputs += [("CAST(NULL AS BLOB)", id_column(scan.relation, name)) for name in scan.ids]
    return f"{_select(outputs)}\nWHERE false"


def _select(outputs: list[tuple[str, str]]) -> str:
    """A relation needs a column, also where the query only counts rows."""
    given = [f"{expression} AS {quoted(name)}" for expression, name in outputs] or ["NULL AS no_column"]
    return "SELECT " + ",\n    ".join(given)


def _columns(scan: Scan) -> list[TableColumn]:
    named = table_of_signal(scan.signal).named()
    return [named[name] for name in scan.columns]


class _Reader:
    """How the files of one group give what a query sees."""

    def __init__(self, segment: Segment) -> None:
        """Of any one of them: they have the same columns and, where it is asked for, the same collector."""
        self._types = {column.name: column.type for column in segment.columns}
        self._names = _names_in_duckdb([column.name for column in segment.columns])
        self._segment = segment

    def column(self, column: TableColumn) -> str:
        match column.name, column.kind:
            case _, Kind.ORGANIZATION:
                return text(str(self._segment.organization))
            case "collector", _:
                return text(self._segment.collector)
            case name, Kind.ID:
                return f"lower(hex({self.stored(name, 'BLOB')}))"
            case _, Kind.MAP:
                return self._map(column.scope)
            case name, Kind.ITEMS:
                return self._items(name, column.type)
        made = _MADE.get((self._segment.signal, column.name))
        if made:
            return made.expression.format(**{name: self.stored(name, type_) for name, type_ in made.stored.items()})
        return self.stored(column.name, column.type)

    def stored(self, name: str, type_: str) -> str:
        return quoted(self._names[name]) if name in self._types else f"CAST(NULL AS {type_})"

    def attribute(self, attribute: Attribute) -> str:
        """From its own column if it has one; values of another type than the column's are in the map."""
        overflow = f"typed_text({self.stored(attribute.scope, _MAP)}[{text(attribute.key)}])"
        own = _PREFIXES[attribute.scope] + attribute.key
        return f"COALESCE({self._text(own)}, {overflow})" if self._types.get(own) else overflow

    def _items(self, name: str, type_: str) -> str:
        """A row without items has an empty list. Inside an item ids and attributes are shown as everywhere."""
        if name not in self._types:
            return f"CAST([] AS {type_})"
        stored = signal_named(self._segment.signal).schema.field(name).type.value_type
        fields = ", ".join(
            f"{text(field.name)}: {_shown(f'item.{quoted(field.name)}', field.type)}" for field in stored
        )
        return f"COALESCE(list_transform({self.stored(name, type_)}, lambda item: {{{fields}}}), [])"

    def _map(self, scope: str) -> str:
        prefix = _PREFIXES[scope]
        own = [name for name, type_ in self._types.items() if type_ and name.startswith(prefix)]
        entries = [f"{{'key': {text(n.removeprefix(prefix))}, 'value': {self._text(n)}}}" for n in own]
        listed = f"[{', '.join(entries)}]" if entries else f"CAST([] AS {_ENTRIES})"
        return f"attribute_map({listed}, {self.stored(scope, _MAP)})"

    def _text(self, name: str) -> str:
        return _TEXT_OF[self._types[name]].format(quoted(self._names[name]))


def _shown(field: str, stored: pa.DataType) -> str:
    if pa.types.is_map(stored):
        return f"attribute_map(CAST([] AS {_ENTRIES}), {field})"
    return f"lower(hex({field}))" if pa.types.is_binary(stored) else field


def _names_in_duckdb(names: list[str]) -> dict[str, str]:
    """Keys differ by case, DuckDB's names do not (in ASCII): it numbers the later ones, as is done here."""
    uses: dict[bytes, int] = {}
    given = {}
    for name in names:
        new, first = name, name.encode().lower()
        while new.encode().lower() in uses:
            new, uses[first] = f"{name}_{uses[first]}", uses[first] + 1
        uses[new.encode().lower()] = 1
        given[name] = new
    return given
