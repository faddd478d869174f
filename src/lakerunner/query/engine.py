"""Answers plans: picks the segments, has workers run the leaves, and finishes.

`Engine.answer` is the only entry, for every language. The `organization` argument, which comes from the caller's key,
alone decides whose segments are picked; neither the text nor the plan can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.logql.metric_finish import LogqlFinish
from lakerunner.model.segment import Segment
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import Collect, Finish, Leaf, Plan, SqlFinish
from lakerunner.plan.scan import Scan
from lakerunner.promql.plan import PromqlFinish
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, total
from lakerunner.query.explain_answer import ExplainAnswer, explained_lines
from lakerunner.query.gather import GatherOptions
from lakerunner.query.known_segments import KnownSegments, Pick, expiry_warnings
from lakerunner.query.leaf_run import CollectAnswer, LeafRun, Refusals, Resources
from lakerunner.query.options import Options
from lakerunner.query.result_cache import ResultCache, result_key
from lakerunner.query.row_answer import FIRST_BYTES, Coordinator, Round, RoundAnswer, RowAnswer, cut
from lakerunner.query.row_gather import LeafRows, RowGather
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.query.workers import TaskPool, Workers


@dataclass(frozen=True)
class RowJob:
    """A plan with an SQL finish, and the segments picked for each of its leaves; `before` accounts for planning and
    picking."""

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

    def rounds(self, first_bytes: int) -> Sequence[Sequence[Sequence[Segment]]]:
        """Return the segments of each leaf, for each round."""
        rounds = self.finish.rounds
        if not rounds:
            return [[pick.segments for pick in self.picks]]
        ((leaf,), (pick,)) = self.plan.leaves, self.picks
        first_bytes = rounds.first_bytes or first_bytes
        return [[segments] for segments in cut(pick.segments, leaf.scan.time, rounds, first_bytes)]


class Engine:
    """Safe to use from many threads. `results` None: every query is run. `first_bytes` is the size of a first round;
    `seconds` limits the running time of a query of series; `spark` runs units of engine=spark, None: it is off."""

    def __init__(
        self,
        segments: KnownSegments,
        workers: Workers,
        coordinator: Coordinator | None = None,
        gathering: GatherOptions = GatherOptions(),  # noqa: B008 a frozen value
        *,
        results: ResultCache | None = None,
        clock: Callable[[], float] = time.monotonic,
        first_bytes: int = FIRST_BYTES,
        seconds: float = 300.0,
        spark: TaskPool | None = None,
    ) -> None:
        self.segments = segments
        self.workers = workers
        self.clock = clock
        self._gathering = gathering
        self._resources = Resources(segments, workers, gathering, seconds, spark=spark)
        self._coordinator = coordinator
        self._results = results
        self._first_bytes = first_bytes

    @property
    def refusals(self) -> Refusals:
        """Return the fragments that rollups did not serve, and why."""
        return self._resources.refusals

    def answer(self, organization: UUID, plan: Plan, options: Options) -> Any:
        """Return at once; errors of the computation are raised by the answer. Rows of an SQL finish and the lines of
        EXPLAIN are an Answer (query/answer.py), series a SeriesAnswer, plans that collect a CollectAnswer."""
        self._resources.check_engine(options)
        if options.explain is Explain.NO:
            return FINISHES[type(plan.finish)](self, organization, plan, options)
        return self._explained(organization, plan, options)

    def pick(self, organization: UUID, leaf: Leaf, options: Options) -> Pick:
        """Pick the segments of one leaf, rollups where they may serve it."""
        return LeafRun(self._resources, organization, options).pick(leaf)

    def answer_rows(self, organization: UUID, plan: Plan, options: Options) -> Answer:
        job = self._job(organization, plan, options)
        # Given segments are read once, and an export is too large to keep.
        if self._results is None or options.whole or options.segments is not None:
            return self.run(job)
        key = result_key(organization, plan, [pick.segments for pick in job.picks])
        return self._results.find(key, job.before) or self.run(job, key)

    def answer_series(self, organization: UUID, plan: Plan, options: Options) -> SeriesAnswer:
        return SeriesAnswer(LeafRun(self._resources, organization, options), plan)

    def collect(self, organization: UUID, plan: Plan, options: Options) -> CollectAnswer:
        return CollectAnswer(LeafRun(self._resources, organization, options), plan.leaves)

    def run(self, job: RowJob, key: bytes = b"") -> Answer:
        """Return at once; the work begins when the answer is read. With a key the answer is cached."""
        if self._coordinator is None:
            raise TypeError("an engine without a coordinator finishes no SQL")
        workers = self._resources.workers_for(job.organization, job.options)
        rounds: list[Round] = []
        for segments in job.rounds(self._first_bytes):
            # Later rounds start before they are read, and several leaves are read one after the other: then rows wait
            # on disk, so that no worker waits and keeps its slot from others.
            ahead = bool(rounds) or len(job.plan.leaves) > 1
            how = replace(self._gathering, partial=job.options.partial, ahead=ahead)
            gathers = {
                leaf.scan.relation: RowGather(job.organization, leaf, picked, workers, how, self.clock)
                for leaf, picked in zip(job.plan.leaves, segments, strict=True)
            }
            leaves, count = LeafRows(gathers), sum(map(len, segments))
            if job.finish.passes:
                (rows,) = gathers.values()
                rounds.append(Round(rows, leaves, count))
            else:
                running = self._coordinator.run(job.organization, job.finish.sql, leaves)
                rounds.append(Round(running, leaves, count))
        wanted = job.finish.rounds
        cut = (wanted.offset, wanted.limit) if wanted else ()
        answer = RoundAnswer(rounds, workers, *cut)
        results = (self._results, key) if self._results and key else None
        limits = self._coordinator.limits.lifted() if job.options.whole else self._coordinator.limits
        return RowAnswer(answer, limits, job.before, job.options.text, self.clock, results)

    def _explained(self, organization: UUID, plan: Plan, options: Options) -> Answer:
        measured = options.explain is Explain.ANALYZE
        plain = replace(options, explain=Explain.NO)
        if isinstance(plan.finish, SqlFinish):
            job = self._job(organization, plan, plain)
            lines = explained_lines(plan, job.picks, len(job.rounds(self._first_bytes)), options.engine)
            return ExplainAnswer(lines, job.before, self.run(job) if measured else None)
        picks = [self.pick(organization, leaf, plain) for leaf in plan.leaves]
        points = [self.segments.pick_points(organization, leaf) for leaf in plan.leaves]
        lines = explained_lines(plan, picks, 1, options.engine, points)
        before = total(pick.account for pick in picks)
        return ExplainAnswer(lines, before, self.answer(organization, plan, plain) if measured else None)

    def _job(self, organization: UUID, plan: Plan, options: Options) -> RowJob:
        began = self.clock()
        if options.segments is None:
            picks = self.picks(organization, plan.scans, options.now_ns)
        else:
            picks = (_given(organization, options.segments),)
        seconds = {"plan": options.planned, "pick": self.clock() - began}
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        before = replace(total(pick.account for pick in picks), seconds=seconds, warnings=warnings)
        return RowJob(organization, plan, picks, options, before)

    def picks(self, organization: UUID, scans: Sequence[Scan], now_ns: int) -> tuple[Pick, ...]:
        """Pick the segments of each scan. Equal scans get the same segments even if a compaction commits in between."""
        picked: dict[Any, Pick] = {}
        for scan in scans:
            same = (scan.signal, scan.time, scan.conditions)
            if same not in picked:
                picked[same] = self.segments.pick(organization, scan, now_ns)
        return tuple(picked[scan.signal, scan.time, scan.conditions] for scan in scans)


def _given(organization: UUID, segments: tuple[Segment, ...]) -> Pick:
    if any(one.organization != organization for one in segments):
        raise ValueError("a segment belongs to another organization")
    return Pick(segments, Account(considered=len(segments)))


FINISHES: Mapping[type[Finish], Callable[[Engine, UUID, Plan, Options], Any]] = {
    SqlFinish: Engine.answer_rows,
    PromqlFinish: Engine.answer_series,
    LogqlFinish: Engine.answer_series,
    Collect: Engine.collect,
}
