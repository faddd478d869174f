"""What the time range of a query decides in its expression: durations that are expressions, `@ start()` and
`@ end()`, and calls of start(), end(), range(), step(). Comes out with numbers in their place, and ms as ints alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lakerunner.model.errors import UserError
from lakerunner.promql.literals import LARGEST_SECONDS
from lakerunner.promql.selection.totals import with_totals_marked
from lakerunner.promql.unresolved import DurationTerm, edge_of, term_of
from lakerunner.series.expression import (
    Aggregate,
    At,
    Binary,
    Call,
    Duration,
    Expression,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
)
from lakerunner.series.values import Steps


def resolve(expression: Expression, steps: Steps, instant: bool) -> Expression:
    """`instant`: the query has one time, no step and no range, whatever `steps` says of its step."""
    return with_totals_marked(_Times(steps.start, steps.end, 0 if instant else steps.step).expression(expression))


@dataclass(frozen=True)
class _Times:
    """All in ms."""

    start: int
    end: int
    step: int

    def expression(self, node: Expression) -> Expression:
        match node:
            case Call("start" | "end" | "range" | "step" as name):
                return Number(self._context(name), span=node.span)
            case Call(_, arguments):
                return replace(node, arguments=tuple(map(self.expression, arguments)))
            case Paren(inner) | Unary(_, inner):
                return replace(node, inner=self.expression(inner))
            case Binary(_, left, right):
                return replace(node, left=self.expression(left), right=self.expression(right))
            case Aggregate(_, inner, parameter):
                settled = None if parameter is None else self.expression(parameter)
                return replace(node, inner=self.expression(inner), parameter=settled)
            case Selector():
                return self._selector(node)
            case Range(selector, length):
                return replace(node, range=self._length(length), selector=self._selector(selector))
            case Subquery():
                return self._subquery(node)
        return node

    def _context(self, name: str) -> float:
        match name:
            case "start":
                return self.start / 1000
            case "end":
                return self.end / 1000
            case "range":
                return _seconds(self.end - self.start)
        return 0.0 if self.start == self.end else _seconds(self.step)

    def _selector(self, node: Selector) -> Selector:
        return replace(node, offset=self._offset(node.offset), at=self._at(node.at))

    def _subquery(self, node: Subquery) -> Subquery:
        offset = self._offset(node.offset)
        step = None if node.step is None else self._length(node.step)
        length = self._length(node.range)
        inner = self.expression(node.inner)
        # Less than a ms is no step: the default it is.
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
        """In seconds."""
        if term.op == "number":
            return term.value
        if term.op == "step":
            return _seconds(self.step)
        if term.op == "range":
            return _seconds(self.end - self.start)
        values = [self._value(operand) for operand in term.operands]
        if len(values) == 1:
            return -values[0] if term.op == "-" else values[0]
        return _combined(term, values[0], values[1])


def _combined(term: DurationTerm, left: float, right: float) -> float:
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
    """What is no finite number is refused later on, whichever it is."""
    try:
        found = left**right
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return math.nan if isinstance(found, complex) else found


def _seconds(ms: int) -> float:
    return ms // 1000 + ms % 1000 * 1_000_000 / 1e9


def _refusal(term: DurationTerm, message: str) -> UserError:
    """Prometheus says from where to where, in characters of the query, and no line."""
    return UserError(f"{term.span.start}:{term.span.end}: {message}")
