"""Sine, cosine, tangent and their inverses of single numbers, equal to Go's math library to the last bit (for arrays:
arithmetic.py).

Angles are reduced to an eighth of the circle: up to 2^29 by subtracting pi/4 in three parts, beyond that by Payne and
Hanek's multiplication with as many digits of 4/pi as the number needs. The rest goes through the polynomials of the
Cephes library. The order of operations is Go's: reordering them changes the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit

_PI4_A, _PI4_B, _PI4_C = 7.85398125648498535156e-1, 3.77489470793079817668e-8, 2.69515142907905952645e-15
_REDUCE_FROM = 2.0**29
_4_OVER_PI = 1.2732395447351628
# 4/pi in binary: 64 bits before the point, and 19 times 64 after it.
_DIGITS = np.array(
    [
        0x0000000000000001, 0x45F306DC9C882A53, 0xF84EAFA3EA69BB81, 0xB6C52B3278872083, 0xFCA2C757BD778AC3,
        0x6E48DC74849BA5C0, 0x0C925DD413A32439, 0xFC3BD63962534E7D, 0xD1046BEA5D768909, 0xD338E04D68BEFC82,
        0x7323AC7306A673E9, 0x3908BF177BF25076, 0x3FF12FFFBC0B301F, 0xDE5E2316B414DA3E, 0xDA6CFD9E4F96136E,
        0x9E8C7ECD3CBFD45A, 0xEA4F758FD7CBE2F6, 0x7A0E73EF14A525D4, 0xD7F6BF623F1ABA10, 0xAC06608DF8F6D757,
    ],
    np.uint64,
)  # fmt: skip
_LOW_HALF, _U3, _U32, _U61, _U64 = np.uint64(0xFFFFFFFF), np.uint64(3), np.uint64(32), np.uint64(61), np.uint64(64)
_MORE_BITS = 6.123233995736765886130e-17  # pi/2 minus its nearest float
_TAN_3_PI_8 = 2.41421356237309504880


@njit(cache=True, nogil=True)
def sin(x: Any) -> Any:
    if x == 0 or math.isnan(x):
        return x
    if math.isinf(x):
        return math.nan
    octant, z = _reduce(abs(x))
    found = _cosine(z) if octant & 3 in (1, 2) else _sine(z)
    return -found if (x < 0) != (octant > 3) else found


@njit(cache=True, nogil=True)
def cos(x: Any) -> Any:
    if math.isnan(x) or math.isinf(x):
        return math.nan
    octant, z = _reduce(abs(x))
    within = octant & 3
    found = _sine(z) if within in (1, 2) else _cosine(z)
    return -found if (octant > 3) != (within > 1) else found


@njit(cache=True, nogil=True)
def tan(x: Any) -> Any:
    if x == 0 or math.isnan(x):
        return x
    if math.isinf(x):
        return math.nan
    octant, z = _reduce(abs(x))
    zz = z * z
    found = z
    if zz > 1e-14:
        above = zz * ((-1.30936939181383777646e4 * zz + 1.15351664838587416140e6) * zz - 1.79565251976484877988e7)
        below = (zz + 1.36812963470692954678e4) * zz - 1.32089234440210967447e6
        found = z + z * (above / ((below * zz + 2.50083801823357915839e7) * zz - 5.38695755929454629881e7))
    if octant & 2:
        found = -1.0 / found
    return -found if x < 0 else found


@njit(cache=True, nogil=True)
def _sine(z: Any) -> Any:
    zz = z * z
    series = ((1.58962301576546568060e-10 * zz - 2.50507477628578072866e-8) * zz + 2.75573136213857245213e-6) * zz
    series = (series - 1.98412698295895385996e-4) * zz + 8.33333333332211858878e-3
    return z + z * zz * (series * zz - 1.66666666666666307295e-1)


@njit(cache=True, nogil=True)
def _cosine(z: Any) -> Any:
    zz = z * z
    series = ((-1.13585365213876817300e-11 * zz + 2.08757008419747316778e-9) * zz - 2.75573141792967388112e-7) * zz
    series = (series + 2.48015872888517045348e-5) * zz - 1.38888888888730564116e-3
    return 1.0 - 0.5 * zz + zz * zz * (series * zz + 4.16666666666665929218e-2)


@njit(cache=True, nogil=True)
def _reduce(x: Any) -> Any:
    """Return the nearest even octant of x >= 0 (0, 2, 4 or 6), and the remaining angle, within pi/4."""
    if x >= _REDUCE_FROM:
        return _reduce_huge(x)
    octant = np.int64(x * _4_OVER_PI)
    # Round up to an even octant, so that the rest is within pi/4 of a multiple of pi/2.
    octant += octant & 1
    y = np.float64(octant)
    # Cody and Waite: y * _PI4_A is exact, so that subtracting the parts one by one loses nothing.
    return octant & 7, ((x - y * _PI4_A) - y * _PI4_B) - y * _PI4_C


@njit(cache=True, nogil=True)
def _reduce_huge(x: Any) -> Any:
    """Reduce by Payne and Hanek's method."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) - 1023 - 52
    mantissa = np.uint64((bits & np.int64(0x000FFFFFFFFFFFFF)) | np.int64(0x0010000000000000))
    at, shift = (exponent + 61) // 64, np.uint64((exponent + 61) % 64)
    # Only the product modulo 8 matters (8 octants): 3 bits before the point, and 125 after it.
    _, low = _product(_digit(at, shift), mantissa)
    high_1, low_1 = _product(_digit(at + 1, shift), mantissa)
    high_2, _ = _product(_digit(at + 2, shift), mantissa)
    fraction = low_1 + high_2
    whole = low + high_1 + (np.uint64(1) if fraction < low_1 else np.uint64(0))
    octant = np.int64(whole >> _U61)
    z = _as_fraction((whole << _U3) | (fraction >> _U61), fraction)
    if octant & 1:
        octant = (octant + 1) & 7
        z -= 1.0
    return octant, z * (math.pi / 4)


