"""Which expressions are the same at every step of a range. A language may evaluate these once, as if at an instant:
their values are no others for that, but some of the notes on them are."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.series.expression import (
    Aggregate,
    Call,
    Expression,
    Given,
    Number,
    Range,
    Selector,
    Subquery,
    Text,
    parts,
)
from lakerunner.series.function import Function


def is_steady(expression: Expression, functions: Mapping[str, Function]) -> bool:
    """Of an expression whose times are numbers."""

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
