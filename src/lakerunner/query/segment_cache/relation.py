"""The DuckDB SQL of a scan's relation over its segments.

There is one SELECT for each run of segments that provide the query's columns in the same way and with the same row
ranges, NULL for columns that they lack, joined by UNION ALL: the index knows the columns of each file, so no file is
opened to find out. Only the columns that the query uses are read, and only the leased rows; operators on stored rows
get those that may meet the scan's conditions (row_filter.py). Rows of a steady leaf come in the order of the segments,
whatever was pruned, so that another worker can resume where one broke off. For other leaves, equal segments form one
run wherever they stand, because a SELECT costs as much as a row group. The macros used here are in
query/sandbox/instance.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from uuid import UUID

import pyarrow as pa

from lakerunner.lakeql.tables import ColumnKind, TableColumn, table_of_signal
from lakerunner.model.condition import AllOf
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import RESOURCE, SCOPES, Attribute, signal_named
from lakerunner.model.streams.label_sources import LabelSources
from lakerunner.plan.scan import (
    ARRIVED,
    DETECTED_LEVEL,
    INTERNAL_COLUMNS,
    NUMBER_TYPES,
    RESOURCE_ID,
    ROW_NUMBER,
    STORED,
    STORED_COLUMNS,
    Scan,
    TypedAttributes,
    attribute_column,
    id_column,
    internal_column,
    typed_column,
)
from lakerunner.query.segment_cache.lease import NO_END, LeasedFile
from lakerunner.query.segment_cache.row_filter import ANY_ROW, RowFilter
from lakerunner.query.segment_cache.sql_text import quoted, text

_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
_TEXT_OF = {
    "string": "{0}",
    "int64": "CAST({0} AS VARCHAR)",
    "double": "double_text({0})",
    "bool": "CAST({0} AS VARCHAR)",
    "bytes": "base64({0})",
    "json": "typed_text({0})",
}
# The same for internal columns, which keep the type: a list of typed JSON where the text alone would lose it.
_LABEL_OF = _TEXT_OF | {
    "double": """[CASE WHEN isfinite({0}) THEN double_text({0})
        ELSE '{{"doubleValue":"' || double_text({0}) || '"}}' END]""",
    "json": "[{0}]",
}
_JOINED = "resources.made"  # see _resources
_NO_LABELS = "CAST(NULL AS VARCHAR)"  # most rows have none, and NULL is cheaper to group by than a text
_COLUMN_SETS = 256  # remembered column sets
_MAP = "MAP(VARCHAR, VARCHAR)"
_ENTRIES = "STRUCT(key VARCHAR, value VARCHAR)[]"


@dataclass(frozen=True)
class DerivedColumn:
    """A column that is not stored as it is shown: an expression over stored columns, and their types."""

    expression: str
    stored: Mapping[str, str]


# A number is stored in `value` or `int_value`, whichever is smaller, and `is_int` says which type was sent.
_NUMBER = {"value": "DOUBLE", "int_value": "BIGINT", "is_int": "BOOLEAN"}
_DERIVED = {
    ("metrics", "value"): DerivedColumn("COALESCE({value}, CAST({int_value} AS DOUBLE))", _NUMBER),
    ("metrics", "int_value"): DerivedColumn(
        "CASE WHEN {is_int} THEN COALESCE({int_value}, CAST({value} AS BIGINT)) END", _NUMBER
    ),
    ("metrics", "exemplar_trace"): DerivedColumn(
        "lower(hex({exemplars}[1].trace_id))", {"exemplars": "STRUCT(trace_id BLOB)[]"}
    ),
    ("metrics", "metadata"): DerivedColumn(
        f"CASE WHEN {{metadata}} IS NOT NULL THEN attribute_map(CAST([] AS {_ENTRIES}), {{metadata}}) END",
        {"metadata": _MAP},
    ),
}


@dataclass(frozen=True)
class _Projection:
    """`listed`: expressions and their names. `stored`: the columns they use, with types; DuckDB binds them by name and
    casts a column that has another type in a further file of one read_parquet."""

    listed: tuple[tuple[str, str], ...]
    stored: tuple[Column, ...]
    resource: str = ""  # the attributes of a resource, if they are joined by its id
    where: str = ANY_ROW.sql  # true for every row that meets the scan's conditions


@dataclass(frozen=True)
class _FileShape:
    """What the files of one SELECT have in common."""

    outputs: _Projection
    rows: tuple[tuple[int, int], ...] | None


def relation_sql(
    scan: Scan, segments: Sequence[Segment], files: Mapping[UUID, LeasedFile], *, in_order: bool = True
) -> str:
    """Return the SELECT of the scan's rows; `in_order`: in the order of the segments."""
    present = [one for one in segments if one.id in files]
    projections = Projections(scan, *_shared_facts(scan, [(one, files[one.id]) for one in present]))
    held = [(_FileShape(projections.projection(one, files[one.id].empty), files[one.id].rows), one) for one in present]
    if not in_order:
        first = {alike: n for n, alike in enumerate(dict.fromkeys(alike for alike, _ in held))}
        held.sort(key=lambda one: first[one[0]])
    selects = []
    for alike, run in groupby(held, lambda one: one[0]):
        own = [segment for _, segment in run]
        outputs = (*alike.outputs.listed, *_order_outputs(scan, own))
        paths = [str(files[one.id].path) for one in own]
        selects.append(_select(outputs) + _from(paths, alike.rows, alike.outputs))
    return "\nUNION ALL\n".join(selects) if selects else empty_sql(scan)


