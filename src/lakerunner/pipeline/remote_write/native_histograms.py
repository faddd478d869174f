"""Native histograms of remote-write: sparse buckets on the wire to dense ones.

Comes in: Histogram messages that passed the wire check. Goes out: their numbers, and for each side of zero the counts
of all buckets from the first to the last that it lists, with zeros in the gaps.

Prometheus' bucket n ends at base^n, OTLP's bucket n begins there, so the offset of OTLP, which segments hold, is one
less. Custom buckets (schema -53) are numbered from their first bound; there is one more of them than bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import load
from lakerunner.pipeline.read.wire import OK, read_varint
from lakerunner.pipeline.remote_write.fields import (
    COUNT,
    CUSTOM,
    DELTAS,
    FLOAT_COUNT,
    FLOAT_ZERO_COUNT,
    FLOATS,
    HISTOGRAM,
    HISTOGRAMS,
    LENGTH,
    OFFSET,
    REQUEST,
    RESET,
    SCHEMA,
    SERIES,
    SPAN,
    SPANS,
    START,
    SUM,
    TIME,
    TIMESERIES,
    ZERO_COUNT,
    ZERO_THRESHOLD,
    decode_zigzag,
    read_field,
    read_int32,
    read_uint32,
)

CUSTOM_BUCKETS = -53
# Buckets of one side of a histogram, gaps filled. Prometheus' own have some 160 at most.
MAX_BUCKETS = 1 << 16
MAX_HISTOGRAM = 1 << 20  # bytes of one message

BAD_SPANS, NEGATIVE, SPREAD, BOTH_KINDS, BAD_CUSTOM, TOO_WIDE = range(40, 46)
TROUBLES = {
    BAD_SPANS: "has spans that do not match the number of its counts, go backwards or are out of range",
    NEGATIVE: "has a bucket with a count below zero or above 63 bits",
    SPREAD: f"has more than {MAX_BUCKETS} buckets",
    BOTH_KINDS: "has integer and float counts for the same buckets",
    BAD_CUSTOM: "has buckets outside of its custom bounds",
    TOO_WIDE: f"is larger than {MAX_HISTOGRAM >> 20} MB",
}

HISTOGRAM_ROW = np.dtype(
    [
        ("at", np.int64),
        ("end", np.int64),
        ("row", np.int64),
        ("time", np.int64),  # ms, also start
        ("start", np.int64),
        ("count", np.uint64),
        ("float_count", np.uint64),  # doubles as their bits, here and below
        ("sum", np.uint64),
        ("zero_threshold", np.uint64),
        ("zero_count", np.uint64),
        ("float_zero_count", np.uint64),
        ("schema", np.int32),
        ("reset", np.int32),
        ("is_float", np.bool_),
        ("zero_is_float", np.bool_),
        ("bounds", np.int32),  # their number
        # For each side: the number of counts, whether they are doubles, and the offset of the first.
        ("positive", np.int32),
        ("positive_is_float", np.bool_),
        ("positive_offset", np.int32),
        ("negative", np.int32),
        ("negative_is_float", np.bool_),
        ("negative_offset", np.int32),
    ]
)


class _Scratch(NamedTuple):
    """The lists of one histogram by side: offset and length of spans, counts as deltas or as bits of doubles; and the
    bounds. `sizes` are the lengths of the positive spans, deltas and floats, of the negative ones, and of bounds."""

    spans: Any
    deltas: Any
    floats: Any
    bounds: Any
    sizes: Any


def read_histograms(data: Any, version: int, rows: Any, buckets: Any, bounds: Any) -> tuple[int, int, int]:
    """Read the histograms at the places in `rows` and fill the rows. The counts of the positive and the negative side
    of each go into `buckets`, as integers or bits of doubles, its bounds into `bounds`; both may be empty, to check.
    Return (number of the first invalid one, code, number of counts and bounds)."""
    wide = int((rows["end"] - rows["at"]).max())
    if wide > MAX_HISTOGRAM:
        return int((rows["end"] - rows["at"]).argmax()), TOO_WIDE, 0
    scratch = _Scratch(
        np.zeros((2, wide // 2 + 1, 2), np.int64),
        np.zeros((2, wide + 1), np.int64),
        np.zeros((2, wide // 8 + 1), np.uint64),
        np.zeros(wide // 8 + 1, np.uint64),
        np.zeros(7, np.int64),
    )
    number, code, total = _read_histograms(data, version, rows, buckets, bounds, scratch)
    return int(number), int(code), int(total)


@njit(cache=True)
def find_histograms(data: Any, at: Any, end: Any, version: Any, places: Any, count: Any) -> Any:
    """Set the places of a request's histograms from number `count` on; return the number so far."""
    while at < end:
        role, inner, at = read_field(data, at, version, REQUEST)
        if role == TIMESERIES:
            while inner < at:
                role, start, inner = read_field(data, inner, version, SERIES)
                if role == HISTOGRAMS:
                    places[count].at, places[count].end = start, inner
                    count += 1
    return count


