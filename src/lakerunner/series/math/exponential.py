"""Exponentials, logarithms, powers and hyperbolic functions of single numbers, equal to Go's math library to the last
bit (for arrays: arithmetic.py).

Every math library rounds a little differently, so that answers would differ in the last digit from those of servers
written in Go. These kernels do the same operations in the same order as Go on amd64 with FMA: exp by Shibata's method
(Taylor series of x/16, squared four times), log and log1p as FDLIBM, powers by repeated squaring. Two oddities come
with that: exp() is infinite from 709.44 on, and log() treats a denormal number as a normal one. Do not simplify or
reorder the arithmetic: it changes the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lakerunner.kernel_cache import njit

_LOG2_E = 1.4426950408889634
_LN2_UPPER, _LN2_LOWER = 0.69314718055966295651, 0.28235290563031577122588448175013436025525412068e-12
_EXP_OVERFLOW = 7.09782712893384e02
_EXP_UNDERFLOW = -746.0
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_1_OVER_LN2, _1_OVER_LN10 = 1.44269504088896340735992468100189214, 0.43429448190325182765112891891660508
_SQRT2_LESS_1, _HALF_SQRT2_LESS_1 = 4.142135623730950488017e-01, -2.928932188134524755992e-01
_HALF_SQRT2 = 7.07106781186547524401e-01
_MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
_ONE_BITS, _HALF_BITS = np.int64(0x3FF0000000000000), np.int64(0x3FE0000000000000)
_SQRT2_MANTISSA = np.int64(0x0006A09E667F3BCD)

# FDLIBM's minimax polynomial of (log(1+f) - log(1-f)) / s - 2, in powers of s squared.
_L1, _L2, _L3, _L4 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
)
_L5, _L6, _L7 = 1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01

# FDLIBM's polynomial of r * (exp(r) + 1) / (exp(r) - 1) - 2, in powers of r squared.
_P1, _P2, _P3 = 1.66666666666666657415e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05
_P4, _P5 = -1.65339022054652515390e-06, 4.13813679705723846039e-08


def _multiply_add(_context: Any, _a: Any, _b: Any, _c: Any) -> Any:
    """Compute a * b + c with one rounding (a fused multiply-add), as Go's compiler and assembly do on amd64."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


_fused: Any = intrinsic(_multiply_add)


@njit(cache=True, nogil=True)
def exp(x: Any) -> Any:
    if math.isnan(x):
        return x
    if x > _EXP_OVERFLOW:
        return math.inf
    if x < _EXP_UNDERFLOW:
        return 0.0
    power = np.rint(_LOG2_E * x)
    if power >= 1024.0:
        return math.inf
    rest = _fused(-power, _LN2_UPPER, x)
    rest = 0.0625 * _fused(-power, _LN2_LOWER, rest)
    series = _fused(2.4801587301587301587e-5, rest, 1.9841269841269841270e-4)
    series = _fused(series, rest, 1.3888888888888888889e-3)
    series = _fused(series, rest, 8.3333333333333333333e-3)
    series = _fused(series, rest, 4.1666666666666666667e-2)
    series = _fused(series, rest, 1.6666666666666666667e-1)
    series = _fused(series, rest, 0.5)
    rest = rest * _fused(series, rest, 1.0)
    # Doubling the argument of r = e^x - 1: e^2x - 1 = r * (r + 2). Four times for x/16, the last one below.
    rest = rest * (rest + 2.0)
    rest = rest * (rest + 2.0)
    rest = rest * (rest + 2.0)
    scale: Any = np.int32(power)
    return math.ldexp(_fused(rest, rest + 2.0, 1.0), scale)