@njit(cache=True, nogil=True)
def _digit(at: Any, shift: Any) -> Any:
    """Return 64 bits of 4/pi from this bit position on."""
    if shift == np.uint64(0):
        return _DIGITS[at]
    return (_DIGITS[at] << shift) | (_DIGITS[at + 1] >> (_U64 - shift))


@njit(cache=True, nogil=True)
def _product(a: Any, b: Any) -> Any:
    """Return the 128-bit product: the upper and the lower half."""
    a1, a0, b1, b0 = a >> _U32, a & _LOW_HALF, b >> _U32, b & _LOW_HALF
    low = a0 * b0
    middle = a1 * b0 + (low >> _U32)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _U32) + (other >> _U32), a * b


@njit(cache=True, nogil=True)
def _as_fraction(bits: Any, more: Any) -> Any:
    """Return 0.bits as a float, truncated after 53 digits; `more` continues the bits."""
    zeros = np.uint64(0)
    while zeros < _U64 and (bits >> (np.uint64(63) - zeros)) & np.uint64(1) == np.uint64(0):
        zeros += np.uint64(1)
    exponent = np.uint64(1022) - zeros
    used = zeros + np.uint64(1)
    shifted = (bits << used) if used < _U64 else np.uint64(0)
    mantissa = (shifted | (more >> (_U64 - used))) >> np.uint64(12)
    return np.uint64(mantissa | (exponent << np.uint64(52))).view(np.float64)


@njit(cache=True, nogil=True)
def asin(x: Any) -> Any:
    if x == 0:
        return x
    size = abs(x)
    if not size <= 1:
        return math.nan
    # asin by atan, which is less accurate than a direct series but is what Go computes.
    other = math.sqrt(1.0 - size * size)
    found = math.pi / 2 - _positive_atan(other / size) if size > 0.7 else _positive_atan(size / other)
    return -found if x < 0 else found


@njit(cache=True, nogil=True)
def acos(x: Any) -> Any:
    return math.pi / 2 - asin(x)


@njit(cache=True, nogil=True)
def atan(x: Any) -> Any:
    if x == 0:
        return x
    return _positive_atan(x) if x > 0 else -_positive_atan(-x)


@njit(cache=True, nogil=True)
def _positive_atan(x: Any) -> Any:
    if x <= 0.66:
        return _small_atan(x)
    if x > _TAN_3_PI_8:
        return math.pi / 2 - _small_atan(1.0 / x) + _MORE_BITS
    return math.pi / 4 + _small_atan((x - 1.0) / (x + 1.0)) + 0.5 * _MORE_BITS


@njit(cache=True, nogil=True)
def _small_atan(x: Any) -> Any:
    z = x * x
    above = ((-8.750608600031904122785e-01 * z - 1.615753718733365076637e01) * z - 7.500855792314704667340e01) * z
    above = (above - 1.228866684490136173410e02) * z - 6.485021904942025371773e01
    below = ((z + 2.485846490142306297962e01) * z + 1.650270098316988542046e02) * z + 4.328810604912902668951e02
    below = (below * z + 4.853903996359136964868e02) * z + 1.945506571482613964425e02
    return x * (z * above / below) + x


@njit(cache=True, nogil=True)
def atan2(y: Any, x: Any) -> Any:
    """Return the angle of the point (x, y)."""
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if y == 0:
        return math.copysign(math.pi if math.copysign(1.0, x) < 0 else 0.0, y)
    if x == 0:
        return math.copysign(math.pi / 2, y)
    if math.isinf(x):
        if math.isinf(y):
            return math.copysign(math.pi / 4 if x > 0 else 3 * math.pi / 4, y)
        return math.copysign(0.0 if x > 0 else math.pi, y)
    if math.isinf(y):
        return math.copysign(math.pi / 2, y)
    angle = atan(y / x)
    if x < 0:
        return angle + math.pi if angle <= 0 else angle - math.pi
    return angle
