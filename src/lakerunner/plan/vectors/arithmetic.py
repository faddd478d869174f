"""The numbers that operators and functions make of numbers, elementwise over arrays of float64 that broadcast."""

from __future__ import annotations

import numpy as np

from lakerunner.plan.vectors.arrays import Floats

exp, log, log2, log10 = np.exp, np.log, np.log2, np.log10
sin, cos, tan, asin, acos, atan = np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan
sinh, cosh, tanh, asinh, acosh, atanh = np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh
power, atan2 = np.power, np.arctan2


def modulo(dividend: Floats, divisor: Floats) -> Floats:
    """The remainder, with the sign of the dividend: exact."""
    with np.errstate(invalid="ignore"):
        remainder: Floats = np.fmod(dividend, divisor)
    return remainder


def maximum(one: Floats, other: Floats) -> Floats:
    """NaN where one of them is, unless the other is +Inf; 0 is greater than -0."""
    greater = np.where((one == 0) & (other == 0), one + other, np.maximum(one, other))
    found: Floats = np.where(np.isposinf(one) | np.isposinf(other), np.inf, greater)
    return found


def minimum(one: Floats, other: Floats) -> Floats:
    """NaN where one of them is, unless the other is -Inf; -0 is less than 0."""
    return -maximum(-one, -other)
