"""Durations in brackets and behind `offset`: numbers, and expressions of them that have a value only when the query's
step and range are known.

A term that is a plain number becomes ms at once. Behind `offset` an operator ends the duration, `foo offset 5m * 2` is
twice the vector: only what begins with a parenthesis may go on.
"""

from __future__ import annotations

import math

from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import Token
from lakerunner.promql.literals import LARGEST_SECONDS, duration_seconds, milliseconds, number
from lakerunner.promql.unresolved import DurationTerm
from lakerunner.series.expression import Duration, Span

_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_UNARY_BINDING = 3  # as strong as *, so that only ^ goes first


def positive_duration(cursor: Cursor) -> Duration:
    """Of a range or a subquery's step."""
    term = _term(cursor, 0)
    if term.op == "number" and term.value <= 0:
        raise cursor.fail(term.span.start, "duration must be greater than 0")
    return _settled(cursor, term)


def offset_duration(cursor: Cursor) -> Duration:
    sign = cursor.take() if cursor.kind in ("+", "-") else None
    if sign is None:
        return _settled(cursor, _term(cursor, 0) if cursor.kind == "(" else _operand(cursor))
    if cursor.kind in ("number", "duration"):
        return _settled(cursor, _signed(sign, _literal(cursor, sign)))
    if cursor.kind in ("step", "range", "min_of", "max_of"):
        inner = _operand(cursor)
        return DurationTerm(sign.kind, (inner,), span=Span(sign.start, inner.span.end))
    if cursor.kind == "(":
        return _settled(cursor, _signed(sign, _operand(cursor)))
    return _settled(cursor, _continued(cursor, _signed(sign, _term(cursor, _UNARY_BINDING)), 0))


def _settled(cursor: Cursor, term: DurationTerm) -> Duration:
    if term.op == "number" and math.isnan(term.value):  # which Prometheus takes for some number or other
        raise cursor.fail(term.span.start, "duration out of range")
    return milliseconds(term.value) if term.op == "number" else term


def _term(cursor: Cursor, minimum: int) -> DurationTerm:
    cursor.enter()
    found = _continued(cursor, _operand(cursor), minimum)
    cursor.leave()
    return found


def _continued(cursor: Cursor, left: DurationTerm, minimum: int) -> DurationTerm:
    """With the operators behind it that bind at least as strongly as `minimum`."""
    while (binding := _BINDING.get(cursor.kind, -1)) >= max(minimum, 1):
        sign = cursor.take()
        right = _term(cursor, binding if sign.kind == "^" else binding + 1)
        if sign.kind in "/%" and right.op == "number" and right.value == 0:
            message = "division by zero" if sign.kind == "/" else "modulo by zero"
            raise cursor.fail(sign.start, message)
        left = DurationTerm(sign.kind, (left, right), span=Span(left.span.start, right.span.end))
    return left


def _operand(cursor: Cursor) -> DurationTerm:
    match cursor.kind:
        case "number" | "duration":
            return _literal(cursor)
        case "+" | "-":
            sign = cursor.take()
            return _signed(sign, _term(cursor, _UNARY_BINDING))
        case "step" | "range":
            word = cursor.take()
            cursor.expect("(")
            return DurationTerm(word.kind, span=Span(word.start, cursor.expect(")").end))
        case "min_of" | "max_of":
            word = cursor.take()
            cursor.expect("(")
            first = _term(cursor, 0)
            cursor.expect(",")
            second = _term(cursor, 0)
            cursor.expect(")")
            # Where two operands are, their places are the place.
            return DurationTerm(word.kind, (first, second), span=Span(first.span.start, second.span.end))
        case "(":
            left = cursor.take()
            inner = _term(cursor, 0)
            cursor.expect(")")
            if inner.op == "paren":
                return inner
            start = left.start if inner.op == "number" else inner.span.start
            return DurationTerm("paren", (inner,), span=Span(start, inner.span.end))
    raise cursor.unexpected()


def _literal(cursor: Cursor, sign: Token | None = None) -> DurationTerm:
    token = cursor.take()
    is_duration = token.kind == "duration"
    value = duration_seconds(cursor.text, token) if is_duration else number(cursor.text, token)
    if abs(value) > LARGEST_SECONDS:
        raise cursor.fail(sign.start if sign else token.start, "duration out of range")
    return DurationTerm("number", (), value, is_duration, Span(token.start, token.end))


def _signed(sign: Token, term: DurationTerm) -> DurationTerm:
    """The sign of a number is its own; a plus before anything else says nothing."""
    span = Span(sign.start, term.span.end)
    if term.op == "number":
        value = -term.value if sign.kind == "-" else term.value
        return DurationTerm("number", (), value, term.is_duration, span)
    return term if sign.kind == "+" else DurationTerm("-", (term,), span=span)