def _order_outputs(scan: Scan, segments: Sequence[Segment]) -> Iterator[tuple[str, str]]:
    """Yield the internal columns that tell where a row stands. The ingest times are a list, by the number of the file,
    because a SELECT for each segment would cost as much as a row group."""
    for name in scan.internal:
        if name == ARRIVED:
            times = ", ".join(str(segment.ingested) for segment in segments)
            yield f"CAST([{times}][CAST(file_index AS BIGINT) + 1] AS BIGINT)", internal_column(scan.relation, name)
        elif name == ROW_NUMBER:
            yield "file_row_number", internal_column(scan.relation, name)


class Projections:
    """What the scan's relation reads of each segment. Column sets are long and most segments share theirs, so each set
    is examined once, found by its identity. `unmapped`: attributes that no map of these segments holds; `whole`: those
    that are read as BIGINT."""

    def __init__(
        self, scan: Scan, unmapped: frozenset[Attribute] = frozenset(), whole: frozenset[TypedAttributes] = frozenset()
    ) -> None:
        self._scan = scan
        self._unmapped = unmapped
        self._whole = whole
        self._known: dict[tuple[int, str, frozenset[str]], tuple[tuple[Column, ...], _Projection]] = {}

    def projection(self, segment: Segment, empty: frozenset[str] = frozenset()) -> _Projection:
        key = (id(segment.columns), segment.collector, empty)
        if key not in self._known:
            outputs = _outputs(self._scan, _Reader(segment, self._unmapped, empty), self._whole)
            self._known[key] = segment.columns, outputs  # holds the columns, so that their id is not reused
        return self._known[key][1]

    def stored(self, segment: Segment) -> list[str]:
        """Return the columns of the segment's file that are read."""
        return [column.name for column in self.projection(segment).stored]


def _shared_facts(
    scan: Scan, files: list[tuple[Segment, LeasedFile]]
) -> tuple[frozenset[Attribute], frozenset[TypedAttributes]]:
    """Return the attributes that no file holds in a map, and the stored ones that are integers in all files."""
    unmapped = frozenset(scan.attributes).intersection(*(file.unmapped for _, file in files))
    stored = [typed for typed in scan.typed if typed.type == STORED]
    readers = [_Reader(one, unmapped) for one in {id(one.columns): one for one, _ in files if stored}.values()]
    whole = (typed for typed in stored if all(one.is_whole(typed.attributes) for one in readers))
    return unmapped, frozenset(whole)


