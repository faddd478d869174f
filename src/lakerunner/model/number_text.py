"""Numbers as text in machine code: integers, and the shortest decimal that reads back as the same double.

Comes in: an integer or the bits of a double, and where to write. Goes out: the position behind the text. The digits are
found by Raffaele Giulietti's Schubfach: one multiplication by a power of ten, rounded to odd, for the number and for
both ends of what rounds to it. Among the decimals that round to the double it takes one with the fewest digits, and
among those the nearest. Python and Go choose the same digits and write them in different forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lakerunner.kernel_cache import njit

MAX_BYTES = 32  # of one number; the longest is -0.00000 and 17 digits
Bits = npt.NDArray[np.uint64]
_MIN_POWER, _MAX_POWER = -292, 324
_U = np.uint64
_LOW_HALF, _HALF = _U(0xFFFFFFFF), _U(32)
_FRACTION, _HIDDEN, _SIGN = _U((1 << 52) - 1), _U(1 << 52), _U(1 << 63)
_INFINITE = _U(0x7FF << 52)
_ZERO, _ONE, _TWO, _FOUR, _TEN, _FORTY, _HUNDRED = _U(0), _U(1), _U(2), _U(4), _U(10), _U(40), _U(100)
_TINY = _U(int(np.array([1e-6]).view(np.uint64)[0]))  # bits of doubles above zero are in the order of the doubles
_HUGE = _U(int(np.array([1e21]).view(np.uint64)[0]))
_MINUS, _PLUS, _POINT, _E, _DIGIT_0 = 45, 43, 46, 101, 48


def _powers() -> tuple[Bits, Bits]:
    """Return 10^k for each k, as 128 bits of which the highest is set, rounded up: high and low halves."""
    high, low = [], []
    for k in range(_MIN_POWER, _MAX_POWER + 1):
        shift = 127 - ((k * 1741647) >> 19)
        if k >= 0:
            power = 10**k << shift if shift >= 0 else -(-(10**k) >> -shift)
        else:
            power = -(-(1 << shift) // 10**-k)
        high.append(power >> 64)
        low.append(power & (1 << 64) - 1)
    return np.array(high, np.uint64), np.array(low, np.uint64)


_HIGH, _LOW = _powers()
_PAIRS = np.frombuffer("".join(f"{n:02}" for n in range(100)).encode(), np.uint8)


@njit(cache=True, nogil=True)
def _multiplied(a: Any, b: Any) -> Any:
    """Return the high and the low 64 bits of the product."""
    a0, a1, b0, b1 = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
    low, mid, cross, high = a0 * b0, a1 * b0, a0 * b1, a1 * b1
    carried = (low >> _HALF) + (mid & _LOW_HALF) + cross
    return high + (mid >> _HALF) + (carried >> _HALF), (carried << _HALF) | (low & _LOW_HALF)


@njit(cache=True, nogil=True)
def _rounded_to_odd(high: Any, low: Any, factor: Any) -> Any:
    """Return the highest of three words of the product, its last bit set where anything that matters is below it."""
    carry, _ = _multiplied(low, factor)
    top, middle = _multiplied(high, factor)
    total = middle + carry
    if total < middle:
        top += _ONE
    return top | (_ONE if total > _ONE else _ZERO)


@njit(cache=True, nogil=True)
def _shortest(bits: Any) -> Any:
    """Return digits and power of ten of a double above zero; the digits may end in zeros."""
    fraction, biased = bits & _FRACTION, np.int64((bits & ~_SIGN) >> _U(52))
    c, q = (fraction | _HIDDEN, biased - 1075) if biased else (fraction, -1074)
    # Whole numbers below 2^53 have no shorter decimal than their own digits.
    if -53 < q <= 0 and biased and (c & ((_ONE << _U(-q)) - _ONE)) == _ZERO:
        return c >> _U(-q), 0
    closer_below = fraction == _ZERO and biased > 1
    k = (q * 1262611 - (524031 if closer_below else 0)) >> 22
    h = _U(q + ((-k * 1741647) >> 19) + 1)
    high, low = _HIGH[-k - _MIN_POWER], _LOW[-k - _MIN_POWER]
    around = _FOUR * c
    odd = c & _ONE
    lower = _rounded_to_odd(high, low, (around - (_ONE if closer_below else _TWO)) << h) + odd
    exact = _rounded_to_odd(high, low, around << h)
    upper = _rounded_to_odd(high, low, (around + _TWO) << h) - odd
    s = exact // _FOUR
    if s >= _TEN:
        tens = s // _TEN
        below, above = lower <= _FORTY * tens, _FORTY * tens + _FORTY <= upper
        if below != above:
            return tens + (_ONE if above else _ZERO), k + 1
    below, above = lower <= _FOUR * s, _FOUR * s + _FOUR <= upper
    if below != above:
        return s + (_ONE if above else _ZERO), k
    middle = _FOUR * s + _TWO
    up = exact > middle or (exact == middle and (s & _ONE) != _ZERO)
    return s + (_ONE if up else _ZERO), k


@njit(cache=True, nogil=True)
def _put_digits(out: Any, end: Any, digits: Any, count: Any) -> None:
    """Write the last `count` digits, so that they end before `end`."""
    while count > 1:
        pair = np.int64(digits % _HUNDRED) * 2
        digits //= _HUNDRED
        out[end - 1], out[end - 2] = _PAIRS[pair + 1], _PAIRS[pair]
        end, count = end - 2, count - 2
    if count:
        out[end - 1] = _DIGIT_0 + np.int64(digits % _TEN)


@njit(cache=True, nogil=True)
def _length(digits: Any) -> Any:
    """Count the digits of a number below 10^19."""
    count, bound = 1, _TEN
    while count < 19 and digits >= bound:
        count, bound = count + 1, bound * _TEN
    return count


@njit(cache=True, nogil=True)
def _put_exponential(out: Any, at: Any, digits: Any, exponent: Any) -> Any:
    """Write 1.5e-07: one digit before the point, two or three of the exponent."""
    count = _length(digits)
    exponent += count - 1
    _put_digits(out, at + 1 + count, digits, count)
    out[at] = out[at + 1]
    at += 1
    if count > 1:
        out[at] = _POINT
        at += count
    out[at], out[at + 1] = _E, _MINUS if exponent < 0 else _PLUS
    exponent = abs(exponent)
    count = 3 if exponent >= 100 else 2
    _put_digits(out, at + 2 + count, _U(exponent), count)
    return at + 2 + count


@njit(cache=True, nogil=True)
def _put_plain(out: Any, at: Any, digits: Any, exponent: Any) -> Any:
    count = _length(digits)
    if exponent >= 0:
        _put_digits(out, at + count, digits, count)
        out[at + count : at + count + exponent] = _DIGIT_0
        return at + count + exponent
    before = count + exponent
    if before > 0:
        _put_digits(out, at + count + 1, digits, count)
        for place in range(at, at + before):
            out[place] = out[place + 1]
        out[at + before] = _POINT
        return at + count + 1
    out[at : at + 2 - before] = _DIGIT_0
    out[at + 1] = _POINT
    _put_digits(out, at + 2 - before + count, digits, count)
    return at + 2 - before + count


@njit(cache=True, nogil=True)
def _put_word(out: Any, at: Any, first: Any, second: Any, third: Any) -> Any:
    out[at], out[at + 1], out[at + 2] = first, second, third
    return at + 3


@njit(cache=True, nogil=True)
def _without_zeros(digits: Any, exponent: Any) -> Any:
    while digits % _TEN == _ZERO:
        digits, exponent = digits // _TEN, exponent + 1
    return digits, exponent


@njit(cache=True, nogil=True)
def put_go_double(out: Any, at: Any, bits: Any) -> Any:
    """Write a double as Prometheus does with Go's strconv: 'f', but 'e' below 1e-6 and from 1e21 on."""
    size = bits & ~_SIGN
    if size > _INFINITE:
        return _put_word(out, at, 78, 97, 78)  # NaN
    if size == _INFINITE:
        out[at] = _MINUS if bits & _SIGN else _PLUS
        return _put_word(out, at + 1, 73, 110, 102)  # Inf
    if bits & _SIGN:
        out[at] = _MINUS
        at += 1
    if size == _ZERO:
        out[at] = _DIGIT_0
        return at + 1
    digits, exponent = _shortest(size)
    exponential = size < _TINY or size >= _HUGE
    if exponent < 0 or exponential:
        digits, exponent = _without_zeros(digits, exponent)
    return _put_exponential(out, at, digits, exponent) if exponential else _put_plain(out, at, digits, exponent)


@njit(cache=True, nogil=True)
def put_python_double(out: Any, at: Any, bits: Any) -> Any:
    """Write a finite double as Python's repr does, in at most 24 bytes."""
    if bits & _SIGN:
        out[at] = _MINUS
        at += 1
    digits, exponent = _ZERO, 0
    if bits & ~_SIGN:
        digits, exponent = _shortest(bits & ~_SIGN)
        digits, exponent = _without_zeros(digits, exponent)
    point = _length(digits) + exponent  # the decimal point stands behind this many digits
    if point > 16 or point < -3:
        return _put_exponential(out, at, digits, exponent)
    at = _put_plain(out, at, digits, exponent)
    if exponent < 0:
        return at
    out[at], out[at + 1] = _POINT, _DIGIT_0
    return at + 2


@njit(cache=True, nogil=True)
def put_int(out: Any, at: Any, number: Any) -> Any:
    """Write an int64."""
    size = _U(number)
    if number < 0:
        out[at] = _MINUS
        at += 1
        size = ~size + _ONE
    count = _length(size)
    _put_digits(out, at + count, size, count)
    return at + count
