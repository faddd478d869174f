"""Logarithm and power of two to the bit as Prometheus has them.

Its language works them out by the polynomials of FreeBSD's library, which here and there give another last bit than the
C library of this machine: quantiles of native histograms would differ from Prometheus' by that.
"""

from __future__ import annotations

import math

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_EXP = (
    1.66666666666666657415e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)


def log2(x: float) -> float:
    """Of zero -Inf, of what is below it NaN."""
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if math.isinf(x):
        return x
    fraction, exponent = math.frexp(x)
    return float(exponent - 1) if fraction == 0.5 else float(exponent) + _log(fraction) * (1 / math.log(2))


def _log(x: float) -> float:
    """Of a number from 1/2 to 1."""
    exponent = 0
    if x < math.sqrt(2) / 2:
        x, exponent = 2 * x, -1
    f = x - 1
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    odd = s2 * (_LOG[0] + s4 * (_LOG[2] + s4 * (_LOG[4] + s4 * _LOG[6])))
    even = s4 * (_LOG[1] + s4 * (_LOG[3] + s4 * _LOG[5]))
    half_square = 0.5 * f * f
    return exponent * _LN2_HIGH - ((half_square - (s * (half_square + (odd + even)) + exponent * _LN2_LOW)) - f)


def exp2(x: float) -> float:
    if math.isnan(x):
        return x
    if x > 1.0239999999999999e03:
        return math.inf
    if x < -1.0740e03:
        return 0.0
    exponent = int(x + 0.5) if x > 0 else int(x - 0.5)
    rest = x - exponent
    high, low = rest * _LN2_HIGH, -rest * _LN2_LOW
    r = high - low
    t = r * r
    c = r - t * (_EXP[0] + t * (_EXP[1] + t * (_EXP[2] + t * (_EXP[3] + t * _EXP[4]))))
    return math.ldexp(1 - ((low - (r * c) / (2 - c)) - high), exponent)
