"""Segments of metrics as Prometheus sees them: what a query worker asks for samples, series, metadata and exemplars.

Comes in: segments of one organization, and a selection. Goes out: blocks of samples, or rows of a listing. What always
holds: only the segments that are given are read, and of them only what the selection can want. What was understood of
them is kept for the next query: the tables of series, which series matchers mean, and how the points of such segments
are laid out. docs/formats/prometheus.md tells what is seen.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from threading import Lock
from typing import TypeVar
from uuid import UUID

from lakerunner.model.condition import Equals
from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.matcher import Matchers, SelectorTest
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.tiling import Tiles
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.promql.sample_range import Selection
from lakerunner.query.account import Account
from lakerunner.query.cache import SegmentCache
from lakerunner.query.held import Held, explained
from lakerunner.query.kept import Kept
from lakerunner.query.metrics.described import Descriptions, descriptions
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers
from lakerunner.query.metrics.layout import Block, Layout, lay_out
from lakerunner.query.metrics.reading import Footprint, SegmentFile
from lakerunner.query.metrics.rolled_blocks import RolledBlocks
from lakerunner.query.metrics.samples import Reading, block_samples, columns_of
from lakerunner.query.metrics.series import Known, SeriesTable, series_file
from lakerunner.query.metrics.spread import COLUMNS
from lakerunner.series.bounds import Bounds
from lakerunner.series.sketches import Sketches
from lakerunner.series.values import Samples

BLOCK_SAMPLES = 4_000_000
_BESIDE = 4  # blocks at least, to be worked out beside each other; whatever the cores, so that sums are cut alike
KEEP_BYTES = 512 << 20  # of numbers that were read, 16 bytes each
MOST_SERIES = 2_000_000  # that are known of all organizations, about 1 GB
# Bytes kept of each.
_TABLES, _DESCRIPTIONS, _LAYOUTS, _FOOTERS, _SKETCHES = 256 << 20, 64 << 20, 256 << 20, 64 << 20, 128 << 20
_METRICS_ASKED_FOR = 64  # by name; of more it says little
_SERIES, _STATISTICS = "series", "statistics"
_generations = count()
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Segments in their order (`in_order`), and the series that each of them has."""

    segments: tuple[Segment, ...]
    tables: tuple[SeriesTable, ...]
    known: Known


