"""The shortest decimal text of a double that reads back as the same double, in jitted code.

The text is that of Python's `repr`. The method is Schubfach (R. Giulietti, "The Schubfach way to render doubles"):
of the decimals inside the double's rounding interval, take one with the fewest digits, and of those the nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_LEAST_POWER, _MOST_POWER = -292, 324


def _powers_of_ten() -> Any:
    """10**k for k from -292 to 324, scaled by a power of two to 128 bits and rounded up, as (high, low) halves."""
    rows = []
    for k in range(_LEAST_POWER, _MOST_POWER + 1):
        above, below = (10**k, 1) if k >= 0 else (1, 10**-k)
        # 2**127 <= scaled < 2**128 with the exponent of the leading bit of 10**k, as _scaled counts it.
        shift = 127 - ((k * 1741647) >> 19)
        scaled = -(-(above << shift) // below) if shift >= 0 else -(-above // (below << -shift))
        rows.append((scaled >> 64, scaled & (2**64 - 1)))
    return np.array(rows, np.uint64)


_POWERS = _powers_of_ten()


@njit(cache=True)
def _product(one: Any, other: Any) -> Any:
    """(high, low) of the 128-bit product of two uint64."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = one >> half, one & mask, other >> half, other & mask
    low = b * d
    middle = a * d + (low >> half)
    other_middle = b * c + (middle & mask)
    return a * c + (middle >> half) + (other_middle >> half), (other_middle << half) | (low & mask)


@njit(cache=True)
def _scaled(power: Any, factor: Any) -> Any:
    """power * factor / 2**128, rounded to odd, so that comparisons with it come out as if it were exact."""
    carry, _ = _product(_POWERS[power, 1], factor)
    high, low = _product(_POWERS[power, 0], factor)
    total = low + carry
    if total < low:
        high += np.uint64(1)
    return high | np.uint64(total > np.uint64(1))


@njit(cache=True)
def _shortest(bits: Any) -> Any:
    """(digits, exponent) with digits * 10**exponent the shortest decimal of a finite double that is not zero."""
    fraction = bits & np.uint64(0xFFFFFFFFFFFFF)
    biased = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    c, q = fraction, np.int64(-1074)
    if biased != 0:
        c, q = fraction | np.uint64(1 << 52), biased - 1075
    open_ends = c & np.uint64(1)
    # At a power of two the double below is nearer than the one above.
    narrow = fraction == 0 and biased > 1
    k = (q * 1262611 - (524031 if narrow else 0)) >> 22
    shift = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    power = -k - _LEAST_POWER
    four, two = c << np.uint64(2), np.uint64(2)
    lower = _scaled(power, (four - (np.uint64(1) if narrow else two)) << shift) + open_ends
    value = _scaled(power, four << shift)
    upper = _scaled(power, (four + two) << shift) - open_ends
    s = value >> two
    if s >= np.uint64(10):
        tenth = s // np.uint64(10)
        below = lower <= np.uint64(40) * tenth
        above = np.uint64(40) * tenth + np.uint64(40) <= upper
        if below != above:
            return tenth + np.uint64(above), k + 1
    below, above = lower <= s << two, (s << two) + np.uint64(4) <= upper
    if below != above:
        return s + np.uint64(above), k
    middle = (s << two) + two
    up = value > middle or (value == middle and s & np.uint64(1) != 0)
    return s + np.uint64(up), k


@njit(cache=True)
def put_digits(number: Any, out: Any, at: Any) -> Any:
    """Write a uint64 in decimal; the position behind it."""
    count = 1
    rest = number // np.uint64(10)
    while rest != 0:
        count += 1
        rest //= np.uint64(10)
    for place in range(at + count - 1, at - 1, -1):
        out[place] = np.uint8(48) + np.uint8(number % np.uint64(10))
        number //= np.uint64(10)
    return at + count


@njit(cache=True)
def put_int(number: Any, out: Any, at: Any) -> Any:
    """Write an int64 in decimal; the position behind it."""
    if number >= 0:
        return put_digits(np.uint64(number), out, at)
    out[at] = 45
    return put_digits(~np.uint64(number) + np.uint64(1), out, at + 1)


@njit(cache=True)
def put_double(bits: Any, out: Any, at: Any) -> Any:
    """Write a finite double, given by its bits, as Python's repr does: at most 24 bytes; the position behind it."""
    if bits >> np.uint64(63) != 0:
        out[at] = 45
        at += 1
    bits &= np.uint64(0x7FFFFFFFFFFFFFFF)
    digits, exponent = np.uint64(0), np.int64(0)
    if bits != 0:
        digits, exponent = _shortest(bits)
        while digits % np.uint64(10) == 0:
            digits //= np.uint64(10)
            exponent += 1
    end = put_digits(digits, out, at)
    count = end - at
    point = count + exponent  # the decimal point stands behind this many digits
    if point > 16 or point < -3:
        return _put_scientific(out, at, count, point - 1)
    return _put_plain(out, at, count, point)


@njit(cache=True)
def _put_scientific(out: Any, at: Any, count: Any, exponent: Any) -> Any:
    end = at + count
    if count > 1:
        for place in range(end, at + 1, -1):
            out[place] = out[place - 1]
        out[at + 1] = 46
        end += 1
    out[end] = 101
    out[end + 1] = 45 if exponent < 0 else 43
    exponent = abs(exponent)
    if exponent < 10:
        out[end + 2] = 48
        return put_digits(np.uint64(exponent), out, end + 3)
    return put_digits(np.uint64(exponent), out, end + 2)


@njit(cache=True)
def _put_plain(out: Any, at: Any, count: Any, point: Any) -> Any:
    if point >= count:
        for place in range(at + count, at + point):
            out[place] = 48
        out[at + point], out[at + point + 1] = 46, 48
        return at + point + 2
    if point > 0:
        for place in range(at + count, at + point, -1):
            out[place] = out[place - 1]
        out[at + point] = 46
        return at + count + 1
    zeros = 2 - point
    for place in range(at + count - 1, at - 1, -1):
        out[place + zeros] = out[place]
    for place in range(at, at + zeros):
        out[place] = 48
    out[at + 1] = 46
    return at + zeros + count
