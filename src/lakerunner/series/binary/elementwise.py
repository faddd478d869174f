"""Apply an operator to two samples, floats or histograms, of every pair of series at every step.

Comes in: two operands as arrays that broadcast to [pairs, steps]. Goes out: the results, where a comparison keeps them,
and where the operator is defined. What always holds: if several pairs of a step do not fit the operator, the last one
is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.series.arrays import Bools, Floats, Objects, filled
from lakerunner.series.expression import Binary
from lakerunner.series.histograms.algebra import (
    IncompatibleHistograms,
    Sum,
    add_histograms,
    compact_histogram,
    divide_histogram,
    scale_histogram,
    subtract_histograms,
)
from lakerunner.series.histograms.histogram import Histogram, ResetHint, equal
from lakerunner.series.histograms.trim import trim_lower, trim_upper
from lakerunner.series.math.arithmetic import atan2, modulo, power
from lakerunner.series.notes import Misfit, Notes


def _unless_zero(operator: Callable[[Floats, Floats], Floats]) -> Callable[[Floats, Floats], Floats]:
    """Return NaN where the right side is zero."""
    return lambda left, right: np.where(np.equal(right, 0), np.nan, operator(left, right))


# div and mod are `/` and `%` of languages in which a division by zero has no value.
ARITHMETIC: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": modulo,
    "^": power,
    "atan2": atan2,
    "div": _unless_zero(np.divide),
    "mod": _unless_zero(modulo),
}
COMPARISONS: Mapping[str, Callable[[Floats, Floats], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}
TRIMS: Mapping[str, Callable[[Histogram, float], Histogram]] = {"</": trim_upper, ">/": trim_lower}


Found = tuple[Misfit, dict[str, str]]
Misfits = dict[int, Found]  # by step: the last misfit and the facts that its text names


@dataclass(frozen=True)
class Operand:
    """One side of an operator. `histograms` is None if no sample is one."""

    values: Floats
    histograms: Objects | None = None


@dataclass
class Outcome:
    """The results. `kept`: where a comparison is true. `valid`: where the operator is defined. None: everywhere."""

    values: Floats
    histograms: Objects | None = None
    kept: Bools | None = None
    valid: Bools | None = None

    def present(self, before: Bools) -> Bools:
        """Return where there is a result, given where both operands have a sample."""
        for less in (self.kept, self.valid):
            before = before if less is None else before & less
        return before


def report_misfits(node: Binary, misfits: Misfits, notes: Notes) -> None:
    for misfit, facts in misfits.values():
        notes.report(misfit, node.span, **facts)


def scalar_operation(op: str, left: Floats, right: Floats) -> Floats:
    if op in TRIMS:
        raise UserError(f'operator "{op}" not allowed for Scalar operations')
    with np.errstate(all="ignore"):
        return ARITHMETIC[op](left, right) if op in ARITHMETIC else COMPARISONS[op](left, right).astype(np.float64)


def outcome(node: Binary, left: Operand, right: Operand, present: Bools, misfits: Misfits) -> Outcome:
    """Apply the operator. A comparison returns the left value, or with `bool` 1 or 0 everywhere. Misfits are added to
    `misfits`."""
    found = Outcome(np.zeros(present.shape)) if node.op in TRIMS else _of_floats(node, left, right)
    if left.histograms is not None or right.histograms is not None or node.op in TRIMS:
        _with_histograms(node, left, right, present, found, misfits)
    if node.return_bool and found.kept is not None:
        found.values, found.histograms, found.kept = found.kept.astype(np.float64), None, None
    return found


def _of_floats(node: Binary, left: Operand, right: Operand) -> Outcome:
    with np.errstate(all="ignore"):
        if node.op in ARITHMETIC:
            return Outcome(ARITHMETIC[node.op](left.values, right.values))
        return Outcome(left.values, kept=COMPARISONS[node.op](left.values, right.values))


# ---- histograms


@dataclass(frozen=True)
class _Combination:
    """The result of a pair that has a histogram, None if there is none. `note`: the misfit found."""

    histogram: Histogram | None = None
    kept: bool = True
    note: Found | None = None


def _with_histograms(
    node: Binary, left: Operand, right: Operand, present: Bools, found: Outcome, misfits: Misfits
) -> None:
    """Write the results of the pairs that have a histogram into `found`."""
    shape = present.shape
    lefts, rights = _broadcast_histograms(left.histograms, shape), _broadcast_histograms(right.histograms, shape)
    looked_at = present.copy()
    if node.op not in TRIMS:
        looked_at &= filled(lefts) | filled(rights)
    if not looked_at.any():
        return
    left_values, right_values = np.broadcast_to(left.values, shape), np.broadcast_to(right.values, shape)
    found.histograms = np.full(shape, None, object)
    found.valid = np.ones(shape, bool)
    found.kept = None if found.kept is None else np.broadcast_to(found.kept, shape).copy()
    for row, step in np.argwhere(looked_at).tolist():
        made = _combine_samples(
            node.op, _sample(lefts, left_values, row, step), _sample(rights, right_values, row, step)
        )
        found.histograms[row, step] = made.histogram
        found.valid[row, step] = made.histogram is not None
        if found.kept is not None:
            found.kept[row, step] = made.kept
        if made.note is not None:
            misfits[step] = made.note


def _broadcast_histograms(histograms: Objects | None, shape: tuple[int, ...]) -> Objects:
    return np.broadcast_to(np.array(None, object) if histograms is None else histograms, shape)


def _sample(histograms: Objects, values: Floats, row: int, step: int) -> Histogram | float:
    histogram: Histogram | None = histograms[row, step]
    return float(values[row, step]) if histogram is None else histogram


def _combine_samples(op: str, left: Histogram | float, right: Histogram | float) -> _Combination:
    match op, left, right:
        case "*", Histogram(), float():
            return _Combination(compact_histogram(scale_histogram(left, right)))
        case "*", float(), Histogram():
            return _Combination(compact_histogram(scale_histogram(right, left)))
        case "/", Histogram(), float():
            return _Combination(compact_histogram(divide_histogram(left, right)))
        case (("</" | ">/"), Histogram(), float()):
            return _Combination(TRIMS[op](left, right))
        case (("+" | "-"), Histogram(), Histogram()):
            return _combine_histograms(op, left, right)
        case (("==" | "!="), Histogram(), Histogram()):
            return _Combination(left, kept=equal(left, right) == (op == "=="))
    kinds = ["histogram" if isinstance(one, Histogram) else "float" for one in (left, right)]
    return _Combination(note=(Misfit.TYPES_UNFIT, {"op": op, "left": kinds[0], "right": kinds[1]}))


def _combine_histograms(op: str, left: Histogram, right: Histogram) -> _Combination:
    try:
        total: Sum = add_histograms(left, right) if op == "+" else subtract_histograms(left, right)
    except IncompatibleHistograms:
        return _Combination(note=(Misfit.LAYOUTS_UNFIT, {"op": op}))
    facts = {"operation": "addition" if op == "+" else "subtraction"}
    if total.reset_collision:  # the result cannot carry two contradicting reset hints
        return _Combination(note=(Misfit.RESETS_COLLIDE, facts))
    result = total.histogram if op == "+" else replace(total.histogram, reset_hint=ResetHint.GAUGE)
    note = (Misfit.BOUNDS_RECONCILED, facts) if total.bounds_reconciled else None
    return _Combination(compact_histogram(result), note=note)