@njit(cache=True)
def _read_histograms(data: Any, version: Any, rows: Any, buckets: Any, bounds: Any, scratch: _Scratch) -> Any:
    taken, bounded = np.int64(0), np.int64(0)
    for number in range(len(rows)):
        row = rows[number]
        _read_numbers(data, version, row, scratch)
        row.bounds = scratch.sizes[6]
        custom = row.schema == CUSTOM_BUCKETS
        for side in range(2):
            first, size, code = _measure_side(side, scratch, custom)
            if code != OK:
                return np.int64(number), code, taken + bounded
            is_float = scratch.sizes[3 * side + 2] > 0
            if len(buckets) > 0:
                _fill_buckets(side, scratch, first, buckets, taken)
            if side == 0:
                row.positive, row.positive_is_float, row.positive_offset = size, is_float, first - 1
            else:
                row.negative, row.negative_is_float, row.negative_offset = size, is_float, first - 1
            taken += size
        if len(bounds) > 0:
            for place in range(row.bounds):
                bounds[bounded + place] = scratch.bounds[place]
        bounded += row.bounds
    return np.int64(-1), OK, taken + bounded


@njit(cache=True)
def _read_numbers(data: Any, version: Any, row: Any, scratch: _Scratch) -> Any:
    """Read a message into its row and the scratch. Of a number that occurs twice the last one wins, also of a count
    that is given as an integer and as a double (a oneof)."""
    at, end, sizes = row.at, row.end, scratch.sizes
    sizes[:] = 0
    while at < end:
        role, start, at = read_field(data, at, version, HISTOGRAM)
        if role >= SPANS and role != RESET:
            _read_list(data, start, at, version, role, scratch)
        elif role == COUNT:
            row.count, row.float_count, row.is_float = read_varint(data, start)[0], np.uint64(0), False
        elif role == FLOAT_COUNT:
            row.count, row.float_count, row.is_float = np.uint64(0), load(data, start), True
        elif role == ZERO_COUNT:
            row.zero_count, row.float_zero_count, row.zero_is_float = read_varint(data, start)[0], np.uint64(0), False
        elif role == FLOAT_ZERO_COUNT:
            row.zero_count, row.float_zero_count, row.zero_is_float = np.uint64(0), load(data, start), True
        elif role == SUM:
            row.sum = load(data, start)
        elif role == ZERO_THRESHOLD:
            row.zero_threshold = load(data, start)
        elif role == SCHEMA:
            row.schema = decode_zigzag(np.uint64(read_uint32(data, start)))
        elif role == RESET:
            row.reset = read_int32(data, start)
        elif role == TIME:
            row.time = np.int64(read_varint(data, start)[0])
        elif role == START:
            row.start = np.int64(read_varint(data, start)[0])


