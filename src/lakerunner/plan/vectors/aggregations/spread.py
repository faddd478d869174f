"""stddev, stdvar and quantile: of the floats, at every step. Nothing but all series at once will do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.plan.vectors.aggregations.aggregation import (
    Aggregation,
    Parameter,
    dropping,
    floats_alone,
    groups_of,
    names_dropped,
)
from lakerunner.plan.vectors.aggregations.kernels import variances
from lakerunner.plan.vectors.aggregations.parameters import checked_quantile
from lakerunner.plan.vectors.arrays import Bools, Floats
from lakerunner.plan.vectors.expression import Aggregate
from lakerunner.plan.vectors.grouping import Groups
from lakerunner.plan.vectors.notes import Notes
from lakerunner.plan.vectors.values import Vector


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
    starts = np.searchsorted(groups.of[order], np.arange(len(groups) + 1))
    values = np.zeros((len(groups), vector.values.shape[1]))
    present = np.zeros(values.shape, bool)
    _quantiles(
        np.ascontiguousarray(vector.values), np.ascontiguousarray(floats), order, starts, quantile, values, present
    )
    return _vector(vector, floats, groups, values, present)


def _vector(vector: Vector, floats: Bools, groups: Groups, values: Floats, present: Bools) -> Vector:
    dropped = names_dropped(dropping(vector, floats, groups), present)
    return Vector(groups.labels, values, present, drop_name=dropped)


@njit(cache=True, nogil=True)
def _quantiles(values: Any, present: Any, order: Any, starts: Any, quantile: Any, found: Any, there: Any) -> None:
    """The values of a group stand at order[starts[group]:starts[group + 1]]. NaN is less than any other."""
    gathered = np.empty(len(order))
    for group in range(len(starts) - 1):
        for step in range(values.shape[1]):
            many = 0
            nans = 0
            for place in range(starts[group], starts[group + 1]):
                row = order[place]
                if present[row, step]:
                    gathered[many] = values[row, step]
                    nans += 1 if np.isnan(gathered[many]) else 0
                    many += 1
            if many == 0:
                continue
            there[group, step] = True
            wanted = quantile[step]
            if np.isnan(wanted):
                found[group, step] = np.nan
            elif wanted < 0:
                found[group, step] = -np.inf
            elif wanted > 1:
                found[group, step] = np.inf
            else:
                gathered[:many].sort()  # NaN at the end
                rank = wanted * (many - 1.0)
                lower = np.floor(rank)
                weight = rank - lower
                below, above = int(lower), min(many - 1, int(lower) + 1)
                low = np.nan if below < nans else gathered[below - nans]
                high = np.nan if above < nans else gathered[above - nans]
                found[group, step] = low * (1.0 - weight) + high * weight


STDDEV = Aggregation("stddev", _deviation)
STDVAR = Aggregation("stdvar", _deviation)
QUANTILE = Aggregation("quantile", _quantile)
