"""When metric names go from a vector: at once, or at the end of the evaluation (`Evaluator.delayed_names`).

What always holds: `drop_name` marks the series whose name goes. Where names go at once no value of an expression has
such a mark: the name is gone, and two series that are the same without it are an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, value_of, without_name
from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.binary.elementwise import ARITHMETIC
from lakerunner.series.expression import Binary, Call, Expression, Paren, Range, Selector, Subquery, Unary, bare, parts
from lakerunner.series.function import Function
from lakerunner.series.united import SAME_LABELS, merged
from lakerunner.series.values import Vector


def unnamed(vector: Vector) -> Vector:
    """Take the names off that go. Series may be the same then."""
    if not vector.drop_name.any():
        return vector
    labels = [without_name(one) if drop else one for one, drop in zip(vector.labels, vector.drop_name, strict=True)]
    return Vector(labels, vector.values, vector.present, vector.histograms)


def unnamed_series(vector: Vector, *, at_all_steps: bool = False) -> Vector:
    """As `distinct` of `unnamed`, for a vector whose series were distinct by their labels: where all of them have one
    name, or none, they are distinct without it, too, and need not be compared."""
    first = value_of(vector.labels[0], NAME) if len(vector) else ""
    one_metric = vector.drop_name.all() and all(value_of(one, NAME) == first for one in vector.labels)
    return unnamed(vector) if one_metric else distinct(unnamed(vector), at_all_steps=at_all_steps)


def distinct(vector: Vector, *, at_all_steps: bool = False) -> Vector:
    """UserError if two series of the same labels are there at the same step; `at_all_steps`: at any two steps,
    as it is with functions of ranges. Others become one series."""
    if at_all_steps:
        vector = vector.occupied()
        if len(set(vector.labels)) < len(vector):
            raise UserError(SAME_LABELS)
    return merged(vector)


def distinct_series(expression: Expression, vector: Vector, functions: Mapping[str, Function]) -> Vector:
    """What parts of the series gave for an expression of one selector, put together, as if it were evaluated at once:
    only now it shows whether series of different parts are the same without their names."""
    if not may_collide(expression, functions):
        return vector
    call = bare(expression)
    ranged = isinstance(call, Call) and any(isinstance(bare(one), Range | Subquery) for one in call.arguments)
    return distinct(vector, at_all_steps=ranged)


def may_collide(expression: Expression, functions: Mapping[str, Function]) -> bool:
    """Whether series of its one selector may come to have the same labels as their names go. Not where the selector
    names its metric."""
    return _drops_names(expression, functions) and not _names_metric(expression)


def _drops_names(expression: Expression, functions: Mapping[str, Function]) -> bool:
    match expression:
        case Unary("-"):
            return True
        case Binary(op) if op in ARITHMETIC or expression.return_bool:
            return True
        case Call(name) if not functions[name].keeps_name:
            return True
        case Paren() | Unary() | Binary() | Call() | Subquery():
            return any(_drops_names(one, functions) for one in parts(expression))
    return False


def _names_metric(expression: Expression) -> bool:
    node = bare(expression)
    if isinstance(node, Selector):
        return any(_is_name(one) for one in node.matchers)
    return any(map(_names_metric, parts(node)))


def _is_name(matcher: Matcher) -> bool:
    return matcher.name == NAME and matcher.op == "=" and bool(matcher.value)
