"""An expression at every step: what each node of the tree means.

Comes in: an expression whose durations and times are numbers, steps, a source of samples, the language. Goes out: a
value, and notes. What always holds: the value at a step depends on that step alone, so that a range may be evaluated in
parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.series.aggregations import aggregate
from lakerunner.series.arrays import Ints
from lakerunner.series.binary.operators import binary, negated
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.names import distinct, unnamed, unnamed_series
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Given,
    Kind,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Text,
    Unary,
    bare,
    parts,
)
from lakerunner.series.function import Called, Function, Source
from lakerunner.series.histograms.histogram import ResetHint
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.steady import is_steady
from lakerunner.series.united import merged, united
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector, Windows


class Evaluator:
    """`lookback` None: that of the language. `given` are the values of the expression's Given nodes, by number: one
    column, or one for each step. What a value may hold is in `bounds`. `delayed_names`: names go when the evaluation
    ends (series/evaluation/names.py)."""

    def __init__(
        self,
        source: Source,
        language: Language,
        *,
        lookback: int | None = None,
        given: Sequence[Value] = (),
        bounds: Bounds = Bounds(),  # noqa: B008 a frozen value
        delayed_names: bool = False,
    ) -> None:
        self.source = source
        self.language = language
        self.lookback = language.lookback if lookback is None else lookback
        self.notes = Notes(language.words)
        self._functions = language.functions
        self._given = given
        self.bounds = bounds
        self.delayed_names = delayed_names

    def evaluate(self, expression: Expression, steps: Steps) -> Value:
        self.bounds.check()
        self.bounds.hold(1, len(steps))  # before any array of steps is made
        match expression:
            case Number(value):
                return Scalar(np.full(len(steps), value))
            case Text(text):
                return String(text)
            case Paren(inner):
                return self.evaluate(inner, steps)
            case Given(number):
                return self._as_given(_spread(self._given[number], steps))
            case Selector():
                return self._selector(expression, steps)
            case Range() | Subquery():
                return self.windows(expression, steps)
            case Unary(op, inner):
                operand = self.evaluate(inner, steps)
                return operand if op == "+" else self._negated(operand)
            case Binary():
                left, right = self.evaluate(expression.left, steps), self.evaluate(expression.right, steps)
                return self._binary(expression, _operand(left), _operand(right), steps)
            case Aggregate():
                return self._aggregate(expression, steps)
            case Call():
                return self._call(expression, steps)
        raise TypeError(f"{expression} is no expression")

    def kind(self, expression: Expression) -> Kind:
        return kind_of(expression, self._functions)

    def is_steady(self, expression: Expression) -> bool:
        return is_steady(expression, self._functions)

    # Selectors

    def _selector(self, selector: Selector, steps: Steps) -> Vector:
        ends = looked_at(selector, steps)
        _, behind = self.language.reach(selector, self.lookback)
        samples = self._select(selector, ends, self.lookback, behind)
        return self.language.instant_selectors.value(selector, samples, ends, self.lookback, self.notes)

    def _select(self, selector: Selector, ends: Ints, before: int, behind: int = 0) -> Samples:
        samples = self.source.select(selector.matchers, int(ends[0]) - before, int(ends[-1]) + behind)
        self.bounds.hold(len(samples), len(ends))
        return samples

    def times_of(self, selector: Selector, steps: Steps) -> tuple[Samples, Ints]:
        """The samples of an instant selector, and which of them counts at each step."""
        ends = looked_at(selector, steps)
        samples = self._select(selector, ends, self.lookback)
        return samples, self.language.instant_selectors.places(samples, ends, self.lookback)

    def windows(self, expression: Range | Subquery, steps: Steps) -> Windows:
        ends = looked_at(expression, steps)
        range_ = _number(expression.range)
        if isinstance(expression, Subquery):
            samples = self._subquery(expression, steps)
            self.bounds.hold(len(samples), len(ends))
        else:
            before, behind = self.language.reach(expression.selector, self.lookback)
            samples = self._select(expression.selector, ends, range_ + before, behind)
            samples = self.language.ranged(expression.selector, samples)
        return Windows(samples, ends, range_, self.lookback, expression)

    def _subquery(self, subquery: Subquery, steps: Steps) -> Samples:
        inner = subquery_steps(subquery, steps, self.language)
        if inner is None:
            return Samples((), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))
        self.bounds.hold(1, len(inner))
        value = self.evaluate(subquery.inner, inner)
        if isinstance(value, Scalar):
            value = Vector([()], value.values[None, :], np.ones((1, len(inner)), bool))
        if not isinstance(value, Vector):
            raise TypeError(f"a subquery of {type(value).__name__}")
        return _as_samples(value, inner)

    # Operations

    def _aggregate(self, expression: Aggregate, steps: Steps) -> Vector:
        parameter = None if expression.parameter is None else self.evaluate(expression.parameter, steps)
        if isinstance(parameter, Vector | Windows):
            raise TypeError(f"the parameter of {expression.op} is a {type(parameter).__name__}")
        vector = self.evaluate(expression.inner, steps)
        if not isinstance(vector, Vector):
            raise TypeError(f"{expression.op} of {type(vector).__name__}")
        # Groups stand in the order of their first sample, not of series that an operation left without one.
        return aggregate(expression, vector.occupied(), parameter, self.notes)

    def _call(self, call: Call, steps: Steps) -> Value:
        function = self._functions[call.function]
        of_sample = function.of_sample and isinstance(bare(call.arguments[0]), Selector)
        wanted = () if function.lazy or of_sample else call.arguments
        arguments = tuple(self.evaluate(one, steps) for one in wanted)
        self._check_extended(call, arguments)
        result = function.evaluate(Called(call, arguments, steps, self))
        if not isinstance(result, Vector) or function.keeps_name:
            return result
        dropping = result.dropping_name()
        if self.delayed_names:
            return dropping
        ranged = any(isinstance(one, Windows) for one in arguments)
        return unnamed_series(dropping, at_all_steps=ranged) if function.per_series else distinct(unnamed(dropping))

    def _binary(self, node: Binary, left: Vector | Scalar, right: Vector | Scalar, steps: Steps) -> Vector | Scalar:
        result = binary(node, left, right, self.notes, delayed_names=self.delayed_names)
        both = isinstance(left, Vector) and isinstance(right, Vector)
        if isinstance(result, Scalar) or (self.delayed_names and not both):
            return result
        if self.delayed_names:
            return united(result, steps, lambda: self.is_steady(node))
        return distinct(unnamed(result)) if both else unnamed_series(result)

    def _negated(self, value: Value) -> Vector | Scalar:
        operand = _operand(value)
        if isinstance(operand, Scalar):
            return Scalar(-operand.values)
        return negated(operand) if self.delayed_names else unnamed_series(negated(operand))

    def _as_given(self, value: Value) -> Value:
        """Take names off what is given, whose series are compared where it is made (names.distinct_series)."""
        return value if self.delayed_names or not isinstance(value, Vector) else unnamed(value)

    def _check_extended(self, call: Call, arguments: Sequence[Value]) -> None:
        for value in arguments:
            extended = _extended(value.expression) if isinstance(value, Windows) else ""
            if extended and extended not in self._functions[call.function].extended:
                able = sorted(name for name, one in self._functions.items() if extended in one.extended)
                raise UserError(
                    f"{extended} modifier can only be used with: {', '.join(able)} - not with {call.function}"
                )


def evaluate(
    expression: Expression,
    steps: Steps,
    source: Source,
    language: Language,
    *,
    lookback: int | None = None,
    delayed_names: bool = False,
) -> tuple[Value, Notes]:
    """The expression's value with its final labels: an instant (one step) in the order of the evaluation, a range by
    labels."""
    evaluator = Evaluator(source, language, lookback=lookback, delayed_names=delayed_names)
    value = evaluator.evaluate(expression, steps)
    return finished(value), evaluator.notes


def finished(value: Value) -> Value:
    """With the names gone that are left to the end. Series that are then the same become one."""
    if not isinstance(value, Vector):
        return value
    return merged(unnamed(value.occupied()))


def in_order(value: Vector) -> Vector:
    """By labels: the order of a range's series."""
    order = sorted(range(len(value)), key=value.labels.__getitem__)
    return value if order == list(range(len(value))) else value.rows(order)


