"""Rows of rollup segments, as windows of the series of a block.

Comes in: groups of a layout, and the files of segments of one tier. Goes out: windows, those of one group together, in
the order of the segments, with what is asked of them. What always holds: all of them end in the times that the tier is
read for; a window that holds histograms is NotTiered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.model.tiling import Interval
from lakerunner.plan.vectors import rolled
from lakerunner.plan.vectors.arrays import Bools, Ints
from lakerunner.plan.vectors.rolled import NotTiered
from lakerunner.plan.vectors.sketches import NO_SKETCHES, Sketches, joined
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers
from lakerunner.query.metrics.layout import Part, ranges
from lakerunner.query.metrics.reading import SegmentFile, explained
from lakerunner.query.metrics.sketch_rows import SKETCH_COLUMNS, Room, sketches_of_rows
from lakerunner.query.metrics.window_kernels import copied, spans

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
    rolled.STALE_TIME: "chq_rollup_stale_timestamp",
}
_TIMES = frozenset({rolled.FIRST_TIME, rolled.LAST_TIME, rolled.STALE_TIME})
_NONE: Any = np.zeros(0, np.int64)
_ALL: Any = np.zeros(0, np.bool_)


@dataclass(frozen=True)
class WindowRows:
    """Those of group n of the part are `offsets[n]:offsets[n + 1]`. Of each window its end in ms, and which stored
    series of which collector it is of: equal numbers are one. -1: of one that was decided on already."""

    offsets: Ints
    ends: Ints
    identity: Ints
    facts: Mapping[str, Any]
    sketches: Sketches = NO_SKETCHES

    def where(self, kept: Bools) -> WindowRows:
        if kept.all():
            return self
        before = np.append(0, np.cumsum(kept))
        facts = {fact: array[kept] for fact, array in self.facts.items()}
        return WindowRows(before[self.offsets], self.ends[kept], self.identity[kept], facts, self.sketches)


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
) -> WindowRows:
    """`files` by the number of the segment's table; `identities` likewise, of each of its entries in the part's
    order."""

    def stretches(number: int) -> list[_Stretch]:
        return list(_stretches(part, number, files[number], asked))

    read = [stretch for found in asked.pool.map(stretches, files) for stretch in found]
    sizes = np.zeros(len(part.entries.first), np.int64)
    for stretch in read:
        sizes[stretch.entries] += stretch.high - stretch.low
    at = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    ends = np.empty(total, np.int64)
    found = {fact: np.empty(total, np.int64 if fact in rolled.WHOLE_NUMBERS else np.float64) for fact in asked.facts}
    own = np.full(len(sizes), -1, np.int64)
    for number in files:
        own[part.by_table[number]] = identities[number]
    before = 0
    for stretch in read:
        for fact, target in ((ENDS, ends), *found.items()):
            source = stretch.sketch_numbers(before) if fact == rolled.SKETCH else stretch.columns.of(fact).values
            copied(source, stretch.low, stretch.high, target, at[stretch.entries])
        at[stretch.entries] += stretch.high - stretch.low
        before += len(stretch.sketches)
    offsets = np.append(0, np.cumsum(sizes))[part.offsets]
    sketches = joined([stretch.sketches for stretch in read])
    rows = WindowRows(offsets, ends, np.repeat(own, sizes), found, sketches)
    return rows if len(asked.times) == 1 else rows.where(inside(ends, asked.times))


@dataclass(frozen=True)
class _Stretch:
    """Of each of these entries its rows in a row group, low:high of that. `sketches` are those of these rows."""

    columns: _Columns
    entries: Ints
    low: Ints
    high: Ints
    sketches: Sketches

    def sketch_numbers(self, before: int) -> Ints:
        """Of each row of the row group which sketch is its own, where there are so many before these."""
        numbers = np.zeros(len(self.columns.of(ENDS).values), np.int64)
        numbers[ranges(self.low, self.high - self.low)] = before + np.arange(len(self.sketches))
        return numbers


def _stretches(part: Part, number: int, file: SegmentFile, asked: Asked) -> Iterator[_Stretch]:
    between = asked.times[0][0], asked.times[-1][1]
    own = part.by_table[number]
    first, rows = part.entries.first[own], part.entries.rows[own]
    with explained(file.segment):
        for group, wanted in file.groups(first, rows):
            base, behind = file.footprint.rows[group]
            low = np.maximum(first[wanted], base) - base
            high = np.minimum((first + rows)[wanted], behind) - base
            columns = _Columns(file, group, asked.facts)
            spans(columns.of(ENDS).values, low, high, between)
            columns.check_numbers(low, high)
            sketches = NO_SKETCHES
            if rolled.SKETCH in asked.facts:
                sketches = sketches_of_rows(file, group, ranges(low, high - low), asked.room)
            yield _Stretch(columns, own[wanted], low, high, sketches)


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
            raise NotTiered("some of what is selected are histograms")

    def _read(self) -> None:
        segment = self._file.segment
        keys = {fact: (segment.organization, segment.id, self._group, _COLUMNS[fact]) for fact in self._wanted}
        for fact, key in keys.items():
            kept = self._file.kept.get(key)
            if kept is not None:
                self._found[fact] = kept
        missing = [fact for fact in self._wanted if fact not in self._found]
        there = tuple(_COLUMNS[fact] for fact in missing if _COLUMNS[fact] in self._file.columns)
        table = self._file.table(self._group, there) if there else None
        first, behind = self._file.footprint.rows[self._group]
        for fact in missing:
            column = table.column(_COLUMNS[fact]).combine_chunks() if table and _COLUMNS[fact] in there else None
            self._found[fact] = _numbers(column, fact, behind - first)
            self._file.kept.put(keys[fact], self._found[fact], self._found[fact].bytes)


def _numbers(column: Any, fact: str, rows: int) -> Numbers:
    """0 where there is none. A column without any value is not in the file."""
    whole = fact == ENDS or fact in rolled.WHOLE_NUMBERS
    if column is None:
        return Numbers(_NONE, np.zeros(rows, np.int64 if whole else np.float64), np.zeros(rows, bool))
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    valid: Bools = np.asarray(column.is_valid()) if column.null_count else _ALL
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    filled = column.fill_null(0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False)
    if fact == ENDS or fact in _TIMES:
        values = values // NS_PER_MS
    return Numbers(_NONE, values.astype(np.int64 if whole else np.float64), valid)  # its own, and not Arrow's


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
