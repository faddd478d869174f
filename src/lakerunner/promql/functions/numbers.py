"""Arithmetic on the numbers of a vector and on scalars, and trigonometry (radians unless the name says otherwise)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lakerunner.promql.functions.arguments import SCALAR, VECTOR, elementwise, map_numbers, scalar_of, vector_of
from lakerunner.series.arrays import Floats
from lakerunner.series.function import Function, Invocation
from lakerunner.series.math import arithmetic
from lakerunner.series.math.arithmetic import exp, log, log2, log10, maximum, minimum
from lakerunner.series.values import Scalar, Vector


def _sgn(values: Floats) -> Floats:
    """Return the sign. Zero keeps its sign and NaN stays NaN."""
    signs: Floats = np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))
    return signs


def _clamp(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), scalar_of(invocation, 1), scalar_of(invocation, 2))


def _clamp_min(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), scalar_of(invocation, 1), np.full(len(invocation.steps), math.inf))


def _clamp_max(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), np.full(len(invocation.steps), -math.inf), scalar_of(invocation, 1))


def _clamp_between(vector: Vector, low: Floats, high: Floats) -> Vector:
    """Clamp to [low, high]. Steps where low is above high have no samples."""
    clamped = map_numbers(vector, lambda values: maximum(low, minimum(high, values)))
    return replace(clamped, present=clamped.present & ~(high < low))


def _round(invocation: Invocation) -> Vector:
    """Round; ties go up. Multiplies by the inverse as Prometheus does, since 1/0.1 is exact and 0.1 is not."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / scalar_of(invocation, 1) if len(invocation.arguments) > 1 else np.ones(len(invocation.steps))
    return map_numbers(vector_of(invocation), lambda values: np.floor(values * inverse + 0.5) / inverse)


def _max_of(invocation: Invocation) -> Scalar:
    return Scalar(maximum(scalar_of(invocation, 0), scalar_of(invocation, 1)))


def _min_of(invocation: Invocation) -> Scalar:
    return Scalar(minimum(scalar_of(invocation, 0), scalar_of(invocation, 1)))


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


def _pi(invocation: Invocation) -> Scalar:
    return Scalar(np.full(len(invocation.steps), math.pi))


TRIGONOMETRY = (
    elementwise("sin", arithmetic.sin),
    elementwise("cos", arithmetic.cos),
    elementwise("tan", arithmetic.tan),
    elementwise("asin", arithmetic.asin),
    elementwise("acos", arithmetic.acos),
    elementwise("atan", arithmetic.atan),
    elementwise("sinh", arithmetic.sinh),
    elementwise("cosh", arithmetic.cosh),
    elementwise("tanh", arithmetic.tanh),
    elementwise("asinh", arithmetic.asinh),
    elementwise("acosh", arithmetic.acosh),
    elementwise("atanh", arithmetic.atanh),
    elementwise("deg", lambda values: values * 180 / math.pi),
    elementwise("rad", lambda values: values * math.pi / 180),
    Function("pi", (), SCALAR, _pi, per_series=False),
)
