"""Read `q` of a request for tags: one selector of rows, as the Grafana plugin writes it around its filters.

Comes in: `http_requests{code=~"5..", "k8s.pod.name"!=""}`, perhaps inside calls such as `sum by (x) (rate(...[5m]))`,
which choose no other rows. Goes out: its matchers, all of which a row must meet; a metric's name is the matcher of
`__name__`. Filters that we cannot honour, and all else of PromQL, LogQL and TraceQL, are refused with their place:
otherwise we would list values of rows that the query leaves out.
"""

from __future__ import annotations

from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.selector import TAGS, read_items
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import END, KEYWORDS, Token

MAX_DEPTH = 20  # calls inside each other
MAX_MATCHERS = 50
_NAMES = KEYWORDS | {"identifier", "metric identifier"}
_GROUPINGS = ("by", "without")


def read_selector(text: str, language: str) -> tuple[Matcher, ...]:
    """Return the matchers. `language` is what a refusal calls the language of `text`."""
    cursor = Cursor(text, TAGS)
    try:
        matchers = _expression(cursor, MAX_DEPTH)
        cursor.expect(END)
    except UserError as error:
        raise UserError(
            f'{language} is not available yet: q may be one selector as `{{service_name="cart"}}`; {error.message}',
            error.position or Position(1, 1),
        ) from None
    return tuple(matchers)


def _expression(cursor: Cursor, depth: int) -> list[Matcher]:
    """Read a selector, or a call of which one argument is an expression and those before it are numbers."""
    if not depth:
        raise cursor.fail(cursor.peek().start, f"calls are more than {MAX_DEPTH} deep")
    name = _name(cursor)
    if name and cursor.kind in ("(", *_GROUPINGS):
        _grouping(cursor)
        cursor.expect("(")
        while cursor.accept("number"):
            cursor.expect(",")
        inner = _expression(cursor, depth - 1)
        cursor.expect(")")
        _grouping(cursor)
        return inner
    found = [Matcher(NAME, "=", name.text)] if name else []
    if not name or cursor.kind == "{":
        found += _matchers(cursor)
    _window(cursor)
    return found


def _matchers(cursor: Cursor) -> list[Matcher]:
    if cursor.kind != "{":
        raise cursor.unexpected()
    found: list[Matcher] = []
    for item in read_items(cursor, TAGS):
        found.append(item.matcher)
        if len(found) > MAX_MATCHERS:
            raise cursor.fail(item.start, f"it has more than {MAX_MATCHERS} matchers")
    return found


def _window(cursor: Cursor) -> None:
    """Pass over `[5m]`, which chooses no rows."""
    bracket = cursor.accept("[")
    if bracket and not (cursor.accept("duration") and cursor.accept("]")):
        raise cursor.fail(bracket.start, "between brackets is more than a window such as [5m]")


def _grouping(cursor: Cursor) -> None:
    """Pass over `by (a, b)`, which chooses no rows."""
    if cursor.kind not in _GROUPINGS:
        return
    cursor.take()
    cursor.expect("(")
    while cursor.kind != ")":
        if not cursor.accept("string") and not _name(cursor):
            raise cursor.unexpected()
        if cursor.kind != ")":
            cursor.expect(",")
    cursor.take()


def _name(cursor: Cursor) -> Token | None:
    return cursor.take() if cursor.kind in _NAMES else None
