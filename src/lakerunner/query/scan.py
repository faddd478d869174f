"""A scan and its segments, as the DuckDB SQL of a relation.

One SELECT for each run of segments that give what the query uses in the same way and of which the same rows are read,
NULL for what they lack, UNION ALL between them: the index knows what is in each file, so none is opened to find out.
Only what the query uses is read, and of a file only the rows that it is held with. Rows of a steady leaf come in the
order of the segments, whatever was left out of them, so that where one worker broke off another can go on; else alike
segments are one run wherever they stand, as a SELECT costs as much as a row group. The macros named here are in
query/sandbox/macros.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from uuid import UUID

import pyarrow as pa

from lakerunner.lakeql.tables import Kind, TableColumn, table_of_signal
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SCOPES, Attribute, signal_named
from lakerunner.plan.scan import NUMBER_TYPES, STORED, Scan, Typed, attribute_column, id_column, typed_column
from lakerunner.query.held import NO_END, HeldFile

_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
_TEXT_OF = {
    "string": "{0}",
    "int64": "CAST({0} AS VARCHAR)",
    "double": "double_text({0})",
    "bool": "CAST({0} AS VARCHAR)",
    "bytes": "base64({0})",
    "json": "typed_text({0})",
}
_COLUMN_SETS = 256  # kept as they are read
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


@dataclass(frozen=True)
class _Outputs:
    """Expressions and names; and the stored columns they are made of, with their types: DuckDB casts what has another
    type in a further file of one read_parquet, and binds it by name."""

    listed: tuple[tuple[str, str], ...]
    stored: tuple[Column, ...]


@dataclass(frozen=True)
class _Alike:
    """What the files of one SELECT have in common."""

    outputs: _Outputs
    rows: tuple[tuple[int, int], ...] | None


def relation_sql(
    scan: Scan, segments: Sequence[Segment], files: Mapping[UUID, HeldFile], *, in_order: bool = True
) -> str:
    """Return the SELECT that gives what the scan states; `in_order`: in the order of the segments."""
    there = [one for one in segments if one.id in files]
    projections = Projections(scan, *_known_of_all(scan, [(one, files[one.id]) for one in there]))
    held = [(_Alike(projections.of(one), files[one.id].rows), files[one.id]) for one in there]
    if not in_order:
        first = {alike: n for n, alike in enumerate(dict.fromkeys(alike for alike, _ in held))}
        held.sort(key=lambda one: first[one[0]])
    selects = [
        _select(alike.outputs.listed) + _from([str(file.path) for _, file in run], alike.rows)
        for alike, run in groupby(held, lambda one: one[0])
    ]
    return "\nUNION ALL\n".join(selects) if selects else empty_sql(scan)


class Projections:
    """What the scan's relation reads of each segment. Most segments share their columns with many others: those of one
    set are looked at once, by the identity of the set, since a set may have hundreds. `unmapped` are attributes that no
    map of these segments has, `whole` those that are read as BIGINT."""

    def __init__(
        self, scan: Scan, unmapped: frozenset[Attribute] = frozenset(), whole: frozenset[Typed] = frozenset()
    ) -> None:
        self._scan = scan
        self._unmapped = unmapped
        self._whole = whole
        self._known: dict[tuple[int, str], tuple[tuple[Column, ...], _Outputs]] = {}

    def of(self, segment: Segment) -> _Outputs:
        key = (id(segment.columns), segment.collector)
        if key not in self._known:
            outputs = _outputs(self._scan, _Reader(segment, self._unmapped), self._whole)
            self._known[key] = segment.columns, outputs  # kept, so that its id stays its own
        return self._known[key][1]

    def stored(self, segment: Segment) -> list[str]:
        """The columns of the segment's file that are read."""
        return [column.name for column in self.of(segment).stored]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _known_of_all(scan: Scan, files: list[tuple[Segment, HeldFile]]) -> tuple[frozenset[Attribute], frozenset[Typed]]:
    """The attributes that none of the files has in a map, and the stored ones that are whole numbers in all of them."""
    unmapped = frozenset(scan.attributes).intersection(*(file.unmapped for _, file in files))
    stored = [typed for typed in scan.typed if typed.type == STORED]
    readers = [_Reader(one, unmapped) for one in {id(one.columns): one for one, _ in files if stored}.values()]
    whole = (typed for typed in stored if all(one.is_whole(typed.attributes) for one in readers))
    return unmapped, frozenset(whole)


def _outputs(scan: Scan, reader: _Reader, whole: frozenset[Typed]) -> _Outputs:
    outputs = [(reader.column(column), column.name) for column in _columns(scan)]
    outputs += [
        (reader.attribute(attribute), attribute_column(scan.relation, attribute)) for attribute in scan.attributes
    ]
    outputs += [(reader.stored(name, "BLOB"), id_column(scan.relation, name)) for name in scan.ids]
    outputs += [(reader.typed(one, whole=one in whole), typed_column(scan.relation, one)) for one in scan.typed]
    for name in scan.stored:
        reader.stored(name, "BLOB")
    return _Outputs(tuple(outputs), tuple(reader.used.values()))


def _from(paths: list[str], ranges: tuple[tuple[int, int], ...] | None) -> str:
    rows = [
        f"file_row_number >= {first}" if end == NO_END else f"file_row_number BETWEEN {first} AND {end - 1}"
        for first, end in ranges or ()
    ]
    where = f"\nWHERE {' OR '.join(rows)}" if rows else ""
    return f"\nFROM read_parquet([{', '.join(map(text, paths))}], hive_partitioning = false){where}"


