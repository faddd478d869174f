"""Parse expressions: metric queries with their functions and operators, and log queries where they stand alone.

Comes in: a cursor. Goes out: the tree; operations of two numbers are computed here, as Loki does it. What always holds:
what the text means wrongly is noted with the cursor, not raised, and the tree goes on with a number in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from lakerunner.logql.text.aggregation_check import check_range_aggregation, check_vector_aggregation
from lakerunner.logql.text.amounts import parse_float
from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.lexer import RANGE_OPERATIONS, VECTOR_OPERATIONS, Lexeme
from lakerunner.logql.text.log_parse import parse_log_query, parse_log_range
from lakerunner.logql.text.syntax import (
    Constant,
    Grouping,
    LabelReplace,
    Metric,
    Operation,
    Pipeline,
    Query,
    RangeAggregation,
    VectorAggregation,
    VectorLiteral,
)
from lakerunner.model.errors import UserError
from lakerunner.model.regex import compile_capturing
from lakerunner.series.expression import Matching, Span

BINDING = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3}
BINDING |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "^": 6}
_SETS = ("or", "and", "unless")
_FOLDED: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right if right else math.nan,
    "%": lambda left, right: math.fmod(left, right) if right and math.isfinite(left) else math.nan,
    "^": lambda left, right: _power(left, right),
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
    ">": lambda left, right: float(left > right),
    ">=": lambda left, right: float(left >= right),
    "<": lambda left, right: float(left < right),
    "<=": lambda left, right: float(left <= right),
}


@dataclass(frozen=True, slots=True)
class _Operator:
    op: str
    matching: Matching | None
    return_bool: bool

    def binds_before(self, other: str) -> bool:
        """Return whether this operator takes its right side before the one that follows."""
        own, its = BINDING[self.op], BINDING[other]
        return own > its or (own == its and self.op != "^")


def parse_expression(cursor: Cursor, first: Query | None = None) -> Query:
    """Parse up to what cannot continue an expression. `first` is an operand that was read already. A stack instead of
    recursion: chains of operators may be long."""
    operands = [first or _operand(cursor)]
    operators: list[_Operator] = []
    while (op := cursor.kind) in BINDING:
        while operators and operators[-1].binds_before(op):
            _combine(cursor, operands, operators.pop())
        cursor.take()
        operators.append(_operator(cursor, op))
        operands.append(_operand(cursor))
    while operators:
        _combine(cursor, operands, operators.pop())
    return operands[0]


def _metric(cursor: Cursor, found: Query) -> Metric:
    """Return an argument that was just read; refuse a log query."""
    if isinstance(found, Pipeline):
        raise cursor.unexpected()
    return found


def _operand(cursor: Cursor) -> Query:
    lexeme = cursor.peek()
    if lexeme.kind == "{":
        return parse_log_query(cursor)
    if lexeme.kind == "NUMBER":
        return _number(cursor, cursor.take(), "")
    if lexeme.kind in ("+", "-"):
        cursor.take()
        return _number(cursor, cursor.expect("NUMBER"), lexeme.kind, lexeme.start)
    cursor.enter()
    found: Query
    if lexeme.kind in _FUNCTIONS:
        found = _FUNCTIONS[lexeme.kind](cursor)
    elif cursor.accept("("):
        found = parse_expression(cursor)
        if not cursor.accept(")"):
            raise cursor.unexpected()
    else:
        raise cursor.unexpected()
    cursor.leave()
    return found


def _number(cursor: Cursor, number: Lexeme, sign: str, start: int | None = None) -> Constant:
    start = number.start if start is None else start
    try:
        value = parse_float(number.text)
    except ValueError as error:
        cursor.fault(start, f"unable to parse literal as a float: {error}")
        value = math.nan
    return Constant(-value if sign == "-" else value, cursor.span(start))


# ---- operators


def _operator(cursor: Cursor, op: str) -> _Operator:
    """Parse what may follow an operator: bool, on or ignoring, group_left or group_right."""
    return_bool = cursor.accept("bool") is not None
    if cursor.kind not in ("on", "ignoring"):
        return _Operator(op, None, return_bool)
    on = cursor.take().kind == "on"
    labels = _labels(cursor)
    if cursor.kind not in ("group_left", "group_right"):
        return _Operator(op, Matching("one-to-one", labels, on), return_bool)
    is_left = cursor.take().kind == "group_left"
    include = _labels(cursor) if cursor.kind == "(" else ()
    matching = Matching("many-to-one" if is_left else "one-to-many", labels, on, include)
    return _Operator(op, matching, return_bool)


def _combine(cursor: Cursor, operands: list[Query], operator: _Operator) -> None:
    right, left = operands.pop(), operands.pop()
    span = Span(left.span.start, right.span.end)
    message = _operand_fault(operator.op, left, right)
    if message:
        cursor.fault(span.start, message)
        operands.append(Constant(math.nan, span))
    elif isinstance(left, Constant) and isinstance(right, Constant):
        operands.append(Constant(_FOLDED[operator.op](left.value, right.value), span))
    else:
        sides = cast(Metric, left), cast(Metric, right)
        operands.append(Operation(operator.op, *sides, operator.matching, operator.return_bool, span))


def _power(left: float, right: float) -> float:
    with np.errstate(all="ignore"):  # infinities are what Go answers too
        return float(np.power(left, right))


def _operand_fault(op: str, left: Query, right: Query) -> str:
    """Return what is wrong with the operands, "" if nothing is."""
    for side, operand in (("left", left), ("right", right)):
        if isinstance(operand, Pipeline):
            kind = "PipelineExpr" if operand.stages else "MatchersExpr"
            return f"unexpected type for {side} leg of binary operation ({op}): *syntax.{kind}"
    if op in _SETS:
        for side, operand in (("left", left), ("right", right)):
            if isinstance(operand, Constant):
                return f"unexpected literal for {side} leg of logical/set binary operation ({op}): {operand.value:f}"
    return ""


# ---- functions


def _range_aggregation(cursor: Cursor) -> RangeAggregation:
    function = cursor.take()
    cursor.expect("(")
    written = None
    if number := cursor.accept("NUMBER"):
        written = number.text
        cursor.expect(",")
    elif cursor.kind not in ("{", "("):
        raise cursor.unexpected("NUMBER", "{", "(")
    lines = parse_log_range(cursor)
    cursor.expect(")")
    grouping = _grouping(cursor)
    parameter, message = check_range_aggregation(function.name, written, lines, grouping)
    if message:
        cursor.fault(function.start, message)
    return RangeAggregation(function.name, lines, parameter, grouping, cursor.span(function.start))


def _vector_aggregation(cursor: Cursor) -> VectorAggregation:
    function = cursor.take()
    if cursor.kind not in ("(", "by", "without"):
        raise cursor.unexpected("(", "by", "without")
    grouping = _grouping(cursor)
    cursor.expect("(")
    written, first = None, None
    if number := cursor.accept("NUMBER"):
        if cursor.accept(","):
            written = number.text
        else:
            first = _number(cursor, number, "")
    inner = _metric(cursor, parse_expression(cursor, first))
    if not cursor.accept(")"):
        raise cursor.unexpected()
    grouping = grouping or _grouping(cursor)
    parameter, message = check_vector_aggregation(function.name, written, grouping)
    if message:
        cursor.fault(function.start, message)
    return VectorAggregation(function.name, inner, parameter, grouping, cursor.span(function.start))


def _grouping(cursor: Cursor) -> Grouping | None:
    if cursor.kind not in ("by", "without"):
        return None
    without = cursor.take().kind == "without"
    return Grouping(_labels(cursor), without)


def _labels(cursor: Cursor) -> tuple[str, ...]:
    """Parse `(a, b)`, which may be empty."""
    cursor.expect("(")
    if cursor.accept(")"):
        return ()
    if cursor.kind != "IDENTIFIER":
        raise cursor.unexpected("IDENTIFIER", ")")
    found = [cursor.take().text]
    while not cursor.accept(")"):
        cursor.expect(",", ")")
        found.append(cursor.expect("IDENTIFIER").text)
    return tuple(found)


def _label_replace(cursor: Cursor) -> LabelReplace:
    function = cursor.take()
    cursor.expect("(")
    inner = _metric(cursor, parse_expression(cursor))
    if cursor.kind != ",":
        raise cursor.unexpected()
    texts = []
    for _ in range(4):
        cursor.expect(",")
        texts.append(cursor.expect("STRING").name)
    cursor.expect(")")
    target, replacement, source, pattern = texts
    try:
        compile_capturing(pattern)
    except UserError as error:
        reason = error.message.replace("`^(?s:", "`^(?:")  # Loki compiles it so, and shows what it compiles
        cursor.fault(function.start, f"invalid regex in label_replace: {reason}")
    return LabelReplace(inner, target, replacement, source, pattern, cursor.span(function.start))


def _vector(cursor: Cursor) -> VectorLiteral:
    function = cursor.take()
    cursor.expect("(")
    number = cursor.expect("NUMBER")
    cursor.expect(")")
    try:
        value = parse_float(number.text)
    except ValueError as error:
        cursor.fault(function.start, f"unable to parse vectorExpr as a float: {error}")
        value = math.nan
    return VectorLiteral(value, cursor.span(function.start))


_FUNCTIONS: dict[str, Callable[[Cursor], Query]] = {
    **{name.upper(): _range_aggregation for name in RANGE_OPERATIONS},
    **{name.upper(): _vector_aggregation for name in VECTOR_OPERATIONS},
    "label_replace": _label_replace,
    "VECTOR": _vector,
}
