"""Segments of several tiers as windows, block by block, for queries that rollups serve.

Input: segments, a selection, which tier is read where, and the facts needed of windows. Output: blocks of RollupSeries.
Each series is in one block, complete; its windows are in order and do not overlap. Where the samples of one series come
from several stored series or collectors at once, windows cannot tell which of them count: NotTiered, as for histograms,
deltas, and rows that are not one sample each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from lakerunner.model.labels.matcher import SelectorTest
from lakerunner.model.labels.metric_view import SampleKind
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, Interval, Tiles
from lakerunner.promql.operators import Selection
from lakerunner.promql.selection.staleness import is_stale
from lakerunner.query.contract.account import Account
from lakerunner.query.metrics.kernels import read_only
from lakerunner.query.metrics.layout import Block, GroupSet, Layout
from lakerunner.query.metrics.rollup_rows import (
    ENDS,
    BucketBudget,
    RollupRequest,
    RollupRun,
    copied,
    in_order,
    inside,
    rollup_rows,
    stored_columns,
)
from lakerunner.query.metrics.sample_reader import SampleReader, block_samples
from lakerunner.query.metrics.segment_file import SegmentFile
from lakerunner.query.metrics.series_registry import SeriesTable
from lakerunner.series import rollups
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.rollups import NO_SKETCHES, NotTiered, RollupSeries, concatenate_sketches, sketch_numbers
from lakerunner.series.values import Samples

if TYPE_CHECKING:
    from lakerunner.query.metrics.metric_segments import MetricSegments

# Windows of about 100 bytes each; smaller blocks would decode the row groups that they share several times. With
# sketches, of a hundred or two buckets each, fewer.
BLOCK_WINDOWS, BLOCK_SKETCHES = 1_000_000, 62_500
_NUMBERS = (SampleKind.NUMBER, SampleKind.SENT)
_UNCOUNTED = -1
_NOTHING: Any = np.zeros(0, np.int64)


class AccountedBlocks:
    """Blocks of some segments. `account` is what they took so far, from any thread."""

    def __init__(self, owner: MetricSegments, segments: Sequence[Segment], selection: Selection) -> None:
        self._owner = owner
        self._segments = tuple(segments)
        self._selection = selection
        self._lock = Lock()
        self._account = Account()
        self._examined: set[UUID] = set()
        self._read: set[UUID] = set()

    @property
    def account(self) -> Account:
        with self._lock:
            reasons = {
                "series": len(self._segments) - len(self._examined),
                "statistics": len(self._examined) - len(self._read),
            }
            pruned = {why: number for why, number in reasons.items() if number}
            return self._account + Account(read=len(self._read), pruned=pruned)

    def _examine(self, segments: Sequence[Segment], numbers: Iterable[int]) -> None:
        with self._lock:
            self._examined |= {segments[number].id for number in numbers}

    def _count(self, read: Iterable[SegmentFile], account: Account, rows: int, seconds: Mapping[str, float]) -> None:
        """Add what reading these files took; what was pruned follows from all that was examined and read."""
        with self._lock:
            self._read |= {file.segment.id for file in read}
        self._add(replace(account, pruned={}, read=0, rows=rows, seconds=seconds))

    def _add(self, account: Account) -> None:
        with self._lock:
            self._account += account


class RolledBlocks(AccountedBlocks):
    """Rollup windows of the tiers at the times in `tiles`, with these facts; a block's sketches hold at most as many
    buckets as `limit` allows. Take its parts once."""

    def __init__(
        self,
        owner: MetricSegments,
        segments: Sequence[Segment],
        selection: Selection,
        tiles: Tiles,
        facts: Sequence[str],
        limit: Bounds,
    ) -> None:
        super().__init__(owner, segments, selection)
        self._tiles = tiles
        self._facts = tuple(dict.fromkeys((rollups.COUNT, *facts)))
        self._limit = limit

    def parts(self) -> Iterator[Callable[[], RollupSeries]]:
        """Yield functions that each return one block; they may be called from several threads at once. NotTiered is
        raised at once if the series are not served by rollups."""
        began = time.monotonic()
        segments, layout = self._owner.layout(self._segments, self._selection.matchers)
        tables = self._owner.prepared(segments).tables
        self._add(Account(seconds={"series": time.monotonic() - began}))
        _check_kinds(layout)
        most = BLOCK_SKETCHES if rollups.SKETCH in self._facts else BLOCK_WINDOWS
        for block in layout.blocks(self._selection.shard, most):
            yield partial(self._block, segments, tables, block)

    def _block(self, segments: tuple[Segment, ...], tables: tuple[SeriesTable, ...], block: Block) -> RollupSeries:
        began = time.monotonic()
        numbers: dict[int, list[int]] = {}
        for number in block.plain.by_table:
            numbers.setdefault(segments[number].frequency_ms, []).append(number)
        self._examine(segments, block.plain.by_table)
        room = BucketBudget(self._limit)
        found: list[RollupRun] = []
        for frequency, own in sorted(numbers.items(), reverse=True):
            if times := self._tiles.get(frequency, ()):
                request = RollupRequest(times, self._facts, self._owner.reading_pool, room)
                found += (
                    self._raw(segments, block, own, times)
                    if frequency == RAW
                    else self._windows(segments, tables, block, own, request)
                )
        windows = merge_runs(block.plain, found, self._facts, self._owner.reading_pool)
        self._add(Account(rows=len(windows.ends), seconds={"run": time.monotonic() - began}))
        return windows

    def _windows(
        self,
        segments: tuple[Segment, ...],
        tables: tuple[SeriesTable, ...],
        block: Block,
        numbers: list[int],
        request: RollupRequest,
    ) -> list[RollupRun]:
        identities = _identities(segments, tables, block.plain, numbers)
        between, columns = _hull(request.times), stored_columns(request.facts)
        with self._owner.files(segments, numbers, block, between, columns) as (files, account):
            self._count(files.values(), account, 0, account.seconds)
            return rollup_rows(block.plain, files, identities, request)

    def _raw(
        self, segments: tuple[Segment, ...], block: Block, numbers: list[int], times: Sequence[Interval]
    ) -> list[RollupRun]:
        between = _hull(times)
        with self._owner.files(segments, numbers, block, between) as (files, account):
            self._count(files.values(), account, 0, account.seconds)
            reading = SampleReader(files, between, self._owner.reading_pool)
            samples = block_samples(block, reading, SelectorTest(self._selection.matchers))
        return [_single(block.plain, samples, times, self._facts)]


@dataclass(frozen=True)
class _Windows:
    """The windows of group n are `offsets[n]:offsets[n + 1]`; `ends`, `identity` and `facts` are those of a RollupRun,
    but with one element per window."""

    offsets: Ints
    ends: Ints
    identity: Ints
    facts: Mapping[str, Any]

    def where(self, kept: Bools) -> _Windows:
        if kept.all():
            return self
        before = np.append(0, np.cumsum(kept))
        facts = {fact: array[kept] for fact, array in self.facts.items()}
        return _Windows(before[self.offsets], self.ends[kept], self.identity[kept], facts)


def merge_runs(part: GroupSet, found: Sequence[RollupRun], facts: Sequence[str], pool: Executor) -> RollupSeries:
    """Merge windows of several tiers in order. Of two windows of one stored series, collector and time that of the
    later segment counts; NotTiered if they are of different ones."""
    sizes = np.zeros(len(part.entries.first) + len(part), np.int64)
    for run in found:
        sizes[run.slots] += run.high - run.low
    before = np.append(0, np.cumsum(sizes))
    at, places = before[:-1].copy(), []
    for run in found:
        places.append(at[run.slots])
        at[run.slots] += run.high - run.low

    def place_fact(fact: str) -> Any:
        whole = np.empty(before[-1], np.int64 if fact == ENDS or fact in rollups.WHOLE_NUMBERS else np.float64)
        sketches = 0
        for run, place in zip(found, places, strict=True):
            source = run.ends if fact == ENDS else run.facts[fact]
            if fact == rollups.SKETCH:
                source = read_only(source + sketches)
                sketches += len(run.sketches)
            copied(source, run.low, run.high, whole, place)
        return whole

    ends, *arrays = pool.map(place_fact, (ENDS, *facts))
    offsets = before[part.offsets + np.arange(len(part) + 1)]
    windows = _Windows(offsets, ends, _NOTHING, dict(zip(facts, arrays, strict=True)))
    if not in_order(offsets, ends):
        identity = np.zeros(len(sizes), np.int64)
        for run in found:
            identity[run.slots] = run.identity
        windows = _sorted(replace(windows, identity=np.repeat(identity, sizes)))
    sketches = concatenate_sketches([run.sketches for run in found]) if rollups.SKETCH in facts else NO_SKETCHES
    return RollupSeries(part.labels, windows.offsets, windows.ends, windows.facts, sketches)


def _sorted(rows: _Windows) -> _Windows:
    group = np.repeat(np.arange(len(rows.offsets) - 1), np.diff(rows.offsets))
    order = np.lexsort((rows.ends, group))  # stable: windows of later segments stay behind
    ends, identity = rows.ends[order], rows.identity[order]
    again = (ends[1:] == ends[:-1]) & (group[1:] == group[:-1])
    if np.any(again & (identity[1:] != identity[:-1])):
        raise NotTiered("a series has samples of several sources in one rollup window")
    facts = {fact: array[order] for fact, array in rows.facts.items()}
    return _Windows(rows.offsets, ends, identity, facts).where(np.append(~again, True))


def _check_kinds(layout: Layout) -> None:
    entries = layout.entries
    if layout.spread.any() or not np.isin(entries.kind, _NUMBERS).all():
        raise NotTiered("some selected series are histograms, summaries or target_info")
    if entries.delta.any():
        raise NotTiered("some selected series have delta temporality")


def _identities(
    segments: Sequence[Segment], tables: Sequence[SeriesTable], part: GroupSet, numbers: Sequence[int]
) -> Mapping[int, Ints]:
    """Return by table, for each of its entries, one number for its stored series and collector."""
    collectors = {name: n for n, name in enumerate(sorted({segments[n].collector for n in numbers}))}
    found = {}
    for number in numbers:
        table = tables[number]
        rows = np.searchsorted(table.first, part.entries.first[part.by_table[number]])
        found[number] = table.numbers[rows] * len(collectors) + collectors[segments[number].collector]
    return found


def _single(part: GroupSet, samples: Samples, times: Sequence[Interval], facts: Sequence[str]) -> RollupRun:
    """Return each sample as a window."""
    if samples.histograms is not None:
        raise NotTiered("some selected series are histograms")
    at, values, stale = samples.times, samples.values, is_stale(samples.values)
    made: dict[str, Any] = {fact: _single_fact(fact, at, values, stale) for fact in facts}
    rows = _Windows(samples.offsets, at, np.full(len(at), _UNCOUNTED, np.int64), made).where(inside(at, times))
    slots = part.last_slots
    return RollupRun(
        slots,
        np.full(len(slots), _UNCOUNTED, np.int64),
        rows.offsets[:-1],
        rows.offsets[1:],
        read_only(rows.ends),
        {fact: read_only(array) for fact, array in rows.facts.items()},
        sketch_numbers(values) if rollups.SKETCH in facts else NO_SKETCHES,
    )


def _single_fact(fact: str, times: Ints, values: Any, stale: Bools) -> Any:
    match fact:
        case rollups.COUNT:
            return (~stale).astype(np.int64)
        case rollups.FIRST_TIME | rollups.LAST_TIME:
            return np.where(stale, 0, times)
        case rollups.MARK_TIME:
            return np.where(stale, times, 0)
        case rollups.SKETCH:
            return np.arange(len(times))
        case rollups.RESETS | rollups.CHANGES:
            return np.zeros(len(times), np.int64)
        case rollups.SUM_ERROR | rollups.RESET_SUM:
            return np.zeros(len(times))
    return values


def _hull(times: Sequence[Interval]) -> Interval:
    return times[0][0], times[-1][1]
