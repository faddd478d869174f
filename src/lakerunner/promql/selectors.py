"""Selectors of series: a name, matchers in braces. Comes in where the name or the brace stands."""

from __future__ import annotations

from typing import Literal, cast

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME
from lakerunner.plan.regex import compiled
from lakerunner.plan.vectors.expression import Matcher, Selector, Span
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import AGGREGATORS, DURATION_WORDS, Token
from lakerunner.promql.literals import utf8_string

NAME_KINDS = (AGGREGATORS | DURATION_WORDS).union(
    ("identifier", "metric identifier", "by", "without", "and", "or", "unless", "offset", "start", "end"),
    ("anchored", "smoothed", "fill", "fill_left", "fill_right"),
)
_OPERATORS = frozenset(("=", "!=", "=~", "!~"))


def selector(cursor: Cursor, name: Token | None = None) -> Selector:
    """Of this name, whose kind is one of NAME_KINDS, or of the braces that come next alone."""
    start = name.start if name else cursor.peek().start
    matchers, end = _braces(cursor) if name is None or cursor.kind == "{" else ((), name.end)
    if name is None:
        return Selector(matchers, span=Span(start, end))
    return Selector((*matchers, Matcher(NAME, "=", name.text)), name.text, span=Span(start, end))


def matches_empty(matcher: Matcher) -> bool:
    """Whether it is met by a series without that label."""
    match matcher.op:
        case "=":
            return matcher.value == ""
        case "!=":
            return matcher.value != ""
        case "=~":
            return compiled(matcher.value).matches("")
    return not compiled(matcher.value).matches("")


def _braces(cursor: Cursor) -> tuple[tuple[Matcher, ...], int]:
    cursor.take()
    found: list[Matcher] = []
    while cursor.kind != "}":
        found.append(_matcher(cursor))
        if cursor.kind not in (",", "}"):
            raise cursor.unexpected("label matching", '"," or "}"')
        if cursor.kind == ",":
            cursor.take()
    return tuple(found), cursor.take().end


def _matcher(cursor: Cursor) -> Matcher:
    if cursor.kind not in ("identifier", "string"):
        raise cursor.unexpected("label matching", 'identifier or "}"')
    label = cursor.take()
    name = utf8_string(cursor.text, label) if label.kind == "string" else label.text
    if cursor.kind not in _OPERATORS:
        if label.kind == "string":
            return Matcher(NAME, "=", name)
        raise cursor.unexpected("label matching", "label matching operator")
    op = cast(Literal["=", "!=", "=~", "!~"], cursor.take().kind)
    if cursor.kind != "string":
        raise cursor.unexpected("label matching", "string")
    value = utf8_string(cursor.text, cursor.take())
    if op in ("=~", "!~"):
        try:
            compiled(value)
        except UserError as error:
            raise cursor.fail(label.start, error.message) from None
    return Matcher(name, op, value)
