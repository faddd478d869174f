"""Arithmetic on the numbers of a vector, and on scalars."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lakerunner.promql.functions.arguments import SCALAR, VECTOR, scalar_of, vector_of
from lakerunner.promql.functions.elementwise import changed, elementwise
from lakerunner.series.arrays import Floats
from lakerunner.series.function import Called, Function
from lakerunner.series.math.arithmetic import exp, log, log2, log10, maximum, minimum
from lakerunner.series.values import Scalar, Vector


def _sgn(values: Floats) -> Floats:
    """Zero keeps its sign and NaN stays NaN."""
    signs: Floats = np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))
    return signs


def _clamp(called: Called) -> Vector:
    return _clamped(vector_of(called), scalar_of(called, 1), scalar_of(called, 2))


def _clamp_min(called: Called) -> Vector:
    return _clamped(vector_of(called), scalar_of(called, 1), np.full(len(called.steps), math.inf))


def _clamp_max(called: Called) -> Vector:
    return _clamped(vector_of(called), np.full(len(called.steps), -math.inf), scalar_of(called, 1))


def _clamped(vector: Vector, low: Floats, high: Floats) -> Vector:
    """Nothing at the steps where no number is between the two."""
    clamped = changed(vector, lambda values: maximum(low, minimum(high, values)))
    return replace(clamped, present=clamped.present & ~(high < low))


def _round(called: Called) -> Vector:
    """Ties go up. Multiplied by the inverse, as 1/0.1 is exact where 0.1 is not."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / scalar_of(called, 1) if len(called.arguments) > 1 else np.ones(len(called.steps))
    return changed(vector_of(called), lambda values: np.floor(values * inverse + 0.5) / inverse)


def _max_of(called: Called) -> Scalar:
    return Scalar(maximum(scalar_of(called, 0), scalar_of(called, 1)))


def _min_of(called: Called) -> Scalar:
    return Scalar(minimum(scalar_of(called, 0), scalar_of(called, 1)))


NUMBERS = (
    elementwise("abs", np.abs),
    elementwise("ceil", np.ceil),
    elementwise("floor", np.floor),
    elementwise("sqrt", np.sqrt),
    elementwise("exp", exp),
    elementwise("ln", log),
    elementwise("log2", log2),
    elementwise("log10", log10),
    elementwise("sgn", _sgn),
    Function("clamp", (VECTOR, SCALAR, SCALAR), VECTOR, _clamp),
    Function("clamp_min", (VECTOR, SCALAR), VECTOR, _clamp_min),
    Function("clamp_max", (VECTOR, SCALAR), VECTOR, _clamp_max),
    Function("round", (VECTOR, SCALAR), VECTOR, _round, optional=1),
    Function("max_of", (SCALAR, SCALAR), SCALAR, _max_of, per_series=False, experimental=True),
    Function("min_of", (SCALAR, SCALAR), SCALAR, _min_of, per_series=False, experimental=True),
)