def _outputs(scan: Scan, reader: _Reader, whole: frozenset[TypedAttributes]) -> _Projection:
    unused = frozenset(scan.level_sources) if reader.has_levels else frozenset[str]()
    outputs = [
        (f"CAST(NULL AS {column.type})" if column.name in unused else reader.column(column), column.name)
        for column in _columns(scan)
    ]
    resource = ""
    labels = None if scan.labels is None else LabelSources(name for name in scan.labels if name not in unused)
    outputs += [
        (reader.attribute(attribute), attribute_column(scan.relation, attribute)) for attribute in scan.attributes
    ]
    outputs += [(reader.stored(name, "BLOB"), id_column(scan.relation, name)) for name in scan.ids]
    outputs += [(reader.typed(one, whole=one in whole), typed_column(scan.relation, one)) for one in scan.typed]
    for name in scan.internal:
        if name in _PREFIXES:
            value = reader.labels(name, None if name == RESOURCE.map_column else labels)
            if name == RESOURCE.map_column and scan.labels is not None and reader.has_resource_ids:
                value, resource = _JOINED, value
            outputs.append((value, internal_column(scan.relation, name)))
        elif name == DETECTED_LEVEL and reader.has_levels:
            level = f"COALESCE({reader.stored(name, STORED_COLUMNS[name])}, '')"
            outputs.append((level, internal_column(scan.relation, name)))
        elif name in STORED_COLUMNS:
            outputs.append((reader.stored(name, STORED_COLUMNS[name]), internal_column(scan.relation, name)))
    for name in scan.stored:
        reader.stored(name, "BLOB")
    # A filter would be redundant in SQL of users, which has the same conditions in its own WHERE. Operators on stored
    # rows test them in Python, one row at a time.
    where = reader.where(scan) if scan.internal else ANY_ROW.sql
    return _Projection(tuple(outputs), tuple(reader.used.values()), resource, where)


def _from(paths: list[str], ranges: tuple[tuple[int, int], ...] | None, outputs: _Projection) -> str:
    rows = [
        f"file_row_number >= {first}" if end == NO_END else f"file_row_number BETWEEN {first} AND {end - 1}"
        for first, end in ranges or ()
    ]
    tests = [f"({' OR '.join(rows)})"] if rows else []
    tests += [outputs.where] if outputs.where != ANY_ROW.sql else []
    where = f"\nWHERE {' AND '.join(tests)}" if tests else ""
    files = f"read_parquet([{', '.join(map(text, paths))}], hive_partitioning = false)"
    return f"\nFROM {files}{_resources(files, where, outputs.resource) if outputs.resource else ''}{where}"


def _resources(files: str, where: str, resource: str) -> str:
    """Return the join with the attributes of each resource, which are made for one row of it: for all rows they cost
    more than everything else. A row of another file may have the number of such a row, hence the outer GROUP BY."""
    chosen = f"SELECT min(file_row_number) FROM {files}{where} GROUP BY {RESOURCE_ID}"
    which = f"{where} AND" if where else "\nWHERE"
    made = f"SELECT {RESOURCE_ID}, {resource} AS made FROM {files}{which} file_row_number IN ({chosen})"
    found = f"SELECT {RESOURCE_ID} AS joined_id, any_value(made) AS made FROM ({made}) GROUP BY {RESOURCE_ID}"
    return f"\nJOIN ({found}) AS resources ON {RESOURCE_ID} IS NOT DISTINCT FROM joined_id"


