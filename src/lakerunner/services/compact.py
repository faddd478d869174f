"""Compaction: plan, run and commit the merges of a box of segments. services/work.py is the loop.

What always holds: a merge takes live segments only, neighbours in the order of `ingested` (model/merging.py), and the
commit checks both again: the old segments are replaced by the new one in one transaction, or nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyspark.sql import SparkSession

from lakerunner.bus.topics import CompactBox, compact_boxes
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.segments import CollectorTier
from lakerunner.model.merging import MergeLimits, find_runs, is_mergeable
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.model.tier import TIER_NAMES
from lakerunner.model.time import TimeRange
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, Outcome, compact
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.pipeline.session import Sessions
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.outbox import commit_messages

log = Log("compact")
Compact = Callable[[SparkSession, Sequence[CompactWork], StoreAddress, CompactLimits], list[Outcome]]


@dataclass(frozen=True)
class Compaction:
    """The kind of work of compaction. `compact` runs the job; tests replace it."""

    index: Index
    spark: Sessions
    address: StoreAddress
    merge: MergeLimits
    limits: CompactLimits
    compact: Compact = compact

    name = "compact"
    topics = tuple(compact_boxes(signal) for signal in SIGNALS)
    box = CompactBox
    points = ("before-swap", "after-swap", "after-compact")

    def plan(self, box: CompactBox) -> list[CompactWork]:
        tending = self.index.tending
        members = [one for one in tending.live(box.organization, box.segments) if self._belongs(one, box)]
        if len(members) < 2:
            return []
        time = TimeRange(min(one.time.start_ns for one in members), max(one.time.end_ns for one in members))
        place = CollectorTier(box.organization, box.collector, box.signal, box.frequency_ms)
        ingested = [one.ingested for one in members]
        among = tending.overlapping(place, time, ingested=(min(ingested), max(ingested)))
        book = self._read_rules(box, among)
        among = [replace(one, rule_set=book.covering(one)) for one in among]
        kept_out = tending.aside_of(box.organization, [one.id for one in among]) | _find_crowded(
            members, among, box.level
        )
        return [
            CompactWork(
                box.organization, box.collector, box.signal, box.frequency_ms, box.level + 1, run, book.of(run[0])
            )
            for run in find_runs(among, box.level, self.merge, kept_out)
        ]

    def _read_rules(self, box: CompactBox, among: Sequence[Segment]) -> RuleBook:
        """Return the rules that cover some of these. Versions that have ended are left out: their parts count no more,
        so segments that differ in them alone may be merged."""
        covering = {id_ for one in among for id_ in one.rule_set}
        if not covering:
            return NO_RULES
        current = self.index.metric_rules.current(box.organization)
        versions = tuple(sorted((one for one in current if one.id in covering), key=lambda one: one.id))
        return RuleBook(versions, self.index.organizations.stream_rules(box.organization))

    def run(self, works: Sequence[CompactWork]) -> list[Outcome]:
        with self.spark() as session:
            return self.compact(session, works, self.address, self.limits)

    def commit(self, work: CompactWork, outcome: Outcome) -> None:
        replaced = tuple(one.id for one in work.segments)
        messages = commit_messages((*outcome.segments, *outcome.parts))
        commit = Commit(outcome.segments, (), (), replaced, messages, contiguous=True, parts=outcome.parts)
        self.index.commit(commit)

    def segments(self, work: CompactWork) -> tuple[Segment, ...]:
        return work.segments

    def does_without(self, _work: CompactWork, _damaged: UUID) -> bool:
        return True

    def report(self, work: CompactWork, outcome: Outcome, seconds: float) -> None:
        read = sum(one.bytes for one in work.segments)
        written = sum(one.bytes for one in outcome.segments)
        meters.MERGED.labels(work.signal).inc(len(work.segments))
        meters.MERGE_READ_BYTES.labels(work.signal).inc(read)
        meters.MERGE_WRITTEN_BYTES.labels(work.signal).inc(written)
        meters.WORK_SECONDS.labels(self.name).observe(seconds)
        rows = sum(one.rows for one in outcome.segments)
        log.debug(
            "segments merged",
            signal=work.signal,
            collector=work.collector,
            tier=TIER_NAMES.get(work.frequency_ms, work.frequency_ms),
            merge_level=work.level,
            segments=len(work.segments),
            rows=rows,
            doubles=sum(one.rows for one in work.segments) - rows,
            bytes_read=read,
            bytes_written=written,
            seconds=round(seconds, 3),
        )

    def _belongs(self, segment: Segment, box: CompactBox) -> bool:
        """Return whether the index agrees with what the box says about the segment: a wrong box must not merge
        others."""
        told = (box.collector, box.signal, box.frequency_ms)
        is_so = (segment.collector, segment.signal, segment.frequency_ms) == told
        return is_so and segment.level <= box.level and is_mergeable(segment, self.merge.target_bytes)


def _find_crowded(members: Sequence[Segment], among: Sequence[Segment], level: int) -> frozenset[UUID]:
    """Return the members that must wait because many segments of lower levels lie between them. A few of those are
    merged along; many have merges of their own ahead, and would reach a high level while they are small."""
    named = {one.id for one in members}
    between = frozenset(one.id for one in among if one.id not in named and one.level < level)
    return between if len(between) > len(members) else frozenset()
