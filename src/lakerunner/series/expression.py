"""The tree of an expression over series. Languages make it, series/evaluation/evaluate.py gives it its meaning.

A node knows where it stands in the user's text. Times and durations are whole ticks; how long a tick is, the language
decides (docs/decisions/0018). What a language cannot turn into ticks before it knows the query's time range stands in
the tree as `Unresolved`; what is evaluated holds `int`s alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from lakerunner.model.labels.matcher import Matcher


class Kind(StrEnum):
    """Of a value. A matrix is a range of samples of each series, and only functions take it."""

    SCALAR = "scalar"
    VECTOR = "vector"
    MATRIX = "matrix"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open, characters of the text."""

    start: int = 0
    end: int = 0


NOWHERE = Span()


class Unresolved:
    """A time or duration as a language wrote it, before it is a number. Nothing in series/ looks into it."""

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
    """An instant vector selector. `name` is the metric's name where it stands before the braces; it is among the
    matchers as well. `offset` looks back; negative: forward. `extended` is a modifier by which it looks beyond its
    range: the language says how (Language.reach). `totals_only`: of native histograms no more than count and sum is
    wanted."""

    matchers: tuple[Matcher, ...]
    name: str = ""
    offset: Duration = 0
    at: At | None = None
    extended: str = ""
    span: Span = NOWHERE
    totals_only: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """`selector[range]`: for each step the samples of (t - range, t]. Offset and at are the selector's."""

    selector: Selector
    range: Duration
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Subquery:
    """`inner[range:step]`. `step` None: the language's default."""

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
    """How two vectors are matched. `on`: by `labels` alone, otherwise by all but these. `card`: one-to-one, many-to-one
    (group_left), one-to-many (group_right), many-to-many (set operators). `include`: the labels of group_left/right.
    `fill_left`, `fill_right`: the value of a side that has no series for the other's."""

    card: Literal["one-to-one", "many-to-one", "one-to-many", "many-to-many"] = "one-to-one"
    labels: tuple[str, ...] = ()
    on: bool = False
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    """`op`: + - * / % ^ atan2 == != < > <= >= and or unless </ >/. `matching` is None unless both sides are vectors."""

    op: str
    left: Expression
    right: Expression
    matching: Matching | None = None
    return_bool: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`grouping` in the order it was written. `parameter` of topk, quantile, count_values, ..."""

    op: str
    inner: Expression
    parameter: Expression | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Call:
    """`function` is a name in the language's table of functions."""

    function: str
    arguments: tuple[Expression, ...] = ()
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Given:
    """What was worked out before, elsewhere: the value of this number. No language has it;
    series/evaluation/fragments.py puts it where a part of the expression was cut out. `steady`: that part is the same
    at every step of a range."""

    number: int
    kind: Kind = Kind.VECTOR
    steady: bool = False
    span: Span = field(default=NOWHERE)


Expression = Number | Text | Selector | Range | Subquery | Paren | Unary | Binary | Aggregate | Call | Given


def bare(expression: Expression) -> Expression:
    """Without the parentheses around it."""
    while isinstance(expression, Paren):
        expression = expression.inner
    return expression


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside."""
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