def empty_sql(scan: Scan) -> str:
    """Return a SELECT without rows, with the names and types that a query can be bound to."""
    outputs = [(f"CAST(NULL AS {column.type})", column.name) for column in _columns(scan)]
    outputs += [("CAST(NULL AS VARCHAR)", attribute_column(scan.relation, a)) for a in scan.attributes]
    outputs += [("CAST(NULL AS BLOB)", id_column(scan.relation, name)) for name in scan.ids]
    types = [(one, "VARCHAR" if one.type == STORED else one.type) for one in scan.typed]
    outputs += [(f"CAST(NULL AS {type_})", typed_column(scan.relation, one)) for one, type_ in types]
    in_order = sorted(scan.internal, key=(ARRIVED, ROW_NUMBER).__contains__)  # as relation_sql lists them
    outputs += [(f"CAST(NULL AS {INTERNAL_COLUMNS[name]})", internal_column(scan.relation, name)) for name in in_order]
    return f"{_select(outputs)}\nWHERE false"


def _select(outputs: Iterable[tuple[str, str]]) -> str:
    """Return the SELECT list. A relation needs a column even if the query only counts rows."""
    given = [f"{expression} AS {quoted(name)}" for expression, name in outputs] or ["NULL AS no_column"]
    return "SELECT " + ",\n    ".join(given)


def _columns(scan: Scan) -> list[TableColumn]:
    named = table_of_signal(scan.signal).named()
    return [named[name] for name in scan.columns]


