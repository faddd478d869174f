"""The grammar of PromQL: text in, a checked expression out; UserError with the position of the first mistake.

Operators are parsed by binding strength; what follows an operand (ranges, `offset`, `@`, anchored, smoothed) binds
strongest of all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lakerunner.model.display import go_quote
from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher, matches_empty
from lakerunner.model.labels.selector import PROMQL, Grammar, read_items, unquoted
from lakerunner.model.regex import compile_regex
from lakerunner.promql.check import check_kinds
from lakerunner.promql.cursor import Cursor, duration_seconds, number, utf8_string
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.lexer import AGGREGATORS, DURATION_WORDS, END, Token, refusal
from lakerunner.promql.modifiers import parse_modifiers
from lakerunner.series.aggregations import AGGREGATIONS
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Matching,
    Number,
    Paren,
    Selector,
    Span,
    Text,
    Unary,
    parts,
)

NAME_KINDS = (AGGREGATORS | DURATION_WORDS).union(
    ("identifier", "metric identifier", "by", "without", "and", "or", "unless", "offset", "start", "end"),
    ("anchored", "smoothed", "fill", "fill_left", "fill_right"),
)


def selector(cursor: Cursor, name: Token | None = None) -> Selector:
    """Parse a selector that starts with this name, whose kind is one of NAME_KINDS, or, without a name, with the next
    braces."""
    start = name.start if name else cursor.peek().start
    matchers, end = braces(cursor) if name is None or cursor.kind == "{" else ((), name.end)
    if name is None:
        return Selector(matchers, span=Span(start, end))
    return Selector((*matchers, Matcher(NAME, "=", name.text)), name.text, span=Span(start, end))


def braces(cursor: Cursor, grammar: Grammar = PROMQL) -> tuple[tuple[Matcher, ...], int]:
    """Parse matchers, and return them with the end of the closing brace."""
    found: list[Matcher] = []
    for item in read_items(cursor, grammar):
        if item.matcher.is_regex:
            try:
                compile_regex(item.matcher.value)
            except UserError as error:
                raise cursor.fail(item.start, error.message) from None
        found.append(item.matcher)
    return tuple(found), cursor.last_end


MAX_LENGTH = 65_536  # characters
MAX_DEPTH = 200  # of the tree; a chain of operators is as deep as it is long
_BINDING = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "</": 3, ">/": 3}
_BINDING |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
_UNARY_BINDING = 6  # as strong as *, so that only ^ binds more
_CALLABLE = DURATION_WORDS | {"identifier", "start", "end"}
_STARTS = NAME_KINDS | {"+", "-", "(", "{", "number", "duration", "string"}
_LABEL_KINDS = (NAME_KINDS - {"without"}) | {"bool", "group_left", "group_right", "ignoring", "on", "atan2"}


def parse(text: str) -> Expression:
    """Parse and check a query: every kind fits, every function is known, every regular expression compiles."""
    cursor = _start(text)
    if cursor.kind == END:
        raise cursor.fail(0, "no expression found in input")
    expression = _Grammar(cursor).expression(0)
    if cursor.kind != END:
        raise cursor.unexpected()
    _refuse_depth(text, expression)
    return check_kinds(expression, text)


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Parse match[]: one selector and nothing else, with at least one matcher that does not match an empty label."""
    cursor = _start(text)
    if cursor.kind not in NAME_KINDS and cursor.kind != "{":
        raise cursor.unexpected()
    found = selector(cursor, None if cursor.kind == "{" else cursor.take())
    if cursor.kind != END:
        raise cursor.unexpected()
    if all(map(matches_empty, found.matchers)):
        raise UserError("match[] must contain at least one non-empty matcher")
    return found.matchers


def _start(text: str) -> Cursor:
    """Start a cursor at the beginning of the text."""
    if len(text) > MAX_LENGTH:
        raise TooLarge(f"the query has {len(text)} characters; the limit is {MAX_LENGTH}")
    return Cursor(text)


def _refuse_depth(text: str, expression: Expression) -> None:
    """Refuse a tree that is too deep, without recursion: this keeps everything after it from running out of stack."""
    level: list[Expression] = [expression]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in parts(outer)]
        if not level:
            return
    message = f"expression is more than {MAX_DEPTH} levels deep; put parentheses around parts of long chains"
    raise refusal(text, level[0].span.start, message)


