"""Rollup: plan, run and commit the rollup of a box of metric segments. services/work.py is the loop.

What always holds: a bucket is computed from all live segments that have rows in it, and committed only if no other
worker has meanwhile computed it from more of them (index/segments.py, Basis). A segment counts as rolled up once the
buckets of all its rows are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyspark.sql import SparkSession

from lakerunner.bus.topics import ROLLUP_BOXES, RollupBox
from lakerunner.index.commit import Basis, Commit
from lakerunner.index.index import Index
from lakerunner.index.segments import CollectorTier
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIER_NAMES, next_tier
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, Outcome
from lakerunner.pipeline.rollup_job import RollupWork, rollup
from lakerunner.pipeline.session import Sessions
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.outbox import commit_messages, to_merge

log = Log("rollup")
Roll = Callable[[SparkSession, Sequence[RollupWork], StoreAddress, CompactLimits], list[Outcome]]


@dataclass(frozen=True)
class Planned:
    """A work, and the segments that its buckets are computed from."""

    work: RollupWork
    basis: Basis


@dataclass(frozen=True)
class Rollup:
    """The kind of work of rollups. `rollup` runs the job; tests replace it."""

    index: Index
    spark: Sessions
    address: StoreAddress
    limits: CompactLimits
    rollup: Roll = rollup

    name = "rollup"
    topics = (ROLLUP_BOXES,)
    box = RollupBox
    points = ("before-roll", "after-roll", "after-rollup")

    def plan(self, box: RollupBox) -> list[Planned]:
        """Return one work, for the segments that are not rolled up yet. A damaged segment that was never rolled up is
        left out of the buckets: queries do not read rollups for its time until it is."""
        touched = tuple(one for one in self.index.tending.live(box.organization, box.segments) if _belongs(one, box))
        if not touched:
            return []
        place = CollectorTier(box.organization, box.collector, "metrics", box.frequency_ms)
        work = RollupWork(box.organization, box.collector, box.frequency_ms, box.target_frequency_ms, touched, touched)
        there = self.index.tending.overlapping(place, work.span)
        aside = self.index.tending.aside_of(box.organization, [one.id for one in there])
        sources = tuple(one for one in there if one.rolled or one.id not in aside)
        read = frozenset(one.id for one in sources)
        basis = Basis(box.collector, "metrics", box.frequency_ms, work.span, read)
        return [Planned(self._past_retention(replace(work, sources=sources), place), basis)]

    def _past_retention(self, work: RollupWork, place: CollectorTier) -> RollupWork:
        """Add the existing buckets to the work where rows that they were computed from may have expired."""
        whole_from_ns = self.index.sweep.expired_before(place.organization, place.collector, place.frequency_ms)
        if whole_from_ns <= work.span.start_ns:
            return work
        made = self.index.tending.overlapping(replace(place, frequency_ms=work.target_frequency_ms), work.span)
        return replace(work, whole_from_ns=whole_from_ns, made=tuple(made))

    def run(self, works: Sequence[Planned]) -> list[Outcome]:
        with self.spark() as session:
            return self.rollup(session, [one.work for one in works], self.address, self.limits)

    def commit(self, work: Planned, outcome: Outcome) -> None:
        touched = work.work.touched
        self.index.commit(
            Commit(
                outcome.segments,
                (),
                (),
                messages=(*commit_messages(outcome.segments), *to_merge(touched)),
                rolled=tuple(one.id for one in touched),
                basis=work.basis,
                rolled_of=work.work.organization,
            )
        )

    def segments(self, work: Planned) -> tuple[Segment, ...]:
        return work.work.touched

    def does_without(self, work: Planned, damaged: UUID) -> bool:
        """Return False for a segment that is rolled up: its rows are in buckets that these would replace. Also for
        existing buckets: they must be left as they are, and which they are would be unknown."""
        needed = {*(one.id for one in work.work.sources if one.rolled), *(one.id for one in work.work.made)}
        return damaged not in needed

    def report(self, work: Planned, outcome: Outcome, seconds: float) -> None:
        done = work.work
        tier = TIER_NAMES.get(done.target_frequency_ms, str(done.target_frequency_ms))
        rows = sum(one.rows for one in outcome.segments)
        meters.ROLLED.labels(tier).inc(len(done.touched))
        meters.ROLLUP_ROWS.labels(tier).inc(rows)
        meters.ROLLUP_BYTES.labels(tier).inc(sum(one.bytes for one in outcome.segments))
        meters.WORK_SECONDS.labels(self.name).observe(seconds)
        log.debug(
            "segments rolled up",
            collector=done.collector,
            tier=tier,
            segments=len(done.touched),
            sources=len(done.sources),
            rows=rows,
            seconds=round(seconds, 3),
        )


def _belongs(segment: Segment, box: RollupBox) -> bool:
    """Return whether the index agrees with what the box says about the segment."""
    told = (box.collector, "metrics", box.frequency_ms)
    is_so = (segment.collector, segment.signal, segment.frequency_ms) == told
    return is_so and not segment.rolled and next_tier(box.frequency_ms) == box.target_frequency_ms
