"""Exponential histogram buckets: as columns of a segment, and as the sketch of a rollup bucket's values (scale 6).

Comes in: Arrow arrays, finite numbers, or the sketches of finer rollup buckets. Goes out: arrays of bucket counts. What
always holds: histogram bucket i holds the values in (base^i, base^(i + 1)], base = 2^(1/64), to the last bit of every
double. No logarithm is computed: the bits of a number are compared with those of the bounds. So sketches are added,
never estimated, and are the same on every machine, whether a rollup makes them or a query. Windows may overlap. Columns
are read as a whole, never row by row, and memory of Arrow is never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit


def column_values(array: pa.Array, kind: Any) -> Any:
    """Return the values as they stand in memory; where a value is null, anything may stand."""
    if array.buffers()[1] is None:
        nothing = np.zeros(len(array), kind)
        nothing.flags.writeable = False  # as Arrow's arrays are: else numba compiles kernels twice
        return nothing
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


@dataclass(frozen=True, eq=False)
class ListColumn:
    """List r is `sizes[r]` of `values` from `begins[r]` on."""

    begins: Any
    sizes: Any
    values: Any

    def __getitem__(self, row: int) -> Any:
        begin = int(self.begins[row])
        return self.values[begin : begin + int(self.sizes[row])]


def list_column(array: pa.Array | None, rows: int, kind: Any) -> ListColumn:
    """Read a column of lists. Null becomes an empty list."""
    if array is None:
        return ListColumn(np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(0, kind))
    ends = _offsets(array)
    sizes = np.diff(ends).astype(np.int64)
    if array.null_count:
        sizes[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    inner = array.values
    return ListColumn(ends[:-1].astype(np.int64), sizes, column_values(inner, kind))


def _offsets(array: pa.Array) -> Any:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


@dataclass(frozen=True, eq=False)
class BucketColumn:
    """One side of exponential histograms: `offset` is the index of the first of the counts."""

    valid: Any
    offset: Any
    counts: ListColumn


def bucket_column(array: pa.Array | None, rows: int) -> BucketColumn:
    if array is None:
        return BucketColumn(np.zeros(rows, np.bool_), np.zeros(rows, np.int32), list_column(None, rows, np.uint64))
    there = array.is_valid().to_numpy(zero_copy_only=False)
    found = list_column(array.field("counts"), rows, np.uint64)
    found.sizes[~there] = 0
    return BucketColumn(there, column_values(array.field("offset"), np.int32), found)


# ---- sketches

SCALE = 6
_PER_OCTAVE = 1 << SCALE
_FRACTION_BITS = 52
_SLOT_BITS = 7  # a slot of the fraction is narrower than a bucket: at most one bound is in it


class BucketSpans(NamedTuple):
    """For each window: `low[s]` is the lowest bucket of sign s (1: negative numbers) and `high[s]` the one after the
    highest, equal if there is none; `zeros` and `found` count the numbers that are zero, and all numbers."""

    low: Any
    high: Any
    zeros: Any
    found: Any


def empty_spans(windows: int) -> BucketSpans:
    return BucketSpans(*(np.zeros(shape, np.int64) for shape in ((2, windows), (2, windows), windows, windows)))


class BucketRows(NamedTuple):
    """Buckets of rows: those of row r are `sizes[r]` of `counts` from `begins[r]` on, bucket `offsets[r]` the first."""

    offsets: Any
    begins: Any
    sizes: Any
    counts: Any


# What `bucket_of` returns for numbers that are in no bucket.
ZERO = np.int32(2**31 - 1)
NONE = np.int32(2**31 - 2)


def _bounds() -> Any:
    """Return the fractions of 2^(j/64), j = 1..63, rounded down: a fraction is above the bound if it is above this. The
    last entry is above all fractions."""
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
def bucket_of(bits: Any) -> Any:
    """Return the bucket of the double of these bits, whatever its sign; ZERO for 0, NONE for NaN and infinities."""
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
def find_buckets(wanted: Any, bits: Any, index: Any) -> None:
    """Write into `index` the bucket of each number that is `wanted`, else NONE."""
    for row in range(len(bits)):
        index[row] = bucket_of(bits[row]) if wanted[row] else NONE


@njit(cache=True, nogil=True)
def find_spans(first: Any, behind: Any, bits: Any, index: Any, placed: Any) -> None:
    """Write into `placed` the spans of each window, whose rows are `first[w]:behind[w]`."""
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
def count_values(first: Any, behind: Any, bits: Any, index: Any, low: Any, begin: Any, counts: Any) -> None:
    """Count the numbers that have a bucket: those of sign s in window w begin at `begin[s, w]` of `counts[s]` with
    bucket `low[s, w]`."""
    for window in range(len(first)):
        for row in range(first[window], behind[window]):
            if index[row] < NONE:
                sign = np.int64(bits[row] < 0)
                counts[sign][begin[sign, window] + index[row] - low[sign, window]] += np.uint64(1)


@njit(cache=True, nogil=True)
def find_row_spans(first: Any, behind: Any, parts: Any, low: Any, high: Any) -> None:
    """Find the lowest bucket of each window's sketches and the one after the highest; without any, high is low."""
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
def add_rows(first: Any, behind: Any, parts: Any, low: Any, begin: Any, sums: Any) -> None:
    """Add the buckets of each window's rows: those of window w begin at `begin[w]` of `sums` with bucket `low[w]`."""
    offsets, begins, sizes, counts = parts
    for window in range(len(first)):
        for row in range(first[window], behind[window]):
            at = begin[window] + offsets[row] - low[window]
            for place in range(sizes[row]):
                sums[at + place] += counts[begins[row] + place]