@njit(cache=True, nogil=True)
def exp2(x: Any) -> Any:
    """Compute 2^x by FDLIBM's rational approximation."""
    if math.isnan(x):
        return x
    if x > 1.0239999999999999e03:
        return math.inf
    if x < -1.0740e03:
        return 0.0
    power: Any = np.int32(x + 0.5) if x > 0 else np.int32(x - 0.5)
    rest = x - power
    high, low = rest * _LN2_HIGH, -rest * _LN2_LOW
    r = high - low
    t = r * r
    c = r - t * (_P1 + t * (_P2 + t * (_P3 + t * (_P4 + t * _P5))))
    return math.ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), power)


@njit(cache=True, nogil=True)
def log(x: Any) -> Any:
    if x == 0:
        return -math.inf
    if x < 0:
        return math.nan
    if math.isnan(x) or math.isinf(x):
        return x
    bits = np.float64(x).view(np.int64)
    # The exponent bits are used as they are: a denormal number has 0 there, which gives Go's odd result on amd64.
    power = np.float64((bits >> 52) - 1022)
    fraction = np.int64((bits & _MANTISSA) | _HALF_BITS).view(np.float64)
    if fraction <= _HALF_SQRT2:
        power -= 1.0
        fraction *= 2.0
    f = fraction - 1.0
    s = f / (2.0 + f)
    s2 = s * s
    s4 = s2 * s2
    # Two chains of s^4 instead of one of s^2, as FDLIBM: another grouping rounds differently.
    odd = s2 * (_L1 + s4 * (_L3 + s4 * (_L5 + s4 * _L7)))
    even = s4 * (_L2 + s4 * (_L4 + s4 * _L6))
    half = 0.5 * f * f
    return power * _LN2_HIGH - ((half - (s * (half + (odd + even)) + power * _LN2_LOW)) - f)


@njit(cache=True, nogil=True)
def log2(x: Any) -> Any:
    """Compute the binary logarithm; exact for powers of two."""
    if x == 0 or math.isnan(x) or math.isinf(x):
        return log(x)
    # log(fraction) / ln 2 is not exactly -1 for 0.5, so powers of two are taken from the exponent.
    fraction, power = math.frexp(x)
    if fraction == 0.5:
        return np.float64(power - 1)
    return log(fraction) * _1_OVER_LN2 + np.float64(power)


@njit(cache=True, nogil=True)
def log10(x: Any) -> Any:
    return log(x) * _1_OVER_LN10


@njit(cache=True, nogil=True)
def log1p(x: Any) -> Any:
    """Compute log(1 + x), accurate for small x."""
    if x < -1 or math.isnan(x):
        return math.nan
    if x == -1:
        return -math.inf
    if math.isinf(x):
        return x
    size = abs(x)
    if size < 2.0**-54:
        return x
    if size < 2.0**-29:
        return x - x * x * 0.5
    f, power, lost, is_even = _log1p_reduced(x)
    half = 0.5 * f * f
    if is_even:
        r = half * (1.0 - 0.66666666666666666 * f)
        if f == 0:
            return power * _LN2_HIGH + (lost + power * _LN2_LOW)
        return f - r if power == 0 else power * _LN2_HIGH - ((r - (power * _LN2_LOW + lost)) - f)
    s = f / (2.0 + f)
    z = s * s
    r = z * (_L1 + z * (_L2 + z * (_L3 + z * (_L4 + z * (_L5 + z * (_L6 + z * _L7))))))
    if power == 0:
        return f - (half - s * (half + r))
    return power * _LN2_HIGH - ((half - (s * (half + r) + (power * _LN2_LOW + lost))) - f)


