"""Rows of rollup segments, as windows of the series of a block.

Comes in: groups of a layout, and the files of segments of one tier. Goes out: stretches of windows, each of one row
group as it was read, with what is asked of them. What always holds: all of them end in the times that the tier is read
for; a window that holds histograms is NotTiered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.model.tiling import Interval
from lakerunner.query.held import explained
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers, read_only
from lakerunner.query.metrics.layout import Part, ranges
from lakerunner.query.metrics.reading import SegmentFile
from lakerunner.query.metrics.sketch_rows import SKETCH_COLUMNS, Room, sketches_of_rows
from lakerunner.query.metrics.window_kernels import spans
from lakerunner.series import rolled
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.rolled import NotTiered
from lakerunner.series.sketches import NO_SKETCHES, Sketches

ENDS = "ends"
_TIME = "timestamp"
_COLUMNS = {
    ENDS: _TIME,
    rolled.COUNT: "chq_rollup_count",
    rolled.SUM: "chq_rollup_sum",
    rolled.SUM_ERROR: "chq_rollup_sum_error",
    rolled.MIN: "chq_rollup_min",
    rolled.MAX: "chq_rollup_max",
    rolled.FIRST: "chq_rollup_first",
    rolled.FIRST_TIME: "chq_rollup_first_timestamp",
    rolled.LAST: "chq_rollup_last",
    rolled.LAST_TIME: "chq_rollup_last_timestamp",
    rolled.RESET_SUM: "chq_rollup_reset_sum",
    rolled.RESETS: "chq_rollup_resets",
    rolled.CHANGES: "chq_rollup_changes",
    rolled.MARK_TIME: "chq_rollup_stale_timestamp",
}
_TIMES = frozenset({rolled.FIRST_TIME, rolled.LAST_TIME, rolled.MARK_TIME})
# By which column the footer may tell of all windows at once. Without a reset nothing was added for one.
_TOLD_BY = {
    rolled.COUNT: rolled.COUNT,
    rolled.RESETS: rolled.RESETS,
    rolled.RESET_SUM: rolled.RESETS,
    rolled.CHANGES: rolled.CHANGES,
}
_NONE: Any = np.zeros(0, np.int64)
_ALL: Any = np.zeros(0, np.bool_)


@dataclass(frozen=True)
class Stretch:
    """Windows of some slots of a block (rolled_blocks.py): those of `slots[n]` are rows `low[n]:high[n]` of the arrays.
    Which stored series of which collector they are of, `identity[n]` says: equal numbers are one. -1: of one that was
    decided on already. `ends` are in ms. Of the sketch the fact is which of `sketches` is the row's."""

    slots: Ints
    identity: Ints
    low: Ints
    high: Ints
    ends: Ints
    facts: Mapping[str, Any]
    sketches: Sketches = NO_SKETCHES


class Asked(NamedTuple):
    """What windows are read for: when they end, what is to be known of them, by whom they are read, and how much
    room there is for their sketches."""

    times: Sequence[Interval]
    facts: Sequence[str]
    pool: Executor
    room: Room


def stored_columns(facts: Iterable[str]) -> tuple[str, ...]:
    """What of a segment says this of its windows."""
    columns = [SKETCH_COLUMNS if fact == rolled.SKETCH else (_COLUMNS[fact],) for fact in facts]
    return tuple(name for own in columns for name in own)


def rollup_rows(
    part: Part, files: Mapping[int, SegmentFile], identities: Mapping[int, Ints], asked: Asked
) -> list[Stretch]:
    """`files` by the number of the segment's table; `identities` likewise, of each of its entries in the part's
    order. Of each entry the stretches are in the order of time."""

    def stretches(number: int) -> list[Stretch]:
        return list(_stretches(part, number, files[number], identities[number], asked))

    return [stretch for found in asked.pool.map(stretches, files) for stretch in found]


def _stretches(part: Part, number: int, file: SegmentFile, identity: Ints, asked: Asked) -> Iterator[Stretch]:
    own = part.by_table[number]
    first, rows = part.entries.first[own], part.entries.rows[own]
    with explained(file.segment):
        for group, wanted in file.groups(first, rows):
            base, behind = file.footprint.rows[group]
            columns = _Columns(file, group, asked.facts)
            ends = columns.of(ENDS).values
            found = {fact: columns.of(fact).values for fact in asked.facts if fact != rolled.SKETCH}
            for between in asked.times:
                low = np.maximum(first[wanted], base) - base
                high = np.minimum((first + rows)[wanted], behind) - base
                spans(ends, low, high, between)
                columns.check_numbers(low, high)
                stretch = Stretch(part.slots[own[wanted]], identity[wanted], low, high, ends, found)
                yield _sketched(stretch, file, group, asked.room) if rolled.SKETCH in asked.facts else stretch


