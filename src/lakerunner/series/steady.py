"""Which expressions are the same at every step of a range. Prometheus evaluates these once, as if at an instant; their
values are no others for that, but some of what is said about them is."""

from __future__ import annotations

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
    bare,
    parts,
)

# Of the functions there are: what these give depends on the step, however fixed their arguments are.
_OF_THE_STEP = frozenset(
    {"days_in_month", "day_of_month", "day_of_week", "day_of_year", "hour", "minute", "month", "year", "time"}
    | {"predict_linear", "timestamp"}
)


def is_steady(expression: Expression) -> bool:
    """Of an expression whose times are numbers."""
    match expression:
        case Number() | Text():
            return True
        case Given():
            return expression.steady
        case Selector(at=at) | Range(Selector(at=at)) | Subquery(at=at):
            return at is not None
        case Aggregate(_, inner):
            return is_steady(inner)
        case Call("timestamp", (of,)) if isinstance(bare(of), Selector):
            return is_steady(of)
        case Call("info", (of, *_)):  # its other argument is written like a selector, but it is none
            return is_steady(of) and len(_moments(of)) == 1
        case Call(name) if name in _OF_THE_STEP:
            return False
    return all(map(is_steady, parts(expression)))


def _moments(expression: Expression) -> set[object]:
    """That selectors look at."""
    if isinstance(expression, Selector):
        return {(expression.at, expression.offset)}
    return {moment for part in parts(expression) for moment in _moments(part)}
