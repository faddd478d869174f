"""Hyperbolic functions and their inverses of single numbers, to the last bit as Go's math library has them: by
way of the exponential and the logarithm, near zero by series (Hart and Cheney's of sinh, Cephes' of tanh).
arithmetic.py has them of arrays."""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from lakerunner.series.math.exponential import exp, log, log1p

_LN2 = 6.93147180559945286227e-01
_LARGE, _NEAR_ZERO = 2.0**28, 2.0**-28
_ONE_FROM = 0.5 * 8.8029691931113054295988e01


@njit(cache=True, nogil=True)
def sinh(x: Any) -> Any:
    size = -x if x < 0 else x  # -0 stays what it is
    if size > 21:
        found = exp(size) * 0.5
    elif size > 0.5:
        grown = exp(size)
        found = (grown - 1.0 / grown) * 0.5
    else:
        q = size * size
        above = (-0.2630563213397497062819489e2 * q - 0.2894211355989563807284660366e4) * q
        above = ((above - 0.8991272022039509355398013511e5) * q - 0.6307673640497716991184787251e6) * size
        below = (q - 0.173678953558233699533450911e3) * q + 0.1521517378790019070696485176e5
        found = above / (below * q - 0.6307673640497716991212077277e6)
    return -found if x < 0 else found


@njit(cache=True, nogil=True)
def cosh(x: Any) -> Any:
    size = abs(x)
    grown = exp(size)
    return grown * 0.5 if size > 21 else (grown + 1.0 / grown) * 0.5


@njit(cache=True, nogil=True)
def tanh(x: Any) -> Any:
    size = abs(x)
    if size > _ONE_FROM:
        return -1.0 if x < 0 else 1.0
    if size >= 0.625:
        found = 1.0 - 2.0 / (exp(2.0 * size) + 1.0)
        return -found if x < 0 else found
    if x == 0:
        return x
    s = x * x
    above = (-9.64399179425052238628e-1 * s - 9.92877231001918586564e1) * s - 1.61468768441708447952e3
    below = ((s + 1.12811678491632931402e2) * s + 2.23548839060100448583e3) * s + 4.84406305325125486048e3
    return x + x * s * above / below


@njit(cache=True, nogil=True)
def asinh(x: Any) -> Any:
    if math.isnan(x) or math.isinf(x):
        return x
    size = abs(x)
    if size > _LARGE:
        found = log(size) + _LN2
    elif size > 2:
        found = log(2.0 * size + 1.0 / (math.sqrt(size * size + 1.0) + size))
    elif size < _NEAR_ZERO:
        return x
    else:
        found = log1p(size + size * size / (1.0 + math.sqrt(1.0 + size * size)))
    return -found if x < 0 else found


@njit(cache=True, nogil=True)
def acosh(x: Any) -> Any:
    if not x >= 1:
        return math.nan
    if x == 1:
        return 0.0
    if x >= _LARGE:
        return log(x) + _LN2
    if x > 2:
        return log(2.0 * x - 1.0 / (x + math.sqrt(x * x - 1.0)))
    above = x - 1.0
    return log1p(above + math.sqrt(2.0 * above + above * above))


@njit(cache=True, nogil=True)
def atanh(x: Any) -> Any:
    size = abs(x)
    if not size <= 1:
        return math.nan
    if size == 1:
        return math.copysign(math.inf, x)
    if size < _NEAR_ZERO:
        return x
    double = size + size
    ratio = double + double * size / (1.0 - size) if size < 0.5 else double / (1.0 - size)
    found = 0.5 * log1p(ratio)
    return -found if x < 0 else found