class MetricSegments:
    """One for each worker process. Safe to use from many threads."""

    def __init__(self, cache: SegmentCache, *, threads: int = 0, keep_bytes: int = KEEP_BYTES) -> None:
        self._cache = cache
        self.threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="metric-segments")
        self._blocks = ThreadPoolExecutor(self.threads, thread_name_prefix="metric-blocks")
        self._lock = Lock()
        self._known: OrderedDict[UUID, tuple[int, Known]] = OrderedDict()
        self._tables: Kept[SeriesTable] = Kept(_TABLES)
        self._descriptions: Kept[Descriptions] = Kept(_DESCRIPTIONS)
        self._layouts: Kept[Layout] = Kept(_LAYOUTS)
        self._footers: Kept[Footprint] = Kept(_FOOTERS)
        self._numbers: Kept[Numbers] = Kept(keep_bytes)
        self._sketches: Kept[Sketches] = Kept(_SKETCHES)

    def samples(
        self, segments: Sequence[Segment], selection: Selection, *, block_samples: int = BLOCK_SAMPLES
    ) -> Blocks:
        """The samples of the selection's shard, block by block: each series is in one of them, whole. Nothing is read
        before the first block is asked for."""
        return Blocks(self, tuple(segments), selection, block_samples)

    def windows(
        self,
        segments: Sequence[Segment],
        selection: Selection,
        tiles: Tiles,
        facts: Sequence[str],
        limit: Bounds = Bounds(),  # noqa: B008 a frozen value
    ) -> RolledBlocks:
        """Likewise, as windows: of the tiers at the times that `tiles` say, with these facts of them; a block's
        sketches hold no more buckets than `limit` says."""
        return RolledBlocks(self, segments, selection, tiles, facts, limit)

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """What each call gives, in their order; as many are worked out at once as there are cores, and no more wait
        to be taken."""
        waiting: deque[Future[T]] = deque()
        try:
            for call in calls:
                waiting.append(self._blocks.submit(call))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def close(self) -> None:
        self._blocks.shutdown()
        self._pool.shutdown()

    # For this package

    def prepared(self, segments: Sequence[Segment]) -> Prepared:
        """Corrupt if a table of series cannot be read."""
        ordered = in_order(segments)
        if not ordered:
            return Prepared((), (), Known())
        generation, known = self._series_of(ordered[0].organization)
        if any(segment.organization != ordered[0].organization for segment in ordered):
            raise ValueError("segments of several organizations")
        found: dict[UUID, SeriesTable] = {}
        for segment in ordered:
            table = self._tables.get((generation, segment.id))
            if table is not None:
                found[segment.id] = table
        missing = [segment for segment in ordered if segment.id not in found]
        with ExitStack() as held:
            paths = held.enter_context(self.beside(missing, SERIES_TABLE)) if missing else {}
            for segment, table in zip(missing, self._pool.map(partial(_table, known, paths), missing), strict=True):
                found[segment.id] = table
                self._tables.put((generation, segment.id), table, table.bytes)
        return Prepared(ordered, tuple(found[segment.id] for segment in ordered), known)

    def descriptions(self, segment: Segment) -> Descriptions:
        """Corrupt if its table of series cannot be read."""
        key = segment.organization, segment.id
        found = self._descriptions.get(key)
        if found is None:
            with (
                explained(segment),
                self.beside([segment], SERIES_TABLE) as paths,
                series_file(paths[segment.id], segment.side_path(SERIES_TABLE)) as file,
            ):
                found = descriptions(file)
            self._descriptions.put(key, found, found.bytes)
        return found

    def layout(self, segments: Sequence[Segment], matchers: Matchers) -> tuple[tuple[Segment, ...], Layout]:
        """The segments in the order in which the layout counts them."""
        ordered = in_order(segments)
        key = tuple((segment.organization, segment.id) for segment in ordered), matchers
        layout = self._layouts.get(key)
        if layout is None:
            prepared = self.prepared(ordered)
            with prepared.known.lock:  # whoever else wants this one has waited for it here
                layout = self._layouts.get(key) or lay_out(prepared.known, prepared.tables, matchers)
                self._layouts.put(key, layout, layout.bytes)
        return ordered, layout

    @contextmanager
    def reading(
        self, segments: Sequence[Segment], block: Block, between: tuple[int, int], more: tuple[str, ...] = ()
    ) -> Iterator[tuple[Reading, Account]]:
        """The files of the segments that have entries in the block, with what is read of them (and the columns `more`)
        while the context lasts."""
        numbers = sorted({*block.plain.by_table, *block.spread.by_table})
        with self.files(segments, numbers, block, between, more) as (files, account):
            yield Reading(files, between, self._pool), account

    @contextmanager
    def files(
        self,
        segments: Sequence[Segment],
        numbers: Sequence[int],
        block: Block,
        between: tuple[int, int],
        more: tuple[str, ...] = (),
    ) -> Iterator[tuple[dict[int, SegmentFile], Account]]:
        """Of the segments of these numbers, which are all raw or all rollups, with what is read of them."""
        scan = _scan(block, [segments[n] for n in numbers], between, more)
        with self.opened(scan, [segments[n] for n in numbers]) as (files, account):
            yield {n: files[segments[n].id] for n in numbers if segments[n].id in files}, account

    @contextmanager
    def opened(self, scan: Scan, segments: Sequence[Segment]) -> Iterator[tuple[dict[UUID, SegmentFile], Account]]:
        """The files of those segments that the scan can want something of, with what it took to have them."""
        with _named(segments), self._cache.hold(scan, segments) as held:
            files = {
                segment.id: SegmentFile(
                    segment, held.files[segment.id], self._footprint(segment, held), self._numbers, self._sketches
                )
                for segment in segments
                if segment.id in held.files
            }
            yield files, held.account

    @contextmanager
    def beside(self, segments: Sequence[Segment], name: str) -> Iterator[Mapping[UUID, Path]]:
        """The files of this name beside the segments, while the context lasts."""
        with _named(segments), self._cache.hold_beside(segments, name) as paths:
            yield paths

    @property
    def reading_pool(self) -> ThreadPoolExecutor:
        return self._pool

    def _series_of(self, organization: UUID) -> tuple[int, Known]:
        with self._lock:
            found = self._known.pop(organization, None)
            if found is None or len(found[1].series) > MOST_SERIES:
                found = next(_generations), Known()
            self._known[organization] = found
            while len(self._known) > 1 and sum(len(one.series) for _, one in self._known.values()) > MOST_SERIES:
                self._known.popitem(last=False)
            return found

    def _footprint(self, segment: Segment, held: Held) -> Footprint:
        key = segment.organization, segment.id
        found = self._footers.get(key)
        if found is None:
            with explained(segment):
                found = Footprint(held.footers[segment.id])
            self._footers.put(key, found, found.bytes)
        return found


