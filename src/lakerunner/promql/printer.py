"""Print an expression as Prometheus does: on one line that parses to the same expression, or over several lines."""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.display import go_quote
from lakerunner.model.labels import NAME, is_plain_label
from lakerunner.model.labels.matcher import Matcher
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
from lakerunner.series.numerals import number_text, scalar_text

_YEAR, _WEEK = 31_536_000_000, 604_800_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def expression_text(expression: Expression) -> str:
    match expression:
        case Number():
            return literal_text(expression.value, expression.is_duration)
        case Text(value):
            return go_quote(value)
        case Selector():
            extended = f" {expression.extended}" if expression.extended else ""
            return f"{_series(expression)}{_at(expression.at)}{extended}{_offset(expression.offset)}"
        case Range(selector, length):
            extended = f" {selector.extended}" if selector.extended else ""
            behind = f"{extended}{_at(selector.at)}{_offset(selector.offset)}"
            return f"{_series(selector)}[{duration_text(length)}]{behind}"
        case Subquery(inner):
            return f"{expression_text(inner)}{subquery_suffix(expression)}"
        case Paren(inner):
            return f"({expression_text(inner)})"
        case Unary(op, inner):
            return f"{op}{expression_text(inner)}"
        case Binary(_, left, right):
            return f"{expression_text(left)} {operator_text(expression)} {expression_text(right)}"
        case Aggregate(_, inner, parameter):
            before = f"{expression_text(parameter)}, " if parameter is not None else ""
            return f"{aggregation_text(expression)}({before}{expression_text(inner)})"
        case Call(function, arguments):
            return f"{function}({', '.join(map(expression_text, arguments))})"
        case Given(number):
            return f"<given {number}>"


def literal_text(value: float, is_duration: bool) -> str:
    if not is_duration:
        return scalar_text(value)
    return f"{'-' if value < 0 else ''}{_milliseconds_text(int(abs(value) * 1e9) // 1_000_000)}"


def duration_text(duration: Duration) -> str:
    return _milliseconds_text(duration) if isinstance(duration, int) else _term(term_of(duration))


def subquery_suffix(node: Subquery) -> str:
    step = "" if node.step is None else duration_text(node.step)
    return f"[{duration_text(node.range)}:{step}]{_at(node.at)}{_offset(node.offset)}"


def operator_text(node: Binary) -> str:
    """Return the operator followed by bool, on/ignoring, group_left/right and fill."""
    return f"{node.op}{' bool' if node.return_bool else ''}{_matching(node.matching)}"


def aggregation_text(node: Aggregate) -> str:
    """Return the aggregation up to its opening parenthesis."""
    if node.without:
        return f"{node.op} without ({_labels(node.grouping)}) "
    return f"{node.op} by ({_labels(node.grouping)}) " if node.grouping else node.op


def _series(node: Selector) -> str:
    own = Matcher(NAME, "=", node.name) if node.name else None
    others = (one for one in node.matchers if one != own)
    shown = sorted(f"{_label(one.name)}{one.op}{go_quote(one.value)}" for one in others)
    return f"{node.name}{{{','.join(shown)}}}" if shown else node.name


def _label(name: str) -> str:
    return name if is_plain_label(name) else go_quote(name)


def _labels(names: Iterable[str]) -> str:
    return ", ".join(map(_label, names))


def _at(at: At | None) -> str:
    if at is None:
        return ""
    return f" @ {at / 1000:.3f}" if isinstance(at, int) else f" @ {edge_of(at).name}()"


def _offset(offset: Duration) -> str:
    if offset == 0:
        return ""
    if isinstance(offset, int) and offset < 0:
        return f" offset -{_milliseconds_text(-offset)}"
    return f" offset {duration_text(offset)}"


def _matching(matching: Matching | None) -> str:
    if matching is None:
        return ""
    text = ""
    grouped = matching.card in ("many-to-one", "one-to-many")
    if matching.labels or matching.on or grouped:
        text += f" {'on' if matching.on else 'ignoring'} ({_labels(matching.labels)})"
    if grouped:
        text += f" group_{'left' if matching.card == 'many-to-one' else 'right'} ({_labels(matching.include)})"
    left, right = matching.fill_left, matching.fill_right
    if left is not None and left == right:
        return f"{text} fill ({number_text(left)})"
    text += f" fill_left ({number_text(left)})" if left is not None else ""
    return text + (f" fill_right ({number_text(right)})" if right is not None else "")


def _term(term: DurationTerm) -> str:
    inside = [_term(operand) for operand in term.operands]
    match term.op, inside:
        case "number", _:
            return literal_text(term.value, term.is_duration)
        case (("step" | "range" | "min_of" | "max_of"), _):
            return f"{term.op}({', '.join(inside)})"
        case "paren", [inner]:
            return f"({inner})"
        case "-", [inner]:
            return f"-{inner}"
        case "+", [inner]:
            return inner
    return f"{inside[0]} {term.op} {inside[1]}"


def _milliseconds_text(ms: int) -> str:
    """Write a duration. Years and weeks are used only if they leave no rest, as Prometheus does: 90d is easier to read
    than 12w6d."""
    text = ""
    for unit, size in (("y", _YEAR), ("w", _WEEK)):
        if ms % size == 0 and ms:
            text += f"{ms // size}{unit}"
            ms = 0
    for unit, size in _UNITS:
        text += f"{ms // size}{unit}" if ms >= size else ""
        ms %= size
    return text or "0s"


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
