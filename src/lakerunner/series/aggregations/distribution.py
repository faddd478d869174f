"""min, max, stddev, stdvar and quantile of the floats of each group. Histograms are ignored.

min and max return NaN only if there is nothing else. Their split: the extremes of the parts' extremes. (0 and -0 are
equal, so either may come out.) The others need all series at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    Split,
    checked_quantile,
    count_dropped_names,
    float_samples,
    group_partials,
    groups_of,
    names_dropped,
    present_arrays,
)
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.grouping import Groups, counts, extremes, variances
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Vector


def _extremes_partial(node: Aggregate, vector: Vector, notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    values, present = extremes(vector.values, floats, groups.indexes, len(groups), largest=node.op == "max")
    dropped = count_dropped_names(vector, floats, groups)
    return Partial(groups.labels, present_arrays(values=values, present=present.astype(float), dropped=dropped))


def _extremes_vector(partial: Partial) -> Vector:
    present = partial.arrays["present"] != 0
    dropped = names_dropped(partial.arrays.get("dropped"), present)
    return Vector(partial.labels, partial.arrays["values"], present, drop_name=dropped)


def _extremes(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    return _extremes_vector(_extremes_partial(node, vector, notes))


def _fold_extremes(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = group_partials(partials)
    values, present = extremes(
        np.concatenate([one.arrays["values"] for one in partials]),
        np.concatenate([one.arrays["present"] for one in partials]) != 0,
        np.concatenate(all_.places),
        len(all_.labels),
        largest=node.op == "max",
    )
    dropped = all_.sum("dropped")
    return _extremes_vector(
        Partial(all_.labels, present_arrays(values=values, present=present.astype(float), dropped=dropped))
    )


MIN = Aggregation("min", _extremes, Split(_extremes_partial, _fold_extremes))
MAX = Aggregation("max", _extremes, Split(_extremes_partial, _fold_extremes))


def _deviation(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    variance, count = variances(vector.values, floats, groups.indexes, len(groups))
    with np.errstate(invalid="ignore"):
        values = np.sqrt(variance) if node.op == "stddev" else variance
    return _group_vector(vector, floats, groups, values, count > 0)


def _quantile(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    quantile = checked_quantile(node, parameter, notes)
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    order = np.argsort(groups.indexes, kind="stable")
    members = np.split(order, np.searchsorted(groups.indexes[order], np.arange(1, len(groups))))
    values = np.zeros((len(groups), vector.values.shape[1]))
    for group, rows in enumerate(members if len(groups) else []):
        values[group] = _quantiles(vector.values[rows], floats[rows], quantile)
    return _group_vector(vector, floats, groups, values, counts(floats, groups.indexes, len(groups)) > 0)


def _quantiles(values: Floats, present: Bools, quantile: Floats) -> Floats:
    """Compute the quantile of each column. NaN is smaller than any other value."""
    nans = (present & np.isnan(values)).sum(axis=0)
    many = present.sum(axis=0)
    ascending = np.sort(np.where(present, values, np.nan).T, axis=1)  # NaN and absent samples come last
    rank = np.clip(quantile, 0.0, 1.0) * np.maximum(many - 1.0, 0.0)
    lower = np.floor(np.where(np.isnan(rank), 0.0, rank))
    weight = rank - lower
    below = lower.astype(np.int64)
    above = np.minimum(np.maximum(many - 1, 0), below + 1)
    low, high = (_at(ascending, place - nans) for place in (below, above))
    with np.errstate(invalid="ignore"):
        found = low * (1.0 - weight) + high * weight
    found = np.where(quantile > 1, np.inf, np.where(quantile < 0, -np.inf, found))
    return np.where(np.isnan(quantile), np.nan, found)


def _at(ascending: Floats, place: Ints) -> Floats:
    """Return the value of each row at its place; places before the first stand for NaN."""
    found = ascending[np.arange(len(ascending)), np.maximum(place, 0)]
    return np.where(place < 0, np.nan, found)


def _group_vector(vector: Vector, floats: Bools, groups: Groups, values: Floats, present: Bools) -> Vector:
    dropped = names_dropped(count_dropped_names(vector, floats, groups), present)
    return Vector(groups.labels, values, present, drop_name=dropped)


STDDEV = Aggregation("stddev", _deviation)
STDVAR = Aggregation("stdvar", _deviation)
QUANTILE = Aggregation("quantile", _quantile, parameter=Kind.SCALAR)
