"""Times and durations that have a value only when the query's time range and step are known: promql/resolve.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakerunner.series.expression import NOWHERE, Span, Unresolved


@dataclass(frozen=True, slots=True)
class DurationTerm(Unresolved):
    """An operand or operation of a duration expression. `op`: number (value in seconds, as a query counts),
    `+ - * / % ^` of two or one operands, step, range, min_of, max_of, paren."""

    op: str
    operands: tuple[DurationTerm, ...] = ()
    value: float = 0.0
    is_duration: bool = False  # a number that was written with a unit
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class EdgeOfRange(Unresolved):
    """The time after `@` in `@ start()` and `@ end()`."""

    name: Literal["start", "end"]


def term_of(duration: Unresolved) -> DurationTerm:
    """The only thing a duration of PromQL can be that is not a number."""
    if not isinstance(duration, DurationTerm):
        raise TypeError(f"{duration} is not a duration")
    return duration


def edge_of(at: Unresolved) -> EdgeOfRange:
    """The only thing a time after `@` can be that is not a number."""
    if not isinstance(at, EdgeOfRange):
        raise TypeError(f"{at} is not a time")
    return at
