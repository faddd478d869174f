"""History of rules: take stored segments that rules do not cover yet, evaluate the rules, commit.

Comes in: rules with a time from which on they cover stored segments. Goes out: parts, and grown rule sets, in one
transaction for each segment; versions over their limits are paused, segments that cannot be read are set aside.

What always holds: what is left follows from the index alone, newest hour first, so a process that dies costs the work
of one job. Whatever fails at one segment, the others go on: it is left out for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from lakerunner.index.commit import Commit, Covering
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict
from lakerunner.model.failpoint import reach
from lakerunner.model.metric_rules.metric_rule import EVALUATED
from lakerunner.model.segment import Segment
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.materialize import Job, Materialized, MaterializeLimits, MaterializeWork, materialize
from lakerunner.pipeline.part_segments import RuleBook
from lakerunner.pipeline.session import Sessions
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.outbox import commit_messages
from lakerunner.services.rule_results import end_rules
from lakerunner.services.work import WorkParts, run_each

log = Log("materialize")
_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 5.0  # between two looks while nothing is left
_LONGEST_PAUSE = 3600.0


@dataclass(frozen=True)
class MaterializeParts:
    """What the loop needs. `rows_per_second`: 0 is no limit. `job` runs in Spark; tests replace Spark."""

    index: Index
    spark: Sessions
    address: StoreAddress
    limits: MaterializeLimits
    work: WorkParts
    rows_per_second: float = 0.0
    job: Job = materialize


@dataclass
class LeftOut:
    """Segments that are left out for a while: the pause doubles each time. In memory: after a restart all are tried."""

    seconds: float
    _until: dict[UUID, tuple[float, float]] = field(default_factory=dict)  # when it is over, and how long it was

    def add(self, segment: UUID, now: float) -> None:
        _, before = self._until.get(segment, (0.0, self.seconds / 2))
        pause = min(2 * before, max(self.seconds, _LONGEST_PAUSE))
        self._until[segment] = now + pause, pause

    def forget(self, segment: UUID) -> None:
        self._until.pop(segment, None)

    def at(self, now: float) -> Collection[UUID]:
        """Return the segments whose pause is not over; those that nobody has tried again for long are forgotten."""
        self._until = {one: (end, pause) for one, (end, pause) in self._until.items() if end + _LONGEST_PAUSE > now}
        return [segment for segment, (end, _) in self._until.items() if end > now]


def earliest_start(began: float, rows: int, rows_per_second: float) -> float:
    """Return when the next job may begin after one of these rows that began then: 0 rows a second are no limit."""
    return began + (rows / rows_per_second if rows_per_second else 0.0)


class Materialize:
    """The loop. `clock` returns monotonic seconds; `wait` sleeps, and is woken when the process stops."""

    def __init__(
        self,
        parts: MaterializeParts,
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._wait = wait
        self._clock = clock
        self._next = clock()
        self._left_out = LeftOut(parts.work.retry.seconds)

    def step(self) -> None:
        pause = self._next - self._clock()
        if pause > 0:
            self._wait(min(pause, _WAIT_SECONDS))
            return
        work = self._parts.work
        if not work.turn.acquire(timeout=_WAIT_SECONDS):
            return
        try:
            self._do(self._plan(work.at_once))
        finally:
            work.turn.release()

    def _plan(self, limit: int) -> list[MaterializeWork]:
        index = self._parts.index
        found = index.rule_history.uncovered(EVALUATED, limit, self._left_out.at(self._clock()))
        for organization in {one.organization for one in found}:
            index.metric_rules.retire(organization)
        books = {key: self._read_rules(*key) for key in {(one.organization, one.signal) for one in found}}
        planned = [(one, books[one.organization, one.signal].wanting(one)) for one in found]
        # A rule that was disabled between the two queries wants nothing more.
        return [MaterializeWork(one, book) for one, book in planned if book.versions]

    def _read_rules(self, organization: UUID, signal: str) -> RuleBook:
        index = self._parts.index
        return RuleBook(index.metric_rules.active(organization, signal), index.organizations.stream_rules(organization))

    def _do(self, works: Sequence[MaterializeWork]) -> None:
        began = self._clock()
        if not works:
            self._next = began + _LOOK_SECONDS
            return
        outcomes = run_each(self._run, works, self._parts.work.probe, "materialize", _failed)
        for work, outcome in zip(works, outcomes, strict=True):
            self._finish(work, outcome)
        rows = sum(work.segment.rows for work in works)
        self._next = earliest_start(began, rows, self._parts.rows_per_second)
        meters.WORK_SECONDS.labels("materialize").observe(self._clock() - began)

    def _run(self, works: Sequence[MaterializeWork]) -> list[Materialized]:
        parts = self._parts
        with parts.spark() as session:
            return parts.job(session, works, parts.address, parts.limits)

    def _finish(self, work: MaterializeWork, outcome: Materialized) -> None:
        """Commit what was made of a segment, or leave it out."""
        segment = work.segment
        if outcome.is_damaged:
            self._set_aside(segment, outcome.error)
        elif outcome.error:
            self._leave_out(segment)
            meters.WORK_FAILURES.labels("materialize").inc()
            log.warning("rules could not be evaluated", segment=str(segment.id), reason=outcome.error)
        elif self._commit(work, outcome):
            self._left_out.forget(segment.id)
            self._report(work, outcome)

    def _commit(self, work: MaterializeWork, outcome: Materialized) -> bool:
        segment, made = work.segment, outcome.made
        commit = Commit(
            (),
            (),
            (),
            # The segment is a candidate for merges again: with those that the same rules cover now.
            messages=commit_messages((segment, *made.segments)) if made.rule_set else (),
            parts=made.segments,
            covered=(Covering(segment, made.rule_set),) if made.rule_set else (),
        )
        reach("before-cover")
        try:
            self._parts.index.commit(commit)
        except Conflict as error:
            self._leave_out(segment)
            meters.WORK_CONFLICTS.labels("materialize").inc()
            log.debug("a segment to cover has changed", segment=str(segment.id), reason=str(error))
            return False
        reach("after-cover")
        return True

    def _report(self, work: MaterializeWork, outcome: Materialized) -> None:
        segment, made = work.segment, outcome.made
        end_rules(self._parts.index.metric_rules, work.book, made.counts, made.stops, log)
        if made.rule_set:
            meters.COVERED_SEGMENTS.labels(segment.signal).inc()
            meters.COVERED_ROWS.labels(segment.signal).inc(segment.rows)
        rules = len(made.rule_set)
        log.debug("segment covered", segment=str(segment.id), rules=rules, rows=segment.rows, parts=len(made.segments))

    def _set_aside(self, segment: Segment, reason: str) -> None:
        if self._parts.work.tending.set_aside(segment.organization, [segment.id], reason):
            meters.SEGMENTS_ASIDE.labels("materialize").inc()
            log.warning("segment set aside", work="materialize", segment=str(segment.id), reason=reason)

    def _leave_out(self, segment: Segment) -> None:
        self._left_out.add(segment.id, self._clock())


def _failed(reason: str) -> Materialized:
    return Materialized(error=reason)
