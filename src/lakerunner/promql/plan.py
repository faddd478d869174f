"""Compile PromQL text to a plan: fragments and selectors are leaves, the rest of the expression is the finish.

Comes in: a question. Goes out: a Plan, or an error with its position. What always holds: the plan is a function of the
question alone; it states which rollups may serve a leaf, and which of them exist is found when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, without_name
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.tier import RAW
from lakerunner.plan.plan import Cut, Leaf, Plan, Rollup
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import LOOKBACK_MS, PROMQL
from lakerunner.promql.operators import NO_LIMITS, FetchSamples, Limits, Selection, SeriesFragment, steps_text
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.promql.resolve import resolve
from lakerunner.promql.selection.smoothing import extended_samples
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import Evaluator, finish, most_steps
from lakerunner.series.evaluation.fragments import reaches, split
from lakerunner.series.evaluation.series_finish import AnswerValue, LeafValues, Select, SeriesFinish
from lakerunner.series.expression import Expression, Kind
from lakerunner.series.function import Source, kind_of
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Steps, Value, Vector, Windows, sort_by_labels

EVERY_SAMPLE = "this part of the query needs every sample"
_RAW_REQUESTED = "the request has tier=raw"


@dataclass(frozen=True)
class SeriesQuery:
    """A resolved expression over steps. `instant`: one time; only then the answer may be a range vector. `raw`: rollups
    are not read. `delayed_names`: metric names are removed when the evaluation ends."""

    expression: Expression
    steps: Steps
    instant: bool = False
    lookback_ms: int = LOOKBACK_MS
    raw: bool = False
    delayed_names: bool = False
    limits: Limits = NO_LIMITS

    @property
    def kind(self) -> Kind:
        return kind_of(self.expression, FUNCTIONS)

    def plan(self, *, fold: bool = True) -> Plan:
        """Build the plan. `fold` False: all aggregations are left to the finish, for those that turn out not to
        split."""
        names = self.delayed_names
        found = split(self.expression, self.steps, PROMQL, fold=fold, delayed_names=names)
        fragments = tuple(self._fragment(one.expression, one.steps) for one in found.fragments)
        selected = dict.fromkeys(self._selections(found.rest, self.steps))
        leaves = [self._fragment_leaf(one) for one in fragments]
        leaves += [samples_leaf(FetchSamples(one, self.limits)) for one in selected]
        return Plan(tuple(filter(None, leaves)), PromqlFinish(self, found.rest, fragments))

    def _fragment(self, expression: Expression, steps: Steps) -> SeriesFragment:
        selection = next(self._selections(expression, steps), None)
        return SeriesFragment(expression, steps, selection, self.lookback_ms, self.delayed_names, self.limits)

    def _selections(self, expression: Expression, steps: Steps) -> Iterator[Selection]:
        for reach in reaches(expression, steps, self.lookback_ms, PROMQL):
            yield Selection(reach.matchers, reach.start, reach.end)

    def _fragment_leaf(self, fragment: SeriesFragment) -> Leaf | None:
        scan = fragment.selection.scan if fragment.selection else None
        if scan is None:
            return None
        choice = fragment.tier_choice
        rollup = Rollup(RAW, _RAW_REQUESTED) if self.raw else Rollup(choice.tier, choice.reason)
        return Leaf(scan, fragment, Cut.SERIES, rollup)


def samples_leaf(operator: FetchSamples) -> Leaf | None:
    """Return the leaf that fetches samples; None if its time is beyond all possible timestamps."""
    scan = operator.selection.scan
    return Leaf(scan, operator, Cut.SERIES, Rollup(RAW, EVERY_SAMPLE)) if scan else None


@dataclass(frozen=True)
class PromqlFinish(SeriesFinish):
    """Evaluate `rest`, whose Given nodes are the values of `fragments` by number. A fragment without a leaf has no
    samples. Samples that no leaf reads are those that info() turns out to need."""

    query: SeriesQuery
    rest: Expression
    fragments: tuple[SeriesFragment, ...]

    @property
    def language(self) -> Language:
        return PROMQL

    @property
    def kind(self) -> Kind:
        return self.query.kind

    @property
    def steps(self) -> Steps:
        return self.query.steps

    @property
    def max_samples(self) -> int:
        return self.query.limits.max_samples

    def within(self, steps: Steps) -> Plan:
        return replace(self.query, steps=steps).plan()

    def unfolded(self) -> Plan:
        return self.query.plan(fold=False)

    def check(self, bounds: Bounds) -> None:
        for one in self.fragments:
            bounds.hold(1, most_steps(one.expression, one.steps, PROMQL))

    def run(self, values: LeafValues, select: Select, bounds: Bounds, notes: Notes) -> AnswerValue:
        given = [
            found if isinstance(found := values.get(one), Vector) else one.fold((), notes) for one in self.fragments
        ]
        evaluator = self._evaluator(_LeafSource(values, select, self.query.limits), given, bounds)
        value = finish(evaluator.evaluate(self.rest, self.query.steps))
        if isinstance(value, Vector) and len(value) > self.query.limits.max_series:
            raise self.query.limits.too_many_series()
        notes.add(evaluator.notes.all())
        if isinstance(value, Windows):
            return range_samples(value)
        return sort_by_labels(value) if isinstance(value, Vector) and not self.query.instant else value

    def lines(self) -> Iterator[str]:
        yield steps_text(self.query.steps)
        yield f"evaluate {expression_text(self.rest)}"

    def _evaluator(self, source: Source, given: Sequence[Value], bounds: Bounds) -> Evaluator:
        return Evaluator(
            source,
            PROMQL,
            lookback=self.query.lookback_ms,
            given=given,
            bounds=bounds,
            delayed_names=self.query.delayed_names,
        )


@dataclass(frozen=True)
class _LeafSource:
    """Gives the samples that leaves fetched; others are fetched on demand."""

    values: LeafValues
    fetch: Select
    limits: Limits

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        operator = FetchSamples(Selection(matchers, start, end), self.limits)
        found = self.values.get(operator)
        return found if isinstance(found, Samples) else self.fetch(operator)


@dataclass(frozen=True)
class PromqlQuestion:
    """A query as it was requested. `instant`: one time; only then the answer may be a range vector. `partial`: what
    cannot be read is named in the account instead of failing the query. `streamed`: answer in groups of steps, the
    first of them soon, which takes longer in all. `raw`: read raw points only, no rollups. `engine`: what runs the
    units (query/options.py)."""

    text: str
    steps: Steps
    instant: bool
    now_ns: int
    lookback_ms: int = LOOKBACK_MS
    partial: bool = False
    streamed: bool = False
    raw: bool = False
    engine: str = "duckdb"

    def check(self, kind: Kind) -> None:
        """Raise UserError if an expression of this kind has no value over a range."""
        if not self.instant and kind in (Kind.STRING, Kind.MATRIX):
            shown = "range vector" if kind is Kind.MATRIX else kind.value
            raise UserError(f'invalid expression type "{shown}" for range query, must be Scalar or instant Vector')


def compile_promql(question: PromqlQuestion, limits: Limits, *, delayed_names: bool = False) -> Plan:
    """Parse and resolve a question. Raise UserError with its position if the text is invalid."""
    parsed = parse(question.text)
    question.check(kind_of(parsed, FUNCTIONS))
    expression = resolve(parsed, question.steps, question.instant)
    query = SeriesQuery(
        expression,
        question.steps,
        question.instant,
        question.lookback_ms,
        question.raw,
        delayed_names,
        limits,
    )
    return query.plan()


def range_samples(value: Windows) -> Samples:
    """Return the samples of a range vector at its first step, with final labels, sorted by them. Series without a
    sample are dropped."""
    if value.extended:
        return _sort_by_labels(_drop_names(extended_samples(value)))
    samples = replace(value.samples, starts=None)
    counts = value.last[:, 0] - value.first[:, 0]
    inside = np.repeat(value.first[:, 0] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return _sort_by_labels(_drop_names(samples.take(samples.labels, offsets, inside, samples.drop_name)))


def _drop_names(samples: Samples) -> Samples:
    """Remove the names that operations dropped and merge series that are then the same. Raise UserError if they have
    samples of the same time."""
    if not samples.drop_name.any():
        return samples
    rows: dict[Labels, list[int]] = {}
    for row, (labels, drop) in enumerate(zip(samples.labels, samples.drop_name.tolist(), strict=True)):
        if samples.offsets[row] < samples.offsets[row + 1]:
            rows.setdefault(without_name(labels) if drop else labels, []).append(row)
    places = [np.concatenate([np.arange(*samples.offsets[row : row + 2]) for row in same]) for same in rows.values()]
    for number, own in enumerate(places):
        times = samples.times[own]
        if len(np.unique(times)) < len(times):
            raise UserError("vector cannot contain metrics with the same labelset")
        places[number] = own[np.argsort(times, kind="stable")]
    inside = np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(own) for own in places], dtype=np.int64)])
    return samples.take(list(rows), offsets, inside, np.zeros(len(rows), bool))


def _sort_by_labels(samples: Samples) -> Samples:
    counts = np.diff(samples.offsets)
    order = sorted(np.flatnonzero(counts).tolist(), key=samples.labels.__getitem__)
    return samples.rows(order)
