"""Binary operators over numbers and vectors, and the minus before one.

Comes in: the operator and its operands at every step. Goes out: a vector, or of two numbers a number. What always
holds: what is there at a step depends on what both sides have at that step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Ints, Objects, filled
from lakerunner.series.binary.elementwise import (
    ARITHMETIC,
    COMPARISONS,
    Operand,
    Outcome,
    Said,
    outcome,
    put_down,
    scalar_operation,
)
from lakerunner.series.binary.sets import SET_OPERATORS, set_operation
from lakerunner.series.binary.vector_matching import (
    NONE,
    Pairs,
    Sides,
    check_one_side,
    check_unique,
    meeting,
    result_labels,
    sides,
    taken,
)
from lakerunner.series.expression import Binary, Matching
from lakerunner.series.histograms.arithmetic import scaled
from lakerunner.series.notes import Notes
from lakerunner.series.united import joined, merged
from lakerunner.series.values import Scalar, Vector


def binary(
    node: Binary,
    left: Vector | Scalar,
    right: Vector | Scalar,
    notes: Notes,
    *,
    delayed_names: bool = True,
) -> Vector | Scalar:
    """The caller makes series one that are the same; without `delayed_names` it takes the names off before that."""
    said: Said = {}
    result = _result(_Operation(node, delayed_names), left, right, said)
    put_down(node, said, notes)
    return result


@dataclass(frozen=True)
class _Operation:
    node: Binary
    delayed_names: bool

    @property
    def other_metric(self) -> bool:
        """Whether what comes of two series has no name."""
        return self.node.op in ARITHMETIC or (self.node.return_bool and not self.delayed_names)


def _result(operation: _Operation, left: Vector | Scalar, right: Vector | Scalar, said: Said) -> Vector | Scalar:
    node = operation.node
    match left, right:
        case Scalar(), Scalar():
            return Scalar(scalar_operation(node.op, left.values, right.values))
        case Vector(), Scalar():
            found = outcome(node, Operand(left.values, left.histograms), Operand(right.values), left.present, said)
            return _with_scalar(node, left, found)
        case Scalar(), Vector():
            found = outcome(node, Operand(left.values), Operand(right.values, right.histograms), right.present, said)
            if node.op in COMPARISONS and not node.return_bool:  # the vector's value stays, on either side
                found = replace(found, values=right.values, histograms=None)
            return _with_scalar(node, right, found)
        case Vector(), Vector():
            if node.op in SET_OPERATORS:
                return set_operation(node, left, right)
            return _of_vectors(operation, left, right, said)
    raise TypeError(f"{node.op} of {type(left).__name__} and {type(right).__name__}")


def negated(vector: Vector) -> Vector:
    histograms = vector.histograms
    if histograms is not None:
        histograms = histograms.copy()
        for at in map(tuple, np.argwhere(vector.present & filled(histograms))):
            histograms[at] = scaled(histograms[at], -1.0)
    return replace(vector, values=-vector.values, histograms=histograms).dropping_name()


def _with_scalar(node: Binary, vector: Vector, found: Outcome) -> Vector:
    result = replace(vector, values=found.values, present=found.present(vector.present), histograms=found.histograms)
    return result.dropping_name() if node.op in ARITHMETIC or node.return_bool else result


# ---- two vectors


def _of_vectors(operation: _Operation, left: Vector, right: Vector, said: Said) -> Vector:
    node, matching = operation.node, operation.node.matching or Matching()
    many, one = (right, left) if matching.card == "one-to-many" else (left, right)
    both = sides(many, one, matching)
    check_one_side(
        both, matching, lambda step: merged(_of_vectors(operation, _before(left, step), _before(right, step), {}))
    )
    pairs = meeting(both)
    if matching.fill_right is not None:
        pairs = _in_order(pairs, _many_alone(both))
    found = _outcome(node, both, pairs, said)
    labels = result_labels(both, matching, pairs, other_metric=operation.other_metric)
    defined = pairs.present if found.valid is None else pairs.present & found.valid
    check_unique(matching, pairs, labels, defined)
    result = _vector(node, pairs, found, labels)
    if matching.fill_left is not None:
        rest = _one_alone(both, both.any_of(defined, pairs.groups))
        found = _outcome(node, both, rest, said)
        labels = result_labels(both, matching, rest, other_metric=operation.other_metric)
        result = joined(result, _vector(node, rest, found, labels))
    return result


def _before(vector: Vector, step: int) -> Vector:
    """The steps before this one."""
    histograms = None if vector.histograms is None else vector.histograms[:, :step]
    return replace(vector, values=vector.values[:, :step], present=vector.present[:, :step], histograms=histograms)


def _outcome(node: Binary, both: Sides, pairs: Pairs, said: Said) -> Outcome:
    matching = node.matching or Matching()
    # The fill of the many side is called left, that of the one side right, wherever they stand.
    many = _operand(both.many, pairs.many, matching.fill_left)
    one = _operand(both.one, pairs.one, matching.fill_right)
    left, right = (one, many) if matching.card == "one-to-many" else (many, one)
    return outcome(node, left, right, pairs.present, said)


def _operand(vector: Vector, rows: Ints, fill: float | None) -> Operand:
    filled = rows == NONE
    if fill is None or not filled.any():
        return Operand(
            taken(vector.values, rows), None if vector.histograms is None else taken(vector.histograms, rows)
        )
    shape = (len(rows), vector.values.shape[1])
    values = np.full(shape, fill)
    values[~filled] = vector.values[rows[~filled]]
    histograms: Objects | None = None
    if vector.histograms is not None:
        histograms = np.full(shape, None, object)
        histograms[~filled] = vector.histograms[rows[~filled]]
    return Operand(values, histograms)


def _many_alone(both: Sides) -> Pairs:
    """The many side's series at the steps where their group has none of the one side."""
    rows = np.arange(len(both.many))
    present = both.many.present & ~both.one_there()[both.many_groups]
    return _occupied(Pairs(rows, np.full(len(rows), NONE, np.int64), both.many_groups, present))


def _one_alone(both: Sides, matched: Bools) -> Pairs:
    """The one side's series at the steps where nothing came of their group."""
    rows = np.arange(len(both.one))
    present = both.one.present & ~matched[both.one_groups]
    return _occupied(Pairs(np.full(len(rows), NONE, np.int64), rows, both.one_groups, present))


def _occupied(pairs: Pairs) -> Pairs:
    return _chosen(pairs, np.flatnonzero(pairs.present.any(axis=1)))


def _chosen(pairs: Pairs, order: Ints) -> Pairs:
    return Pairs(pairs.many[order], pairs.one[order], pairs.groups[order], pairs.present[order])


def _in_order(first: Pairs, other: Pairs) -> Pairs:
    """Both, by the rows of the many side."""
    every = Pairs(
        np.concatenate([first.many, other.many]),
        np.concatenate([first.one, other.one]),
        np.concatenate([first.groups, other.groups]),
        np.concatenate([first.present, other.present]),
    )
    return _chosen(every, np.argsort(every.many, kind="stable"))


def _vector(node: Binary, pairs: Pairs, found: Outcome, labels: list[Labels]) -> Vector:
    drop_name = np.full(len(pairs), node.return_bool)
    return Vector(labels, found.values, found.present(pairs.present), found.histograms, drop_name)