class Blocks:
    """Iterated over once, or its parts taken once. `account` is what it took so far, from any thread."""

    def __init__(self, owner: MetricSegments, segments: tuple[Segment, ...], selection: Selection, most: int) -> None:
        self._owner = owner
        self._segments = segments
        self._selection = selection
        self._most = most
        self._lock = Lock()
        self._account = Account()
        self._asked: set[UUID] = set()
        self._read: set[UUID] = set()

    @property
    def account(self) -> Account:
        with self._lock:
            by_series, asked, read = len(self._segments) - len(self._asked), len(self._asked), len(self._read)
            left_out = {_SERIES: by_series, _STATISTICS: asked - read}
            pruned = {why: number for why, number in left_out.items() if number}
            return self._account + Account(read=read, pruned=pruned)

    def __iter__(self) -> Iterator[Samples]:
        return (part() for part in self.parts())

    def parts(self) -> Iterator[Callable[[], Samples]]:
        """Each gives the samples of one block; they may be called from several threads at once."""
        selection = self._selection
        began = time.monotonic()
        segments, layout = self._owner.layout(self._segments, selection.matchers)
        self._add(Account(seconds={"series": time.monotonic() - began}))
        test = SelectorTest(selection.matchers)
        for block in layout.blocks(selection.shard, self._most, _BESIDE):
            yield partial(self._samples, segments, block, test)

    def _samples(self, segments: tuple[Segment, ...], block: Block, test: SelectorTest) -> Samples:
        began = time.monotonic()
        with self._owner.reading(segments, block, (self._selection.start, self._selection.end)) as (reading, account):
            fetched = time.monotonic()
            samples = block_samples(block, reading, test)
        seconds = {"fetch": fetched - began, "run": time.monotonic() - fetched}
        with self._lock:
            self._asked |= {segments[n].id for n in (*block.plain.by_table, *block.spread.by_table)}
            self._read |= {file.segment.id for file in reading.files.values()}
        self._add(replace(account, pruned={}, read=0, rows=len(samples.times), seconds=seconds))
        return samples

    def _add(self, account: Account) -> None:
        with self._lock:
            self._account += account


@contextmanager
def _named(segments: Sequence[Segment]) -> Iterator[None]:
    """Raise what cannot be read of the segments as Corrupt with the path of the segment."""
    try:
        yield
    except Corrupt as error:
        for segment in segments:
            if segment.id == error.segment:
                error.segment = None
                with explained(segment):
                    raise
        raise


def _table(known: Known, paths: Mapping[UUID, Path], segment: Segment) -> SeriesTable:
    with explained(segment):
        table = known.read(paths[segment.id], segment.side_path(SERIES_TABLE))
        if table.rows.sum() != segment.rows:
            raise Corrupt(f"its series have {table.rows.sum()} points, the segment {segment.rows}")
        return table


def in_order(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """The widest windows first; of one width by collector, and those of one as they were ingested; where none overlaps
    another, as their times are: then nothing need be sorted."""
    widths = sorted({segment.frequency_ms for segment in segments}, reverse=True)
    return tuple(one for width in widths for one in _in_order([s for s in segments if s.frequency_ms == width]))


def _in_order(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    by_time = sorted(segments, key=lambda one: (one.time.start_ns, one.id))
    if _are_apart(by_time):
        return tuple(by_time)
    of_collectors: dict[str, list[Segment]] = {}
    for segment in by_time:
        of_collectors.setdefault(segment.collector, []).append(segment)
    ordered: list[Segment] = []
    for _, own in sorted(of_collectors.items()):
        ordered += own if _are_apart(own) else sorted(own, key=lambda one: one.ingested)
    return tuple(ordered)


def _are_apart(by_time: Sequence[Segment]) -> bool:
    return all(one.time.end_ns <= after.time.start_ns for one, after in pairwise(by_time))


def _scan(block: Block, segments: Sequence[Segment], between: tuple[int, int], more: tuple[str, ...]) -> Scan:
    """Of rollups `more` is all that is read."""
    start, end = (min(max((at + 1) * NS_PER_MS, MIN_NS), MAX_NS) for at in between)
    metrics = block.layout.metrics
    conditions = (Equals("metric_name", metrics),) if len(metrics) <= _METRICS_ASKED_FOR else ()
    time_ = TimeRange(start, max(end, start))
    if any(segment.frequency_ms for segment in segments):
        return Scan("metrics", "metrics", time_, ("timestamp",), conditions=conditions, stored=more)
    every = frozenset(column.name for segment in segments for column in segment.columns)
    columns = {*columns_of(block.plain, every), *more, "timestamp", "flags"}
    for kind in block.spread.kinds:
        columns.update(COLUMNS.get(kind, ()))
    if block.spread.has_delta:
        columns.add("start_timestamp")
    return Scan("metrics", "metrics", time_, tuple(sorted(columns)), conditions=conditions)
