"""The tree of an expression over series. Languages build it, series/evaluation/evaluate.py evaluates it.

A node knows its place in the user's text. Times and durations are whole ticks; the language decides how long a tick is
(docs/decisions/0018). What a language cannot turn into ticks before it knows the query's time range stands in the tree
as `Unresolved`; an evaluated tree holds only `int`s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from lakerunner.model.labels.matcher import Matcher


class Kind(StrEnum):
    """The kind of a value. A matrix is a range of samples of each series; only functions take it."""

    SCALAR = "scalar"
    VECTOR = "vector"
    MATRIX = "matrix"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the text: half-open, in characters."""

    start: int = 0
    end: int = 0


NOWHERE = Span()


class Unresolved:
    """A time or duration as the language wrote it, before it is a number. Nothing in series/ looks into it."""

    __slots__ = ()


Duration = int | Unresolved
At = int | Unresolved


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    is_duration: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Text:
    value: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector.

    `name` is the metric's name if it stands before the braces; it is among the matchers as well. `offset` looks back, a
    negative one forward. `extended` is a modifier that makes the selector look beyond its range; Language.reach says
    how far. `totals_only`: of native histograms only count and sum are needed."""

    matchers: tuple[Matcher, ...]
    name: str = ""
    offset: Duration = 0
    at: At | None = None
    extended: str = ""
    span: Span = NOWHERE
    totals_only: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """`selector[range]`: the samples of (t - range, t] at each step. The selector holds offset and `@`."""

    selector: Selector
    range: Duration
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Subquery:
    """`inner[range:step]`. If `step` is None the language's default applies."""

    inner: Expression
    range: Duration
    step: Duration | None = None
    offset: Duration = 0
    at: At | None = None
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Paren:
    inner: Expression
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Unary:
    op: Literal["+", "-"]
    inner: Expression
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Matching:
    """How the series of two vectors are matched.

    `on`: by `labels` only, otherwise by all labels but these. `card`: one-to-one, many-to-one (group_left), one-to-many
    (group_right), many-to-many (set operators). `include`: the labels of group_left/right. `fill_left`, `fill_right`:
    the value of a side that has no series for a series of the other side."""

    card: Literal["one-to-one", "many-to-one", "one-to-many", "many-to-many"] = "one-to-one"
    labels: tuple[str, ...] = ()
    on: bool = False
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operation. `op`: + - * / % ^ atan2 == != < > <= >= and or unless </ >/. `matching` is None unless both
    sides are vectors."""

    op: str
    left: Expression
    right: Expression
    matching: Matching | None = None
    return_bool: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregation. `grouping` keeps the order in which it was written. `parameter` is that of topk, quantile,
    count_values, ..."""

    op: str
    inner: Expression
    parameter: Expression | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Call:
    """A function call. `function` is a name in the language's table of functions."""

    function: str
    arguments: tuple[Expression, ...] = ()
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Given:
    """The value with this number, computed before and elsewhere.

    No language parses to it; series/evaluation/fragments.py puts it where a part of the expression was cut out.
    `steady`: that part is the same at every step of a range."""

    number: int
    kind: Kind = Kind.VECTOR
    steady: bool = False
    span: Span = field(default=NOWHERE)


Expression = Number | Text | Selector | Range | Subquery | Paren | Unary | Binary | Aggregate | Call | Given


def bare(expression: Expression) -> Expression:
    """Strip the parentheses around an expression."""
    while isinstance(expression, Paren):
        expression = expression.inner
    return expression


def parts(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside."""
    match expression:
        case Range(selector):
            return (selector,)
        case Subquery(inner) | Paren(inner) | Unary(_, inner):
            return (inner,)
        case Binary(_, left, right):
            return (left, right)
        case Aggregate(_, inner, parameter):
            return (inner,) if parameter is None else (parameter, inner)
        case Call(_, arguments):
            return arguments
    return ()


def with_parts(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the expression with the expressions directly inside changed, in the order of `parts`. The selector of a
    range stays as it is."""
    match expression:
        case Subquery(inner) | Paren(inner) | Unary(_, inner):
            return replace(expression, inner=change(inner))
        case Binary(_, left, right):
            return replace(expression, left=change(left), right=change(right))
        case Aggregate(_, inner, parameter):
            changed = None if parameter is None else change(parameter)
            return replace(expression, inner=change(inner), parameter=changed)
        case Call(_, arguments):
            return replace(expression, arguments=tuple(map(change, arguments)))
    return expression


def selects(expression: Expression) -> bool:
    """Return whether there is a selector in it."""
    return isinstance(bare(expression), Selector) or any(map(selects, parts(expression)))


def resolved(given: Duration) -> int:
    """Return a time or duration of a tree that is evaluated."""
    if not isinstance(given, int):
        raise TypeError(f"{given} is not resolved")
    return given


_CLASSES: dict[str, type] = {
    one.__name__: one
    for one in (Aggregate, Binary, Call, Matcher, Matching, Number, Paren, Range, Selector, Span, Subquery, Text, Unary)
}


def expression_json(expression: Expression) -> Any:
    """Convert an expression to JSON, for workers in other processes. Spans stay: notes need them."""
    return _to_json(expression)


def expression_from(given: Any) -> Expression:
    """Read back what `expression_json` wrote. Raise ValueError, TypeError or KeyError for anything else."""
    read = _from_json(given)
    if not is_dataclass(read) or isinstance(read, Span | Matcher | Matching):
        raise ValueError(f"{type(read).__name__} is not an expression")
    return read  # type: ignore[return-value]


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, *(_to_json(getattr(value, field.name)) for field in fields(value))]
    if isinstance(value, tuple):
        return ["", *map(_to_json, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}  # JSON has no NaN and no infinities
    if isinstance(value, Kind):
        raise TypeError("a Given never travels")
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"])
    if not isinstance(value, list):
        return value
    name, *members = value
    read = tuple(map(_from_json, members))
    return _CLASSES[name](*read) if name else read
