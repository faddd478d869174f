"""The histogram of a window's values: exponential buckets of scale 6, as OTLP has them.

Comes in: finite numbers, or the histograms of finer windows. Goes out: buckets. What always holds: bucket i holds what
is in (base^i, base^(i + 1)], base = 2^(1/64), to the last bit of every double: no logarithm is computed, a number's
bits are compared with those of the bounds. So sketches are added, never estimated, and are the same on every machine,
whether a rollup makes them or a query. Windows may overlap.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit

SCALE = 6
_PER_OCTAVE = 1 << SCALE
_FRACTION_BITS = 52
_SLOT_BITS = 7  # a slot of the fraction is narrower than a bucket: at most one bound is in it


class Placed(NamedTuple):
    """Of each window: `low[s]` the lowest bucket of sign s (1: negative numbers) and `high[s]` the one behind the
    highest, the same where there is none; how many numbers are zero, and how many there are."""

    low: Any
    high: Any
    zeros: Any
    found: Any


def nothing_placed(windows: int) -> Placed:
    return Placed(*(np.zeros(shape, np.int64) for shape in ((2, windows), (2, windows), windows, windows)))


class Parts(NamedTuple):
    """Buckets of rows: those of row r are `sizes[r]` of `counts` from `begins[r]` on, bucket `offsets[r]` the first."""

    offsets: Any
    begins: Any
    sizes: Any
    counts: Any


# What `index_of` says of numbers that are in no bucket.
ZERO = np.int32(2**31 - 1)
NONE = np.int32(2**31 - 2)


def _bounds() -> Any:
    """The fractions of 2^(j/64), j = 1..63, rounded down: a fraction is above the bound if it is above this. The last
    one is above all."""
    found = [1 << _FRACTION_BITS] * _PER_OCTAVE
    for j in range(1, _PER_OCTAVE):
        root = 1 << (_FRACTION_BITS * _PER_OCTAVE + j)
        for _ in range(SCALE):
            root = isqrt(root)  # six square roots, rounded down each time, are the 64th root rounded down
        found[j - 1] = root - (1 << _FRACTION_BITS)
    return np.array(found, np.int64)


_BOUNDS = _bounds()
_SLOTS = np.searchsorted(_BOUNDS, np.arange(1 << _SLOT_BITS) << (_FRACTION_BITS - _SLOT_BITS)).astype(np.int64)


@njit(cache=True, nogil=True, inline="always")
def index_of(bits: Any) -> Any:
    """The bucket of the double of these bits, whatever its sign; ZERO for 0, NONE for NaN and infinities."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & 0xFFFFFFFFFFFFF
    if exponent == 0x7FF:
        return NONE
    if exponent == 0:
        if fraction == 0:
            return ZERO
        exponent = 1  # subnormal: moved up until the leading one is where other numbers have it
        while fraction < 1 << 52:
            fraction <<= 1
            exponent -= 1
        fraction &= 0xFFFFFFFFFFFFF
    slot = _SLOTS[fraction >> 45]
    within = slot + (fraction > _BOUNDS[slot]) if fraction else -1  # a power of two is the upper bound of a bucket
    return np.int32((exponent - 1023) * 64 + within)


@njit(cache=True, nogil=True)
def indexes(wanted: Any, bits: Any, index: Any) -> None:
    """Into `index` the bucket of each number that is `wanted`, else NONE."""
    for row in range(len(bits)):
        index[row] = index_of(bits[row]) if wanted[row] else NONE


@njit(cache=True, nogil=True)
def place(first: Any, behind: Any, bits: Any, index: Any, placed: Any) -> None:
    """Into `placed` what each window has, whose rows are `first[w]:behind[w]`."""
    low, high, zeros, found = placed
    for window in range(len(first)):
        for row in range(first[window], behind[window]):
            at = index[row]
            if at == NONE:
                continue
            found[window] += 1
            if at == ZERO:
                zeros[window] += 1
                continue
            sign = np.int64(bits[row] < 0)
            if low[sign, window] == high[sign, window]:
                low[sign, window], high[sign, window] = at, at + 1
            elif at < low[sign, window]:
                low[sign, window] = at
            elif at >= high[sign, window]:
                high[sign, window] = at + 1


@njit(cache=True, nogil=True)
def fill(first: Any, behind: Any, bits: Any, index: Any, low: Any, begin: Any, counts: Any) -> None:
    """Count the numbers that have a bucket: those of sign s in window w begin at `begin[s, w]` of `counts[s]` with
    bucket `low[s, w]`."""
    for window in range(len(first)):
        for row in range(first[window], behind[window]):
            if index[row] < NONE:
                sign = np.int64(bits[row] < 0)
                counts[sign][begin[sign, window] + index[row] - low[sign, window]] += np.uint64(1)


@njit(cache=True, nogil=True)
def spans(first: Any, behind: Any, parts: Any, low: Any, high: Any) -> None:
    """The lowest bucket of each window's sketches and the one behind the highest; none: high is low."""
    offsets, _, sizes, _ = parts
    for window in range(len(first)):
        lowest, highest = np.int64(0), np.int64(0)
        for row in range(first[window], behind[window]):
            if sizes[row] == 0:
                continue
            begin, end = np.int64(offsets[row]), np.int64(offsets[row]) + sizes[row]
            if highest == lowest:
                lowest, highest = begin, end
            else:
                lowest, highest = min(lowest, begin), max(highest, end)
        low[window], high[window] = lowest, highest


@njit(cache=True, nogil=True)
def add(first: Any, behind: Any, parts: Any, low: Any, begin: Any, sums: Any) -> None:
    """Add the buckets of each window's rows: those of window w begin at `begin[w]` of `sums` with bucket `low[w]`."""
    offsets, begins, sizes, counts = parts
    for window in range(len(first)):
        for row in range(first[window], behind[window]):
            at = begin[window] + offsets[row] - low[window]
            for place in range(sizes[row]):
                sums[at + place] += counts[begins[row] + place]
