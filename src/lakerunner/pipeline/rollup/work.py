"""A piece of rollup work: the buckets that new segments touch, made anew from all segments that have rows of them.

Comes in: the index rows of the new segments and of all live ones of their tier in the range of these buckets. Goes out:
new segments of the next tier, one for each hour or day, in the store. Nothing is committed here.

What always holds: exactly the (series, bucket) pairs that new segments have rows in are made, whole. The same work
gives the same ids and the same bytes. Memory is that of the merge, plus 48 bytes for each touched pair.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import arm, reach
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.signal import METRICS, ROLLUPS, spec_of
from lakerunner.model.tier import window_end
from lakerunner.model.time import MIN_NS, TimeRange
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.compact import CompactLimits, MergeStore, Outcome
from lakerunner.pipeline.merge.input_series import InputSeries
from lakerunner.pipeline.merge.merged import Merged, merged
from lakerunner.pipeline.merge.opened import Damaged, Opened, explained, open_segments, side_of
from lakerunner.pipeline.merge.output import Output
from lakerunner.pipeline.merge.row_groups import Groups
from lakerunner.pipeline.merge.scratch import scratch
from lakerunner.pipeline.rollup.batch_columns import NS_PER_MS
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.pipeline.rollup.periods import by_period, periods_of
from lakerunner.pipeline.rollup.touched import touched_by
from lakerunner.pipeline.sides.side import SideInputs
from lakerunner.pipeline.signals import sides_of
from lakerunner.pipeline.write import Identity

_MEMORY = 256 << 20
JSON = {b"kind": b"json"}  # what a table, unlike a segment's index row, cannot say otherwise


@dataclass(frozen=True)
class RollupWork:
    """From segments of `frequency_ms` (0: raw) to buckets of `target_frequency_ms`. `touched` are the new ones,
    `sources` all live ones of the organization's collector and frequency that have rows in `span`, `touched` among
    them, by `ingested`. Buckets that begin before `whole_from_ns` may have lost rows to retention: those that `made`,
    the live segments of the target, have are left as they are. `lost` are segments of the target whose buckets these
    are in the place of."""

    organization: UUID
    collector: str
    frequency_ms: int
    target_frequency_ms: int
    touched: tuple[Segment, ...]
    sources: tuple[Segment, ...]
    whole_from_ns: int = MIN_NS
    made: tuple[Segment, ...] = ()
    lost: tuple[UUID, ...] = ()

    @property
    def time(self) -> TimeRange:
        """Of the new segments."""
        times = [segment.time for segment in self.touched]
        return TimeRange(min(time.start_ns for time in times), max(time.end_ns for time in times))

    @property
    def span(self) -> TimeRange:
        """The time of all rows that the buckets in which new segments have rows can hold."""
        tier = self.target_frequency_ms
        first, last = self.time.start_ns // NS_PER_MS, (self.time.end_ns - 1) // NS_PER_MS
        start, end = window_end(first, tier) - tier, window_end(last, tier)
        return TimeRange((start + 1) * NS_PER_MS, (end + 1) * NS_PER_MS)


def rollup_work(work: RollupWork, address: StoreAddress, limits: CompactLimits) -> Outcome:
    """What a task does. Unavailable if the store is away; what cannot be read is in the outcome."""
    if not {segment.id for segment in work.touched} <= {segment.id for segment in work.sources}:
        raise ValueError("a rollup is of segments that are among its sources")
    arm(limits.failpoint)
    reach("before-window", str(work.touched[0].id))
    store = shared_store(address)
    try:
        with scratch() as directory:
            return Outcome(tuple(write_buckets(work, store, directory, limits)))
    except Damaged as error:
        return Outcome((), str(error), error.segment)
    except Corrupt as error:
        return Outcome((), str(error))


def recomputed(work: RollupWork, store: SegmentStore, directory: Path) -> pa.Table:
    """The rows that the work makes, without writing them. What it puts into the directory is gone afterwards. Columns
    of attributes whose values are typed JSON have `JSON` as metadata."""
    with tempfile.TemporaryDirectory(dir=directory) as own:
        rows, fold = _folding(work, store, Path(own), _MEMORY)
        table = pa.Table.from_batches(fold.buckets(rows), fold.schema)
        kinds = {column.name: column.type for column in _columns(fold.schema, rows)}
        return table.cast(
            pa.schema([one.with_metadata(JSON) if kinds[one.name] == "json" else one for one in table.schema])
        )


def write_buckets(work: RollupWork, store: MergeStore, directory: Path, limits: CompactLimits) -> Iterator[Segment]:
    """Write the segments of the buckets; each is in the store when it is yielded. Corrupt if a source cannot be
    read."""
    rows, fold = _folding(work, store, directory, limits.memory)
    columns = _columns(fold.schema, rows)
    tier = work.target_frequency_ms
    buckets = by_period(fold.buckets(rows), fold.schema, periods_of(work.time, tier), tier, directory)
    output = Output(fold.schema, columns, directory, store.put_file, max_bytes=limits.max_bytes)
    given = SideInputs(columns, InputSeries(work.touched, partial(side_of, store)))
    for period, batches in buckets:
        groups = Groups(batches, ROLLUPS)
        number = 0
        while groups.peek() is not None:
            made = _segment_id(work, period, number)
            identity = Identity(made, work.organization, work.collector, ROLLUPS, tier)
            segment = output.write(identity, groups, sides_of(ROLLUPS, given))
            reach("after-window", segment.path)
            yield segment
            number += 1


def _folding(work: RollupWork, store: SegmentStore, directory: Path, memory: int) -> tuple[Merged, Fold]:
    """(the rows that make the buckets, how they become buckets)."""
    opened = open_segments(store, work.sources, directory)
    spec = spec_of(METRICS.name, work.frequency_ms)
    # Rows that came twice stay: of rows of one time the last counts anyway.
    rows = merged(spec, opened, memory, wanted=_wanted(work, opened, store, directory), dedupe=False)
    return rows, Fold(work.frequency_ms, work.target_frequency_ms, rows.schema, SentSeries(work, store))


def _wanted(work: RollupWork, opened: list[Opened], store: SegmentStore, directory: Path) -> Any:
    """Which rows count; None: all, as every source is new."""
    new = {segment.id for segment in work.touched}
    if all(segment.id in new for segment in work.sources) and not work.made:
        return None
    tier = work.target_frequency_ms
    touched = touched_by([one for one in opened if one.segment.id in new], tier)
    if work.made:
        there = touched_by(open_segments(store, work.made, directory), tier)
        touched = touched.without(there, -(-work.whole_from_ns // NS_PER_MS))
    return touched.wanted


def _columns(schema: pa.Schema, source: Merged) -> tuple[Column, ...]:
    kinds = {column.name: column.type for column in source.columns}
    return tuple(Column(name, kinds.get(name, "")) for name in schema.names)


def _segment_id(work: RollupWork, period: int, number: int) -> UUID:
    whose = str(work.organization), work.collector, work.target_frequency_ms, ROLLUPS.sort_version
    touched, sources, made = ([str(segment.id) for segment in some] for some in (work.touched, work.sources, work.made))
    left = (work.whole_from_ns, made) if made else ()
    # Buckets that are made again may be of the very work that made the lost ones, whose ids are taken.
    lost = (sorted(map(str, work.lost)),) if work.lost else ()
    return segment_id("rollup", *whose, sorted(touched), sources, period, number, *left, *lost)


class SentSeries:
    """Of series, which Prometheus sent itself, as the tables of series of the sources say. These are read when they are
    first asked for, which few segments make necessary."""

    def __init__(self, work: RollupWork, store: SegmentStore) -> None:
        self._segments = work.sources
        self._store = store
        self._sent: Any = None

    def __call__(self, series: Any) -> Any:
        if self._sent is None:
            found = [np.zeros(0, np.int64), *map(self._read, self._segments)]
            self._sent = np.unique(np.concatenate(found))
        return np.isin(series, self._sent)

    def _read(self, segment: Segment) -> Any:
        with explained(segment):
            data = side_of(self._store, segment, SERIES_TABLE)
            if data is None:
                raise ValueError("its table of series is missing")
            table = pq.read_table(pa.BufferReader(data), columns=["series", "as_sent"], use_threads=False)
            return table.filter(table.column("as_sent")).column("series").to_numpy()
