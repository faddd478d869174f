"""Shred attributes into columns: choose the keys of a segment that get one, and find their values.

Comes in: the attributes of one scope, and which of their owners have rows in the segment. Goes out: a `ShredPlan` for
the segment and, for a run of owners, the slices of each column and what remains for the map column. A value is in
exactly one of both. Only the first of several equal keys of an owner may go to a column, so that their order is kept.
docs/formats/attributes.md states the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.rows import Attached, CodedColumn, Column, NumberColumn
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.steps.take import Slices, code_slices, numbers_of

MAX_COLUMNS = 256
MAX_KEY_BYTES = 256
# Columns of these keys would have the paths that the leaves of the map column have in Parquet.
_MAP_LEAVES = ("key_value.key", "key_value.value")

# What a column of each kind is called in Segment.columns, and its type in the file.
COLUMN_TYPES = {
    STRING: ("string", pa.string()),
    BOOL: ("bool", pa.bool_()),
    INT: ("int64", pa.int64()),
    DOUBLE: ("double", pa.float64()),
    ARRAY: ("json", pa.string()),
    KVLIST: ("json", pa.string()),
    BYTES: ("bytes", pa.binary()),
}
_TEXTUAL = (STRING, ARRAY, KVLIST, BYTES)


@dataclass(frozen=True)
class ShredPlan:
    """The columns of a scope. Column i holds the values of kind `kinds[i]` of key `keys[i]`; keys are sorted. `slot`
    has the column of each interned key, or -1. `present` are the numbers of the keys that occur in the segment."""

    keys: tuple[str, ...]
    kinds: Any
    slot: Any
    present: Any

    def named_kinds(self) -> Iterator[tuple[str, int]]:
        return zip(self.keys, self.kinds.tolist(), strict=True)


@dataclass(frozen=True)
class ShreddedValues:
    """Some owners' values: the slices of each column of the plan, and the numbers of the values for the map: owner j of
    these has rest[rest_first[j]:rest_first[j + 1]]."""

    columns: tuple[Slices, ...]
    rest: Any
    rest_first: Any


def plan_columns(attached: Attached, data: Any, owners: Any, rows_of: Any, least_rows: int) -> ShredPlan:
    """Plan the columns for these owners, which have `rows_of` rows each; a key needs `least_rows` rows to get a
    column."""
    known = int(attached.keys["size"][0])
    counts = _count_kinds(attached.values, attached.first, owners, rows_of, known)
    rows, best = counts.sum(axis=1), counts[:, 1:].argmax(axis=1) + 1
    frequent = np.flatnonzero((rows >= least_rows) & (counts[np.arange(known), best] > 0))
    chosen = _choose(attached.keys, data, frequent, rows)
    numbers = np.array([number for _, number in chosen], np.int64)
    slot = np.full(known, -1, np.int32)
    slot[numbers] = np.arange(len(numbers), dtype=np.int32)
    return ShredPlan(tuple(key for key, _ in chosen), best[numbers], slot, np.flatnonzero(rows))


def _choose(keys: Any, data: Any, frequent: Any, rows: Any) -> list[tuple[str, int]]:
    """Return (key, number) of the most frequent of these keys, sorted by key. Keys that cannot name a column are left
    out: too long, with a NUL, the path of a map's leaf, or equal but for case to a more frequent one, which SQL engines
    would take for the same."""
    ranked = []
    for number in frequent.tolist():
        name = keys[number + 1]
        ranked.append((-int(rows[number]), data[name["at"] : name["at"] + name["size"]].tobytes(), number))
    chosen: dict[str, tuple[str, int]] = {}
    for _, name, number in sorted(ranked):
        key = name.decode()
        if len(name) <= MAX_KEY_BYTES and "\0" not in key and key not in _MAP_LEAVES:
            chosen.setdefault(key.casefold(), (key, number))
        if len(chosen) == MAX_COLUMNS:
            break
    return sorted(chosen.values())


def shred_values(attached: Attached, plan: ShredPlan, owners: Any) -> ShreddedValues:
    """Return the values of these owners, in their order."""
    at, size, rest, rest_first = _place(attached.values, attached.first, owners, plan.slot, plan.kinds)
    kinds = plan.kinds.tolist()
    return ShreddedValues(tuple(Slices(kind, at[i], size[i]) for i, kind in enumerate(kinds)), rest, rest_first)


def owned_columns(placed: ShreddedValues, data: Any, owners: Any, everyone: int, owner: Any) -> list[Column]:
    """Return the columns of the shredded owners as Columns of rows, by the owner of each row, one of `everyone`."""
    columns: list[Column] = []
    for slices in placed.columns:
        if slices.kind in _TEXTUAL:
            codes = np.full(everyone, -1, np.int32)
            codes[owners], values = code_slices(slices, data, COLUMN_TYPES[slices.kind][1])
            columns.append(CodedColumn(codes, values, owner))
        else:
            values = numbers_of(slices, data)
            spread, valid = np.zeros(everyone, values.dtype), np.zeros(everyone, np.bool_)
            spread[owners], valid[owners] = values, slices.at >= 0
            columns.append(NumberColumn(spread, valid, owner))
    return columns


@njit(cache=True)
def _count_kinds(values: Any, first: Any, owners: Any, rows_of: Any, known: Any) -> Any:
    """Count rows per key and kind; of several equal keys of an owner only the first counts."""
    counts = np.zeros((known, 8), np.int64)
    seen = np.full(known, -1, np.int32)
    for place in range(len(owners)):
        owner = owners[place]
        for index in range(first[owner], first[owner + 1]):
            value = values[index]
            if seen[value.key] != place:
                seen[value.key] = place
                counts[value.key, value.kind] += rows_of[place]
    return counts


@njit(cache=True)
def _place(values: Any, first: Any, owners: Any, slot: Any, kinds: Any) -> Any:
    """Return (at, size) by column and owner, the rest, and where each owner's rest starts."""
    count = len(owners)
    at = np.full((len(kinds), count), -1, np.int32)
    size = np.zeros((len(kinds), count), np.int32)
    seen = np.full(len(slot), -1, np.int32)
    total = 0
    for place in range(count):
        total += first[owners[place] + 1] - first[owners[place]]
    rest, rest_first = np.empty(total, np.int32), np.empty(count + 1, np.int32)
    left = 0
    for place in range(count):
        rest_first[place] = left
        for index in range(first[owners[place]], first[owners[place] + 1]):
            value = values[index]
            column = slot[value.key]
            if column >= 0 and seen[value.key] != place and value.kind == kinds[column]:
                at[column, place], size[column, place] = value.at, value.size
            else:
                rest[left] = index
                left += 1
            seen[value.key] = place
    rest_first[count] = left
    return at, size, rest[:left], rest_first
