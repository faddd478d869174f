"""PromQL text to plan: fragments and selectors are leaves, the rest of the expression is the finish.

Comes in: a question. Goes out: a Plan, or an error that says what is wrong and where. What always holds: the plan is a
function of the question alone; which rollups may serve a leaf is stated in it, which are there is found when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.tier import RAW
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import Cut, Finish, Leaf, Plan, Rollup
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import LOOKBACK_MS, PROMQL
from lakerunner.promql.operators import NO_LIMITS, FetchSamples, Limits, SeriesFragment, steps_text
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.promql.ranges import windowed
from lakerunner.promql.resolve import resolve
from lakerunner.promql.sample_range import Selection
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import Evaluator, finished, in_order, kind_of, most_steps
from lakerunner.series.evaluation.fragments import split
from lakerunner.series.evaluation.reach import reaches
from lakerunner.series.expression import Expression, Kind
from lakerunner.series.function import Source
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector, Windows

EVERY_SAMPLE = "this part of the query needs every sample"
_ASKED_RAW = "the request has tier=raw"
Answered = Vector | Scalar | String | Samples
LeafValues = Mapping[Operator, Vector | Samples]
# Gets samples that the plan has no leaf for: those that info() finds it needs.
Select = Callable[[FetchSamples], Samples]


@dataclass(frozen=True)
class SeriesQuery:
    """An expression over steps, resolved. `instant`: one moment, which alone may give a range vector. `raw`: rollups
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
        """`fold` False: aggregations are all done in the finish, for those that turn out not to split."""
        names = self.delayed_names
        found = split(self.expression, self.steps, PROMQL, fold=fold, delayed_names=names)
        fragments = tuple(self._fragment(one.expression, one.steps) for one in found.fragments)
        selected = dict.fromkeys(self._selections(found.rest, self.steps))
        leaves = [self._fragment_leaf(one) for one in fragments]
        leaves += [samples_leaf(FetchSamples(one, self.limits)) for one in selected]
        return Plan(tuple(filter(None, leaves)), SeriesFinish(self, found.rest, fragments))

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
        guarded = fragment.guarded
        rollup = Rollup(RAW, _ASKED_RAW) if self.raw else Rollup(guarded.tier, guarded.reason)
        return Leaf(scan, fragment, Cut.SERIES, rollup)


def samples_leaf(operator: FetchSamples) -> Leaf | None:
    """Return the leaf of samples as they are; None: nothing can be there, as far from now as no timestamp can say."""
    scan = operator.selection.scan
    return Leaf(scan, operator, Cut.SERIES, Rollup(RAW, EVERY_SAMPLE)) if scan else None


@dataclass(frozen=True)
class SeriesFinish(Finish):
    """Evaluate `rest`, whose Given nodes are the values of `fragments` by number. A fragment without a leaf has no
    samples."""

    query: SeriesQuery
    rest: Expression
    fragments: tuple[SeriesFragment, ...]

    def within(self, steps: Steps) -> Plan:
        """Return the plan of some of the steps."""
        return replace(self.query, steps=steps).plan()

    def unfolded(self) -> Plan:
        """Return the plan in which workers aggregate nothing."""
        return self.query.plan(fold=False)

    def check(self, bounds: Bounds) -> None:
        """Refuse an expression with more steps than may be held, before anything is read for it."""
        for one in self.fragments:
            bounds.hold(1, most_steps(one.expression, one.steps, PROMQL))

    def run(self, values: LeafValues, select: Select, bounds: Bounds, notes: Notes) -> Answered:
        """`values` are those of the leaves, by their operators."""
        given = [
            found if isinstance(found := values.get(one), Vector) else one.fold((), notes) for one in self.fragments
        ]
        evaluator = self._evaluator(_Source(values, select, self.query.limits), given, bounds)
        value = finished(evaluator.evaluate(self.rest, self.query.steps))
        if isinstance(value, Vector) and len(value) > self.query.limits.max_series:
            raise self.query.limits.too_many_series()
        notes.add(evaluator.notes.all())
        if isinstance(value, Windows):
            return windowed(value)
        return in_order(value) if isinstance(value, Vector) and not self.query.instant else value

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
class _Source:
    """The samples that the leaves gave, or that are selected only now."""

    values: LeafValues
    fetch: Select
    limits: Limits

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        operator = FetchSamples(Selection(matchers, start, end), self.limits)
        found = self.values.get(operator)
        return found if isinstance(found, Samples) else self.fetch(operator)


@dataclass(frozen=True)
class PromqlQuestion:
    """`instant`: one moment, which alone may give a range vector. `partial`: what cannot be read is named in the
    account instead of being an error. `streamed`: in groups of time, the first of them soon, which takes longer in all.
    `raw`: of raw points alone, whatever rollups there are."""

    text: str
    steps: Steps
    instant: bool
    now_ns: int
    lookback_ms: int = LOOKBACK_MS
    partial: bool = False
    streamed: bool = False
    raw: bool = False

    def check(self, kind: Kind) -> None:
        """UserError where an expression of this kind has no value over a range."""
        if not self.instant and kind in (Kind.STRING, Kind.MATRIX):
            shown = "range vector" if kind is Kind.MATRIX else kind.value
            raise UserError(f'invalid expression type "{shown}" for range query, must be Scalar or instant Vector')


def compile_promql(question: PromqlQuestion, limits: Limits, *, delayed_names: bool = False) -> Plan:
    """UserError, with its position, for a text that cannot be asked."""
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
