"""Numbers to windows: the loops over every point, and over every window of a finer tier, in machine code.

Comes in: rows of series, one series after the other, each by time. Goes out: what each window holds. What always holds:
a number is treated as Prometheus' functions over ranges do, so stale markers are no samples, NaN is the smallest and
the largest only where all are NaN, and NaN after NaN is no change; and windows of windows are what windows of their
points are: bit for bit but for sums, which keep what rounding took from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.series.group_kernels import added

# What a row is to its window.
NOTHING, NUMBER, STALE_MARKER, HISTOGRAM = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
NEVER = np.int64(-(2**63))  # no time of a row: in ms these are smaller


class Windows(NamedTuple):
    """Columns, one row for each window. Times are ms. Where `count` is 0 only the last three say anything. `last_row`
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


def empty_windows(count: int) -> Windows:
    found = Windows(*(np.zeros(count, np.float64 if name in _FLOATS else np.int64) for name in Windows._fields))
    found.stale_time[:] = NEVER
    found.last_row[:] = -1
    return found


@njit(cache=True, nogil=True)
def cut(series: Any, times: Any, tier: Any) -> Any:
    """(starts, ends): the rows at which windows start, and the number of rows; the time at which each window ends."""
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
    for window in range(len(starts) - 1):
        seen = NEVER
        for row in range(starts[window + 1] - 1, starts[window] - 1, -1):
            if kinds[row] == NOTHING:
                continue
            if times[row] == seen:
                kinds[row] = NOTHING
            seen = times[row]


@njit(cache=True, nogil=True, error_model="numpy")
def of_points(starts: Any, times: Any, values: Any, kinds: Any, out: Any) -> None:
    for window in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[window], starts[window + 1]):
            kind = kinds[row]
            if kind != NUMBER:
                if kind != NOTHING:
                    out.last_row[window] = row
                    if kind == STALE_MARKER:
                        out.stale_time[window] = times[row]
                    else:
                        _note_histogram(out, window, times[row], times[row])
                continue
            number = values[row]
            out.last_row[window] = row
            total, lost = added(number, total, lost)
            if count == 0:
                least = most = number
                out.first[window] = number
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
            if out.histograms[window] == 0:
                if count == 0:
                    out.first_time[window] = times[row]
                out.last_time[window] = times[row]
            count += 1
        out.count[window], out.sum[window], out.sum_error[window] = count, total, lost
        out.min[window], out.max[window], out.last[window] = least, most, last
        out.reset_sum[window], out.resets[window], out.changes[window] = reset_sum, resets, changes


@njit(cache=True, nogil=True, error_model="numpy")
def of_windows(starts: Any, kinds: Any, given: Any, out: Any) -> None:
    """`given` are windows of a finer tier, which are joined. A kind is NUMBER, HISTOGRAM or NOTHING."""
    for window in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[window], starts[window + 1]):
            if kinds[row] == NOTHING:
                continue
            out.last_row[window] = row
            out.stale_time[window] = max(out.stale_time[window], given.stale_time[row])
            if kinds[row] == HISTOGRAM:
                _note_histogram(out, window, given.first_time[row], given.last_time[row])
                continue
            if given.count[row] == 0:
                continue
            total, lost = added(given.sum[row], total, lost)
            if not np.isinf(total):
                lost += given.sum_error[row]
            first = given.first[row]
            if count == 0:
                least, most = given.min[row], given.max[row]
                out.first[window] = first
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
            if out.histograms[window] == 0:
                if count == 0:
                    out.first_time[window] = given.first_time[row]
                out.last_time[window] = given.last_time[row]
            count += given.count[row]
        out.count[window], out.sum[window], out.sum_error[window] = count, total, lost
        out.min[window], out.max[window], out.last[window] = least, most, last
        out.reset_sum[window], out.resets[window], out.changes[window] = reset_sum, resets, changes


@njit(cache=True, nogil=True)
def _note_histogram(out: Any, window: Any, first_time: Any, last_time: Any) -> None:
    """A window that holds one is one of histograms: its times are theirs, whatever numbers say."""
    out.histograms[window] += 1
    if out.histograms[window] == 1:
        out.first_time[window] = first_time
    out.last_time[window] = last_time