def empty_sql(scan: Scan) -> str:
    """No rows, but the names and types a query can be bound to."""
    outputs = [(f"CAST(NULL AS {column.type})", column.name) for column in _columns(scan)]
    outputs += [("CAST(NULL AS VARCHAR)", attribute_column(scan.relation, a)) for a in scan.attributes]
    outputs += [("CAST(NULL AS BLOB)", id_column(scan.relation, name)) for name in scan.ids]
    types = [(one, "VARCHAR" if one.type == STORED else one.type) for one in scan.typed]
    outputs += [(f"CAST(NULL AS {type_})", typed_column(scan.relation, one)) for one, type_ in types]
    return f"{_select(outputs)}\nWHERE false"


def _select(outputs: Iterable[tuple[str, str]]) -> str:
    """A relation needs a column, also where the query only counts rows."""
    given = [f"{expression} AS {quoted(name)}" for expression, name in outputs] or ["NULL AS no_column"]
    return "SELECT " + ",\n    ".join(given)


def _columns(scan: Scan) -> list[TableColumn]:
    named = table_of_signal(scan.signal).named()
    return [named[name] for name in scan.columns]


class _Reader:
    """How a segment's file gives what a query sees. `used` are the columns that were asked for, by name."""

    def __init__(self, segment: Segment, unmapped: frozenset[Attribute]) -> None:
        self.used: dict[str, Column] = {}
        self._columns = _by_name(segment.columns)
        self._names = _names_in_duckdb(segment.columns)
        self._segment = segment
        self._unmapped = unmapped

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
        return self._use(name) if name in self._columns else f"CAST(NULL AS {type_})"

    def attribute(self, attribute: Attribute) -> str:
        """Its text: from its own column if it has one; values of another type than the column's are in the map."""
        return _first([_TEXT_OF[type_].format(value) for value, type_ in self._values(attribute)], "VARCHAR")

    def typed(self, typed: Typed, *, whole: bool) -> str:
        """The first of the attributes that is not null: as the number it is stored as, or its text as a number."""
        values = [value for attribute in typed.attributes for value in self._values(attribute)]
        if whole:
            return _first([value for value, _ in values], "BIGINT")
        if typed.type == STORED:
            return _first([_TEXT_OF[type_].format(value) for value, type_ in values], "VARCHAR")
        direct = NUMBER_TYPES[typed.type]
        texts = [value if type_ in direct else _TEXT_OF[type_].format(value) for value, type_ in values]
        branches = [f"WHEN {text} IS NOT NULL THEN TRY_CAST({text} AS {typed.type})" for text in texts]
        return f"CASE {' '.join(branches)} END" if branches else f"CAST(NULL AS {typed.type})"

    def is_whole(self, attributes: Iterable[Attribute]) -> bool:
        return all(type_ == "int64" for attribute in attributes for _, type_ in self._values(attribute))

    def _values(self, attribute: Attribute) -> Iterator[tuple[str, str]]:
        """Where the file may have values of the attribute, in the order in which they count, and their types."""
        own = _PREFIXES[attribute.scope] + attribute.key
        if self._shredded(own):
            yield self._use(own), self._columns[own].type
        if attribute.scope in self._columns and attribute not in self._unmapped:
            yield f"{self._use(attribute.scope)}[{text(attribute.key)}]", "json"

    def _items(self, name: str, type_: str) -> str:
        """A row without items has an empty list. Inside an item ids and attributes are shown as everywhere."""
        if name not in self._columns:
            return f"CAST([] AS {type_})"
        stored = signal_named(self._segment.signal).schema.field(name).type.value_type
        fields = ", ".join(
            f"{text(field.name)}: {_shown(f'item.{quoted(field.name)}', field.type)}" for field in stored
        )
        return f"COALESCE(list_transform({self.stored(name, type_)}, lambda item: {{{fields}}}), [])"

    def _map(self, scope: str) -> str:
        prefix = _PREFIXES[scope]
        own = [name for name in self._columns if name.startswith(prefix) and self._shredded(name)]
        entries = [f"{{'key': {text(n.removeprefix(prefix))}, 'value': {self._text(n)}}}" for n in own]
        listed = f"[{', '.join(entries)}]" if entries else f"CAST([] AS {_ENTRIES})"
        return f"attribute_map({listed}, {self.stored(scope, _MAP)})"

    def _text(self, name: str) -> str:
        return _TEXT_OF[self._columns[name].type].format(self._use(name))

    def _shredded(self, name: str) -> bool:
        return name in self._columns and self._columns[name].type != ""

    def _use(self, name: str) -> str:
        self.used[name] = self._columns[name]
        return quoted(self._names[name])


def _first(values: list[str], type_: str) -> str:
    if len(values) < 2:
        return values[0] if values else f"CAST(NULL AS {type_})"
    return f"COALESCE({', '.join(values)})"


def _shown(field: str, stored: pa.DataType) -> str:
    if pa.types.is_map(stored):
        return f"attribute_map(CAST([] AS {_ENTRIES}), {field})"
    return f"lower(hex({field}))" if pa.types.is_binary(stored) else field


# Most segments have the columns of others, and a column set is long.


@lru_cache(_COLUMN_SETS)
def _by_name(columns: tuple[Column, ...]) -> dict[str, Column]:
    return {column.name: column for column in columns}


@lru_cache(_COLUMN_SETS)
def _names_in_duckdb(columns: tuple[Column, ...]) -> dict[str, str]:
    """Keys differ by case, DuckDB's names do not (in ASCII): it numbers the later ones, as is done here."""
    uses: dict[bytes, int] = {}
    given = {}
    for name in (column.name for column in columns):
        new, first = name, name.encode().lower()
        while new.encode().lower() in uses:
            new, uses[first] = f"{name}_{uses[first]}", uses[first] + 1
        uses[new.encode().lower()] = 1
        given[name] = new
    return given
