"""History of rules: one Spark job evaluates rules over stored segments, a task for each segment.

Comes in: the index rows of segments, each with the rule versions that do not cover it yet; the store's address. Goes
out: the parts that the versions make of it, as segments in the store, and which of them cover it now; or that the
segment cannot be read. Nothing is committed here.

What always holds: the parts are those that ingest would have made of the same rows, and the same work gives the same
ids and bytes. A task holds a part of `memory` at a time, however large its segment is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import arm, reach
from lakerunner.model.segment import Segment
from lakerunner.model.signal import spec_of
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.merge.inputs import SegmentFile, open_segments, scratch
from lakerunner.pipeline.part_segments import MadeParts, RuleBook, SegmentRules
from lakerunner.pipeline.row_segments import Put
from lakerunner.pipeline.signals import row_of
from lakerunner.pipeline.steps.stream_columns import DERIVED, with_stream_columns

if TYPE_CHECKING:  # workers import this module too, and need no sessions
    from pyspark.sql import SparkSession

JOB_GROUP = "materialize"
NOTHING = MadeParts()
_SHARE = 16  # of the memory for the rows of a batch; the rest is for what rules make of them
_LEAST_ROWS = 128


@dataclass(frozen=True)
class MaterializeWork:
    """A stored segment, and the rule versions that do not cover it yet."""

    segment: Segment
    book: RuleBook

    def __post_init__(self) -> None:
        if not self.book.versions or self.book.covering(self.segment):
            raise ValueError("a work has versions that do not cover its segment, one at least")


@dataclass(frozen=True)
class MaterializeLimits:
    """`memory`: that of a merge. `failpoint` arms the workers."""

    memory: int
    failpoint: str = ""


@dataclass(frozen=True)
class Materialized:
    """What was made of a segment; nothing if there is an `error`: then it cannot be read, if `is_damaged`."""

    made: MadeParts = NOTHING
    error: str = ""
    is_damaged: bool = False


def materialize(
    spark: SparkSession, works: Sequence[MaterializeWork], address: StoreAddress, limits: MaterializeLimits
) -> list[Materialized]:
    """Do these works in one Spark job. Unavailable if the store is away, Crashed if a worker died; if interrupted, it
    cancels its job."""
    return run_tasks(spark, JOB_GROUP, works, partial(materialize_work, address=address, limits=limits))


def materialize_work(work: MaterializeWork, address: StoreAddress, limits: MaterializeLimits) -> Materialized:
    """Run one task."""
    arm(limits.failpoint)
    store = shared_store(address)
    reach("before-parts", str(work.segment.id))
    try:
        with scratch() as directory:
            made = make_parts(work, store, store.put, limits.memory, directory)
    except Corrupt as error:
        return Materialized(error=str(error), is_damaged=True)
    reach("after-parts", str(work.segment.id))
    return Materialized(made)


def make_parts(work: MaterializeWork, store: SegmentStore, put: Put, memory: int, directory: Path) -> MadeParts:
    """Write the parts of a segment. Damaged if it cannot be read."""
    (opened,) = open_segments(store, [work.segment], directory)
    rules = SegmentRules(work.book, spec_of(work.segment.signal, work.segment.frequency_ms), work.segment.columns)
    for batch in _batches(opened, memory):
        for consumer in rules.consumers:
            consumer.add(batch)
    return rules.write(work.segment, put)


def _batches(opened: SegmentFile, memory: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment, with the columns that an older release did not store."""
    spec = spec_of(opened.segment.signal, opened.segment.frequency_ms)
    rows = max(min(memory // _SHARE // opened.row_bytes, spec.row_group_rows), _LEAST_ROWS)
    derive = row_of(spec).derive
    lacks = derive is not None and DERIVED[0].name not in opened.schema.names
    streams = derive(opened.segment.columns) if derive and lacks else None
    for batch in opened.batches(rows):
        yield with_stream_columns(batch, streams) if streams else batch


Job = Callable[["SparkSession", Sequence[MaterializeWork], StoreAddress, MaterializeLimits], list[Materialized]]
