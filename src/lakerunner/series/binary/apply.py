"""Apply binary operators to numbers and vectors, set operators (and, or, unless) and the unary minus.

Comes in: the operator and its operands at every step. Goes out: a vector, or a number if both operands are numbers.
What always holds: the result at a step depends on what both sides have at that step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Ints, Objects, filled
from lakerunner.series.binary.elementwise import (
    ARITHMETIC,
    COMPARISONS,
    Misfits,
    Operand,
    Outcome,
    outcome,
    report_misfits,
    scalar_operation,
)
from lakerunner.series.binary.vector_matching import (
    NONE,
    Pairs,
    Sides,
    check_one_side,
    check_unique,
    match_pairs,
    result_labels,
    sides,
    take_rows,
)
from lakerunner.series.expression import Binary, Matching
from lakerunner.series.histograms.algebra import scale_histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Scalar, Vector, concatenate, merge_same_labels

SET_OPERATORS = ("and", "or", "unless")


def set_operation(node: Binary, left: Vector, right: Vector) -> Vector:
    both = sides(left, right, node.matching or Matching("many-to-many"))
    if node.op == "or":
        return _either(both)
    there = both.one_there()[both.many_groups]
    return replace(left, present=left.present & (there if node.op == "and" else ~there))


def _either(both: Sides) -> Vector:
    """Return all of the left side, and of the right side what has no counterpart there."""
    left, right = both.many, both.one
    alone = ~both.any_of(left.present, both.many_groups)[both.one_groups]
    right = replace(right, present=right.present & alone).occupied()
    return concatenate((left, right))


def apply_binary(
    node: Binary,
    left: Vector | Scalar,
    right: Vector | Scalar,
    notes: Notes,
    *,
    delayed_names: bool = True,
) -> Vector | Scalar:
    """Apply a binary operator. The caller merges series with equal labels; without `delayed_names` it removes the names
    first."""
    misfits: Misfits = {}
    result = _result(_Operation(node, delayed_names), left, right, misfits)
    report_misfits(node, misfits, notes)
    return result


@dataclass(frozen=True)
class _Operation:
    node: Binary
    delayed_names: bool

    @property
    def other_metric(self) -> bool:
        """Return whether the result of two series has no name."""
        return self.node.op in ARITHMETIC or (self.node.return_bool and not self.delayed_names)


def _result(operation: _Operation, left: Vector | Scalar, right: Vector | Scalar, misfits: Misfits) -> Vector | Scalar:
    node = operation.node
    match left, right:
        case Scalar(), Scalar():
            return Scalar(scalar_operation(node.op, left.values, right.values))
        case Vector(), Scalar():
            found = outcome(node, Operand(left.values, left.histograms), Operand(right.values), left.present, misfits)
            return _with_scalar(node, left, found)
        case Scalar(), Vector():
            found = outcome(node, Operand(left.values), Operand(right.values, right.histograms), right.present, misfits)
            if (
                node.op in COMPARISONS and not node.return_bool
            ):  # a comparison returns the vector's value, whichever side it is on
                found = replace(found, values=right.values, histograms=None)
            return _with_scalar(node, right, found)
        case Vector(), Vector():
            if node.op in SET_OPERATORS:
                return set_operation(node, left, right)
            return _apply_to_vectors(operation, left, right, misfits)
    raise TypeError(f"{node.op} of {type(left).__name__} and {type(right).__name__}")


def negate(vector: Vector) -> Vector:
    histograms = vector.histograms
    if histograms is not None:
        histograms = histograms.copy()
        for at in map(tuple, np.argwhere(vector.present & filled(histograms))):
            histograms[at] = scale_histogram(histograms[at], -1.0)
    return replace(vector, values=-vector.values, histograms=histograms).dropping_name()


def _with_scalar(node: Binary, vector: Vector, found: Outcome) -> Vector:
    result = replace(vector, values=found.values, present=found.present(vector.present), histograms=found.histograms)
    return result.dropping_name() if node.op in ARITHMETIC or node.return_bool else result


# ---- two vectors


def _apply_to_vectors(operation: _Operation, left: Vector, right: Vector, misfits: Misfits) -> Vector:
    node, matching = operation.node, operation.node.matching or Matching()
    many, one = (right, left) if matching.card == "one-to-many" else (left, right)
    both = sides(many, one, matching)
    check_one_side(
        both,
        matching,
        lambda step: merge_same_labels(_apply_to_vectors(operation, _before(left, step), _before(right, step), {})),
    )
    pairs = match_pairs(both)
    if matching.fill_right is not None:
        pairs = _merge_pairs(pairs, _many_alone(both))
    found = _outcome(node, both, pairs, misfits)
    labels = result_labels(both, matching, pairs, other_metric=operation.other_metric)
    defined = pairs.present if found.valid is None else pairs.present & found.valid
    check_unique(matching, pairs, labels, defined)
    result = _vector(node, pairs, found, labels)
    if matching.fill_left is not None:
        rest = _one_alone(both, both.any_of(defined, pairs.groups))
        found = _outcome(node, both, rest, misfits)
        labels = result_labels(both, matching, rest, other_metric=operation.other_metric)
        result = concatenate((result, _vector(node, rest, found, labels)))
    return result


def _before(vector: Vector, step: int) -> Vector:
    """Return the steps before this one."""
    histograms = None if vector.histograms is None else vector.histograms[:, :step]
    return replace(vector, values=vector.values[:, :step], present=vector.present[:, :step], histograms=histograms)


def _outcome(node: Binary, both: Sides, pairs: Pairs, misfits: Misfits) -> Outcome:
    matching = node.matching or Matching()
    # fill_left fills the many side and fill_right the one side, whichever side of the operator they are on.
    many = _operand(both.many, pairs.many, matching.fill_left)
    one = _operand(both.one, pairs.one, matching.fill_right)
    left, right = (one, many) if matching.card == "one-to-many" else (many, one)
    return outcome(node, left, right, pairs.present, misfits)


def _operand(vector: Vector, rows: Ints, fill: float | None) -> Operand:
    filled = rows == NONE
    if fill is None or not filled.any():
        return Operand(
            take_rows(vector.values, rows), None if vector.histograms is None else take_rows(vector.histograms, rows)
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
    """Return the series of the many side at the steps where their group has none of the one side."""
    rows = np.arange(len(both.many))
    present = both.many.present & ~both.one_there()[both.many_groups]
    return _drop_empty(Pairs(rows, np.full(len(rows), NONE, np.int64), both.many_groups, present))


def _one_alone(both: Sides, matched: Bools) -> Pairs:
    """Return the series of the one side at the steps where their group has no result."""
    rows = np.arange(len(both.one))
    present = both.one.present & ~matched[both.one_groups]
    return _drop_empty(Pairs(np.full(len(rows), NONE, np.int64), rows, both.one_groups, present))


def _drop_empty(pairs: Pairs) -> Pairs:
    return _choose_pairs(pairs, np.flatnonzero(pairs.present.any(axis=1)))


def _choose_pairs(pairs: Pairs, order: Ints) -> Pairs:
    return Pairs(pairs.many[order], pairs.one[order], pairs.groups[order], pairs.present[order])


def _merge_pairs(first: Pairs, other: Pairs) -> Pairs:
    """Return both, in the order of the many side's rows."""
    every = Pairs(
        np.concatenate([first.many, other.many]),
        np.concatenate([first.one, other.one]),
        np.concatenate([first.groups, other.groups]),
        np.concatenate([first.present, other.present]),
    )
    return _choose_pairs(every, np.argsort(every.many, kind="stable"))


def _vector(node: Binary, pairs: Pairs, found: Outcome, labels: list[Labels]) -> Vector:
    drop_name = np.full(len(pairs), node.return_bool)
    return Vector(labels, found.values, found.present(pairs.present), found.histograms, drop_name)