# ---- times


def looked_at(expression: Selector | Range | Subquery, steps: Steps) -> Ints:
    """The moment each step looks at: its own, or the one after `@`, less the offset."""
    node = expression.selector if isinstance(expression, Range) else expression
    if node.at is None:
        return steps.times - _number(node.offset)
    return np.full(len(steps), _number(node.at) - _number(node.offset), np.int64)


def subquery_steps(subquery: Subquery, steps: Steps, language: Language) -> Steps | None:
    """Multiples of its step, whatever the outer steps are: all that some outer step looks at. None: there is none."""
    step = language.subquery_step if subquery.step is None else _number(subquery.step)
    first, last = (steps.start, steps.last) if subquery.at is None else [_number(subquery.at)] * 2
    start = step * ((first - _number(subquery.offset) - _number(subquery.range)) // step + 1)
    end = last - _number(subquery.offset)
    return Steps(start, end, step) if start <= end else None


def most_steps(expression: Expression, steps: Steps, language: Language) -> int:
    """At how many steps a part of it is evaluated: those of its subqueries may be more than its own."""
    inner = subquery_steps(expression, steps, language) if isinstance(expression, Subquery) else steps
    if inner is None:
        return len(steps)
    return max(len(inner), *(most_steps(part, inner, language) for part in parts(expression)), 0)


def _number(given: object) -> int:
    if not isinstance(given, int):
        raise TypeError(f"{given} is not resolved")
    return given


def _extended(expression: Range | Subquery) -> str:
    return expression.selector.extended if isinstance(expression, Range) else ""


# ---- values


def _operand(value: Value) -> Vector | Scalar:
    if not isinstance(value, Vector | Scalar):
        raise TypeError(f"{type(value).__name__} is no operand")
    return value


def _as_samples(vector: Vector, steps: Steps) -> Samples:
    """A vector's values as samples at the times of the steps. Reset hints say nothing there: samples between may be
    missing, or come more than once."""
    present = vector.present
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(present.sum(axis=1), dtype=np.int64)])
    times = np.broadcast_to(steps.times, present.shape)[present]
    histograms = None
    if vector.histograms is not None:
        histograms = vector.histograms[present]
        for place, histogram in enumerate(histograms):
            if histogram is not None and histogram.reset_hint in (ResetHint.RESET, ResetHint.NOT_RESET):
                histograms[place] = replace(histogram, reset_hint=ResetHint.UNKNOWN)
    return Samples(vector.labels, offsets, times, vector.values[present], histograms, drop_name=vector.drop_name)


def _spread(value: Value, steps: Steps) -> Value:
    """One column stands for every step."""
    if not isinstance(value, Vector) or value.values.shape[1] == len(steps):
        return value
    shape = (len(value), len(steps))
    return replace(
        value,
        values=np.broadcast_to(value.values, shape),
        present=np.broadcast_to(value.present, shape),
        histograms=None if value.histograms is None else np.broadcast_to(value.histograms, shape),
    )


def kind_of(expression: Expression, functions: Mapping[str, Function]) -> Kind:
    """Of the value that the expression has."""
    match expression:
        case Number():
            return Kind.SCALAR
        case Text():
            return Kind.STRING
        case Range() | Subquery():
            return Kind.MATRIX
        case Paren(inner) | Unary(_, inner):
            return kind_of(inner, functions)
        case Given(_, kind):
            return kind
        case Call(name):
            return functions[name].returns
        case Binary(_, left, right):
            kinds = {kind_of(left, functions), kind_of(right, functions)}
            return Kind.SCALAR if kinds == {Kind.SCALAR} else Kind.VECTOR
    return Kind.VECTOR
