"""PromQL's grammar: text in, an expression out whose kinds fit; UserError with the place of the first mistake.

Operators by how strongly they bind; what stands behind an operand (ranges, `offset`, `@`, anchored, smoothed) binds
strongest of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.go_quote import quoted
from lakerunner.model.labels.matcher import Matcher, matches_empty
from lakerunner.model.labels.selector import unquoted
from lakerunner.promql.check import checked
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.lexer import AGGREGATORS, DURATION_WORDS, END, refusal
from lakerunner.promql.literals import duration_seconds, number, utf8_string
from lakerunner.promql.modifiers import modified
from lakerunner.promql.selectors import NAME_KINDS, selector
from lakerunner.series.aggregations import AGGREGATIONS
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Matching,
    Number,
    Paren,
    Span,
    Text,
    Unary,
    parts,
)
from lakerunner.series.function import Function

MAX_LENGTH = 65_536  # characters
MAX_DEPTH = 200  # of the tree, which a chain of operators makes as deep as it is long
_BINDING = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "</": 3, ">/": 3}
_BINDING |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
_UNARY_BINDING = 6  # as strong as *: only ^ goes first
_CALLABLE = DURATION_WORDS | {"identifier", "start", "end"}
_STARTS = NAME_KINDS | {"+", "-", "(", "{", "number", "duration", "string"}
_LABEL_KINDS = (NAME_KINDS - {"without"}) | {"bool", "group_left", "group_right", "ignoring", "on", "atan2"}


def parse(text: str, functions: Mapping[str, Function] = FUNCTIONS) -> Expression:
    """Checked: every kind is what its place takes, every function is known, every regular expression is one."""
    cursor = _started(text)
    if cursor.kind == END:
        raise cursor.fail(0, "no expression found in input")
    expression = _Grammar(cursor, functions).expression(0)
    if cursor.kind != END:
        raise cursor.unexpected()
    _refuse_depth(text, expression)
    return checked(expression, text, functions)


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Of match[]: one selector and nothing else, at least one matcher of which asks for a label to be there."""
    cursor = _started(text)
    if cursor.kind not in NAME_KINDS and cursor.kind != "{":
        raise cursor.unexpected()
    found = selector(cursor, None if cursor.kind == "{" else cursor.take())
    if cursor.kind != END:
        raise cursor.unexpected()
    if all(map(matches_empty, found.matchers)):
        raise UserError("match[] must contain at least one non-empty matcher")
    return found.matchers


def _started(text: str) -> Cursor:
    if len(text) > MAX_LENGTH:
        raise TooLarge(f"a query of {len(text)} characters; at most {MAX_LENGTH} are read")
    return Cursor(text)


def _refuse_depth(text: str, expression: Expression) -> None:
    """Without recursion: this is what keeps all that comes after from running out of stack."""
    level: list[Expression] = [expression]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in parts(outer)]
        if not level:
            return
    message = f"expression is more than {MAX_DEPTH} levels deep; put parentheses around parts of long chains"
    raise refusal(text, level[0].span.start, message)


class _Grammar:
    def __init__(self, cursor: Cursor, functions: Mapping[str, Function]) -> None:
        self._cursor = cursor
        self._functions = functions

    def expression(self, minimum: int) -> Expression:
        """Up to an operator that binds less than `minimum`."""
        self._cursor.enter()
        left = modified(self._operand(), self._cursor)
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
        """A name begins a call, an aggregation or a selector: the token behind it says which."""
        name = self._cursor.take()
        follower = self._cursor.kind
        if name.kind in AGGREGATORS and follower in ("(", "by", "without"):
            with self._cursor.inside("aggregation"):
                return self._aggregate(name.kind, name.start)
        if name.kind in _CALLABLE and follower == "(":
            arguments, end = self._arguments()
            if name.text not in self._functions:
                raise self._cursor.fail(name.start, f"unknown function with name {quoted(name.text)}")
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
        """A list of labels in parentheses, and where it ends."""
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
                raise cursor.fail(label.start, f"invalid label name for grouping: {quoted(name)}")
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
