"""Segments of metrics as Prometheus sees them: where a worker gets samples, series, metadata and exemplars.

Input: segments of one organization, and a selection. Output: blocks of samples, or rows of a listing. Only the given
segments are read, and only what the selection may need. Parsed data is cached for the next query: series tables,
selections of matchers, layouts, footers and decoded numbers. docs/formats/prometheus.md describes the view.
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
from lakerunner.model.lru import LruCache
from lakerunner.model.organization import is_of_rule
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.promql.operators import Selection
from lakerunner.query.contract.account import Account
from lakerunner.query.metrics.added_parts import part_columns
from lakerunner.query.metrics.compound_points import COLUMNS
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers
from lakerunner.query.metrics.layout import Block, Layout, lay_out
from lakerunner.query.metrics.rolled_blocks import AccountedBlocks
from lakerunner.query.metrics.sample_reader import SampleReader, block_samples, columns_of
from lakerunner.query.metrics.segment_file import Footprint, SegmentFile
from lakerunner.query.metrics.series_registry import (
    Descriptions,
    SeriesRegistry,
    SeriesTable,
    descriptions,
    series_file,
)
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.segment_cache.lease import Lease, naming_segment
from lakerunner.series.rollups import Sketches
from lakerunner.series.values import Samples

BLOCK_SAMPLES = 4_000_000
_LEAST_BLOCKS = 4  # for parallel work; independent of the cores, so that sums are split alike on every machine
KEEP_BYTES = 512 << 20  # of cached numbers, 16 bytes each
MOST_SERIES = 2_000_000  # known series of all organizations, about 1 GB
# Sizes of the caches in bytes.
_TABLES, _DESCRIPTIONS, _LAYOUTS, _FOOTERS, _SKETCHES = 256 << 20, 64 << 20, 256 << 20, 64 << 20, 128 << 20
_MOST_NAMES = 64  # more metric names prune too little to be worth a condition
_generations = count()
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PreparedSegments:
    """Segments in their order (`in_order`), and the series that each of them has."""

    segments: tuple[Segment, ...]
    tables: tuple[SeriesTable, ...]
    registry: SeriesRegistry


class MetricSegments:
    """One for each worker process. Safe to use from many threads."""

    def __init__(self, cache: SegmentCache, *, threads: int = 0, keep_bytes: int = KEEP_BYTES) -> None:
        self._cache = cache
        self.threads = threads or os.cpu_count() or 1
        self.reading_pool = ThreadPoolExecutor(self.threads, thread_name_prefix="metric-segments")
        self._blocks = ThreadPoolExecutor(self.threads, thread_name_prefix="metric-blocks")
        self._lock = Lock()
        self._registries: OrderedDict[UUID, tuple[int, SeriesRegistry]] = OrderedDict()
        self._tables: LruCache[SeriesTable] = LruCache(_TABLES)
        self._descriptions: LruCache[Descriptions] = LruCache(_DESCRIPTIONS)
        self._layouts: LruCache[Layout] = LruCache(_LAYOUTS)
        self._footers: LruCache[Footprint] = LruCache(_FOOTERS)
        self._numbers: LruCache[Numbers] = LruCache(keep_bytes)
        self._sketches: LruCache[Sketches] = LruCache(_SKETCHES)

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Yield the results of the calls in order; as many run at once as there are cores, and no more wait to be
        taken."""
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
        self.reading_pool.shutdown()

    # For this package

    def prepared(self, segments: Sequence[Segment]) -> PreparedSegments:
        """Read the series tables. Corrupt if one cannot be read."""
        ordered = in_order(segments)
        if not ordered:
            return PreparedSegments((), (), SeriesRegistry())
        generation, registry = self._registry_of(ordered[0].organization)
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
            for segment, table in zip(
                missing, self.reading_pool.map(partial(_table, registry, paths), missing), strict=True
            ):
                found[segment.id] = table
                self._tables.put((generation, segment.id), table, table.bytes)
        return PreparedSegments(ordered, tuple(found[segment.id] for segment in ordered), registry)

    def descriptions(self, segment: Segment) -> Descriptions:
        """Return the descriptions of metrics. Corrupt if the series table cannot be read."""
        key = segment.organization, segment.id
        found = self._descriptions.get(key)
        if found is None:
            with (
                naming_segment(segment),
                self.beside([segment], SERIES_TABLE) as paths,
                series_file(paths[segment.id], segment.side_path(SERIES_TABLE)) as file,
            ):
                found = descriptions(file)
            self._descriptions.put(key, found, found.bytes)
        return found

    def layout(self, segments: Sequence[Segment], matchers: Matchers) -> tuple[tuple[Segment, ...], Layout]:
        """Return the layout, with the segments in the order in which it counts them."""
        ordered = in_order(segments)
        key = tuple((segment.organization, segment.id) for segment in ordered), matchers
        layout = self._layouts.get(key)
        if layout is None:
            prepared = self.prepared(ordered)
            with prepared.registry.lock:  # threads that need the same layout wait here for the first one
                layout = self._layouts.get(key) or lay_out(prepared.registry, prepared.tables, matchers)
                self._layouts.put(key, layout, layout.bytes)
        return ordered, layout

    @contextmanager
    def files(
        self,
        segments: Sequence[Segment],
        numbers: Sequence[int],
        block: Block,
        between: tuple[int, int],
        more: tuple[str, ...] = (),
    ) -> Iterator[tuple[dict[int, SegmentFile], Account]]:
        """Open the segments of these numbers, which are all raw or all rollups, with the columns to read (and `more`),
        until the context ends."""
        scan = _scan(block, [segments[n] for n in numbers], between, more)
        with self.opened(scan, [segments[n] for n in numbers]) as (files, account):
            yield {n: files[segments[n].id] for n in numbers if segments[n].id in files}, account

    @contextmanager
    def opened(self, scan: Scan, segments: Sequence[Segment]) -> Iterator[tuple[dict[UUID, SegmentFile], Account]]:
        """Open the files of those segments that may match the scan; return what it took."""
        with _naming_path(segments), self._cache.hold(scan, segments) as held:
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
        """Hold the side files of this name until the context ends."""
        with _naming_path(segments), self._cache.hold_beside(segments, name) as paths:
            yield paths

    def _registry_of(self, organization: UUID) -> tuple[int, SeriesRegistry]:
        with self._lock:
            found = self._registries.pop(organization, None)
            if found is None or len(found[1].series) > MOST_SERIES:
                found = next(_generations), SeriesRegistry()
            self._registries[organization] = found
            while (
                len(self._registries) > 1 and sum(len(one.series) for _, one in self._registries.values()) > MOST_SERIES
            ):
                self._registries.popitem(last=False)
            return found

    def _footprint(self, segment: Segment, held: Lease) -> Footprint:
        key = segment.organization, segment.id
        found = self._footers.get(key)
        if found is None:
            with naming_segment(segment):
                found = Footprint(held.footers[segment.id])
            self._footers.put(key, found, found.bytes)
        return found