@njit(cache=True)
def _read_list(data: Any, at: Any, end: Any, version: Any, role: Any, scratch: _Scratch) -> Any:
    """Append a span, or a run of counts or bounds, to the scratch."""
    sizes, side = scratch.sizes, role & 1  # SPANS, DELTAS and FLOATS are even, + 1 for the negative side
    if role == CUSTOM:
        while at < end:
            scratch.bounds[sizes[6]] = load(data, at)
            sizes[6] += 1
            at += 8
    elif role - side == DELTAS:
        while at < end:
            number, at = read_varint(data, at)
            scratch.deltas[side, sizes[3 * side + 1]] = decode_zigzag(number)
            sizes[3 * side + 1] += 1
    elif role - side == FLOATS:
        while at < end:
            scratch.floats[side, sizes[3 * side + 2]] = load(data, at)
            sizes[3 * side + 2] += 1
            at += 8
    else:
        span = scratch.spans[side, sizes[3 * side]]
        sizes[3 * side] += 1
        span[0] = span[1] = 0
        while at < end:
            part, start, at = read_field(data, at, version, SPAN)
            if part == OFFSET:
                span[0] = decode_zigzag(np.uint64(read_uint32(data, start)))
            elif part == LENGTH:
                span[1] = read_uint32(data, start)


@njit(cache=True)
def _measure_side(side: Any, scratch: _Scratch, custom: Any) -> Any:
    """Return (first bucket, number of buckets, code) of the dense counts of a side."""
    deltas, floats = scratch.sizes[3 * side + 1], scratch.sizes[3 * side + 2]
    first, index, total = np.int64(0), np.int64(0), np.int64(0)
    for number in range(scratch.sizes[3 * side]):
        offset, length = scratch.spans[side, number, 0], scratch.spans[side, number, 1]
        if number > 0 and offset < 0:
            return first, total, BAD_SPANS
        index += offset
        if total == 0:  # spans without buckets may precede the first bucket
            first = index
        index += length
        total += length
    if deltas > 0 and floats > 0:
        return first, total, BOTH_KINDS
    if total != deltas + floats or (total > 0 and (first <= -(2**31) or index > 2**31)):
        return first, total, BAD_SPANS
    if not _undo_deltas(scratch.deltas[side], deltas):
        return first, total, NEGATIVE
    if total == 0:
        first, index = np.int64(1 - custom), np.int64(1 - custom)
    else:
        index = _end_of_spans(side, scratch)
    if custom:
        bounds = scratch.sizes[6]
        if first < 0 or index > bounds + 1 or (side == 1 and total > 0):
            return first, total, BAD_CUSTOM
        return np.int64(0), bounds + 1 if side == 0 and bounds + total > 0 else np.int64(0), OK
    if index - first > MAX_BUCKETS:
        return first, total, SPREAD
    return first, index - first, OK


@njit(cache=True)
def _end_of_spans(side: Any, scratch: _Scratch) -> Any:
    """Return the bucket behind the last one that is listed; spans without buckets may follow it."""
    index, last = np.int64(0), np.int64(0)
    for number in range(scratch.sizes[3 * side]):
        index += scratch.spans[side, number, 0] + scratch.spans[side, number, 1]
        if scratch.spans[side, number, 1] > 0:
            last = index
    return last


@njit(cache=True)
def _undo_deltas(deltas: Any, size: Any) -> Any:
    """Replace the deltas by the counts; return False if a count is negative."""
    count = np.int64(0)
    for place in range(size):
        count += deltas[place]
        # The count before was not negative, so a sum of more than 63 bits wraps to a negative number.
        if count < 0:
            return False
        deltas[place] = count
    return True


@njit(cache=True)
def _fill_buckets(side: Any, scratch: _Scratch, first: Any, out: Any, start: Any) -> Any:
    """Write each count into its bucket by the spans; bucket `first` is out[start]."""
    index, taken = start - first, 0
    is_float = scratch.sizes[3 * side + 2] > 0
    for number in range(scratch.sizes[3 * side]):
        index += scratch.spans[side, number, 0]
        for _ in range(scratch.spans[side, number, 1]):
            out[index] = scratch.floats[side, taken] if is_float else np.uint64(scratch.deltas[side, taken])
            index += 1
            taken += 1