def _sketched(stretch: Stretch, file: SegmentFile, group: int, room: Room) -> Stretch:
    """With the sketches of its rows alone."""
    rows = ranges(stretch.low, stretch.high - stretch.low)
    numbers = np.zeros(len(stretch.ends), np.int64)
    numbers[rows] = np.arange(len(rows))
    facts = {**stretch.facts, rolled.SKETCH: numbers}
    return replace(stretch, facts=facts, sketches=sketches_of_rows(file, group, rows, room))


class _Columns:
    """Of one row group, as arrays; kept for the next query."""

    def __init__(self, file: SegmentFile, group: int, facts: Sequence[str]) -> None:
        self._file = file
        self._group = group
        self._wanted = tuple(fact for fact in dict.fromkeys((ENDS, rolled.COUNT, *facts)) if fact in _COLUMNS)
        self._found: dict[str, Numbers] = {}

    def of(self, fact: str) -> Numbers:
        if not self._found:
            self._read()
        return self._found[fact]

    def check_numbers(self, low: Ints, high: Ints) -> None:
        valid = self.of(rolled.COUNT).valid
        if len(valid) and not valid[ranges(low, high - low)].all():
            raise NotTiered("some selected series are histograms")

    def _read(self) -> None:
        segment = self._file.segment
        keys = {fact: (segment.organization, segment.id, self._group, _COLUMNS[fact]) for fact in self._wanted}
        for fact, key in keys.items():
            kept = self._file.kept.get(key)
            if kept is not None:
                self._found[fact] = kept
        first, behind = self._file.footprint.rows[self._group]
        missing = [fact for fact in self._wanted if fact not in self._found]
        told = {fact: number for fact in missing if (number := self._told(fact)) is not None}
        there = tuple(_COLUMNS[fact] for fact in missing if fact not in told and _COLUMNS[fact] in self._file.columns)
        table = self._file.table(self._group, there) if there else None
        for fact in missing:
            if table is not None and _COLUMNS[fact] in there:
                found = _numbers(table.column(_COLUMNS[fact]).combine_chunks(), fact)
            else:
                found = _constant(told.get(fact), fact, behind - first)
            self._found[fact] = found
            self._file.kept.put(keys[fact], found, found.bytes)

    def _told(self, fact: str) -> int | None:
        """What the footer says that all windows of the row group have: none of them a reset, or all as many samples."""
        told = self._file.footprint.constant(self._group, _COLUMNS[_TOLD_BY[fact]]) if fact in _TOLD_BY else None
        return None if fact == rolled.RESET_SUM and told else told


def _numbers(column: Any, fact: str) -> Numbers:
    """0 where there is none."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    valid: Bools = np.asarray(column.is_valid()) if column.null_count else _ALL
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64())
    filled = column.fill_null(0) if column.null_count else column
    values = filled.to_numpy()
    return Numbers(_NONE, read_only(values // NS_PER_MS if fact == ENDS or fact in _TIMES else values), valid)


def _constant(number: int | None, fact: str, rows: int) -> Numbers:
    """None: a column without any value is not in the file."""
    kind = np.int64 if fact == ENDS or fact in rolled.WHOLE_NUMBERS else np.float64
    return Numbers(_NONE, read_only(np.full(rows, number or 0, kind)), np.zeros(rows, bool) if number is None else _ALL)


def inside(ends: Ints, times: Sequence[Interval]) -> Bools:
    """Whether each is in one of the (start, end], which are in order."""
    if len(times) == 1:
        ((start, end),) = times
        alone: Bools = (ends > start) & (ends <= end)
        return alone
    starts = np.array([start for start, _ in times], np.int64)
    behind = np.array([end for _, end in times], np.int64)
    place = np.searchsorted(starts, ends, side="left") - 1  # the last that starts before it
    found: Bools = (place >= 0) & (ends <= behind[np.maximum(place, 0)])
    return found
