"""A question in, an answer out: compile the text, pick the segments, have leaves worked out, coordinate.

Whose segments are picked is the `organization` argument, which comes from the caller's key; the text has no say in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.lakeql import compile_spark, compile_sql
from lakerunner.lakeql.catalog import Listing, read_listing
from lakerunner.lakeql.explain import Wanted, read_statement
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.plan.scan import Scan
from lakerunner.plan.sql import SqlPlan
from lakerunner.query.account import Account, total
from lakerunner.query.answer import Answer
from lakerunner.query.bounded import Bounded
from lakerunner.query.coordinate import Coordinator
from lakerunner.query.expiry import expiry_warnings
from lakerunner.query.explain import Explained, explained_lines
from lakerunner.query.feed import Feed, Feeds
from lakerunner.query.gather import Gather, Gathering
from lakerunner.query.known_segments import KnownSegments, Pick, SegmentIndex
from lakerunner.query.listed import Listed, attribute_rows, newest
from lakerunner.query.located import Located
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.result_cache import ResultCache, result_key
from lakerunner.query.rounds import InRounds, Round
from lakerunner.query.stretches import FIRST_BYTES, cut
from lakerunner.query.syntax import Syntax
from lakerunner.query.workers import Workers


@dataclass(frozen=True)
class Question:
    """SQL as it was asked. `parameters` are the values of $1, $2 or $name; `partial`: what cannot be read is named in
    the account instead of being an error; `engine`: duckdb, or spark for what outgrows it."""

    text: str
    now_ns: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    engine: str = "duckdb"


@dataclass(frozen=True)
class Job:
    """A plan and the segments picked for each of its leaves; `before` is what it took to get so far, `text` what the
    user wrote."""

    organization: UUID
    plan: SqlPlan
    picks: tuple[Pick, ...]
    partial: bool = False
    before: Account = field(default_factory=Account)
    text: str = ""

    def stretches(self, first_bytes: int) -> Sequence[Sequence[Sequence[Segment]]]:
        """The segments of each leaf, of each round."""
        if not self.plan.rounds:
            return [[pick.segments for pick in self.picks]]
        ((leaf,), (pick,)) = self.plan.leaves, self.picks
        return [[stretch] for stretch in cut(pick.segments, leaf.scan.time, self.plan.rounds, first_bytes)]


class Engine:
    """Safe to use from many threads. `results` None: every query is run. `first_bytes` is the size of a first round.
    `outgrown` answers engine=spark; without it such questions are refused."""

    def __init__(
        self,
        index: SegmentIndex,
        workers: Workers,
        coordinator: Coordinator,
        gathering: Gathering = Gathering(),  # noqa: B008 a frozen value
        *,
        results: ResultCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        first_bytes: int = FIRST_BYTES,
        outgrown: Outgrown | None = None,
    ) -> None:
        self._segments = KnownSegments(index)
        self._workers = workers
        self._coordinator = coordinator
        self._gathering = gathering
        self._results = results
        self._clock = clock
        self._first_bytes = first_bytes
        self._outgrown = outgrown
        self._syntax = Syntax(coordinator.sandboxes)

    def sql(self, organization: UUID, question: Question) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        if listing := read_listing(question.text):
            return self._listed(organization, question, listing)
        if question.engine != "duckdb":
            return self._elsewhere(organization, question)
        began = self._clock()
        statement = read_statement(question.text)
        types = self._syntax.types(organization)
        plan = compile_sql(statement.query, organization, question.now_ns, parameters=question.parameters, types=types)
        self._syntax.check(organization, statement.query)
        planned = self._clock()
        picks = self._picks(organization, plan.scans, question.now_ns)
        seconds = {"plan": planned - began, "pick": self._clock() - planned}
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        before = replace(total(pick.account for pick in picks), seconds=seconds, warnings=warnings)
        job = Job(organization, plan, picks, question.partial, before, statement.query)
        if statement.wanted == Wanted.ROWS:
            return self._kept(job)
        lines = explained_lines(plan, picks, len(job.stretches(self._first_bytes)))
        return Explained(lines, before, self.run(job) if statement.wanted == Wanted.MEASURED else None)

    def _listed(self, organization: UUID, question: Question, listing: Listing) -> Answer:
        if question.parameters:
            raise UserError(f"parameter ${next(iter(question.parameters))} is not in the query")
        if not listing.table:
            return Listed(listing)
        try:
            pick = self._segments.pick(organization, newest(listing, question.now_ns), question.now_ns)
        except Unavailable as error:
            return Listed(listing, account=Account(warnings=frozenset({f"attributes are not listed: {error}"})))
        return Listed(listing, attribute_rows(listing, pick.segments), Account(degraded=pick.account.degraded))

    def _elsewhere(self, organization: UUID, question: Question) -> Answer:
        if question.engine != "spark":
            raise UserError(f"unknown engine {question.engine!r}: use duckdb or spark")
        if self._outgrown is None:
            raise UserError("engine=spark is not enabled: set query_spark")
        plan = compile_spark(question.text, organization, question.now_ns, parameters=question.parameters)
        self._syntax.check(organization, question.text)
        picks = self._picks(organization, plan.scans, question.now_ns)
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        return self._outgrown.answer(organization, plan, [pick.segments for pick in picks], warnings)

    def run(self, job: Job) -> Answer:
        """At once: the work begins when the answer is looked at."""
        stretches = job.stretches(self._first_bytes)
        rounds = [self._round(job, segments, is_first=n == 0) for n, segments in enumerate(stretches)]
        wanted = job.plan.rounds
        answer = InRounds(rounds, wanted.offset, wanted.limit) if wanted else InRounds(rounds)
        return Bounded(Located(answer, job.text), self._coordinator.limits, job.before, self._clock)

    def _kept(self, job: Job) -> Answer:
        """From the result cache, or run, and then kept in it."""
        if self._results is None:
            return self.run(job)
        key = result_key(job.organization, job.plan, [pick.segments for pick in job.picks])
        return self._results.find(key, job.before) or self._results.keeping(key, self.run(job))

    def _picks(self, organization: UUID, scans: Sequence[Scan], now_ns: int) -> tuple[Pick, ...]:
        """Scans over the same range read the same segments, also when a compaction commits in between."""
        picked: dict[Any, Pick] = {}
        for scan in scans:
            asked = (scan.signal, scan.time, scan.conditions)
            if asked not in picked:
                picked[asked] = self._segments.pick(organization, scan, now_ns)
        return tuple(picked[scan.signal, scan.time, scan.conditions] for scan in scans)

    def _round(self, job: Job, segments: Sequence[Sequence[Segment]], *, is_first: bool) -> Round:
        """Later rounds are begun before they are read, and several leaves are read one after the other: their rows wait
        on disk, so that no worker waits and keeps others from its slots."""
        how = replace(self._gathering, partial=job.partial, ahead=not is_first or len(job.plan.leaves) > 1)
        feeds = {
            leaf.scan.relation: Feed(Gather(job.organization, leaf, picked, self._workers, how), self._clock)
            for leaf, picked in zip(job.plan.leaves, segments, strict=True)
        }
        count = sum(map(len, segments))
        if job.plan.passes:
            (feed,) = feeds.values()
            return Round(feed, feed, count)
        fed = Feeds(feeds)
        return Round(self._coordinator.run(job.organization, job.plan.sql, fed), fed, count)
