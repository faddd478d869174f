"""A plan in, an answer out: pick the segments, have the leaves worked out, finish.

`Engine.answer` is the only way in, for every language. Whose segments are picked is the `organization` argument, which
comes from the caller's key; neither the text nor the plan has a say in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.model.segment import Segment
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import Collect, Finish, Leaf, Plan, SqlFinish
from lakerunner.plan.scan import Scan
from lakerunner.promql.plan import SeriesFinish
from lakerunner.query.account import Account, total
from lakerunner.query.answer import Answer
from lakerunner.query.collected import Collected
from lakerunner.query.coordinate import Coordinator, Leaves
from lakerunner.query.expiry import expiry_warnings
from lakerunner.query.explain import Explained, explained_lines
from lakerunner.query.gather import Gathering
from lakerunner.query.known_segments import KnownSegments, Pick
from lakerunner.query.leaf_run import LeafRun, Resources
from lakerunner.query.metrics.refusals import Refusals
from lakerunner.query.options import Options
from lakerunner.query.result_cache import ResultCache, result_key
from lakerunner.query.rounds import InRounds, Round
from lakerunner.query.row_answer import RowAnswer, RowTerms
from lakerunner.query.row_gather import RowGather
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.query.stretches import FIRST_BYTES, cut
from lakerunner.query.workers import Workers


@dataclass(frozen=True)
class Job:
    """A plan with a finish by SQL and the segments picked for each of its leaves; `before` is what it took to get so
    far."""

    organization: UUID
    plan: Plan
    picks: tuple[Pick, ...]
    options: Options
    before: Account = field(default_factory=Account)

    @property
    def finish(self) -> SqlFinish:
        if not isinstance(self.plan.finish, SqlFinish):
            raise TypeError(f"{self.plan.finish} is not SQL")
        return self.plan.finish

    def stretches(self, first_bytes: int) -> Sequence[Sequence[Sequence[Segment]]]:
        """The segments of each leaf, of each round."""
        if not self.finish.rounds:
            return [[pick.segments for pick in self.picks]]
        ((leaf,), (pick,)) = self.plan.leaves, self.picks
        return [[stretch] for stretch in cut(pick.segments, leaf.scan.time, self.finish.rounds, first_bytes)]


class Engine:
    """Safe to use from many threads. `results` None: every query is run. `first_bytes` is the size of a first round;
    `seconds` how long a query of series may run."""

    def __init__(
        self,
        segments: KnownSegments,
        workers: Workers,
        coordinator: Coordinator | None = None,
        gathering: Gathering = Gathering(),  # noqa: B008 a frozen value
        *,
        results: ResultCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        first_bytes: int = FIRST_BYTES,
        seconds: float = 300.0,
    ) -> None:
        self.segments = segments
        self.workers = workers
        self.clock = clock
        self._gathering = gathering
        self._resources = Resources(segments, workers, gathering, seconds)
        self._coordinator = coordinator
        self._results = results
        self._first_bytes = first_bytes

    @property
    def refusals(self) -> Refusals:
        """Fragments that rollups did not serve, and why."""
        return self._resources.refusals

    def answer(self, organization: UUID, plan: Plan, options: Options) -> Any:
        """At once: what goes wrong while it is worked out is the answer's to raise. The rows of a finish by SQL, and
        the lines of EXPLAIN, are an Answer (query/answer.py), series a SeriesAnswer, what leaves give a Collected."""
        if options.explain is Explain.NO:
            return FINISHES[type(plan.finish)](self, organization, plan, options)
        return self._explained(organization, plan, options)

    def pick(self, organization: UUID, leaf: Leaf, options: Options) -> Pick:
        """Pick the segments of one leaf, rollups where they may serve it."""
        return LeafRun(self._resources, organization, options).pick(leaf)

    def answer_rows(self, organization: UUID, plan: Plan, options: Options) -> Answer:
        job = self._job(organization, plan, options)
        if self._results is None:
            return self.run(job)
        key = result_key(organization, plan, [pick.segments for pick in job.picks])
        return self._results.find(key, job.before) or self.run(job, key)

    def answer_series(self, organization: UUID, plan: Plan, options: Options) -> SeriesAnswer:
        return SeriesAnswer(LeafRun(self._resources, organization, options), plan)

    def collect(self, organization: UUID, plan: Plan, options: Options) -> Collected:
        return Collected(LeafRun(self._resources, organization, options), plan.leaves)

    def run(self, job: Job, key: bytes = b"") -> Answer:
        """At once: the work begins when the answer is looked at. With a key it is kept under it."""
        if self._coordinator is None:
            raise TypeError("an engine without a coordinator finishes no SQL")
        rounds = [
            self._round(self._coordinator, job, segments, is_first=n == 0)
            for n, segments in enumerate(job.stretches(self._first_bytes))
        ]
        wanted = job.finish.rounds
        answer = InRounds(rounds, wanted.offset, wanted.limit) if wanted else InRounds(rounds)
        terms = RowTerms(self._coordinator.limits, job.before, job.options.text, self.clock)
        return RowAnswer(answer, terms, self._results if key else None, key)

    def _explained(self, organization: UUID, plan: Plan, options: Options) -> Answer:
        measured = options.explain is Explain.ANALYZE
        plain = replace(options, explain=Explain.NO)
        if isinstance(plan.finish, SqlFinish):
            job = self._job(organization, plan, plain)
            lines = explained_lines(plan, job.picks, len(job.stretches(self._first_bytes)))
            return Explained(lines, job.before, self.run(job) if measured else None)
        picks = [self.pick(organization, leaf, plain) for leaf in plan.leaves]
        lines, before = explained_lines(plan, picks, 1), total(pick.account for pick in picks)
        return Explained(lines, before, self.answer(organization, plan, plain) if measured else None)

    def _job(self, organization: UUID, plan: Plan, options: Options) -> Job:
        began = self.clock()
        picks = self.picks(organization, plan.scans, options.now_ns)
        seconds = {"plan": options.planned, "pick": self.clock() - began}
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        before = replace(total(pick.account for pick in picks), seconds=seconds, warnings=warnings)
        return Job(organization, plan, picks, options, before)

    def picks(self, organization: UUID, scans: Sequence[Scan], now_ns: int) -> tuple[Pick, ...]:
        """Scans over the same range read the same segments, also when a compaction commits in between."""
        picked: dict[Any, Pick] = {}
        for scan in scans:
            same = (scan.signal, scan.time, scan.conditions)
            if same not in picked:
                picked[same] = self.segments.pick(organization, scan, now_ns)
        return tuple(picked[scan.signal, scan.time, scan.conditions] for scan in scans)

    def _round(
        self, coordinator: Coordinator, job: Job, segments: Sequence[Sequence[Segment]], *, is_first: bool
    ) -> Round:
        """Later rounds are begun before they are read, and several leaves are read one after the other: their rows wait
        on disk, so that no worker waits and keeps others from its slots."""
        ahead = not is_first or len(job.plan.leaves) > 1
        how = replace(self._gathering, partial=job.options.partial, ahead=ahead)
        gathers = {
            leaf.scan.relation: RowGather(job.organization, leaf, picked, self.workers, how, self.clock)
            for leaf, picked in zip(job.plan.leaves, segments, strict=True)
        }
        leaves, count = Leaves(gathers), sum(map(len, segments))
        if job.finish.passes:
            (rows,) = gathers.values()
            return Round(rows, leaves, count)
        return Round(coordinator.run(job.organization, job.finish.sql, leaves), leaves, count)


FINISHES: Mapping[type[Finish], Callable[[Engine, UUID, Plan, Options], Any]] = {
    SqlFinish: Engine.answer_rows,
    SeriesFinish: Engine.answer_series,
    Collect: Engine.collect,
}
