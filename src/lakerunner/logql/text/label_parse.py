"""Parse conditions on labels: the matchers of selectors, drop and keep, and the tests of label filters.

Tests are joined as Loki's grammar joins them: `and` binds closer than `or` and both group from the left, but a comma,
or nothing between two tests, takes all that follows as its right side: `a or b, c` is `a or (b, c)`.
"""

from __future__ import annotations

from typing import Literal, cast

from lakerunner.logql.text.amounts import parse_float
from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.lexer import Lexeme
from lakerunner.logql.text.syntax import AmountTest, Both, Comparison, Either, IpTest, LabelTest, TextTest, Unit
from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher, Matchers, Operator
from lakerunner.model.regex import compile_regex

_MATCHING: tuple[Operator, ...] = ("=", "=~", "!~", "!=")  # in the order in which Loki's messages name them
_COMPARISONS: dict[str, Comparison] = {"=": "==", "==": "==", "!=": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
_UNITS: dict[str, Unit] = {"DURATION": "duration", "BYTES": "bytes"}
_BINDING = {"or": 1, "and": 2}
Join = Literal["or", "and", ",", " "]


def parse_selector(cursor: Cursor) -> Matchers:
    """Parse `{name="value", ...}`, which may be empty."""
    cursor.expect("{")
    if cursor.accept("}"):
        return ()
    if cursor.kind != "IDENTIFIER":
        raise cursor.unexpected("IDENTIFIER", "}")
    found = [parse_matcher(cursor)]
    while not cursor.accept("}"):
        if not cursor.accept(","):
            raise cursor.unexpected("}", ",")
        found.append(parse_matcher(cursor))
    return tuple(found)


def parse_matcher(cursor: Cursor) -> Matcher:
    label = cursor.expect("IDENTIFIER")
    op = matching_operator(cursor)
    if op is None:
        raise cursor.unexpected(*_MATCHING)
    return matcher_value(cursor, label, op)


def matching_operator(cursor: Cursor) -> Operator | None:
    """Take the operator of a matcher, if one is next."""
    op = next((op for op in _MATCHING if op == cursor.kind), None)
    if op:
        cursor.take()
    return op


def matcher_value(cursor: Cursor, label: Lexeme, op: Operator) -> Matcher:
    value = cursor.expect("STRING")
    if op in ("=~", "!~"):
        check_regex(cursor, value)
    return Matcher(label.text, op, value.name)


def check_regex(cursor: Cursor, pattern: Lexeme) -> None:
    """Refuse a regular expression that RE2 does not take."""
    try:
        compile_regex(pattern.name)
    except UserError as error:
        raise cursor.mistake(pattern.start, error.message) from None


# ---- label filters


def parse_test(cursor: Cursor) -> LabelTest:
    """Parse tests up to what cannot continue them. A stack instead of recursion: chains may be long."""
    tests: list[LabelTest] = [_single(cursor)]
    joins: list[Join] = []
    while join := _join(cursor):
        while joins and _binds_before(joins[-1], join):
            _combine(tests, joins)
        if join != " ":
            cursor.take()
        joins.append(join)
        tests.append(_single(cursor))
    while joins:
        _combine(tests, joins)
    return tests[0]


def _join(cursor: Cursor) -> Join | None:
    if cursor.kind in ("IDENTIFIER", "("):
        return " "
    return cast(Join, cursor.kind) if cursor.kind in ("or", "and", ",") else None


def _binds_before(left: Join, right: Join) -> bool:
    return left in _BINDING and right in _BINDING and _BINDING[left] >= _BINDING[right]


def _combine(tests: list[LabelTest], joins: list[Join]) -> None:
    right, left, join = tests.pop(), tests.pop(), joins.pop()
    tests.append(Either(left, right) if join == "or" else Both(left, right, join))


def _single(cursor: Cursor) -> LabelTest:
    if cursor.accept("("):
        cursor.enter()
        inner = parse_test(cursor)
        cursor.leave()
        if cursor.kind != ")":
            raise cursor.unexpected()
        cursor.take()
        return inner
    label = cursor.expect("IDENTIFIER", "(")
    op = cursor.kind
    if op in ("=~", "!~"):
        cursor.take()
        return TextTest(matcher_value(cursor, label, cast(Operator, op)))
    if op not in _COMPARISONS:
        raise cursor.unexpected()
    cursor.take()
    if op in ("=", "!="):
        return _equality(cursor, label, "=" if op == "=" else "!=")
    return _amount(cursor, label, op)


def _equality(cursor: Cursor, label: Lexeme, op: Literal["=", "!="]) -> LabelTest:
    if cursor.kind == "STRING":
        return TextTest(matcher_value(cursor, label, op))
    if cursor.accept("ip"):
        return IpTest(label.text, op, parse_call_string(cursor))
    return _amount(cursor, label, op)


def _amount(cursor: Cursor, label: Lexeme, op: str) -> AmountTest:
    comparison = _COMPARISONS[op]
    if cursor.kind in _UNITS:
        amount = cursor.take()
        return AmountTest(label.text, comparison, int(amount.value), _UNITS[amount.kind], amount.text)
    if cursor.kind not in ("NUMBER", "+", "-"):
        raise cursor.unexpected()
    sign = cursor.take().kind if cursor.kind != "NUMBER" else ""
    number = cursor.expect("NUMBER")
    value = parse_literal(cursor, number)
    return AmountTest(label.text, comparison, -value if sign == "-" else value, "number", sign + number.text)


def parse_literal(cursor: Cursor, number: Lexeme) -> float:
    try:
        return parse_float(number.text)
    except ValueError as error:
        raise cursor.mistake(number.start, f"unable to parse literal as a float: {error}") from None


def parse_call_string(cursor: Cursor) -> str:
    """Parse `("text")`, the arguments of ip."""
    cursor.expect("(")
    value = cursor.expect("STRING").name
    cursor.expect(")")
    return value
