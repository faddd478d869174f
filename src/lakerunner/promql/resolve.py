"""Resolve what depends on the query's time range: durations that are expressions, `@ start()`, `@ end()`, and calls of
start(), end(), range() and step(). The result has numbers in their place, and times only as integers of ms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from lakerunner.model.errors import UserError
from lakerunner.promql.cursor import LARGEST_SECONDS
from lakerunner.promql.functions.range_vectors import range_seconds
from lakerunner.promql.selection.selectors import mark_totals_only
from lakerunner.series.expression import (
    NOWHERE,
    At,
    Call,
    Duration,
    Expression,
    Number,
    Range,
    Selector,
    Span,
    Subquery,
    Unresolved,
    with_parts,
)
from lakerunner.series.values import Steps


@dataclass(frozen=True, slots=True)
class DurationTerm(Unresolved):
    """An operand or operation of a duration expression. `op`: number (value in seconds), `+ - * / % ^` with one or two
    operands, step, range, min_of, max_of, paren."""

    op: str
    operands: tuple[DurationTerm, ...] = ()
    value: float = 0.0
    is_duration: bool = False  # whether the number was written with a unit
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class EdgeOfRange(Unresolved):
    """The time of `@ start()` or `@ end()`."""

    name: Literal["start", "end"]


def term_of(duration: Unresolved) -> DurationTerm:
    """Narrow an unresolved duration: PromQL has no other kind."""
    if not isinstance(duration, DurationTerm):
        raise TypeError(f"{duration} is not a duration")
    return duration


def edge_of(at: Unresolved) -> EdgeOfRange:
    """Narrow an unresolved time after `@`: PromQL has no other kind."""
    if not isinstance(at, EdgeOfRange):
        raise TypeError(f"{at} is not a time")
    return at


def resolve(expression: Expression, steps: Steps, instant: bool) -> Expression:
    """Resolve an expression. `instant`: the query has one time, no step and no range, whatever the step of `steps`
    is."""
    return mark_totals_only(_Times(steps.start, steps.end, 0 if instant else steps.step).expression(expression))


@dataclass(frozen=True)
class _Times:
    """The query's time range and step, in ms."""

    start: int
    end: int
    step: int

    def expression(self, node: Expression) -> Expression:
        match node:
            case Call("start" | "end" | "range" | "step" as name):
                return Number(self._context(name), span=node.span)
            case Selector():
                return self._selector(node)
            case Range(selector, length):
                return replace(node, range=self._length(length), selector=self._selector(selector))
            case Subquery():
                return self._subquery(node)
        return with_parts(node, self.expression)

    def _context(self, name: str) -> float:
        match name:
            case "start":
                return self.start / 1000
            case "end":
                return self.end / 1000
            case "range":
                return range_seconds(self.end - self.start)
        return 0.0 if self.start == self.end else range_seconds(self.step)

    def _selector(self, node: Selector) -> Selector:
        return replace(node, offset=self._offset(node.offset), at=self._at(node.at))

    def _subquery(self, node: Subquery) -> Subquery:
        offset = self._offset(node.offset)
        step = None if node.step is None else self._length(node.step)
        length = self._length(node.range)
        inner = self.expression(node.inner)
        # A step below one ms is 0 here, and means the default step.
        return replace(node, inner=inner, range=length, step=step or None, offset=offset, at=self._at(node.at))

    def _at(self, at: At | None) -> int | None:
        if at is None or isinstance(at, int):
            return at
        return self.start if edge_of(at).name == "start" else self.end

    def _offset(self, duration: Duration) -> int:
        return duration if isinstance(duration, int) else self._milliseconds(term_of(duration))

    def _length(self, duration: Duration) -> int:
        if isinstance(duration, int):
            return duration
        return self._milliseconds(term_of(duration), positive=True)

    def _milliseconds(self, term: DurationTerm, positive: bool = False) -> int:
        seconds = self._value(term)
        if not math.isfinite(seconds):
            raise _refusal(term, "duration is NaN or infinite")
        if positive and seconds <= 0:
            raise _refusal(term, "duration must be greater than 0")
        if abs(seconds) > LARGEST_SECONDS:
            raise _refusal(term, "duration is out of range")
        return int(seconds * 1000)

    def _value(self, term: DurationTerm) -> float:
        """Return the value of a duration term in seconds."""
        if term.op == "number":
            return term.value
        if term.op == "step":
            return range_seconds(self.step)
        if term.op == "range":
            return range_seconds(self.end - self.start)
        values = [self._value(operand) for operand in term.operands]
        if len(values) == 1:
            return -values[0] if term.op == "-" else values[0]
        return _combine(term, values[0], values[1])


def _combine(term: DurationTerm, left: float, right: float) -> float:
    match term.op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            if right == 0:
                raise _refusal(term, "division by zero")
            return left / right
        case "%":
            if right == 0:
                raise _refusal(term, "modulo by zero")
            return math.fmod(left, right) if math.isfinite(left) else math.nan
        case "^":
            return _power(left, right)
        case "min_of":
            return math.nan if math.isnan(left) or math.isnan(right) else min(left, right)
        case "max_of":
            return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)
    raise ValueError(f"a duration term {term.op!r}")


def _power(left: float, right: float) -> float:
    """Compute a power. Any result that is not finite is refused by the caller."""
    try:
        found = left**right
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return math.nan if isinstance(found, complex) else found


def _refusal(term: DurationTerm, message: str) -> UserError:
    """Return the error. Like Prometheus it states the range of characters in the query instead of a line."""
    return UserError(f"{term.span.start}:{term.span.end}: {message}")