@njit(cache=True, nogil=True)
def _log1p_reduced(x: Any) -> Any:
    """Return 1 + x as 2^power * (1 + f), its relative rounding error, and whether f is (next to) 0."""
    if _HALF_SQRT2_LESS_1 < x < _SQRT2_LESS_1:
        return x, 0.0, 0.0, False
    sum_ = 1.0 + x if x < 2.0**53 else x
    power = (np.float64(sum_).view(np.int64) >> 52) - 1023
    lost = 0.0
    if x < 2.0**53:
        lost = (1.0 - (sum_ - x) if power > 0 else x - (sum_ - 1.0)) / sum_
    mantissa = np.float64(sum_).view(np.int64) & _MANTISSA
    if mantissa < _SQRT2_MANTISSA:
        near = mantissa == 0
        fraction = np.int64(mantissa | _ONE_BITS).view(np.float64)
    else:
        power += 1
        near = _MANTISSA + 1 - mantissa < 4
        fraction = np.int64(mantissa | _HALF_BITS).view(np.float64)
    return fraction - 1.0, np.float64(power), lost, near


@njit(cache=True, nogil=True)
def power(x: Any, y: Any) -> Any:
    if y == 0 or x == 1:
        return 1.0
    if y == 1:
        return x
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if x == 0 or math.isinf(x) or math.isinf(y):
        return _extreme_power(x, y)
    if y == 0.5:
        return math.sqrt(x) if x > 0 else math.nan
    if y == -0.5:
        return 1.0 / math.sqrt(x) if x > 0 else math.nan
    whole = np.floor(abs(y))
    part = abs(y) - whole
    if part != 0 and x < 0:
        return math.nan
    # Such an exponent does not fit an int64; the result is 0, 1 or infinite anyway.
    if whole >= 2.0**63:
        return _extreme_power(x, math.copysign(math.inf, y))
    found = 1.0
    if part != 0:
        # Keep the fractional part within [-0.5, 0.5], where exp(part * log(x)) is most accurate.
        if part > 0.5:
            part -= 1.0
            whole += 1.0
        found = exp(part * log(x))
    return _power_by_squaring(x, found, np.int64(whole), y < 0)


@njit(cache=True, nogil=True)
def _power_by_squaring(x: Any, found: Any, whole: Any, inverse: Any) -> Any:
    """Return found * x^whole, with the powers of two apart so that nothing overflows on the way."""
    fraction, exponent = math.frexp(x)
    own = np.int64(exponent)
    power = np.int64(0)
    while whole != 0:
        if own < -4096 or own > 4096:
            power += own  # the exponent is beyond any float already
            break
        if whole & 1 == 1:
            found *= fraction
            power += own
        fraction *= fraction
        own *= 2
        # Normalize to [0.5, 1) again: the square of the fraction may be below.
        if fraction < 0.5:
            fraction += fraction
            own -= 1
        whole >>= 1
    if inverse:
        found = 1.0 / found
        power = -power
    scale: Any = np.int32(power)
    return math.ldexp(found, scale)


@njit(cache=True, nogil=True)
def _extreme_power(x: Any, y: Any) -> Any:
    """Compute x^y where x is 0 or either is infinite."""
    if x == 0 or x == -math.inf:
        if math.isinf(x) and math.isinf(y):
            return math.inf if y > 0 else 0.0
        small = (x == 0) == (y > 0)
        size = 0.0 if small else math.inf
        # Every float from 2^53 on is an even integer.
        odd = abs(y) < 2.0**53 and np.floor(y) == y and np.int64(y) & 1 == 1
        return -size if odd and math.copysign(1.0, x) < 0 else size
    if math.isinf(y):
        if x == -1:
            return 1.0
        return 0.0 if (abs(x) < 1) == (y > 0) else math.inf
    return 0.0 if y < 0 else math.inf


_LN2 = 6.93147180559945286227e-01
_LARGE, _NEAR_ZERO = 2.0**28, 2.0**-28
_ONE_FROM = 0.5 * 8.8029691931113054295988e01


@njit(cache=True, nogil=True)
def sinh(x: Any) -> Any:
    size = -x if x < 0 else x  # -0 stays -0
    if size > 21:
        found = exp(size) * 0.5
    elif size > 0.5:
        grown = exp(size)
        found = (grown - 1.0 / grown) * 0.5
    else:
        q = size * size
        # Near zero exp(x) - exp(-x) cancels: a rational approximation is used instead.
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
