"""Evaluate an expression at every step: the meaning of each node of the tree.

Comes in: an expression whose durations and times are resolved, steps, a source of samples, the language. Goes out: a
value, and notes. What always holds: the value at a step depends on that step alone, so that a range may be evaluated in
parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.series.aggregations import aggregate
from lakerunner.series.arrays import Ints
from lakerunner.series.binary.apply import apply_binary, negate
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.names import drop_names, drop_names_of_distinct, merge_distinct
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
    resolved,
)
from lakerunner.series.function import Invocation, Source, is_steady, kind_of
from lakerunner.series.histograms.histogram import ResetHint
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.values import (
    NO_SAMPLES,
    Samples,
    Scalar,
    Steps,
    String,
    Value,
    Vector,
    Windows,
    merge_in_ranges,
    merge_same_labels,
)


class Evaluator:
    """Evaluates expressions over one source. If `lookback` is None the language's applies. `given` are the values of
    the expression's Given nodes by number, with one column, or one for each step. `bounds` limit what a value may hold.
    `delayed_names`: names are removed when the evaluation ends (series/evaluation/names.py)."""

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
        self.bounds.hold(1, len(steps))  # before any array of this many steps is allocated
        match expression:
            case Number(value):
                return Scalar(np.full(len(steps), value))
            case Text(text):
                return String(text)
            case Paren(inner):
                return self.evaluate(inner, steps)
            case Given(number):
                return self._evaluate_given(_broadcast_steps(self._given[number], steps))
            case Selector():
                return self._selector(expression, steps)
            case Range() | Subquery():
                return self.windows(expression, steps)
            case Unary(op, inner):
                operand = self.evaluate(inner, steps)
                return operand if op == "+" else self._negate(operand)
            case Binary():
                left, right = self.evaluate(expression.left, steps), self.evaluate(expression.right, steps)
                return self._binary(expression, _operand(left), _operand(right), steps)
            case Aggregate():
                return self._aggregate(expression, steps)
            case Call():
                return self._call(expression, steps)
        raise TypeError(f"cannot evaluate {expression}")

    def kind(self, expression: Expression) -> Kind:
        return kind_of(expression, self._functions)

    def is_steady(self, expression: Expression) -> bool:
        return is_steady(expression, self._functions)

    # Selectors

    def _selector(self, selector: Selector, steps: Steps) -> Vector:
        ends = evaluation_times(selector, steps)
        _, behind = self.language.reach(selector, self.lookback)
        samples = self._select(selector, ends, self.lookback, behind)
        return self.language.instant_selectors.value(selector, samples, ends, self.lookback, self.notes)

    def _select(self, selector: Selector, ends: Ints, before: int, behind: int = 0) -> Samples:
        samples = self.source.select(selector.matchers, int(ends[0]) - before, int(ends[-1]) + behind)
        self.bounds.hold(len(samples), len(ends))
        return samples

    def times_of(self, selector: Selector, steps: Steps) -> tuple[Samples, Ints]:
        """Return the samples of an instant selector, and the index of the one that counts at each step."""
        ends = evaluation_times(selector, steps)
        samples = self._select(selector, ends, self.lookback)
        return samples, self.language.instant_selectors.places(samples, ends, self.lookback)

    def windows(self, expression: Range | Subquery, steps: Steps) -> Windows:
        ends = evaluation_times(expression, steps)
        range_ = resolved(expression.range)
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
            return NO_SAMPLES
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
        # Groups come in the order of their first sample: series that an operation left without samples must not count.
        return aggregate(expression, vector.occupied(), parameter, self.notes)

    def _call(self, call: Call, steps: Steps) -> Value:
        function = self._functions[call.function]
        of_sample = function.of_sample and isinstance(bare(call.arguments[0]), Selector)
        wanted = () if function.lazy or of_sample else call.arguments
        arguments = tuple(self.evaluate(one, steps) for one in wanted)
        self._check_extended(call, arguments)
        result = function.evaluate(Invocation(call, arguments, steps, self))
        if not isinstance(result, Vector) or function.keeps_name:
            return result
        dropping = result.dropping_name()
        if self.delayed_names:
            return dropping
        ranged = any(isinstance(one, Windows) for one in arguments)
        return (
            drop_names_of_distinct(dropping, at_all_steps=ranged)
            if function.per_series
            else merge_distinct(drop_names(dropping))
        )

    def _binary(self, node: Binary, left: Vector | Scalar, right: Vector | Scalar, steps: Steps) -> Vector | Scalar:
        result = apply_binary(node, left, right, self.notes, delayed_names=self.delayed_names)
        both = isinstance(left, Vector) and isinstance(right, Vector)
        if isinstance(result, Scalar) or (self.delayed_names and not both):
            return result
        if self.delayed_names:
            return merge_in_ranges(result, steps, lambda: self.is_steady(node))
        return merge_distinct(drop_names(result)) if both else drop_names_of_distinct(result)

    def _negate(self, value: Value) -> Vector | Scalar:
        operand = _operand(value)
        if isinstance(operand, Scalar):
            return Scalar(-operand.values)
        return negate(operand) if self.delayed_names else drop_names_of_distinct(negate(operand))

    def _evaluate_given(self, value: Value) -> Value:
        """Remove the names of a given value. Its series were compared where it was made
        (names.merge_distinct_parts)."""
        return value if self.delayed_names or not isinstance(value, Vector) else drop_names(value)

    def _check_extended(self, call: Call, arguments: Sequence[Value]) -> None:
        for value in arguments:
            extended = value.extended if isinstance(value, Windows) else ""
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
    """Return the expression's value with its final labels, and notes: an instant (one step) in the order of the
    evaluation, a range sorted by labels."""
    evaluator = Evaluator(source, language, lookback=lookback, delayed_names=delayed_names)
    value = evaluator.evaluate(expression, steps)
    return finish(value), evaluator.notes


def finish(value: Value) -> Value:
    """Remove the names whose removal was delayed, and merge series that are then the same."""
    if not isinstance(value, Vector):
        return value
    return merge_same_labels(drop_names(value.occupied()))


# ---- times


def evaluation_times(expression: Selector | Range | Subquery, steps: Steps) -> Ints:
    """Return the time each step looks at: its own or the one after `@`, minus the offset."""
    node = expression.selector if isinstance(expression, Range) else expression
    if node.at is None:
        return steps.times - resolved(node.offset)
    return np.full(len(steps), resolved(node.at) - resolved(node.offset), np.int64)


def subquery_steps(subquery: Subquery, steps: Steps, language: Language) -> Steps | None:
    """Return the steps of a subquery that some outer step looks at: multiples of its step, whatever the outer steps
    are. None if there are none."""
    step = language.subquery_step if subquery.step is None else resolved(subquery.step)
    first, last = (steps.start, steps.last) if subquery.at is None else [resolved(subquery.at)] * 2
    start = step * ((first - resolved(subquery.offset) - resolved(subquery.range)) // step + 1)
    end = last - resolved(subquery.offset)
    return Steps(start, end, step) if start <= end else None


def most_steps(expression: Expression, steps: Steps, language: Language) -> int:
    """Return the largest number of steps at which a part of the expression is evaluated: subqueries may have more steps
    than the query."""
    inner = subquery_steps(expression, steps, language) if isinstance(expression, Subquery) else steps
    if inner is None:
        return len(steps)
    return max(len(inner), *(most_steps(part, inner, language) for part in parts(expression)), 0)


# ---- values


def _operand(value: Value) -> Vector | Scalar:
    if not isinstance(value, Vector | Scalar):
        raise TypeError(f"an operand must be a vector or scalar, got {type(value).__name__}")
    return value


def _as_samples(vector: Vector, steps: Steps) -> Samples:
    """Turn a vector into samples at the times of the steps. Reset hints become unknown: samples between them may be
    missing or repeated."""
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


def _broadcast_steps(value: Value, steps: Steps) -> Value:
    """Broadcast a single column to every step."""
    if not isinstance(value, Vector) or value.values.shape[1] == len(steps):
        return value
    shape = (len(value), len(steps))
    return replace(
        value,
        values=np.broadcast_to(value.values, shape),
        present=np.broadcast_to(value.present, shape),
        histograms=None if value.histograms is None else np.broadcast_to(value.histograms, shape),
    )