class Blocks(AccountedBlocks):
    """The samples of the selection's shard, in blocks of at most `most`; each series is in one of them, complete.
    Nothing is read before the first block is taken. Iterate over it once, or take its parts once."""

    def __init__(
        self, owner: MetricSegments, segments: Sequence[Segment], selection: Selection, most: int = BLOCK_SAMPLES
    ) -> None:
        super().__init__(owner, segments, selection)
        self._most = most

    def __iter__(self) -> Iterator[Samples]:
        return (part() for part in self.parts())

    def parts(self) -> Iterator[Callable[[], Samples]]:
        """Yield functions that return the samples of one block each; they may be called from several threads
        at once."""
        selection = self._selection
        began = time.monotonic()
        segments, layout = self._owner.layout(self._segments, selection.matchers)
        self._add(Account(seconds={"series": time.monotonic() - began}))
        test = SelectorTest(selection.matchers)
        for block in layout.blocks(selection.shard, self._most, _LEAST_BLOCKS):
            yield partial(self._samples, segments, block, test)

    def _samples(self, segments: tuple[Segment, ...], block: Block, test: SelectorTest) -> Samples:
        began = time.monotonic()
        between = self._selection.start, self._selection.end
        with self._owner.files(segments, block.tables, block, between) as (files, account):
            fetched = time.monotonic()
            samples = block_samples(block, SampleReader(files, between, self._owner.reading_pool), test)
        seconds = {"fetch": fetched - began, "run": time.monotonic() - fetched}
        self._examine(segments, block.tables)
        self._count(files.values(), account, len(samples.times), seconds)
        return samples


@contextmanager
def _naming_path(segments: Sequence[Segment]) -> Iterator[None]:
    """Raise what cannot be read of the segments as Corrupt with the path of the segment."""
    try:
        yield
    except Corrupt as error:
        for segment in segments:
            if segment.id == error.segment:
                error.segment = None
                with naming_segment(segment):
                    raise
        raise


def _table(registry: SeriesRegistry, paths: Mapping[UUID, Path], segment: Segment) -> SeriesTable:
    with naming_segment(segment):
        table = registry.read(paths[segment.id], segment.side_path(SERIES_TABLE))
        if table.rows.sum() != segment.rows:
            raise Corrupt(f"its series have {table.rows.sum()} points, the segment {segment.rows}")
        return replace(table, of_rule=True) if is_of_rule(segment.collector) else table


def in_order(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Sort segments: the widest windows first; those of one width by collector, then as they were ingested. Where none
    overlaps another, by time, so that samples need no sorting."""
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
    """Return the scan of the columns to read; for rollups these are `more` alone."""
    start, end = (min(max((at + 1) * NS_PER_MS, MIN_NS), MAX_NS) for at in between)
    metrics = block.layout.metrics
    conditions = (Equals("metric_name", metrics),) if len(metrics) <= _MOST_NAMES else ()
    time_ = TimeRange(start, max(end, start))
    if any(segment.frequency_ms for segment in segments):
        return Scan("metrics", "metrics", time_, ("timestamp",), conditions=conditions, stored=more)
    every = frozenset(column.name for segment in segments for column in segment.columns)
    columns = {*columns_of(block.plain, every), *columns_of(block.beside_parts, every), *more, "timestamp", "flags"}
    columns |= part_columns(block.parts) & every
    for kind in block.spread.kinds:
        columns.update(COLUMNS.get(kind, ()))
    if block.spread.has_delta:
        columns.add("start_timestamp")
    return Scan("metrics", "metrics", time_, tuple(sorted(columns)), conditions=conditions)
