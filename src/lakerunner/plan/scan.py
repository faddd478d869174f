"""A scan: which columns of which rows of one signal a plan reads, and the conditions that these rows meet.

Comes from the languages; read by query/, which skips what cannot matter: segments by time and by their fingerprints in
the index, row groups by the text index and by Parquet's statistics. Nothing here names an organization: the caller's
credentials decide whose segments a scan reads, in query/engine.py. What always holds: a segment with a row that meets
the conditions has a fingerprint of each group, or lists its fingerprints incompletely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Present
from lakerunner.model.segment import INCOMPLETE, VALUES, digest64
from lakerunner.model.signal import SCOPES, Attribute, signal_named
from lakerunner.model.time import TimeRange

STORED = "stored"
# For each SQL type, the types of stored columns whose values can be cast to it directly: TRY_CAST of the value is
# TRY_CAST of its text. A double cannot be cast to an integer type: DuckDB rounds 2.5 to 2 and '2.5' to 3.
NUMBER_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128"), frozenset({"int64"})),
    "DOUBLE": frozenset({"int64", "double"}),
}


# `arrived` is when the row's segment was ingested, `row_number` its place there: rows of equal time, in this order, are
# in the order in which they arrived. The attributes of a scope are one JSON array: an object of those that have a
# column, and the entries of the overflow map as they are stored, null if there is no map; columns that are null in all
# row groups that are read are left out, and where none is left and the map is empty, the array is null. A value of a
# column is its text, or a list of its typed JSON where the text would lose the type. Of equal keys the first counts.
# Making a map of both in SQL takes 15 times as long. `resource_id` and `detected_level` are stored columns of logs,
# null in segments that were written before these columns; a row without a level has '' in others.
ARRIVED, ROW_NUMBER = "arrived", "row_number"
RESOURCE_ID, DETECTED_LEVEL = "resource_id", "detected_level"
STORED_COLUMNS = {RESOURCE_ID: "BIGINT", DETECTED_LEVEL: "VARCHAR"}
INTERNAL_COLUMNS = (
    {ARRIVED: "BIGINT", ROW_NUMBER: "BIGINT"} | {scope.map_column: "VARCHAR" for scope in SCOPES} | STORED_COLUMNS
)


@dataclass(frozen=True, order=True)
class TypedAttributes:
    """The first of these attributes that is not null, as a type instead of as text.

    `type` is a numeric SQL type, and the value TRY_CAST(text AS type). Or it is STORED, and the value is a BIGINT if
    all segments of a unit hold only integers, else the text: the leaf's SQL must mean the same for both."""

    attributes: tuple[Attribute, ...]
    type: str

    def __post_init__(self) -> None:
        if self.type != STORED and self.type not in NUMBER_TYPES:
            raise ValueError(f"attributes cannot be read as {self.type!r}: use one of {', '.join(NUMBER_TYPES)}")


@dataclass(frozen=True)
class Scan:
    """One table reference. The relation gives exactly `columns` (LakeQL names), then one text column for each of
    `attributes`, one column of bytes for each of `ids`, so that ids can be compared as they are stored, and one column
    for each of `typed`. Rows outside `time`, or that do not meet all of `conditions`, may be left out or not: the
    query's own filter decides.

    `stored` are columns of the segments' files that no language knows; they are read, but not in any relation.
    `internal` are columns that no SQL of a user can name, for operators that work on rows as they were stored: those of
    INTERNAL_COLUMNS. With `labels`, those of record and scope leave out attributes that cannot give a label of one of
    these names, so that their columns are not read. Segments that have `detected_level` need neither the columns nor
    the labels of `level_sources`, which are null there.

    The names of the further columns start with the scan's relation, so that no other relation of the query has them."""

    relation: str
    signal: str
    time: TimeRange
    columns: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()
    ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    stored: tuple[str, ...] = ()
    typed: tuple[TypedAttributes, ...] = ()
    internal: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None
    level_sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        signal_named(self.signal)
        for name in self.internal:
            if name not in INTERNAL_COLUMNS:
                raise ValueError(f"{name!r} is not an internal column: use one of {', '.join(INTERNAL_COLUMNS)}")


def attribute_column(relation: str, attribute: Attribute) -> str:
    """Return the column name of an attribute in the scan's relation. Upper case is escaped: keys differ by case, names
    in DuckDB do not."""
    key = re.sub(r"[A-Z\\]", r"\\\g<0>", attribute.key)
    return f"{relation}.{attribute.scope}[{key}]"


def typed_column(relation: str, typed: TypedAttributes) -> str:
    """Return the column name of typed attributes in the scan's relation. It cannot end like the name of a text
    column."""
    names = (attribute_column(relation, attribute) for attribute in typed.attributes)
    return f"{'|'.join(names)}.{typed.type}"


def id_column(relation: str, column: str) -> str:
    """Return the column name of an id's bytes in the scan's relation."""
    return f"{relation}.{column}.bytes"


def internal_column(relation: str, name: str) -> str:
    """Return the column name of an internal column in the scan's relation."""
    return f"{relation}.{name}.internal"


class Types(Protocol):
    """Binds SQL to types. query/ implements it with DuckDB, for languages, which do no I/O."""

    def __call__(self, sql: str, scan: Scan) -> Sequence[tuple[str, str]] | None:
        """Return (name, type) of each column of a SELECT over the scan's relation; None if it cannot be bound."""


_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
Group = frozenset[int]


def fingerprint_groups(signal: str, conditions: Iterable[Condition]) -> tuple[Group, ...]:
    """Return groups of fingerprints, of each of which a segment needs one: distinct, those of values first since they
    exclude more than the presence of an attribute. Each group has INCOMPLETE."""
    groups = [_group(signal, condition) for condition in conditions]
    found = dict.fromkeys((is_value, group | {INCOMPLETE}) for is_value, group in groups if group)
    return tuple(group for _, group in sorted(found, key=lambda one: not one[0]))


def may_hold(fingerprints: Iterable[int], groups: Iterable[Group]) -> bool:
    """Return whether a segment with these fingerprints must be read."""
    there = frozenset(fingerprints)
    return all(not there.isdisjoint(group) for group in groups)


def _group(signal: str, condition: Condition) -> tuple[bool, Group]:
    """Return whether the fingerprints are of values, and the fingerprints; none if the condition does not determine
    any."""
    match condition:
        case Present(attributes):
            return False, _presence(attributes)
        case Equals(str() as column, values):
            return True, frozenset(digest64(column, value) for value in values if column in VALUES[signal])
        case Equals(Attribute() as attribute) | Contains(Attribute() as attribute):
            return False, _presence([attribute])
        case AnyOf(conditions):
            groups = [_group(signal, one) for one in conditions]
            if all(group for _, group in groups):
                return all(is_value for is_value, _ in groups), frozenset[int]().union(*(group for _, group in groups))
        case AllOf(conditions):
            known = [found for one in conditions if (found := _group(signal, one))[1]]
            return min(known, key=lambda found: (not found[0], len(found[1])), default=(False, frozenset()))
    return False, frozenset()


def _presence(attributes: Iterable[Attribute]) -> Group:
    return frozenset(digest64(_PREFIXES[attribute.scope] + attribute.key) for attribute in attributes)
