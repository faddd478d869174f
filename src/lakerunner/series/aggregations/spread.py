"""stddev, stdvar and quantile: of the floats, at every step. Nothing but all series at once will do."""

from __future__ import annotations

import numpy as np

from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    dropping,
    floats_alone,
    groups_of,
    names_dropped,
)
from lakerunner.series.aggregations.parameters import checked_quantile
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.group_kernels import counts, variances
from lakerunner.series.grouping import Groups
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector


def _deviation(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    groups = groups_of(node, vector)
    floats = floats_alone(node, vector, notes)
    variance, count = variances(vector.values, floats, groups.of, len(groups))
    with np.errstate(invalid="ignore"):
        values = np.sqrt(variance) if node.op == "stddev" else variance
    return _vector(vector, floats, groups, values, count > 0)


def _quantile(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    quantile = checked_quantile(node, parameter, notes)
    groups = groups_of(node, vector)
    floats = floats_alone(node, vector, notes)
    order = np.argsort(groups.of, kind="stable")
    members = np.split(order, np.searchsorted(groups.of[order], np.arange(1, len(groups))))
    values = np.zeros((len(groups), vector.values.shape[1]))
    for group, rows in enumerate(members if len(groups) else []):
        values[group] = _quantiles(vector.values[rows], floats[rows], quantile)
    return _vector(vector, floats, groups, values, counts(floats, groups.of, len(groups)) > 0)


def _quantiles(values: Floats, present: Bools, quantile: Floats) -> Floats:
    """Of each column. NaN is less than any other value."""
    nans = (present & np.isnan(values)).sum(axis=0)
    many = present.sum(axis=0)
    ascending = np.sort(np.where(present, values, np.nan).T, axis=1)  # NaN and what is not there at the end
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
    """The value of each row at its place; NaN stands before the first."""
    found = ascending[np.arange(len(ascending)), np.maximum(place, 0)]
    return np.where(place < 0, np.nan, found)


def _vector(vector: Vector, floats: Bools, groups: Groups, values: Floats, present: Bools) -> Vector:
    dropped = names_dropped(dropping(vector, floats, groups), present)
    return Vector(groups.labels, values, present, drop_name=dropped)


STDDEV = Aggregation("stddev", _deviation)
STDVAR = Aggregation("stdvar", _deviation)
QUANTILE = Aggregation("quantile", _quantile, parameter=Kind.SCALAR)
