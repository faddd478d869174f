"""The contract of a language's functions: signature, evaluation, and whether each series can be computed alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.arrays import Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Given,
    Kind,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Text,
    Unary,
    parts,
)
from lakerunner.series.notes import Notes
from lakerunner.series.rollups import FromBuckets
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector


class Source(Protocol):
    """Gives the samples that selectors ask for."""

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        """Return the samples with start < time <= end of all series that meet the matchers, sorted by labels. Series
        without such a sample may be included, empty."""


class Evaluation(Protocol):
    """What a function may use beyond its arguments."""

    @property
    def notes(self) -> Notes: ...

    @property
    def source(self) -> Source: ...

    @property
    def lookback(self) -> int:
        """Return how far an instant selector looks back."""

    @property
    def bounds(self) -> Bounds:
        """Return the limits of what a value may hold."""

    @property
    def delayed_names(self) -> bool:
        """Return whether metric names are removed when the evaluation ends instead of at once."""

    def evaluate(self, expression: Expression, steps: Steps) -> Value: ...

    def kind(self, expression: Expression) -> Kind: ...

    def is_steady(self, expression: Expression) -> bool:
        """Return whether the expression is the same at every step of a range."""

    def times_of(self, selector: Selector, steps: Steps) -> tuple[Samples, Ints]:
        """Return the samples of an instant selector, and the index of the one that counts at each step, -1 for none."""


@dataclass(frozen=True)
class Invocation:
    """One call as its function sees it. `arguments` are evaluated; a MATRIX is a `Windows`. `call` has the arguments'
    expressions, for functions that depend on how they are written, and the spans for notes."""

    call: Call
    arguments: tuple[Value, ...]
    steps: Steps
    evaluation: Evaluation

    @property
    def notes(self) -> Notes:
        return self.evaluation.notes


@dataclass(frozen=True)
class Function:
    """A row of a language's table of functions.

    `arguments` are the kinds of the arguments. The last `optional` ones may be missing; -1: the last one may also be
    repeated any number of times. `keeps_name`: series keep their metric name (or the function sets `drop_name` itself);
    otherwise the name is marked to be dropped. `per_series`: the result of a series depends on that series only, so
    that workers can each compute some of the series. `of_sample`: called with a plain selector it gets no argument but
    looks at the samples themselves (Evaluation.times_of). `extended`: the modifiers that it allows on the selector of
    its range. `reads_expression`: it looks at how its arguments are written (Invocation.call), so that these must not
    be cut out. `lazy`: it gets no arguments and evaluates what it needs of Invocation.call. `from_buckets`: how rollups
    give the same value, None if they cannot. `makes_histograms`: it turns numbers into histograms, whose memory the
    number of samples does not show. `steady`: decides whether a call is the same at every step of a range, given the
    function that decides it for other expressions; None: it is if its arguments are."""

    name: str
    arguments: tuple[Kind, ...]
    returns: Kind
    evaluate: Callable[[Invocation], Vector | Scalar | String]
    optional: int = 0
    keeps_name: bool = False
    per_series: bool = True
    experimental: bool = False
    of_sample: bool = False
    reads_expression: bool = False
    lazy: bool = False
    extended: tuple[str, ...] = ()
    from_buckets: FromBuckets | None = None
    makes_histograms: bool = False
    steady: Callable[[Call, Callable[[Expression], bool]], bool] | None = None


def is_steady(expression: Expression, functions: Mapping[str, Function]) -> bool:
    """Return whether an expression (with resolved times) is the same at every step of a range. A language may evaluate
    it once, as an instant: the values are the same, but some notes differ."""

    def steady(part: Expression) -> bool:
        return is_steady(part, functions)

    match expression:
        case Number() | Text():
            return True
        case Given():
            return expression.steady
        case Selector(at=at) | Range(Selector(at=at)) | Subquery(at=at):
            return at is not None
        case Aggregate(_, inner):
            return steady(inner)
        case Call(name) if (own := functions[name].steady) is not None:
            return own(expression, steady)
    return all(map(steady, parts(expression)))


def kind_of(expression: Expression, functions: Mapping[str, Function]) -> Kind:
    """Return the kind of the expression's value."""
    match expression:
        case Number():
            return Kind.SCALAR
        case Text():
            return Kind.STRING
        case Range() | Subquery():
            return Kind.MATRIX
        case Paren(inner) | Unary(_, inner):
            return kind_of(inner, functions)
        case Given(_, kind):
            return kind
        case Call(name):
            return functions[name].returns
        case Binary(_, left, right):
            kinds = {kind_of(left, functions), kind_of(right, functions)}
            return Kind.SCALAR if kinds == {Kind.SCALAR} else Kind.VECTOR
    return Kind.VECTOR
