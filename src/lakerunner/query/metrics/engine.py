"""A PromQL question in, an answer out: parse, cut into groups and fragments, have these worked out, evaluate the rest.

Whose segments are picked is the `organization` argument, which comes from the caller's key; the text has no say in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event, Timer
from uuid import UUID

from lakerunner.model.errors import TooLarge, Unavailable, UserError
from lakerunner.model.expiry import NOTHING_EXPIRED
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.metric_view import metric_conditions
from lakerunner.model.tier import RAW
from lakerunner.model.tiling import NO_TILES, Tiles, aligned, clipped
from lakerunner.model.time import MS_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.promql.resolve import resolve
from lakerunner.query.account import Account
from lakerunner.query.failures import cancelled, too_long
from lakerunner.query.known_segments import KnownSegments, Pick
from lakerunner.query.metrics.answer import (
    Cardinality,
    CardinalityQuestion,
    Group,
    Listing,
    MetricsAnswer,
    MetricsQuestion,
    StoredSamples,
)
from lakerunner.query.metrics.cardinality import Counting
from lakerunner.query.metrics.expiry import expiry_notes, gone, unrolled
from lakerunner.query.metrics.gather import MetricsGather
from lakerunner.query.metrics.groups import in_groups
from lakerunner.query.metrics.joined import distinct_samples, joined_samples, joined_vectors
from lakerunner.query.metrics.lists import Asked, Lists, Selectors
from lakerunner.query.metrics.pieces import Piece, Untiered
from lakerunner.query.metrics.reads import Read, Reads
from lakerunner.query.metrics.refusals import Refusals, Wanted
from lakerunner.query.metrics.selection import Selection, Shard
from lakerunner.query.metrics.unit import Evaluate, Fetch, MetricsUnit
from lakerunner.query.workers import Workers
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.aggregations.split import NotSplit
from lakerunner.series.bounds import Bounds, too_many_samples
from lakerunner.series.evaluation.evaluate import Evaluator, finished, in_order, kind_of
from lakerunner.series.evaluation.fragments import Fragment, split
from lakerunner.series.evaluation.names import distinct_series
from lakerunner.series.evaluation.ranges import windowed
from lakerunner.series.evaluation.tiers import Guarded, guard
from lakerunner.series.expression import Aggregate, Expression, Kind, Selector
from lakerunner.series.function import Function, Source
from lakerunner.series.notes import Note, Notes
from lakerunner.series.values import NO_SAMPLES, Partial, Samples, Steps, Value, Vector, Windows

SHARD_ROWS = 4_000_000  # of the picked segments: more are cut into parts, whoever works them out
_SHARDS = 16
_METADATA_MS = 24 * 3_600_000  # what was said of metrics in the last day


@dataclass(frozen=True)
class MetricsLimits:
    """Of one query: series of an answer, samples and values in memory at once, seconds of running."""

    max_series: int = 200_000
    max_samples: int = 50_000_000
    seconds: float = 300.0


class MetricsEngine:
    """Safe to use from many threads. Of how many parts a query is, `shard_rows` and the segments say, not the workers:
    so it is the same to the last bit, whoever works it out. `delayed_names`: as Prometheus' feature
    promql-delayed-name-removal."""

    def __init__(
        self,
        segments: KnownSegments,
        workers: Workers,
        limits: MetricsLimits = MetricsLimits(),  # noqa: B008 a frozen value
        *,
        functions: Mapping[str, Function] = FUNCTIONS,
        shard_rows: int = SHARD_ROWS,
        delayed_names: bool = False,
    ) -> None:
        self.segments = segments
        self.workers = workers
        self.limits = limits
        self.functions = functions
        self.shard_rows = shard_rows
        self.delayed_names = delayed_names
        self.refusals = Refusals()

    def promql(self, organization: UUID, question: MetricsQuestion) -> MetricsAnswer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        parsed = parse(question.text)
        kind = kind_of(parsed, self.functions)
        question.check(kind)
        expression = resolve(parsed, question.steps, question.instant)
        return _Asked(self, organization, question, expression, kind)

    def series(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).series(selectors, self._most(limit))

    def label_names(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).label_names(selectors, self._most(limit))

    def label_values(
        self,
        organization: UUID,
        label: str,
        selectors: Selectors,
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).label_values(label, selectors, self._most(limit))

    def metadata(
        self, organization: UUID, *, metric: str | None, limit: int, limit_per_metric: int, now_ns: int
    ) -> Listing:
        lists = self._lists(organization, now_ns // MS_NS - _METADATA_MS, now_ns // MS_NS, now_ns)
        return lists.metadata(metric, self._most(limit), limit_per_metric)

    def exemplars(self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).exemplars(selectors, self.limits.max_series)

    def samples(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int
    ) -> StoredSamples:
        question = MetricsQuestion("", Steps(end_ms, end_ms), True, now_ns)
        fetching = Fetching(self, organization, question)
        try:
            found: list[Samples] = []
            for matchers in selectors:
                found.append(fetching.select(matchers, start_ms - 1, end_ms))
                fetching.check(sum(map(len, found)), sum(len(one.times) for one in found))
            reads = fetching.reads.all()
            notes = expiry_notes([(read.fragment, read.gone, read.unrolled) for read in reads])
            return StoredSamples(distinct_samples(found), notes, fetching.account)
        finally:
            fetching.close()

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        return Counting(self.segments, self.workers, organization, question).answer()

    def _lists(self, organization: UUID, start_ms: int, end_ms: int, now_ns: int) -> Lists:
        return Lists(self.segments, self.workers, Asked(organization, start_ms, end_ms, now_ns))

    def _most(self, limit: int) -> int:
        return min(limit, self.limits.max_series) if limit else self.limits.max_series


class _Asked:
    """One question on its way: a MetricsAnswer."""

    def __init__(
        self, engine: MetricsEngine, organization: UUID, question: MetricsQuestion, expression: Expression, kind: Kind
    ) -> None:
        self.kind = kind
        self._engine = engine
        self._question = question
        self._expression = expression
        self._fetching = Fetching(engine, organization, question)
        self._notes = Notes()

    @property
    def notes(self) -> tuple[Note, ...]:
        return self._notes.all() + expiry_notes([(read.fragment, read.gone, read.unrolled) for read in self.reads])

    @property
    def account(self) -> Account:
        return self._fetching.account

    @property
    def reads(self) -> tuple[Read, ...]:
        return self._fetching.reads.all()

    def __iter__(self) -> Iterator[Group]:
        try:
            if self._question.streamed:
                yield from self._ahead(in_groups(self._question.steps))
            else:
                yield self._group(self._question.steps)
        finally:
            self.close()

    def _ahead(self, groups: Iterator[Steps]) -> Iterator[Group]:
        """While one is read the next is worked out."""
        with ThreadPoolExecutor(1, "metrics-groups") as pool:
            try:
                coming = pool.submit(self._group, next(groups))
                for steps in groups:
                    group, coming = coming.result(), pool.submit(self._group, steps)
                    yield group
                yield coming.result()
            finally:
                self.close()  # what is worked out for a reader who has left

    def close(self) -> None:
        self._fetching.close()

    def _group(self, steps: Steps) -> Group:
        try:
            value = self._evaluated(steps, fold=True)
        except NotSplit:
            value = self._evaluated(steps, fold=False)
        if isinstance(value, Windows):
            return Group(steps, windowed(value))
        if isinstance(value, Vector) and not self._question.instant:
            return Group(steps, in_order(value))
        return Group(steps, value)

    def _evaluated(self, steps: Steps, *, fold: bool) -> Value:
        engine = self._engine
        parts = split(self._expression, steps, engine.functions, fold=fold, delayed_names=engine.delayed_names)
        notes = Notes()
        given = [self._fetching.fragment(fragment, notes) for fragment in parts.fragments]
        evaluator = self._fetching.evaluator(self._fetching, given)
        value = finished(evaluator.evaluate(parts.rest, steps))
        if isinstance(value, Vector) and len(value) > self._engine.limits.max_series:
            raise too_many_series(self._engine.limits)
        self._notes.add(notes.all())
        self._notes.add(evaluator.notes.all())
        return value


@dataclass
class Fetching:
    """What a question has workers do: the source of its evaluation (series/function.py), and its fragments."""

    engine: MetricsEngine
    organization: UUID
    question: MetricsQuestion
    picked: Account = field(default_factory=Account)
    reads: Reads = field(default_factory=Reads)

    def __post_init__(self) -> None:
        self._gather = MetricsGather(self.engine.workers, self.engine.limits.max_samples)
        self._stopped = Event()
        self._late = Event()
        self._timer = Timer(self.engine.limits.seconds, self._end_late)
        self._timer.daemon = True
        self._timer.start()

    @property
    def account(self) -> Account:
        return self.picked + self._gather.account

    def close(self) -> None:
        self._timer.cancel()
        self._stopped.set()
        self._gather.close()

    def _end_late(self) -> None:
        self._late.set()
        self.close()

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        selection = Selection(matchers, start, end)
        guarded = Guarded(RAW, None, "this part of the query needs every sample")
        pieces = self._raw(selection, Fetch(), expression_text(Selector(matchers)), guarded)
        samples = joined_samples([piece.value for piece in pieces if isinstance(piece.value, Samples)])
        self.check(len(samples), len(samples.times))
        return samples

    def evaluator(self, source: Source, given: Sequence[Value] = ()) -> Evaluator:
        bounds = Bounds(self.engine.limits.max_samples, self._check_time)
        return Evaluator(
            source,
            self.engine.functions,
            lookback=self.question.lookback_ms,
            given=given,
            bounds=bounds,
            delayed_names=self.engine.delayed_names,
        )

    def fragment(self, fragment: Fragment, notes: Notes) -> Vector:
        reach = _Reach()
        self.evaluator(reach).evaluate(fragment.expression, fragment.steps)
        task = Evaluate(fragment.expression, fragment.steps, self.question.lookback_ms, self.engine.delayed_names)
        pieces = self._fragment(reach.selection, task) if reach.selection else []
        for piece in pieces:
            notes.add(piece.notes)
        if isinstance(fragment.expression, Aggregate):
            partials = [piece.value for piece in pieces if isinstance(piece.value, Partial)]
            if not partials:
                return joined_vectors((), len(fragment.steps))
            return SPLITS[fragment.expression.op].fold(fragment.expression, partials, notes)
        vectors = [piece.value for piece in pieces if isinstance(piece.value, Vector)]
        self.check(sum(map(len, vectors)), sum(vector.values.size for vector in vectors))
        vector = joined_vectors(vectors, len(fragment.steps))
        if self.engine.delayed_names:
            return vector
        return distinct_series(fragment.expression, vector, self.engine.functions)

    def _fragment(self, selection: Selection, task: Evaluate) -> list[Piece]:
        """From the widest tier that gives the same; where it turns out that it does not, from samples."""
        text = expression_text(task.expression)
        guarded = guard(task.expression, task.steps, self.engine.functions)
        if self.question.raw:
            guarded = Guarded(RAW, None, "the request has tier=raw")
        if not guarded.tier:
            return self._raw(selection, task, text, guarded)
        wanted, reach = Wanted(self.organization, text, guarded.tier), (selection.start, selection.end)
        known = self.engine.refusals.reason(wanted, reach, self.question.now_ns)
        if known and (whole := self._whole(selection)):
            return self._raw(selection, task, text, Guarded(RAW, None, known), whole)
        pick = self._pick_tiers(selection, guarded.tier)
        if pick is None:
            why = "the index is unavailable, which knows where rollups are"
            return self._raw(selection, task, text, Guarded(RAW, None, why))
        self._note(text, guarded, selection, pick, pick.tiles)
        all_raw = tuple(pick.tiles) == (RAW,)
        over = selection if all_raw else _over(selection, guarded.tier)
        pieces = self._run(over, task, pick, NO_TILES if all_raw else pick.tiles)
        untiered = [piece.value.reason for piece in pieces if isinstance(piece.value, Untiered)]
        if not untiered:
            return pieces
        self.engine.refusals.add(wanted, reach, untiered[0], self.question.now_ns)
        return self._raw(selection, task, text, Guarded(RAW, None, untiered[0]))

    def _raw(
        self, selection: Selection, task: Evaluate | Fetch, text: str, guarded: Guarded, pick: Pick | None = None
    ) -> list[Piece]:
        """Of samples, whatever rollups there are."""
        pick = pick or self._look(selection)
        self.picked += pick.account
        self._note(text, guarded, selection, pick, _raw_tiles(selection))
        return self._run(selection, task, pick)

    def _note(self, text: str, guarded: Guarded, selection: Selection, pick: Pick, tiles: Tiles) -> None:
        needed = clipped(tiles, (selection.start, selection.end))
        missing = gone(needed, pick.expiry, guarded), unrolled(needed, pick.expiry)
        self.reads.add(Read(text, guarded.tier, guarded.reason, tiles, *missing))

    def _run(self, selection: Selection, task: Evaluate | Fetch, pick: Pick, tiles: Tiles = NO_TILES) -> list[Piece]:
        self._check_time()
        if not pick.segments:
            return []
        rows = sum(segment.rows for segment in pick.segments)
        shards = max(1, min(_SHARDS, rows // self.engine.shard_rows))
        units = [
            MetricsUnit(
                self.organization,
                pick.segments,
                Selection(selection.matchers, selection.start, selection.end, Shard(number, shards)),
                task,
                self.question.partial,
                self.engine.limits.max_samples,
                tiles,
            )
            for number in range(shards)
        ]
        try:
            return [piece for pieces in self._gather.run(units) for piece in pieces]
        except UserError:
            self._check_time()
            raise

    def _check_time(self) -> None:
        if self._late.is_set():
            raise too_long(self.engine.limits.seconds)
        if self._stopped.is_set():
            raise cancelled()

    def _whole(self, selection: Selection) -> Pick | None:
        """None where some raw points have expired, or the index is away: windows may have more."""
        try:
            pick = self._look(selection)
        except Unavailable:
            return None
        return pick if pick.expiry == NOTHING_EXPIRED else None

    def _look(self, selection: Selection) -> Pick:
        """Not accounted for yet."""
        if selection.time is None:
            return Pick((), Account())
        scan = _scan(selection.matchers, selection.time)
        return self.engine.segments.pick(self.organization, scan, self.question.now_ns)

    def _pick_tiers(self, selection: Selection, tier: int) -> Pick | None:
        """None if the index is away: what is known may be enough for raw points."""
        over = _over(selection, tier)
        if over.time is None:
            return Pick((), Account())
        scan, reach = _scan(selection.matchers, over.time), (over.start, over.end)
        try:
            found = self.engine.segments.pick_tiers(self.organization, reach, tier, scan, self.question.now_ns)
        except Unavailable:
            return None
        self.picked += found.account
        return found

    def check(self, series: int, points: int) -> None:
        limits = self.engine.limits
        if points > limits.max_samples:
            raise too_many_samples(limits.max_samples)
        if series > limits.max_series:
            raise too_many_series(limits)


def _scan(matchers: tuple[Matcher, ...], time: TimeRange) -> Scan:
    return Scan("metrics", "metrics", time, (), conditions=metric_conditions(matchers))


def _over(selection: Selection, tier: int) -> Selection:
    """With the whole of the window that it begins in."""
    start, end = aligned((selection.start, selection.end), tier)
    return replace(selection, start=start, end=end)


def _raw_tiles(selection: Selection) -> Tiles:
    return {RAW: ((selection.start, selection.end),)} if selection.start < selection.end else {}


class _Reach:
    """A source that notes what is asked of it, and has nothing: what a fragment's one selector looks at."""

    def __init__(self) -> None:
        self._asked: list[Selection] = []

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        self._asked.append(Selection(matchers, start, end))
        return NO_SAMPLES

    @property
    def selection(self) -> Selection | None:
        """None: no step looks at anything, as of a subquery between two of its own steps."""
        return self._asked[0] if self._asked else None


def too_many_series(limits: MetricsLimits) -> TooLarge:
    return TooLarge(
        f"more than {limits.max_series:,} series (metrics_max_series): add matchers, or aggregate them, "
        "as in sum by (job) (...)"
    )
