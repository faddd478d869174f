"""Parse what may follow an operand, in any order: a range or a subquery in brackets, offset, @, anchored, smoothed; and
durations, which may be expressions whose value depends on the query's step and range.

A term that is a plain number becomes ms at once. After `offset` an operator ends the duration (`foo offset 5m * 2` is
twice the vector) unless the duration begins with a parenthesis.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, cast

from lakerunner.promql.cursor import (
    LARGEST_SECONDS,
    Cursor,
    duration_seconds,
    milliseconds,
    number,
    round_half_away,
)
from lakerunner.promql.lexer import Token
from lakerunner.promql.resolve import DurationTerm, EdgeOfRange
from lakerunner.series.expression import At, Duration, Expression, Range, Selector, Span, Subquery
from lakerunner.series.numerals import scalar_text

_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_UNARY_BINDING = 3  # as strong as *, so that only ^ binds more


def positive_duration(cursor: Cursor) -> Duration:
    """Parse a duration that must be greater than 0: a range or the step of a subquery."""
    term = _term(cursor, 0)
    if term.op == "number" and term.value <= 0:
        raise cursor.fail(term.span.start, "duration must be greater than 0")
    return _to_milliseconds(cursor, term)


def offset_duration(cursor: Cursor) -> Duration:
    """Parse the duration of `offset`, which may be negative."""
    sign = cursor.take() if cursor.kind in ("+", "-") else None
    if sign is None:
        return _to_milliseconds(cursor, _term(cursor, 0) if cursor.kind == "(" else _operand(cursor))
    if cursor.kind in ("number", "duration"):
        return _to_milliseconds(cursor, _apply_sign(sign, _literal(cursor, sign)))
    if cursor.kind in ("step", "range", "min_of", "max_of"):
        inner = _operand(cursor)
        return DurationTerm(sign.kind, (inner,), span=Span(sign.start, inner.span.end))
    if cursor.kind == "(":
        return _to_milliseconds(cursor, _apply_sign(sign, _operand(cursor)))
    return _to_milliseconds(cursor, _parse_operators(cursor, _apply_sign(sign, _term(cursor, _UNARY_BINDING)), 0))


def _to_milliseconds(cursor: Cursor, term: DurationTerm) -> Duration:
    """Return a plain number as ms, any other term unresolved."""
    if term.op == "number" and math.isnan(term.value):  # Prometheus converts NaN to an arbitrary number
        raise cursor.fail(term.span.start, "duration out of range")
    return milliseconds(term.value) if term.op == "number" else term


def _term(cursor: Cursor, minimum: int) -> DurationTerm:
    cursor.enter()
    found = _parse_operators(cursor, _operand(cursor), minimum)
    cursor.leave()
    return found


def _parse_operators(cursor: Cursor, left: DurationTerm, minimum: int) -> DurationTerm:
    """Parse the operators that follow and bind at least as strongly as `minimum`."""
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
            return _apply_sign(sign, _term(cursor, _UNARY_BINDING))
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
            # As in Prometheus, the position is that of the operands without the word.
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


def _apply_sign(sign: Token, term: DurationTerm) -> DurationTerm:
    """Apply a sign. A number takes it as its own; a plus before anything else has no effect."""
    span = Span(sign.start, term.span.end)
    if term.op == "number":
        value = -term.value if sign.kind == "-" else term.value
        return DurationTerm("number", (), value, term.is_duration, span)
    return term if sign.kind == "+" else DurationTerm("-", (term,), span=span)


_A_DURATION = "number, duration, step(), or range()"
_WHERE = "must be preceded by an instant vector selector or range vector selector or a subquery"


def parse_modifiers(operand: Expression, cursor: Cursor) -> Expression:
    """Parse the modifiers that follow an operand."""
    while True:
        match cursor.kind:
            case "[":
                operand = _parse_brackets(operand, cursor)
            case "offset":
                cursor.take()
                with cursor.inside("offset", _A_DURATION):
                    offset = offset_duration(cursor)
                operand = _with_offset(operand, offset, cursor)
            case "@":
                cursor.take()
                operand = _with_at(operand, cursor)
            case "anchored" | "smoothed":
                operand = _with_extended(operand, cursor)
            case _:
                return operand


def _parse_brackets(operand: Expression, cursor: Cursor) -> Expression:
    start = cursor.take().start
    with cursor.inside("subquery or range selector", _A_DURATION):
        length = positive_duration(cursor)
    if cursor.kind == "]":
        return _range(operand, length, start, cursor)
    if cursor.kind != ":":
        raise cursor.unexpected("subquery or range", '":" or "]"')
    cursor.take()
    step: Duration | None = None
    if cursor.kind != "]":
        with cursor.inside("subquery selector", 'number, duration, step(), range(), or "]"'):
            step = positive_duration(cursor)
    if cursor.kind != "]":
        raise cursor.unexpected("subquery selector", '"]"')
    return Subquery(operand, length, step, span=Span(operand.span.start, cursor.take().end))


def _range(operand: Expression, length: Duration, start: int, cursor: Cursor) -> Range:
    end = cursor.take().end
    if not isinstance(operand, Selector):
        raise cursor.fail(start, "ranges only allowed for vector selectors")
    if operand.offset != 0:
        raise cursor.fail(start, "no offset modifiers allowed before range")
    if operand.at is not None:
        raise cursor.fail(start, "no @ modifiers allowed before range")
    return Range(operand, length, Span(operand.span.start, end))


def _with_offset(operand: Expression, offset: Duration, cursor: Cursor) -> Expression:
    if not isinstance(operand, Selector | Range | Subquery):
        raise cursor.fail(operand.span.start, f"offset modifier {_WHERE}")
    if _holder(operand).offset != 0:
        raise cursor.fail(operand.span.start, "offset may not be set multiple times")
    return _modified(operand, cursor, offset=offset)


def _holder(operand: Selector | Range | Subquery) -> Selector | Subquery:
    return operand.selector if isinstance(operand, Range) else operand


def _modified(operand: Selector | Range | Subquery, cursor: Cursor, **changes: Any) -> Expression:
    """Return the operand with its modifiers changed, up to the last token taken."""
    span = Span(operand.span.start, cursor.last_end)
    if isinstance(operand, Range):
        return replace(operand, selector=replace(operand.selector, **changes), span=span)
    return replace(operand, **changes, span=span)


def _with_at(operand: Expression, cursor: Cursor) -> Expression:
    at = _at(operand, cursor)
    if not isinstance(operand, Selector | Range | Subquery):
        raise cursor.fail(operand.span.start, f"@ modifier {_WHERE}")
    if _holder(operand).at is not None:
        raise cursor.fail(operand.span.start, "@ <timestamp> may not be set multiple times")
    return _modified(operand, cursor, at=at)


def _at(operand: Expression, cursor: Cursor) -> At:
    with cursor.inside("@", "timestamp"):
        if cursor.kind in ("start", "end"):
            word = cursor.take().kind
            cursor.expect("(")
            cursor.expect(")")
            return EdgeOfRange(cast(Literal["start", "end"], word))
        negative = cursor.kind in ("+", "-") and cursor.take().kind == "-"
        if cursor.kind not in ("number", "duration"):
            raise cursor.unexpected()
    read = number if cursor.kind == "number" else duration_seconds
    seconds = read(cursor.text, cursor.take())
    seconds = -seconds if negative else seconds
    if not abs(seconds * 1000) < 1 << 63:  # false for NaN too
        shown = f"{seconds:f}" if math.isfinite(seconds) else scalar_text(seconds)
        raise cursor.fail(operand.span.start, f"timestamp out of bounds for @ modifier: {shown}")
    return round_half_away(seconds * 1000)


def _with_extended(operand: Expression, cursor: Cursor) -> Expression:
    word = cast(Literal["anchored", "smoothed"], cursor.take().kind)
    if isinstance(operand, Subquery):
        raise cursor.fail(operand.span.start, f"{word} modifier is not supported for subqueries")
    if not isinstance(operand, Selector | Range):
        raise cursor.fail(operand.span.start, f"{word} modifier not implemented")
    holder = operand.selector if isinstance(operand, Range) else operand
    if holder.extended not in ("", word):
        raise cursor.fail(operand.span.start, "anchored and smoothed modifiers cannot be used together")
    if isinstance(operand, Range):
        return replace(operand, selector=replace(operand.selector, extended=word))
    return replace(operand, extended=word)