class _Grammar:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def expression(self, minimum: int) -> Expression:
        """Parse up to an operator that binds less than `minimum`."""
        self._cursor.enter()
        left = parse_modifiers(self._operand(), self._cursor)
        while (binding := _BINDING.get(self._cursor.kind, -1)) >= max(minimum, 1):
            op = self._cursor.take().kind
            return_bool = self._cursor.accept("bool") is not None
            matching = self._matching()
            right = self.expression(binding if op == "^" else binding + 1)
            left = Binary(op, left, right, matching, return_bool, Span(left.span.start, right.span.end))
        self._cursor.leave()
        return left

    def _operand(self) -> Expression:
        cursor = self._cursor
        kind = cursor.kind
        if kind in ("+", "-"):
            return self._unary()
        if kind in ("number", "duration"):
            token = cursor.take()
            read = number if kind == "number" else duration_seconds
            return Number(read(cursor.text, token), kind == "duration", Span(token.start, token.end))
        if kind == "string":
            token = cursor.take()
            return Text(unquoted(token.text), Span(token.start, token.end))
        if kind == "(":
            start = cursor.take().start
            inner = self.expression(0)
            return Paren(inner, Span(start, cursor.expect(")").end))
        if kind == "{":
            return selector(cursor)
        if kind in NAME_KINDS:
            return self._named()
        raise cursor.unexpected()

    def _unary(self) -> Expression:
        sign = self._cursor.take()
        inner = self.expression(_UNARY_BINDING)
        span = Span(sign.start, inner.span.end)
        if isinstance(inner, Number):
            return replace(inner, value=-inner.value if sign.kind == "-" else inner.value, span=span)
        return Unary("-" if sign.kind == "-" else "+", inner, span)

    def _named(self) -> Expression:
        """Parse a call, an aggregation or a selector: the token after the name decides."""
        name = self._cursor.take()
        follower = self._cursor.kind
        if name.kind in AGGREGATORS and follower in ("(", "by", "without"):
            with self._cursor.inside("aggregation"):
                return self._aggregate(name.kind, name.start)
        if name.kind in _CALLABLE and follower == "(":
            arguments, end = self._arguments()
            if name.text not in FUNCTIONS:
                raise self._cursor.fail(name.start, f"unknown function with name {go_quote(name.text)}")
            return Call(name.text, arguments, Span(name.start, end))
        return selector(self._cursor, name)

    def _arguments(self) -> tuple[tuple[Expression, ...], int]:
        cursor = self._cursor
        cursor.expect("(")
        found: list[Expression] = []
        while cursor.kind != ")":
            found.append(self.expression(0))
            if cursor.kind == ")":
                break
            comma = cursor.expect(",")
            if cursor.kind not in _STARTS:
                raise cursor.fail(comma.start, "trailing commas not allowed in function call args")
        return tuple(found), cursor.take().end

    def _aggregate(self, op: str, start: int) -> Aggregate:
        cursor = self._cursor
        grouping: tuple[str, ...] = ()
        without = False
        if before := cursor.kind in ("by", "without"):
            without = cursor.take().kind == "without"
            grouping, _ = self._labels()
        arguments, end = self._arguments()
        if not before and cursor.kind in ("by", "without"):
            without = cursor.take().kind == "without"
            grouping, end = self._labels()
        if not arguments:
            raise cursor.fail(start, "no arguments for aggregate expression provided")
        wanted = 1 if AGGREGATIONS[op].parameter is None else 2
        if len(arguments) != wanted:
            counts = f"expected {wanted}, got {len(arguments)}"
            raise cursor.fail(start, f"wrong number of arguments for aggregate expression provided, {counts}")
        parameter = arguments[0] if wanted == 2 else None
        return Aggregate(op, arguments[-1], parameter, grouping, without, Span(start, end))

    def _labels(self) -> tuple[tuple[str, ...], int]:
        """Parse a list of labels in parentheses; also return where it ends."""
        cursor = self._cursor
        if cursor.kind != "(":
            raise cursor.unexpected("grouping opts", '"("')
        cursor.take()
        found: list[str] = []
        while cursor.kind != ")" or not found:
            if cursor.kind == ")":
                break
            if cursor.kind != "string" and cursor.kind not in _LABEL_KINDS:
                raise cursor.unexpected("grouping opts", "label")
            label = cursor.take()
            name = utf8_string(cursor.text, label) if label.kind == "string" else label.text
            if not name:
                raise cursor.fail(label.start, f"invalid label name for grouping: {go_quote(name)}")
            found.append(name)
            if cursor.kind not in (",", ")"):
                raise cursor.unexpected("grouping opts", '"," or ")"')
            cursor.accept(",")
        return tuple(found), cursor.take().end

    def _matching(self) -> Matching:
        cursor = self._cursor
        found = Matching()
        if cursor.kind in ("on", "ignoring"):
            on = cursor.take().kind == "on"
            found = Matching(labels=self._labels()[0], on=on)
            if cursor.kind in ("group_left", "group_right"):
                card: Literal["many-to-one", "one-to-many"]
                card = "many-to-one" if cursor.take().kind == "group_left" else "one-to-many"
                found = replace(found, card=card, include=self._included())
        if cursor.kind == "fill":
            cursor.take()
            value = self._fill_value()
            return replace(found, fill_left=value, fill_right=value)
        for _ in range(2):
            if cursor.kind == "fill_left" and found.fill_left is None:
                cursor.take()
                found = replace(found, fill_left=self._fill_value())
            elif cursor.kind == "fill_right" and found.fill_right is None:
                cursor.take()
                found = replace(found, fill_right=self._fill_value())
        return found

    def _included(self) -> tuple[str, ...]:
        if self._cursor.kind == "(":
            return self._labels()[0]
        if self._cursor.kind not in _STARTS:
            raise self._cursor.unexpected("grouping opts", '"("')
        return ()

    def _fill_value(self) -> float:
        cursor = self._cursor
        cursor.expect("(")
        negative = cursor.kind in ("+", "-") and cursor.take().kind == "-"
        if cursor.kind not in ("number", "duration"):
            raise cursor.unexpected()
        read = number if cursor.kind == "number" else duration_seconds
        value = read(cursor.text, cursor.take())
        cursor.expect(")")
        return -value if negative else value
