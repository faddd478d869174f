"""Numbers to buckets: the loops over every point, and over every bucket of a finer tier, in machine code.

Comes in: rows of series, one series after the other, each by time. Goes out: what each bucket holds. What always holds:
a number is treated as Prometheus' functions over ranges do, so stale markers are no samples, NaN is the smallest and
the largest only where all are NaN, and NaN after NaN is no change; and buckets of buckets are what buckets of their
points are: bit for bit but for sums, which keep what rounding took from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.series.group_kernels import added

# What a row is to its bucket.
NOTHING, NUMBER, STALE_MARKER, HISTOGRAM = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
NEVER = np.int64(-(2**63))  # no time of a row: in ms these are smaller


class Buckets(NamedTuple):
    """Columns, one row for each bucket. Times are ms. Where `count` is 0 only the last three say anything. `last_row`
    is the row of the input that came last, -1 where none counts; `histograms` is how many rows are histograms."""

    count: Any
    sum: Any
    sum_error: Any
    min: Any
    max: Any
    first: Any
    first_time: Any
    last: Any
    last_time: Any
    reset_sum: Any
    resets: Any
    changes: Any
    stale_time: Any
    last_row: Any
    histograms: Any


_FLOATS = {"sum", "sum_error", "min", "max", "first", "last", "reset_sum"}


def empty_buckets(count: int) -> Buckets:
    found = Buckets(*(np.zeros(count, np.float64 if name in _FLOATS else np.int64) for name in Buckets._fields))
    found.stale_time[:] = NEVER
    found.last_row[:] = -1
    return found


@njit(cache=True, nogil=True)
def cut(series: Any, times: Any, tier: Any) -> Any:
    """(starts, ends): the rows at which buckets start, and the number of rows; the time at which each bucket ends."""
    starts, ends = np.empty(len(series) + 1, np.int64), np.empty(len(series), np.int64)
    found = 0
    end = np.int64(0)
    for row in range(len(series)):
        if found == 0 or series[row] != series[row - 1] or times[row] > end:
            end = -(-times[row] // tier) * tier
            starts[found], ends[found] = row, end
            found += 1
    starts[found] = len(series)
    return starts[: found + 1].copy(), ends[:found].copy()


@njit(cache=True, nogil=True)
def settle(starts: Any, times: Any, kinds: Any) -> None:
    """Of several rows of one time the last counts: the others become nothing."""
    for bucket in range(len(starts) - 1):
        seen = NEVER
        for row in range(starts[bucket + 1] - 1, starts[bucket] - 1, -1):
            if kinds[row] == NOTHING:
                continue
            if times[row] == seen:
                kinds[row] = NOTHING
            seen = times[row]


@njit(cache=True, nogil=True, error_model="numpy")
def of_points(starts: Any, times: Any, values: Any, kinds: Any, out: Any) -> None:
    for bucket in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[bucket], starts[bucket + 1]):
            kind = kinds[row]
            if kind != NUMBER:
                if kind != NOTHING:
                    out.last_row[bucket] = row
                    if kind == STALE_MARKER:
                        out.stale_time[bucket] = times[row]
                    else:
                        _note_histogram(out, bucket, times[row], times[row])
                continue
            number = values[row]
            out.last_row[bucket] = row
            total, lost = added(number, total, lost)
            if count == 0:
                least = most = number
                out.first[bucket] = number
            else:
                if number < least or np.isnan(least):
                    least = number
                if number > most or np.isnan(most):
                    most = number
                if number < last:
                    resets += 1
                    reset_sum += last
                changes += number != last and not (np.isnan(number) and np.isnan(last))
            last = number
            if out.histograms[bucket] == 0:
                if count == 0:
                    out.first_time[bucket] = times[row]
                out.last_time[bucket] = times[row]
            count += 1
        out.count[bucket], out.sum[bucket], out.sum_error[bucket] = count, total, lost
        out.min[bucket], out.max[bucket], out.last[bucket] = least, most, last
        out.reset_sum[bucket], out.resets[bucket], out.changes[bucket] = reset_sum, resets, changes


@njit(cache=True, nogil=True, error_model="numpy")
def of_buckets(starts: Any, kinds: Any, given: Any, out: Any) -> None:
    """`given` are buckets of a finer tier, which are joined. A kind is NUMBER, HISTOGRAM or NOTHING."""
    for bucket in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[bucket], starts[bucket + 1]):
            if kinds[row] == NOTHING:
                continue
            out.last_row[bucket] = row
            out.stale_time[bucket] = max(out.stale_time[bucket], given.stale_time[row])
            if kinds[row] == HISTOGRAM:
                _note_histogram(out, bucket, given.first_time[row], given.last_time[row])
                continue
            if given.count[row] == 0:
                continue
            total, lost = added(given.sum[row], total, lost)
            if not np.isinf(total):
                lost += given.sum_error[row]
            first = given.first[row]
            if count == 0:
                least, most = given.min[row], given.max[row]
                out.first[bucket] = first
            else:
                if given.min[row] < least or np.isnan(least):
                    least = given.min[row]
                if given.max[row] > most or np.isnan(most):
                    most = given.max[row]
                if first < last:
                    resets += 1
                    reset_sum += last
                changes += first != last and not (np.isnan(first) and np.isnan(last))
            reset_sum += given.reset_sum[row]
            resets += given.resets[row]
            changes += given.changes[row]
            last = given.last[row]
            if out.histograms[bucket] == 0:
                if count == 0:
                    out.first_time[bucket] = given.first_time[row]
                out.last_time[bucket] = given.last_time[row]
            count += given.count[row]
        out.count[bucket], out.sum[bucket], out.sum_error[bucket] = count, total, lost
        out.min[bucket], out.max[bucket], out.last[bucket] = least, most, last
        out.reset_sum[bucket], out.resets[bucket], out.changes[bucket] = reset_sum, resets, changes


@njit(cache=True, nogil=True)
def _note_histogram(out: Any, bucket: Any, first_time: Any, last_time: Any) -> None:
    """A bucket that holds one is one of histograms: its times are theirs, whatever numbers say."""
    out.histograms[bucket] += 1
    if out.histograms[bucket] == 1:
        out.first_time[bucket] = first_time
    out.last_time[bucket] = last_time
