"""Compaction: one Spark job merges segments into fewer, a task for each merge.

Comes in: the index rows of the segments of each merge, the store's address, limits. Goes out: the index rows of the
segments that were written instead, or which of the inputs cannot be read, and why. Rows that came twice are dropped;
what rules made of them is taken back by parts, which are further segments. Nothing is committed here.

What always holds: a task holds about `memory` bytes of rows, however large its segments are. The same merge gives the
same segments, ids and bytes. If the store is away, this is Unavailable, and the same merge may simply be tried again;
if a worker died, it is Crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.merge.inputs import Damaged, InputSeries, open_segments, read_side, scratch
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.merge.output import RowGroups, SegmentOutput
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook, SegmentRules
from lakerunner.pipeline.rollup.parts import holds_parts, merged_parts
from lakerunner.pipeline.segment.writer import SegmentIdentity, SideInputs
from lakerunner.pipeline.signals import row_of, sides_of

if TYPE_CHECKING:  # workers import this module too, and need no sessions
    from pyspark.sql import SparkSession

JOB_GROUP = "compact"


@dataclass(frozen=True)
class CompactWork:
    """Segments to merge, ordered by `ingested`; `level` is that of the result. `book` has the rules that cover them."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    segments: tuple[Segment, ...]
    book: RuleBook = NO_RULES

    def __post_init__(self) -> None:
        whose = self.organization, self.collector, self.signal, self.frequency_ms
        for one in self.segments:
            if (one.organization, one.collector, one.signal, one.frequency_ms) != whose:
                raise ValueError(f"segment {one.id} does not belong to {whose}")
        if len({(one.sort_version, one.rolled, one.rule_set) for one in self.segments}) != 1:
            raise ValueError(
                "segments of a merge must have one sort version and one rule set, and be all rolled up or none"
            )
        if not {version.id for version in self.book.versions} <= set(self.segments[0].rule_set):
            raise ValueError("rules that do not cover the segments of a merge have no parts of them")
        if list(self.segments) != sorted(self.segments, key=lambda one: one.ingested):
            raise ValueError("segments of a merge must be ordered by `ingested`")

    def segment_id(self, number: int) -> UUID:
        """Return the id of the segment with this number, from 0, that the merge writes."""
        whose = str(self.organization), self.collector, self.signal, self.frequency_ms
        version = self.segments[0].sort_version
        further = (number,) if number else ()
        return segment_id("compact", *whose, self.level, version, [str(one.id) for one in self.segments], *further)


@dataclass(frozen=True)
class CompactLimits:
    """`memory`: about how much the rows of one merge may take. `max_bytes`: a segment that has reached this size ends
    where its sort key changes next, and another one begins. `failpoint` arms the workers."""

    memory: int
    max_bytes: int
    failpoint: str = ""


@dataclass(frozen=True)
class Outcome:
    """The segments that were written, which hold all rows of the inputs; none if there is an `error`. `damaged` is the
    input that cannot be read. `parts` are segments that take back what rules made of rows that were dropped."""

    segments: tuple[Segment, ...]
    error: str = ""
    damaged: UUID | None = None
    parts: tuple[Segment, ...] = ()


class MergeStore(SegmentStore, Protocol):
    """What a merge needs of a store: it reads segments and writes files."""

    def put_file(self, key: str, path: Path) -> None:
        """Store a file, as ObjectStore does."""


def compact(
    spark: SparkSession, works: Sequence[CompactWork], address: StoreAddress, limits: CompactLimits
) -> list[Outcome]:
    """Write the segments of these merges in one Spark job. Unavailable if the store is away, Crashed if a worker died;
    if interrupted, it cancels its job."""
    return run_tasks(spark, JOB_GROUP, works, partial(compact_work, address=address, limits=limits))


def compact_work(work: CompactWork, address: StoreAddress, limits: CompactLimits) -> Outcome:
    """Run one task."""
    arm(limits.failpoint)
    store = shared_store(address)
    reach("before-merge", str(work.segments[0].id))
    outcome = write_in_scratch(lambda directory: merge_segments(work, store, limits, directory))
    # Parts are in the name of a collector of their own.
    parts = tuple(one for one in outcome.segments if one.collector != work.collector)
    return replace(outcome, segments=outcome.segments[: len(outcome.segments) - len(parts)], parts=parts)


def write_in_scratch(write: Callable[[Path], Iterable[Segment]]) -> Outcome:
    """Return the outcome of writing segments with a scratch directory."""
    try:
        with scratch() as directory:
            return Outcome(tuple(write(directory)))
    except Damaged as error:
        return Outcome((), str(error), error.segment)
    except Corrupt as error:
        return Outcome((), str(error))


def merge_segments(
    work: CompactWork, store: MergeStore, limits: CompactLimits, directory: Path, *, dedupe: bool = True
) -> Iterator[Segment]:
    """Write the segments of one merge, then those that take back parts; each is in the store when it is yielded.
    Without `dedupe` repeated rows stay; parts are added up in any case."""
    spec = spec_of(work.signal, work.frequency_ms)
    signal = row_of(spec)
    inputs = open_segments(store, work.segments, directory)
    if holds_parts(work.collector, work.frequency_ms):
        rows = merged_parts(inputs, limits.memory)
    else:
        same_row = signal.same_row if dedupe else None
        rows = MergedRows(spec, inputs, limits.memory, same_row=same_row, derive=signal.derive)
    rules = SegmentRules(work.book.without_limits(), spec, rows.columns)
    for consumer in rules.consumers:
        rows = replace(rows, dropped=consumer)
    output = SegmentOutput(rows.schema, rows.columns, directory, store.put_file, rows.sample(), limits.max_bytes)
    given = SideInputs(rows.columns, InputSeries(work.segments, partial(read_side, store)))
    groups = RowGroups(rows, spec)
    number = 0
    while groups.peek() is not None:
        identity = SegmentIdentity(
            work.segment_id(number),
            work.organization,
            work.collector,
            spec,
            work.frequency_ms,
            work.level,
            rolled=work.segments[0].rolled,
            ingested=max(one.ingested for one in work.segments),
            rule_set=work.segments[0].rule_set,
        )
        segment = output.write(identity, groups, sides_of(spec, given))
        reach("after-merge", segment.path)
        yield segment
        number += 1
    if rules.consumers:
        yield from rules.write(segment, partial(_put_through_file, store, directory), sign=-1).segments


def _put_through_file(store: MergeStore, directory: Path, key: str, data: memoryview) -> None:
    path = directory / "part"
    path.write_bytes(data)
    store.put_file(key, path)
    path.unlink()
