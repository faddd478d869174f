"""An expression over several lines: what is longer than a line is split at its outermost operation, what is inside
indented. The lines are Prometheus' own, by the letter."""

from __future__ import annotations

from lakerunner.promql.printer import aggregation_text, expression_text, operator_text, subquery_suffix
from lakerunner.series.expression import Aggregate, Binary, Call, Expression, Paren, Subquery, Unary

_LINE = 100  # bytes


def pretty_text(expression: Expression) -> str:
    return _pretty(expression, 0)


def _pretty(node: Expression, level: int) -> str:
    text = expression_text(node)
    margin = "  " * level
    if isinstance(node, Unary):
        return f"{margin}{node.op}{_pretty(node.inner, level).strip()}"
    if isinstance(node, Subquery):
        short = len(text.encode(errors="surrogateescape")) <= _LINE
        return text if short else f"{_pretty(node.inner, level)}{subquery_suffix(node)}"
    if len(text.encode(errors="surrogateescape")) <= _LINE:
        return margin + text
    match node:
        case Aggregate(_, inner, parameter):
            before = f"{_pretty(parameter, level + 1)},\n" if parameter is not None else ""
            return f"{margin}{aggregation_text(node)}(\n{before}{_pretty(inner, level + 1)}\n{margin})"
        case Binary(_, left, right):
            return f"{_pretty(left, level + 1)}\n{margin}{operator_text(node)}\n{_pretty(right, level + 1)}"
        case Call(function, arguments):
            inside = ",\n".join(_pretty(argument, level + 1) for argument in arguments)
            return f"{margin}{function}(\n{inside}\n{margin})"
        case Paren(inner):
            return f"{margin}(\n{_pretty(inner, level + 1)}\n{margin})"
    return margin + text
