"""What may stand behind an operand: a range or a subquery in brackets, offset, @, anchored, smoothed; in any order,
each where it makes sense."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, cast

from lakerunner.promql.cursor import Cursor
from lakerunner.promql.duration_terms import offset_duration, positive_duration
from lakerunner.promql.go_numbers import plain_number
from lakerunner.promql.literals import duration_seconds, number, rounded
from lakerunner.promql.unresolved import EdgeOfRange
from lakerunner.series.expression import At, Duration, Expression, Range, Selector, Span, Subquery

_A_DURATION = "number, duration, step(), or range()"
_WHERE = "must be preceded by an instant vector selector or range vector selector or a subquery"


def modified(operand: Expression, cursor: Cursor) -> Expression:
    while True:
        match cursor.kind:
            case "[":
                operand = _bracketed(operand, cursor)
            case "offset":
                cursor.take()
                with cursor.inside("offset", _A_DURATION):
                    offset = offset_duration(cursor)
                operand = _with_offset(operand, offset, cursor)
            case "@":
                cursor.take()
                operand = _with_at(operand, cursor)
            case "anchored" | "smoothed":
                operand = _extended(operand, cursor)
            case _:
                return operand


def _bracketed(operand: Expression, cursor: Cursor) -> Expression:
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
    holder = operand.selector if isinstance(operand, Range) else operand
    if holder.offset != 0:
        raise cursor.fail(operand.span.start, "offset may not be set multiple times")
    span = Span(operand.span.start, cursor.last_end)
    if isinstance(operand, Range):
        return replace(operand, selector=replace(operand.selector, offset=offset), span=span)
    return replace(operand, offset=offset, span=span)


def _with_at(operand: Expression, cursor: Cursor) -> Expression:
    at = _at(operand, cursor)
    if not isinstance(operand, Selector | Range | Subquery):
        raise cursor.fail(operand.span.start, f"@ modifier {_WHERE}")
    holder = operand.selector if isinstance(operand, Range) else operand
    if holder.at is not None:
        raise cursor.fail(operand.span.start, "@ <timestamp> may not be set multiple times")
    span = Span(operand.span.start, cursor.last_end)
    if isinstance(operand, Range):
        return replace(operand, selector=replace(operand.selector, at=at), span=span)
    return replace(operand, at=at, span=span)


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
    if not abs(seconds * 1000) < 1 << 63:  # nor NaN
        shown = f"{seconds:f}" if math.isfinite(seconds) else plain_number(seconds)
        raise cursor.fail(operand.span.start, f"timestamp out of bounds for @ modifier: {shown}")
    return rounded(seconds * 1000)


def _extended(operand: Expression, cursor: Cursor) -> Expression:
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
