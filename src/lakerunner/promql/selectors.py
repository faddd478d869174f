"""Selectors of series: a name, matchers in braces. Comes in where the name or the brace stands."""

from __future__ import annotations

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.selector import PROMQL, read_items
from lakerunner.model.regex import compiled
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import AGGREGATORS, DURATION_WORDS, Token
from lakerunner.series.expression import Selector, Span

NAME_KINDS = (AGGREGATORS | DURATION_WORDS).union(
    ("identifier", "metric identifier", "by", "without", "and", "or", "unless", "offset", "start", "end"),
    ("anchored", "smoothed", "fill", "fill_left", "fill_right"),
)


def selector(cursor: Cursor, name: Token | None = None) -> Selector:
    """Of this name, whose kind is one of NAME_KINDS, or of the braces that come next alone."""
    start = name.start if name else cursor.peek().start
    matchers, end = _braces(cursor) if name is None or cursor.kind == "{" else ((), name.end)
    if name is None:
        return Selector(matchers, span=Span(start, end))
    return Selector((*matchers, Matcher(NAME, "=", name.text)), name.text, span=Span(start, end))


def _braces(cursor: Cursor) -> tuple[tuple[Matcher, ...], int]:
    found: list[Matcher] = []
    for item in read_items(cursor, PROMQL):
        if item.matcher.is_regex:
            try:
                compiled(item.matcher.value)
            except UserError as error:
                raise cursor.fail(item.start, error.message) from None
        found.append(item.matcher)
    return tuple(found), cursor.last_end
