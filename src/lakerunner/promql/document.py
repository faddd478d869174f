"""Convert an expression to JSON, as Prometheus' /api/v1/parse_query does. Times are ms; numbers that may be NaN or
infinite are text."""

from __future__ import annotations

import math
from typing import Any

from lakerunner.promql.cursor import replace_invalid
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.resolve import DurationTerm, edge_of, term_of
from lakerunner.series.expression import (
    Aggregate,
    At,
    Binary,
    Call,
    Duration,
    Expression,
    Given,
    Matching,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Text,
    Unary,
)
from lakerunner.series.function import Function
from lakerunner.series.numerals import scalar_text

Document = dict[str, Any]


def document(expression: Expression) -> Document:
    match expression:
        case Number(value):
            return {"type": "numberLiteral", "val": scalar_text(value)}
        case Text(value):
            return {"type": "stringLiteral", "val": replace_invalid(value)}
        case Selector():
            return {"type": "vectorSelector"} | _selector(expression)
        case Range(selector, length):
            return {"type": "matrixSelector"} | _duration("range", length) | _selector(selector)
        case Subquery(inner):
            return (
                {"type": "subquery", "expr": document(inner)}
                | _duration("range", expression.range)
                | _duration("step", expression.step or 0)
                | _duration("offset", expression.offset)
                | _at(expression.at)
            )
        case Paren(inner):
            return {"type": "parenExpr", "expr": document(inner)}
        case Unary(op, inner):
            return {"type": "unaryExpr", "op": op, "expr": document(inner)}
        case Binary():
            return {
                "type": "binaryExpr",
                "op": expression.op,
                "lhs": document(expression.left),
                "rhs": document(expression.right),
                "matching": None if expression.matching is None else _matching(expression.matching),
                "bool": expression.return_bool,
            }
        case Aggregate(op, inner, parameter):
            return {
                "type": "aggregation",
                "op": op,
                "expr": document(inner),
                "param": None if parameter is None else document(parameter),
                "grouping": list(expression.grouping),
                "without": expression.without,
            }
        case Call(name, arguments):
            inside = [document(argument) for argument in arguments]
            return {"type": "call", "func": _function(FUNCTIONS[name]), "args": inside}
        case Given():
            raise ValueError("a Given has no form in JSON")


def _selector(node: Selector) -> Document:
    matchers = [{"name": one.name, "value": one.value, "type": one.op} for one in node.matchers]
    found: Document = {"name": node.name, "matchers": matchers}
    found |= _duration("offset", node.offset) | _at(node.at)
    return found | {"anchored": node.extended == "anchored", "smoothed": node.extended == "smoothed"}


def _duration(name: str, duration: Duration) -> Document:
    if isinstance(duration, int):
        return {name: duration, f"{name}Expr": None}
    return {name: 0, f"{name}Expr": _term(term_of(duration))}


def _at(at: At | None) -> Document:
    if at is None or isinstance(at, int):
        return {"timestamp": at, "startOrEnd": None}
    return {"timestamp": None, "startOrEnd": edge_of(at).name}


def _matching(matching: Matching) -> Document:
    return {
        "card": matching.card,
        "labels": list(matching.labels),
        "on": matching.on,
        "include": list(matching.include),
        "fillValues": {"lhs": _number(matching.fill_left), "rhs": _number(matching.fill_right)},
    }


def _number(value: float | None) -> float | str | None:
    """Return the value, as text if it is NaN or infinite. Prometheus fails there, since JSON has no such number."""
    return value if value is None or math.isfinite(value) else scalar_text(value)


def _function(function: Function) -> Document:
    """Describe a function. Prometheus lists an argument that may be repeated once."""
    named = function.arguments[: len(function.arguments) - max(function.optional - 1, 0)]
    return {
        "name": function.name,
        "argTypes": [str(kind) for kind in named],
        "variadic": function.optional,
        "returnType": str(function.returns),
    }


def _term(term: DurationTerm) -> Document:
    """Describe a duration term. Prometheus has no term for parentheses: they are a flag of the inner term, and a number
    in them becomes one with a plus."""
    if term.op == "number":
        return {"type": "numberLiteral", "val": scalar_text(term.value), "duration": term.is_duration}
    if term.op == "paren":
        inner = term.operands[0]
        return (_operation("+", (inner,)) if inner.op == "number" else _term(inner)) | {"wrapped": True}
    return _operation(term.op, term.operands)


def _operation(op: str, operands: tuple[DurationTerm, ...]) -> Document:
    sides = [None] * (2 - len(operands)) + [_term(operand) for operand in operands]
    return {"type": "durationExpr", "op": op, "lhs": sides[0], "rhs": sides[1], "wrapped": False}