class _Reader:
    """Builds the expressions that read a segment's file. `used`: the columns they use, by name."""

    def __init__(self, segment: Segment, unmapped: frozenset[Attribute], empty: frozenset[str] = frozenset()) -> None:
        self.used: dict[str, Column] = {}
        self._columns = _by_name(segment.columns)
        self._names = _names_in_duckdb(segment.columns)
        self._segment = segment
        self._unmapped = unmapped
        self._empty = empty

    @property
    def has_resource_ids(self) -> bool:
        """Return whether rows have the ids of their resources; they are read then."""
        return RESOURCE_ID in self._columns and bool(self._use(RESOURCE_ID))

    @property
    def has_levels(self) -> bool:
        return DETECTED_LEVEL in self._columns

    def column(self, column: TableColumn) -> str:
        match column.name, column.kind:
            case _, ColumnKind.ORGANIZATION:
                return text(str(self._segment.organization))
            case "collector", _:
                return text(self._segment.collector)
            case name, ColumnKind.ID:
                return f"lower(hex({self.stored(name, 'BLOB')}))"
            case _, ColumnKind.MAP:
                return self._map(column.scope)
            case name, ColumnKind.ITEMS:
                return self._items(name, column.type)
        derived = _DERIVED.get((self._segment.signal, column.name))
        if derived:
            columns = {name: self.stored(name, type_) for name, type_ in derived.stored.items()}
            return derived.expression.format(**columns)
        return self.stored(column.name, column.type)

    def stored(self, name: str, type_: str) -> str:
        return self._use(name) if name in self._columns and name not in self._empty else f"CAST(NULL AS {type_})"

    def attribute(self, attribute: Attribute) -> str:
        """Return the attribute's text: from its own column if it has one, else from the map, which also holds values of
        another type than the column's."""
        return _first([_TEXT_OF[type_].format(value) for value, type_ in self._values(attribute)], "VARCHAR")

    def typed(self, typed: TypedAttributes, *, whole: bool) -> str:
        """Return the first of the attributes that is not null, as the number it is stored as, or its text cast to a
        number."""
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
        """Yield the expressions, with their types, that may hold the attribute, in order of precedence."""
        own = _PREFIXES[attribute.scope] + attribute.key
        if self._shredded(own):
            yield self._use(own), self._columns[own].type
        if attribute.scope in self._columns and attribute not in self._unmapped:
            yield f"{self._use(attribute.scope)}[{text(attribute.key)}]", "json"

    def where(self, scan: Scan) -> str:
        """Return a test that is true for every row that meets the conditions."""
        test = RowFilter(self._segment, self._names, self.used, self._empty, scan.labels).test(AllOf(scan.conditions))
        for name in sorted(test.columns):
            self._use(name)
        return test.sql

    def _items(self, name: str, type_: str) -> str:
        """Return a list column. A row without items has an empty list. Ids and attributes inside an item are shown as
        everywhere."""
        if name not in self._columns:
            return f"CAST([] AS {type_})"
        stored = signal_named(self._segment.signal).schema.field(name).type.value_type
        fields = ", ".join(
            f"{text(field.name)}: {_display(f'item.{quoted(field.name)}', field.type)}" for field in stored
        )
        return f"COALESCE(list_transform({self.stored(name, type_)}, lambda item: {{{fields}}}), [])"

    def _map(self, scope: str) -> str:
        entries = [f"{{'key': {key}, 'value': {value}}}" for key, value in self._entries(scope, _TEXT_OF)]
        own = f"[{', '.join(entries)}]" if entries else f"CAST([] AS {_ENTRIES})"
        return f"attribute_map({own}, {self.stored(scope, _MAP)})"

    def labels(self, scope: str, wanted: LabelSources | None) -> str:
        """Return the attributes of a scope as INTERNAL_COLUMNS describes them, all or those of the wanted labels."""
        own = ", ".join(f"{key}, {value}" for key, value in self._entries(scope, _LABEL_OF, wanted))
        if scope not in self._columns or scope in self._empty:
            return f"CAST(json_array(json_object({own}), NULL) AS VARCHAR)" if own else _NO_LABELS
        entries = f"map_entries({self._use(scope)})"
        if wanted:
            entries = f"list_filter({entries}, lambda entry: {wanted.condition('entry.key')})"
        # Maps are empty in most rows; their entries cost as much as all other attributes.
        is_there = f"WHEN cardinality({self._use(scope)}) > 0 THEN"
        if own:
            return f"CAST(json_array(json_object({own}), CASE {is_there} {entries} END) AS VARCHAR)"
        return f"CASE {is_there} CAST(json_array(json_object(), {entries}) AS VARCHAR) END"

    def _entries(
        self, scope: str, text_of: Mapping[str, str], wanted: LabelSources | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield the key and the value, as SQL, of each attribute of the scope that has a column."""
        prefix = _PREFIXES[scope]
        for name in self._columns:
            if name.startswith(prefix) and self._shredded(name) and name not in self._empty:
                key, type_ = name.removeprefix(prefix), self._columns[name].type
                if wanted is None or wanted.can_be(key, is_map=type_ == "json"):
                    yield text(key), text_of[type_].format(self._use(name))

    def _shredded(self, name: str) -> bool:
        return name in self._columns and self._columns[name].type != ""

    def _use(self, name: str) -> str:
        self.used[name] = self._columns[name]
        return quoted(self._names[name])


def _first(values: list[str], type_: str) -> str:
    if len(values) < 2:
        return values[0] if values else f"CAST(NULL AS {type_})"
    return f"COALESCE({', '.join(values)})"


def _display(field: str, stored: pa.DataType) -> str:
    if pa.types.is_map(stored):
        return f"attribute_map(CAST([] AS {_ENTRIES}), {field})"
    return f"lower(hex({field}))" if pa.types.is_binary(stored) else field


# Cached, since most segments share their column sets, which may be long.


@lru_cache(_COLUMN_SETS)
def _by_name(columns: tuple[Column, ...]) -> dict[str, Column]:
    return {column.name: column for column in columns}


@lru_cache(_COLUMN_SETS)
def _names_in_duckdb(columns: tuple[Column, ...]) -> dict[str, str]:
    """Return DuckDB's name of each column. Keys may differ by case alone; DuckDB ignores ASCII case and numbers the
    later ones."""
    uses: dict[bytes, int] = {}
    given = {}
    for name in (column.name for column in columns):
        new, first = name, name.encode().lower()
        while new.encode().lower() in uses:
            new, uses[first] = f"{name}_{uses[first]}", uses[first] + 1
        uses[new.encode().lower()] = 1
        given[name] = new
    return given
