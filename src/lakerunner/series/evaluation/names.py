"""Remove metric names from a vector, at once or at the end of the evaluation (`Evaluator.delayed_names`).

What always holds: `drop_name` marks the series whose name is to be removed. If names are removed at once no value of an
expression has such a mark, and two series that are the same without their names are an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, value_of, without_name
from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.binary.elementwise import ARITHMETIC
from lakerunner.series.expression import Binary, Call, Expression, Paren, Range, Selector, Subquery, Unary, bare, parts
from lakerunner.series.function import Function
from lakerunner.series.values import SAME_LABELS, Vector, merge_same_labels


def drop_names(vector: Vector) -> Vector:
    """Remove the names of the marked series. Series may have the same labels afterwards."""
    if not vector.drop_name.any():
        return vector
    labels = [without_name(one) if drop else one for one, drop in zip(vector.labels, vector.drop_name, strict=True)]
    return Vector(labels, vector.values, vector.present, vector.histograms)


def drop_names_of_distinct(vector: Vector, *, at_all_steps: bool = False) -> Vector:
    """Remove names and merge, for a vector whose series are distinct by their labels: if all of them have one name, or
    none has a name, they stay distinct and need not be compared."""
    first = value_of(vector.labels[0], NAME) if len(vector) else ""
    one_metric = vector.drop_name.all() and all(value_of(one, NAME) == first for one in vector.labels)
    return drop_names(vector) if one_metric else merge_distinct(drop_names(vector), at_all_steps=at_all_steps)


def merge_distinct(vector: Vector, *, at_all_steps: bool = False) -> Vector:
    """Merge series of the same labels that take turns. Raise UserError if two are present at the same step, or, with
    `at_all_steps` (functions of ranges), at any steps."""
    if at_all_steps:
        vector = vector.occupied()
        if len(set(vector.labels)) < len(vector):
            raise UserError(SAME_LABELS)
    return merge_same_labels(vector)


def merge_distinct_parts(expression: Expression, vector: Vector, functions: Mapping[str, Function]) -> Vector:
    """Merge what parts of the series gave for an expression of one selector, as if it were evaluated at once: only now
    series of different parts can be compared without their names."""
    if not may_collide(expression, functions):
        return vector
    call = bare(expression)
    ranged = isinstance(call, Call) and any(isinstance(bare(one), Range | Subquery) for one in call.arguments)
    return merge_distinct(vector, at_all_steps=ranged)


def may_collide(expression: Expression, functions: Mapping[str, Function]) -> bool:
    """Return whether series of the one selector may get the same labels when their names are removed. They cannot if
    the selector names its metric."""
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
