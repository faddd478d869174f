"""Rollups: one Spark job recomputes the buckets that new segments touch, a task for each piece of work.

Comes in: the index rows of the new segments and of all live segments of their tier in the time range of these buckets.
Goes out: new segments of the next tier, one for each hour or day, in the store. Nothing is committed here.
docs/formats/rollups.md states what the rows mean.

What always holds: exactly the (series, bucket) pairs that new segments have rows in are computed, from all their rows.
The same work gives the same ids and the same bytes. Memory is that of the merge, plus 48 bytes for each touched pair.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.failpoint import arm, reach
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.signal import METRICS, ROLLUPS, spec_of
from lakerunner.model.tier import window_end
from lakerunner.model.time import MIN_NS, MS_NS, TimeRange
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.compact import CompactLimits, MergeStore, Outcome, write_in_scratch
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.merge.inputs import InputSeries, SegmentFile, damage_reported, open_segments, read_side
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.merge.output import RowGroups, SegmentOutput
from lakerunner.pipeline.rollup.coverage import find_touched, periods_of, split_by_period
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.pipeline.rollup.parts import holds_parts, merged_parts
from lakerunner.pipeline.segment.writer import SegmentIdentity, SideInputs
from lakerunner.pipeline.signals import sides_of

if TYPE_CHECKING:  # workers import this module too, and need no sessions
    from pyspark.sql import SparkSession

_MEMORY = 256 << 20
JSON = {b"kind": b"json"}  # a table has no other way to tell, unlike a segment's index row


@dataclass(frozen=True)
class RollupWork:
    """Roll up segments of `frequency_ms` (0: raw) into buckets of `target_frequency_ms`. `touched` are the new
    segments; `sources` are all live ones of the organization's collector and frequency that have rows in `span`,
    including `touched`, by `ingested`. Buckets that begin before `whole_from_ns` may have lost rows to retention: those
    that `made`, the live segments of the target, have are left unchanged. `lost` are segments of the target whose
    buckets these replace."""

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
        """The time range of the new segments."""
        times = [segment.time for segment in self.touched]
        return TimeRange(min(time.start_ns for time in times), max(time.end_ns for time in times))

    @property
    def span(self) -> TimeRange:
        """The time range of all rows of the buckets in which new segments have rows."""
        tier = self.target_frequency_ms
        first, last = self.time.start_ns // MS_NS, (self.time.end_ns - 1) // MS_NS
        start, end = window_end(first, tier) - tier, window_end(last, tier)
        return TimeRange((start + 1) * MS_NS, (end + 1) * MS_NS)


def rollup_work(work: RollupWork, address: StoreAddress, limits: CompactLimits) -> Outcome:
    """Run one task. Unavailable if the store is away; an unreadable segment is reported in the outcome."""
    if not {segment.id for segment in work.touched} <= {segment.id for segment in work.sources}:
        raise ValueError("the touched segments of a rollup must be among its sources")
    arm(limits.failpoint)
    reach("before-window", str(work.touched[0].id))
    store = shared_store(address)
    return write_in_scratch(lambda directory: write_buckets(work, store, directory, limits))


def recompute_buckets(work: RollupWork, store: SegmentStore, directory: Path) -> pa.Table:
    """Return the rows that the work makes, without writing them. Files in the directory are removed afterwards. Columns
    of attributes whose values are typed JSON have `JSON` as metadata."""
    with tempfile.TemporaryDirectory(dir=directory) as own:
        rows, fold = _open_fold(work, store, Path(own), _MEMORY)
        table = pa.Table.from_batches(fold.buckets(rows), fold.schema)
        kinds = {column.name: column.type for column in _segment_columns(fold.schema, rows)}
        return table.cast(
            pa.schema([one.with_metadata(JSON) if kinds[one.name] == "json" else one for one in table.schema])
        )


def write_buckets(work: RollupWork, store: MergeStore, directory: Path, limits: CompactLimits) -> Iterator[Segment]:
    """Write the segments of the buckets; each is in the store when it is yielded. Corrupt if a source cannot be
    read."""
    rows, fold = _open_fold(work, store, directory, limits.memory)
    columns = _segment_columns(fold.schema, rows)
    tier = work.target_frequency_ms
    buckets = split_by_period(fold.buckets(rows), fold.schema, periods_of(work.time, tier), tier, directory)
    output = SegmentOutput(fold.schema, columns, directory, store.put_file, max_bytes=limits.max_bytes)
    given = SideInputs(columns, InputSeries(work.touched, partial(read_side, store)))
    for period, batches in buckets:
        groups = RowGroups(batches, ROLLUPS)
        number = 0
        while groups.peek() is not None:
            made = _segment_id(work, period, number)
            identity = SegmentIdentity(made, work.organization, work.collector, ROLLUPS, tier)
            segment = output.write(identity, groups, sides_of(ROLLUPS, given))
            reach("after-window", segment.path)
            yield segment
            number += 1


def _open_fold(work: RollupWork, store: SegmentStore, directory: Path, memory: int) -> tuple[MergedRows, Fold]:
    """Return (the rows that make the buckets, how they are folded)."""
    opened = open_segments(store, work.sources, directory)
    spec = spec_of(METRICS.name, work.frequency_ms)
    row_filter = _row_filter(work, opened, store, directory)
    if holds_parts(work.collector, work.frequency_ms):
        rows = merged_parts(opened, memory, row_filter)
    else:  # repeated rows stay: of rows of one time the last counts anyway
        rows = MergedRows(spec, opened, memory, row_filter=row_filter)
    return rows, Fold(work.frequency_ms, work.target_frequency_ms, rows.schema, SentSeries(work, store))


def _row_filter(work: RollupWork, opened: list[SegmentFile], store: SegmentStore, directory: Path) -> Any:
    """Return the filter of the rows that count, None if all do because every source is new."""
    new = {segment.id for segment in work.touched}
    if all(segment.id in new for segment in work.sources) and not work.made:
        return None
    tier = work.target_frequency_ms
    touched = find_touched([one for one in opened if one.segment.id in new], tier)
    if work.made:
        there = find_touched(open_segments(store, work.made, directory), tier)
        touched = touched.without(there, -(-work.whole_from_ns // MS_NS))
    return touched.select_rows


def _segment_columns(schema: pa.Schema, source: MergedRows) -> tuple[Column, ...]:
    kinds = {column.name: column.type for column in source.columns}
    return tuple(Column(name, kinds.get(name, "")) for name in schema.names)


def _segment_id(work: RollupWork, period: int, number: int) -> UUID:
    whose = str(work.organization), work.collector, work.target_frequency_ms, ROLLUPS.sort_version
    touched, sources, made = ([str(segment.id) for segment in some] for some in (work.touched, work.sources, work.made))
    left = (work.whole_from_ns, made) if made else ()
    # Restored buckets may come from the very work that made the lost ones, whose ids are taken.
    lost = (sorted(map(str, work.lost)),) if work.lost else ()
    return segment_id("rollup", *whose, sorted(touched), sources, period, number, *left, *lost)


class SentSeries:
    """Tells which series Prometheus sent itself, by the tables of series of the sources. These are read when first
    needed, which is rare."""

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
        with damage_reported(segment):
            data = read_side(self._store, segment, SERIES_TABLE)
            if data is None:
                raise ValueError("its table of series is missing")
            table = pq.read_table(pa.BufferReader(data), columns=["series", "as_sent"], use_threads=False)
            return table.filter(table.column("as_sent")).column("series").to_numpy()


JOB_GROUP = "rollup"


def rollup(
    spark: SparkSession, works: Sequence[RollupWork], address: StoreAddress, limits: CompactLimits
) -> list[Outcome]:
    """Return the outcome of each work, in their order, from one Spark job. Unavailable if the store is away, Crashed if
    a worker died; if interrupted, it cancels its job."""
    return run_tasks(spark, JOB_GROUP, works, partial(rollup_work, address=address, limits=limits))
