"""What a function of a language is: how it may be called, what it does, and whether each series is a matter of its
own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.arrays import Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import Call, Expression, Kind, Selector
from lakerunner.series.notes import Notes
from lakerunner.series.rolled import FromWindows
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector


class Source(Protocol):
    """Where samples come from."""

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        """The samples with start < time <= end of all series that meet the matchers, sorted by labels; series
        without such a sample may be there, empty."""


class Evaluation(Protocol):
    """What a function may ask for beyond its arguments."""

    @property
    def notes(self) -> Notes: ...

    @property
    def source(self) -> Source: ...

    @property
    def lookback(self) -> int:
        """How far an instant selector looks back."""

    @property
    def bounds(self) -> Bounds:
        """What a value may hold."""

    @property
    def delayed_names(self) -> bool:
        """Whether names go when the evaluation ends, not at once."""

    def evaluate(self, expression: Expression, steps: Steps) -> Value: ...

    def kind(self, expression: Expression) -> Kind: ...

    def is_steady(self, expression: Expression) -> bool:
        """Whether it is the same at every step of a range."""

    def times_of(self, selector: Selector, steps: Steps) -> tuple[Samples, Ints]:
        """The samples of an instant selector, and which of them counts at each step: -1 for none."""


@dataclass(frozen=True)
class Called:
    """One call, as its function sees it. `arguments` are evaluated; a MATRIX is a `Windows`. `call` has the arguments'
    expressions, for what depends on how they were written, and the spans for notes."""

    call: Call
    arguments: tuple[Value, ...]
    steps: Steps
    evaluation: Evaluation

    @property
    def notes(self) -> Notes:
        return self.evaluation.notes


@dataclass(frozen=True)
class Function:
    """`arguments` are their kinds; the last `optional` ones may be missing; -1: the last may also come any number of
    times. `keeps_name`: series keep their metric name (or the function sees to `drop_name` itself); otherwise it is
    marked to be dropped. `per_series`: what comes of a series depends on that series alone, so that parts of the series
    can be worked out apart. `of_sample`: of a plain selector it is given no argument, but looks at the samples
    themselves (Evaluation.times_of). `extended`: the modifiers that it allows the selector of its range.
    `reads_expression`: it looks at how its arguments are written (Called.call), so that these stay as they are. `lazy`:
    it is given no arguments, but evaluates of Called.call what it needs. `windows`: how rollups give the same value;
    None: they do not. `makes_histograms`: of numbers, so that its values take more memory than its samples say.
    `steady`: whether a call is the same at every step of a range, given what decides that for other expressions; None:
    if its arguments are."""

    name: str
    arguments: tuple[Kind, ...]
    returns: Kind
    evaluate: Callable[[Called], Vector | Scalar | String]
    optional: int = 0
    keeps_name: bool = False
    per_series: bool = True
    experimental: bool = False
    of_sample: bool = False
    reads_expression: bool = False
    lazy: bool = False
    extended: tuple[str, ...] = ()
    windows: FromWindows | None = None
    makes_histograms: bool = False
    steady: Callable[[Call, Callable[[Expression], bool]], bool] | None = None
