"""Rows of rollup segments as windows of the series of a block, with their sketches, and the kernels that copy them.

Input: groups of a layout, and the files of segments of one tier. Output: runs of windows, each from one row group as it
was read, with the needed facts. All of them end within the times for which the tier is read; a window that holds
histograms is NotTiered.

Lists of sketches are never walked row by row. A block's sketches hold at most as many buckets as its query may hold
samples; a sketch whose buckets do not add up to its count is Corrupt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import Corrupt
from lakerunner.model.sketch import BucketRows, bucket_column
from lakerunner.model.tier import Interval
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers, read_only
from lakerunner.query.metrics.layout import GroupSet, ranges
from lakerunner.query.metrics.segment_file import SegmentFile
from lakerunner.query.segment_cache.lease import naming_segment
from lakerunner.series import rollups
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.rollups import NO_SKETCHES, NotTiered, Sketches

ENDS = "ends"
_TIME = "timestamp"
_COLUMNS = {
    ENDS: _TIME,
    rollups.COUNT: "chq_rollup_count",
    rollups.SUM: "chq_rollup_sum",
    rollups.SUM_ERROR: "chq_rollup_sum_error",
    rollups.MIN: "chq_rollup_min",
    rollups.MAX: "chq_rollup_max",
    rollups.FIRST: "chq_rollup_first",
    rollups.FIRST_TIME: "chq_rollup_first_timestamp",
    rollups.LAST: "chq_rollup_last",
    rollups.LAST_TIME: "chq_rollup_last_timestamp",
    rollups.RESET_SUM: "chq_rollup_reset_sum",
    rollups.RESETS: "chq_rollup_resets",
    rollups.CHANGES: "chq_rollup_changes",
    rollups.MARK_TIME: "chq_rollup_stale_timestamp",
}
_TIMES = frozenset({rollups.FIRST_TIME, rollups.LAST_TIME, rollups.MARK_TIME})
# Facts for which the footer may state the value of all windows, and the column that does. Without resets, the
# sum of resets is 0.
_STATED_BY = {
    rollups.COUNT: rollups.COUNT,
    rollups.RESETS: rollups.RESETS,
    rollups.RESET_SUM: rollups.RESETS,
    rollups.CHANGES: rollups.CHANGES,
}
_NONE: Any = np.zeros(0, np.int64)
_ALL: Any = np.zeros(0, np.bool_)
SKETCH_COLUMNS = ("count", "zero_count", "positive", "negative")
_SIDES = ("positive", "negative")


@dataclass(frozen=True)
class RollupRun:
    """Windows of some slots of a block (rolled_blocks.py): those of `slots[n]` are rows `low[n]:high[n]` of the arrays.
    Equal numbers in `identity` mean the same stored series and collector; -1: decided already. `ends` are in ms. The
    fact of a sketch is its number in `sketches`."""

    slots: Ints
    identity: Ints
    low: Ints
    high: Ints
    ends: Ints
    facts: Mapping[str, Any]
    sketches: Sketches = NO_SKETCHES


class RollupRequest(NamedTuple):
    """What to read of windows: when they end, which facts, the pool that reads, and the budget for their sketches."""

    times: Sequence[Interval]
    facts: Sequence[str]
    pool: Executor
    budget: BucketBudget


def stored_columns(facts: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that hold these facts."""
    columns = [SKETCH_COLUMNS if fact == rollups.SKETCH else (_COLUMNS[fact],) for fact in facts]
    return tuple(name for own in columns for name in own)


def rollup_rows(
    part: GroupSet, files: Mapping[int, SegmentFile], identities: Mapping[int, Ints], request: RollupRequest
) -> list[RollupRun]:
    """Read windows. `files` by the number of the segment's table; `identities` likewise, for each of its entries in the
    order of the groups. The runs of each entry are in order of time."""

    def read_segment(number: int) -> list[RollupRun]:
        return list(_runs(part, number, files[number], identities[number], request))

    return [run for found in request.pool.map(read_segment, files) for run in found]


