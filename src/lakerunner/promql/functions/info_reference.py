"""The moment that a vector's samples are of: where info() looks for info series.

An expression whose selectors all have the same `@` and offset is about that moment. One that has several of them, or a
part without any selector, is about the moment of its evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.series.expression import Call, Expression, Kind, Selector, Subquery, parts

KindOf = Callable[[Expression], Kind]


@dataclass(frozen=True)
class _Reference:
    """As `Selector` has it, with what the subqueries around it say."""

    at: int | None
    offset: int

    def same_as(self, other: _Reference) -> bool:
        if self.at is None or other.at is None:
            return self == other
        return self.at - self.offset == other.at - other.offset


def shared_reference(expression: Expression, kind: KindOf) -> tuple[int | None, int]:
    """`@` (ms, None: the step's own time) and offset (ms)."""
    references = _references(expression, kind, ())
    first = references[0]
    if first is None or any(one is None or not first.same_as(one) for one in references):
        return None, 0
    return first.at, first.offset


def _references(expression: Expression, kind: KindOf, around: tuple[Subquery, ...]) -> list[_Reference | None]:
    """Of all parts that make vectors, the first first; None for a part without a selector."""
    if isinstance(expression, Selector):
        return [_reference(expression, around)]
    if isinstance(expression, Subquery):
        around = (*around, expression)
    inside = parts(expression)
    if isinstance(expression, Call) and expression.function == "info":
        inside = inside[:1]  # the second is written like a selector, but it is none
    found = [
        reference
        for part in inside
        if kind(part) in (Kind.VECTOR, Kind.MATRIX)
        for reference in _references(part, kind, around)
    ]
    return found or [None]


def _reference(selector: Selector, around: tuple[Subquery, ...]) -> _Reference:
    """Offsets add up outwards, until an `@` says the moment itself."""
    at, offset = _number(selector.at), _number(selector.offset) or 0
    for subquery in reversed(around):
        if at is not None:
            break
        at, offset = _number(subquery.at), offset + (_number(subquery.offset) or 0)
    return _Reference(at, offset)


def _number(given: object) -> int | None:
    if given is not None and not isinstance(given, int):
        raise TypeError(f"{given} is not resolved")
    return given
