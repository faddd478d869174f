"""The contract of aggregations, how one is split over parts of the series, and checks of their parameters.

What always holds: a fold over the partials of any parts gives what the aggregation gives over all series, in value
(except for the last bit of a mean or of a histogram's counts) and in notes, or it raises NotSplit. The groups of a fold
are sorted by labels, since parts know no other order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Floats, Ints, filled
from lakerunner.series.expression import NOWHERE, Aggregate, Kind, Span, bare
from lakerunner.series.grouping import Groups, counts, group_series
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.numerals import number_text
from lakerunner.series.values import Partial, Scalar, String, Vector

ORDERED = "ordered"  # array of a partial: where a group's value depends on the order of its series


class NotSplit(Exception):
    """Raised by a fold when these parts cannot be folded: the aggregation must see all series at once."""


@dataclass(frozen=True)
class Split:
    """How an aggregation is computed in parts. `partial` takes one part of the series, `fold` the partials of all
    parts, at least one."""

    partial: Callable[[Aggregate, Vector, Notes], Partial]
    fold: Callable[[Aggregate, Sequence[Partial], Notes], Vector]


@dataclass(frozen=True)
class GroupedPartials:
    """The groups of several partials as one list, sorted by labels. `places` maps the groups of each partial to it."""

    partials: Sequence[Partial]
    labels: list[Labels]
    places: list[Ints]
    steps: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.labels), self.steps

    def sum(self, name: str) -> Floats | None:
        """Add up an array of integers over all partials; None if no partial has it."""
        if not any(name in one.arrays for one in self.partials):
            return None
        total = np.zeros(self.shape)
        for one, places in zip(self.partials, self.places, strict=True):
            if name in one.arrays:
                total[places] += one.arrays[name]
        return total


def group_partials(partials: Sequence[Partial]) -> GroupedPartials:
    """Bring partials to common groups. Raise NotSplit if a part marked a group as depending on the order of its
    series."""
    if any(np.any(one.arrays[ORDERED]) for one in partials if ORDERED in one.arrays):
        raise NotSplit("what comes of the aggregation depends on the order of its series")
    labels = sorted({own for one in partials for own in one.labels})
    numbers = {own: number for number, own in enumerate(labels)}
    places = [np.array([numbers[own] for own in one.labels], np.int64) for one in partials]
    return GroupedPartials(partials, labels, places, next(iter(partials[0].arrays.values())).shape[1])


def present_arrays(**arrays: Floats | None) -> Mapping[str, Floats]:
    """Drop the arrays that are None."""
    return {name: array for name, array in arrays.items() if array is not None}


Parameter = Scalar | String | None


@dataclass(frozen=True)
class Aggregation:
    """A row of the table of aggregations. `name` is the language's keyword. `split` is None if all series are needed at
    once. `parameter` is the kind of its parameter, None if it has none."""

    name: str
    evaluate: Callable[[Aggregate, Vector, Parameter, Notes], Vector]
    split: Split | None = None
    parameter: Literal[Kind.SCALAR, Kind.STRING] | None = None


def groups_of(node: Aggregate, vector: Vector) -> Groups:
    return group_series(vector.labels, node.grouping, node.without)


def histograms_in(vector: Vector) -> Bools | None:
    """Return where samples are histograms, None if none is."""
    if vector.histograms is None:
        return None
    found: Bools = vector.present & filled(vector.histograms)
    return found if found.any() else None


def float_samples(node: Aggregate, vector: Vector, notes: Notes) -> Bools:
    """Return where samples are floats, for aggregations that ignore histograms; ignored histograms are noted."""
    histograms = histograms_in(vector)
    if histograms is None:
        return vector.present
    notes.report(Misfit.HISTOGRAMS_IGNORED, bare(node.inner).span, op=node.op)
    return vector.present & ~histograms


def count_dropped_names(vector: Vector, counted: Bools, groups: Groups) -> Floats | None:
    """Return for each group the steps at which a series counts whose name is to be dropped; None if there is no such
    series."""
    rows = np.flatnonzero(vector.drop_name)
    if not len(rows):
        return None
    there = counted if len(rows) == len(vector) else counted[rows]
    return np.minimum(counts(there, groups.indexes[rows], len(groups)), 1.0)


def names_dropped(dropped: Floats | None, present: Bools) -> Bools:
    """Return for each group whether its name is dropped: the last step at which the group is present decides."""
    if dropped is None:
        return np.zeros(len(present), bool)
    if not present.shape[1]:
        return np.zeros(len(present), bool)
    last = present.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    goes: Bools = dropped[np.arange(len(present)), last] != 0
    return goes


_LEAST, _MOST = -9223372036854775808.0, 9223372036854774784.0  # bounds of int64 as floats; no k may be beyond them


def checked_count(parameter: Parameter) -> Ints | None:
    """Return the k of topk, bottomk and limitk at each step; None if it is below one everywhere."""
    values = _numbers(parameter)
    if values.max() < 1:
        return None
    if np.isnan(values).any():
        raise UserError("Parameter value is NaN")
    if values.min() <= _LEAST:
        raise UserError(f"Scalar value {number_text(float(values.min()))} underflows int64")
    if values.max() >= _MOST:
        raise UserError(f"Scalar value {number_text(float(values.max()))} overflows int64")
    return values.astype(np.int64)


def checked_ratio(node: Aggregate, parameter: Parameter, notes: Notes) -> Floats | None:
    """Return the ratio of limit_ratio at each step, capped to [-1, 1]; None if it is zero everywhere."""
    values = _numbers(parameter)
    if not values.any():
        return None
    if np.isnan(values).any():
        raise UserError("Ratio value is NaN")
    for odd, limit in ((values.max(), 1.0), (values.min(), -1.0)):
        if abs(odd) > 1 and np.sign(odd) == limit:
            notes.report(Misfit.RATIO_CAPPED, _place(node), got=number_text(float(odd)), limit=f"{limit:g}")
    return np.clip(values, -1.0, 1.0)


def checked_quantile(node: Aggregate, parameter: Parameter, notes: Notes) -> Floats:
    """Return the quantile at each step. NaN, and the largest and smallest value outside [0, 1], are noted."""
    values = _numbers(parameter)
    most = math.inf if np.isposinf(values).any() else float(values.max())  # max() of an array with NaN is NaN
    least = -math.inf if np.isneginf(values).any() else float(values.min())
    odd = [math.nan] if np.isnan(values).any() else []
    odd += [most] if most > 1 else []
    odd += [least] if least < 0 else []
    for one in odd:
        notes.report(Misfit.QUANTILE_OUTSIDE, _place(node), got=number_text(one))
    return values


def _numbers(parameter: Parameter) -> Floats:
    if not isinstance(parameter, Scalar):
        raise TypeError(f"the parameter must be a scalar, got {parameter}")
    return parameter.values


def _place(node: Aggregate) -> Span:
    return NOWHERE if node.parameter is None else bare(node.parameter).span