def _runs(
    part: GroupSet, number: int, file: SegmentFile, identity: Ints, request: RollupRequest
) -> Iterator[RollupRun]:
    own = part.by_table[number]
    first, rows = part.entries.first[own], part.entries.rows[own]
    with naming_segment(file.segment):
        for group, wanted in file.groups(first, rows):
            base, behind = file.footprint.rows[group]
            columns = _Columns(file, group, request.facts)
            ends = columns.read(ENDS).values
            found = {fact: columns.read(fact).values for fact in request.facts if fact != rollups.SKETCH}
            for between in request.times:
                low = np.maximum(first[wanted], base) - base
                high = np.minimum((first + rows)[wanted], behind) - base
                spans(ends, low, high, between)
                columns.check_numbers(low, high)
                run = RollupRun(part.slots[own[wanted]], identity[wanted], low, high, ends, found)
                yield _with_sketches(run, file, group, request.budget) if rollups.SKETCH in request.facts else run


def _with_sketches(run: RollupRun, file: SegmentFile, group: int, budget: BucketBudget) -> RollupRun:
    """Return the run with the sketches of its own rows."""
    rows = ranges(run.low, run.high - run.low)
    numbers = np.zeros(len(run.ends), np.int64)
    numbers[rows] = np.arange(len(rows))
    facts = {**run.facts, rollups.SKETCH: numbers}
    return replace(run, facts=facts, sketches=sketches_of_rows(file, group, rows, budget))


class _Columns:
    """The columns of one row group as arrays, cached for the next query."""

    def __init__(self, file: SegmentFile, group: int, facts: Sequence[str]) -> None:
        self._file = file
        self._group = group
        self._wanted = tuple(fact for fact in dict.fromkeys((ENDS, rollups.COUNT, *facts)) if fact in _COLUMNS)
        self._found: dict[str, Numbers] = {}

    def read(self, fact: str) -> Numbers:
        if not self._found:
            self._read()
        return self._found[fact]

    def check_numbers(self, low: Ints, high: Ints) -> None:
        valid = self.read(rollups.COUNT).valid
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
        stated = {fact: number for fact in missing if (number := self._stated(fact)) is not None}
        present = tuple(
            _COLUMNS[fact] for fact in missing if fact not in stated and _COLUMNS[fact] in self._file.columns
        )
        table = self._file.table(self._group, present) if present else None
        for fact in missing:
            if table is not None and _COLUMNS[fact] in present:
                found = _numbers(table.column(_COLUMNS[fact]).combine_chunks(), fact)
            else:
                found = _constant(stated.get(fact), fact, behind - first)
            self._found[fact] = found
            self._file.kept.put(keys[fact], found, found.bytes)

    def _stated(self, fact: str) -> int | None:
        """Return the value that the footer states for all windows of the row group, such as no resets or
        equal counts."""
        stated = self._file.footprint.constant(self._group, _COLUMNS[_STATED_BY[fact]]) if fact in _STATED_BY else None
        return None if fact == rollups.RESET_SUM and stated else stated


