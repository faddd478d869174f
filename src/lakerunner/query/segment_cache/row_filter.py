"""Which rows of a segment may meet the conditions of a scan, as SQL over the stored columns.

Comes in: a condition, the segment, the columns that the scan reads in any case. Goes out: a test, and the columns that
it reads. What always holds: the test is true for every row that meets the condition. It may be NULL for others, which
drops them as false does: no test is negated.

As in prune.py, only texts that are stored as they are can be compared. A value of another type, or in an overflow map,
is only tested for presence. Overflow maps and columns of bodies are large, so a test may read them only if the scan
does: else they may hold anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakerunner.lakeql.tables import ColumnKind, table_of_signal
from lakerunner.model.condition import AllOf, AnyOf, Condition, Equals, Labelled, NotNull, Present, Stored
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, SCOPE, SCOPES, Attribute
from lakerunner.model.streams.label_sources import LabelSources
from lakerunner.query.segment_cache.prune import labelling, lacks_label, stored_values
from lakerunner.query.segment_cache.sql_text import blob, quoted, text

# Of their entries a scan may read only those that can be some labels.
LIMITED_MAPS = frozenset({ATTRIBUTES.map_column, SCOPE.map_column})
_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}


@dataclass(frozen=True)
class RowTest:
    sql: str
    columns: frozenset[str] = frozenset()


ANY_ROW, NO_ROW = RowTest("true"), RowTest("false")


class RowFilter:
    """`names`: the names of the segment's columns in DuckDB. `read`: those that the scan reads in any case. `empty`:
    columns without values, and maps without an entry that can be one of the `labels` (None: any)."""

    def __init__(
        self,
        segment: Segment,
        names: Mapping[str, str],
        read: Collection[str],
        empty: frozenset[str] = frozenset(),
        labels: tuple[str, ...] | None = None,
    ) -> None:
        self._segment = segment
        self._types = {column.name: column.type for column in segment.columns}
        self._names = names
        self._read = read
        self._empty = empty
        self._labels = labels

    def test(self, condition: Condition) -> RowTest:
        match condition:
            case AnyOf(conditions):
                return _any_of(map(self.test, conditions))
            case AllOf(conditions):
                return _all_of(map(self.test, conditions))
            case Present(attributes):
                return _any_of(self._attribute(attribute, None) for attribute in attributes)
            case Equals(Attribute() as attribute, values):
                return self._attribute(attribute, values)
            case Equals(str() as name, values):
                return self._column(name, values)
            case Labelled(scope, name, values):
                return self._labelled(scope, name, values)
            case NotNull(column):
                return self._read_only(column, "{} IS NOT NULL")
            case Stored(column, values) if column in self._types:
                return self._with_texts(column, values)
        return ANY_ROW  # of a literal: the query's own SQL looks for it

    def _column(self, name: str, values: tuple[str, ...]) -> RowTest:
        stored = stored_values(self._segment.signal, name, values)
        if stored is None:
            return ANY_ROW
        if table_of_signal(self._segment.signal).named()[name].kind is ColumnKind.ID:
            return self._is_one_of(name, list(map(blob, stored)))
        return self._with_texts(name, values)

    def _attribute(self, attribute: Attribute, values: tuple[str, ...] | None) -> RowTest:
        """Return the test for one of these texts of the attribute, or for any (None)."""
        if not _can_be_written(attribute.key):
            return ANY_ROW
        own = _PREFIXES[attribute.scope] + attribute.key
        in_map = self._read_only(attribute.scope, f"{{}}[{_escaped(text(attribute.key))}] IS NOT NULL")
        return _any_of([self._value(own, values) if self._types.get(own) else NO_ROW, in_map])

    def _labelled(self, scope: str, name: str, values: tuple[str, ...] | None) -> RowTest:
        """Return the test for attributes that may be the label: those with columns, and keys of the overflow map."""
        if lacks_label(self._segment, scope, name):
            return NO_ROW
        is_source = _escaped(LabelSources([name]).condition("key"))
        in_map = self._read_only(scope, f"len(list_filter(map_keys({{}}), lambda key: {is_source})) > 0", label=name)
        columns = labelling(self._types, scope, name)
        return _any_of([*(self._value(column, values) for column, _ in columns), in_map])

    def _value(self, column: str, values: tuple[str, ...] | None) -> RowTest:
        """Return the test for the column of an attribute. Other types than strings have many texts for one value."""
        if column in self._empty:
            return NO_ROW
        if values is not None and self._types[column] == "string":
            return self._with_texts(column, values)
        return RowTest(f"{self._in_duckdb(column)} IS NOT NULL", frozenset({column}))

    def _with_texts(self, column: str, values: tuple[str, ...]) -> RowTest:
        return self._is_one_of(column, list(map(text, values))) if all(map(_can_be_written, values)) else ANY_ROW

    def _is_one_of(self, column: str, literals: list[str]) -> RowTest:
        if column not in self._types or not literals:
            return NO_ROW
        return RowTest(f"{self._in_duckdb(column)} IN ({', '.join(literals)})", frozenset({column}))

    def _read_only(self, column: str, form: str, *, label: str = "") -> RowTest:
        """Return a test of a large column. One that the index does not list is NULL in all rows. `label` is the one
        that an entry of a map must give, if it is known."""
        if column not in self._types:
            return NO_ROW
        if column in self._empty:
            is_whole = self._labels is None or column not in LIMITED_MAPS
            return NO_ROW if is_whole or label in (self._labels or ()) else ANY_ROW
        if column not in self._read:
            return ANY_ROW
        return RowTest(form.format(self._in_duckdb(column)), frozenset({column}))

    def _in_duckdb(self, column: str) -> str:
        return quoted(self._names[column])


def _any_of(tests: Iterable[RowTest]) -> RowTest:
    possible = list(dict.fromkeys(test for test in tests if test != NO_ROW))
    if ANY_ROW in possible:
        return ANY_ROW
    return _joined(possible, " OR ") if possible else NO_ROW


def _all_of(tests: Iterable[RowTest]) -> RowTest:
    needed = list(dict.fromkeys(test for test in tests if test != ANY_ROW))
    if NO_ROW in needed:
        return NO_ROW
    return _joined(needed, " AND ") if needed else ANY_ROW


def _joined(tests: list[RowTest], word: str) -> RowTest:
    if len(tests) == 1:
        return tests[0]
    columns = frozenset[str]().union(*(test.columns for test in tests))
    return RowTest(f"({word.join(test.sql for test in tests)})", columns)


def _can_be_written(value: str) -> bool:
    """Return whether SQL can have this text in a literal."""
    return not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in value)


def _escaped(sql: str) -> str:
    """Escape what str.format would take for a field."""
    return sql.replace("{", "{{").replace("}", "}}")
