"""Compaction: one Spark job merges segments into fewer, a task for each set that becomes one.

Comes in: the index rows of the segments of each merge, the store's address, limits. Goes out: the index rows of the
segments that were written instead, or which of the given ones cannot be read, and why. Nothing is committed here.

What always holds: a task holds about `memory` bytes of rows, however large its segments are. The same merge gives the
same segments, ids and bytes. A store that is away is Unavailable, and then the same merge may simply be tried again; a
worker that died is Crashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import arm, reach
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import spec_of
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.job import run
from lakerunner.pipeline.merge.input_series import InputSeries
from lakerunner.pipeline.merge.merged import merged
from lakerunner.pipeline.merge.opened import Damaged, open_segments, side_of
from lakerunner.pipeline.merge.output import Output
from lakerunner.pipeline.merge.row_groups import Groups
from lakerunner.pipeline.merge.scratch import scratch
from lakerunner.pipeline.sides.side import SideInputs
from lakerunner.pipeline.signals import sides_of
from lakerunner.pipeline.write import Identity

if TYPE_CHECKING:  # workers import this module too, and have no use for sessions
    from pyspark.sql import SparkSession

JOB_GROUP = "compact"


@dataclass(frozen=True)
class CompactWork:
    """Segments to merge, ordered by `ingested`; `level` is that of what they become."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        whose = self.organization, self.collector, self.signal, self.frequency_ms
        for one in self.segments:
            if (one.organization, one.collector, one.signal, one.frequency_ms) != whose:
                raise ValueError(f"segment {one.id} does not belong to {whose}")
        if len({(one.sort_version, one.rolled) for one in self.segments}) != 1:
            raise ValueError("segments that are merged have one sort version, and are all rolled or none is")
        if list(self.segments) != sorted(self.segments, key=lambda one: one.ingested):
            raise ValueError("segments that are merged are ordered by when they were ingested")

    def segment_id(self, number: int) -> UUID:
        """Of the segment of this number, from 0, that the merge gives."""
        whose = str(self.organization), self.collector, self.signal, self.frequency_ms
        version = self.segments[0].sort_version
        further = (number,) if number else ()
        return segment_id("compact", *whose, self.level, version, [str(one.id) for one in self.segments], *further)


@dataclass(frozen=True)
class CompactLimits:
    """`memory`: about what the rows of one merge may take. `max_bytes`: a segment that has become as large ends where
    its sort key changes next, and another goes on. `failpoint` arms the workers."""

    memory: int
    max_bytes: int
    failpoint: str = ""


@dataclass(frozen=True)
class Outcome:
    """The segments that were written, which hold all rows of the given ones; or, with `error`, none. `damaged`: the one
    of the given that cannot be read."""

    segments: tuple[Segment, ...]
    error: str = ""
    damaged: UUID | None = None


class MergeStore(SegmentStore, Protocol):
    """What a merge takes of a store: it reads segments and writes files."""

    def put_file(self, key: str, path: Path) -> None:
        """As ObjectStore has it."""


def compact(
    spark: SparkSession, works: Sequence[CompactWork], address: StoreAddress, limits: CompactLimits
) -> list[Outcome]:
    """Write the segments of these merges in one Spark job. Unavailable if the store is away, Crashed if a worker died;
    interrupted, it cancels its job."""
    return run(spark, JOB_GROUP, works, partial(compact_work, address=address, limits=limits))


def compact_work(work: CompactWork, address: StoreAddress, limits: CompactLimits) -> Outcome:
    """What one task does."""
    arm(limits.failpoint)
    store = shared_store(address)
    reach("before-merge", str(work.segments[0].id))
    try:
        with scratch() as directory:
            return Outcome(tuple(merge_segments(work, store, limits, directory)))
    except Damaged as error:
        return Outcome((), str(error), error.segment)
    except Corrupt as error:
        return Outcome((), str(error))


def merge_segments(
    work: CompactWork, store: MergeStore, limits: CompactLimits, directory: Path, *, dedupe: bool = True
) -> Iterator[Segment]:
    """Write the segments of one merge; each is in the store when it is yielded. Without `dedupe` rows that came twice
    stay."""
    spec = spec_of(work.signal, work.frequency_ms)
    rows = merged(spec, open_segments(store, work.segments, directory), limits.memory, dedupe=dedupe)
    output = Output(rows.schema, rows.columns, directory, store.put_file, rows.sample(), limits.max_bytes)
    given = SideInputs(rows.columns, InputSeries(work.segments, partial(side_of, store)))
    groups = Groups(rows, spec)
    number = 0
    while groups.peek() is not None:
        identity = Identity(
            work.segment_id(number),
            work.organization,
            work.collector,
            spec,
            work.frequency_ms,
            work.level,
            rolled=work.segments[0].rolled,
            ingested=max(one.ingested for one in work.segments),
        )
        segment = output.write(identity, groups, sides_of(spec, given))
        reach("after-merge", segment.path)
        yield segment
        number += 1