def _numbers(column: Any, fact: str) -> Numbers:
    """Return the numbers of a column, 0 where null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    valid: Bools = np.asarray(column.is_valid()) if column.null_count else _ALL
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64())
    filled = column.fill_null(0) if column.null_count else column
    values = filled.to_numpy()
    return Numbers(_NONE, read_only(values // NS_PER_MS if fact == ENDS or fact in _TIMES else values), valid)


def _constant(number: int | None, fact: str, rows: int) -> Numbers:
    """Return a column of one value. None: a column without any value, which is not in the file."""
    kind = np.int64 if fact == ENDS or fact in rollups.WHOLE_NUMBERS else np.float64
    return Numbers(_NONE, read_only(np.full(rows, number or 0, kind)), np.zeros(rows, bool) if number is None else _ALL)


def inside(ends: Ints, times: Sequence[Interval]) -> Bools:
    """Return whether each time is in one of the intervals (start, end], which are in order."""
    if len(times) == 1:
        ((start, end),) = times
        alone: Bools = (ends > start) & (ends <= end)
        return alone
    starts = np.array([start for start, _ in times], np.int64)
    behind = np.array([end for _, end in times], np.int64)
    place = np.searchsorted(starts, ends, side="left") - 1  # the last interval that starts before it
    found: Bools = (place >= 0) & (ends <= behind[np.maximum(place, 0)])
    return found


class BucketBudget:
    """The budget for the buckets of one block. Safe to use from many threads."""

    def __init__(self, limit: Bounds) -> None:
        self._limit = limit
        self._lock = Lock()
        self._taken = 0

    def take(self, buckets: int) -> None:
        """Take from the budget. TooLarge if it is exceeded."""
        with self._lock:
            self._taken += buckets
        self._limit.hold_points(self._taken)

    def check(self, buckets: int) -> None:
        """Raise TooLarge if the whole budget would not suffice."""
        self._limit.hold_points(buckets)


def sketches_of_rows(file: SegmentFile, group: int, rows: Ints, budget: BucketBudget) -> Sketches:
    if file.sketches.get((file.segment.organization, file.segment.id, group)) is None:
        budget.check(_least_buckets(file, group))
    whole = read_sketches(file, group)
    budget.take(whole.buckets_of(rows))
    found = whole.alone(rows)
    if not found.sound():
        raise Corrupt("the bucket counts of a sketch do not add up to its count")
    return found


def read_sketches(file: SegmentFile, group: int) -> Sketches:
    """Return the sketches of all rows, cached for the next query; those of rows that have none are meaningless."""
    key = file.segment.organization, file.segment.id, group
    whole = file.sketches.get(key)
    if whole is None:
        whole = _read(file, group)
        file.sketches.put(key, whole, whole.bytes)
    return whole


def _read(file: SegmentFile, group: int) -> Sketches:
    there = tuple(name for name in SKETCH_COLUMNS if name in file.columns)
    table = file.table(group, there)
    columns = {name: _one(table.column(name)) for name in there}
    first, behind = file.footprint.rows[group]
    positive, negative = (_side(columns.get(name), behind - first) for name in _SIDES)
    found, zeros = (_counts(columns.get(name), behind - first) for name in ("count", "zero_count"))
    return Sketches(found, zeros, (positive, negative))


def _side(column: Any, rows: int) -> BucketRows:
    side = bucket_column(column, rows)
    return BucketRows(side.offset, side.counts.begins, side.counts.sizes, side.counts.values)


def _counts(column: Any, rows: int) -> Ints:
    """Return integers, 0 where null."""
    if column is None:
        return np.zeros(rows, np.int64)
    found: Ints = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _least_buckets(file: SegmentFile, group: int) -> int:
    """Return the least number of buckets in the row group, by its footer: a row with fewer than two has one value
    there."""
    first, behind = file.footprint.rows[group]
    described = file.footprint.metadata.row_group(group)
    leaves = [file.footprint.leaves[name] for name in _SIDES if name in file.columns]
    return sum(max(described.column(leaf).num_values for leaf in own) - (behind - first) for own in leaves)


@njit(cache=True, nogil=True)
def spans(ends: Any, low: Any, high: Any, between: Any) -> None:
    """Narrow each low:high, whose ends ascend, to the rows within (start, end]."""
    for place in range(len(low)):
        a, b = low[place], high[place]
        while a < b and ends[a] <= between[0]:
            a += 1
        while a < b and ends[b - 1] > between[1]:
            b -= 1
        low[place], high[place] = a, b


@njit(cache=True, nogil=True)
def copied(source: Any, low: Any, high: Any, target: Any, at: Any) -> None:
    """Copy low:high of `source` to `at` of `target`."""
    for place in range(len(low)):
        shift = at[place] - low[place]
        for row in range(low[place], high[place]):
            target[row + shift] = source[row]


@njit(cache=True, nogil=True)
def in_order(offsets: Any, ends: Any) -> Any:
    """Return whether the windows of each series ascend strictly."""
    for series in range(len(offsets) - 1):
        for place in range(offsets[series] + 1, offsets[series + 1]):
            if ends[place] <= ends[place - 1]:
                return False
    return True


def warm() -> None:
    """Compile the kernels, or load them from numba's cache."""
    some, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    spans(read_only(some), some.copy(), one.copy(), (-1, 1))
    copied(read_only(some), some, one, some.copy(), some)
    copied(read_only(np.zeros(1)), some, one, np.zeros(1), some)
    in_order(np.array([0, 1]), some)
