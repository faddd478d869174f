"""Kernels over the float samples of each window.

Comes in: a table of windows. Goes out: a value for each window that has a sample. What always holds: samples are added
in the order in which they stand, so that the bits do not depend on how windows overlap; a window is a run of places, so
that several samples of one time all count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.values import Windows

NO_STARTS: Ints = np.zeros(0, np.int64)


class Table(NamedTuple):
    """Windows as kernels take them. `starts` is empty if no sample has a start time."""

    times: Ints
    values: Floats
    starts: Ints
    first: Ints  # [series, steps]
    last: Ints  # [series, steps]
    ends: Ints  # [steps]


def table_of(windows: Windows) -> Table:
    samples = windows.samples
    starts = NO_STARTS if samples.starts is None else samples.starts
    return Table(samples.times, samples.values, starts, windows.first, windows.last, windows.ends)


@njit(cache=True, nogil=True)
def plus(number: Any, total: Any, lost: Any) -> Any:
    """Add a number to a compensated sum: return the sum and its rounding error. An infinite sum has no error.

    Neumaier's comparison of the operands is a branch that processors cannot predict. The rounding error is itself a
    float, and unless the numbers are near the largest ones Knuth's two-sum finds the same one without comparing."""
    grown = total + number
    if abs(grown) < 1e307:
        taken = grown - total
        return grown, lost + ((total - (grown - taken)) + (number - taken))
    if np.isinf(grown):
        return grown, 0.0
    if abs(total) >= abs(number):
        return grown, lost + ((total - grown) + number)
    return grown, lost + ((number - grown) + total)


@njit(cache=True, nogil=True, error_model="numpy")
def sums(table: Any, values: Any) -> None:
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            total = lost = 0.0
            for at in range(first[series, step], last[series, step]):
                total, lost = plus(numbers[at], total, lost)
            values[series, step] = total if np.isinf(total) else total + lost


@njit(cache=True, nogil=True, error_model="numpy")
def means(table: Any, values: Any) -> None:
    """Divide the sum by the count. From the sample on that would make the sum infinite, a running mean is used."""
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b <= a:
                continue
            total, lost = numbers[a], 0.0
            at = a + 1
            while at < b:
                grown, grown_lost = plus(numbers[at], total, lost)
                if np.isinf(grown):
                    break
                total, lost = grown, grown_lost
                at += 1
            if at == b:
                values[series, step] = total / (b - a) + lost / (b - a)
            else:
                values[series, step] = _moving_mean(numbers[a:b], at - a, total, lost)


@njit(cache=True, nogil=True, error_model="numpy")
def _moving_mean(numbers: Any, taken: Any, total: Any, lost: Any) -> Any:
    """Continue as a running mean. `total` and `lost` are those of the first `taken` numbers."""
    mean = total / taken
    lost = lost / taken
    for at in range(taken, len(numbers)):
        count = at + 1.0
        share = (count - 1) / count
        mean, lost = plus(numbers[at] / count, share * mean, share * lost)
    return mean + lost


@njit(cache=True, nogil=True, error_model="numpy")
def variances(table: Any, values: Any) -> None:
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            count = mean = mean_lost = squares = squares_lost = 0.0
            for at in range(first[series, step], last[series, step]):
                count += 1
                # Welford's update with a compensated mean and sum: both distances include the compensation, as in the
                # original.
                distance = numbers[at] - (mean + mean_lost)
                mean, mean_lost = plus(distance / count, mean, mean_lost)
                squares, squares_lost = plus(distance * (numbers[at] - (mean + mean_lost)), squares, squares_lost)
            if count > 0:
                values[series, step] = (squares + squares_lost) / count


@njit(cache=True, nogil=True)
def extremes(table: Any, sign: Any, latest: Any, as_time: Any, values: Any) -> None:
    """Find the largest number (`sign` 1) or the smallest (-1), or its time (`as_time`). Of equal numbers the first
    counts, or the `latest`; NaN only if there is nothing else.

    A window is cut in two at `middle`: for each place before it the best up to the middle is known, behind it only the
    best of all. When the window has left the front part, its back part becomes the front. So each sample is read twice,
    however much windows overlap."""
    times, numbers, _, first, last, _ = table
    front = np.empty(_longest(first, last), np.int64)
    for series in range(first.shape[0]):
        middle = seen = best = -1
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b <= a:
                continue
            # `front` is indexed from the first sample that any window of the series has.
            base = first[series, 0]
            if a >= middle:
                place = b - 1
                for at in range(b - 1, a - 1, -1):
                    place = _better_of(numbers, sign, latest, at, place)
                    front[at - base] = place
                middle = b
                best = -1
            else:
                for at in range(seen, b):
                    best = at if best < 0 else _better_of(numbers, sign, latest, best, at)
            seen = b
            place = front[a - base]
            if best >= 0:
                place = _better_of(numbers, sign, latest, place, best)
            values[series, step] = float(times[place]) if as_time else numbers[place]


@njit(cache=True, nogil=True)
def _better_of(numbers: Any, sign: Any, latest: Any, early: Any, late: Any) -> Any:
    """Return the place of the better one."""
    one, other = sign * numbers[early], sign * numbers[late]
    return late if (other > one) | (latest & (other == one)) | np.isnan(one) else early


@njit(cache=True, nogil=True)
def _longest(first: Any, last: Any) -> Any:
    longest = 0
    if first.shape[1] > 0:
        for series in range(first.shape[0]):
            longest = max(longest, last[series, -1] - first[series, 0])
    return longest


@njit(cache=True, nogil=True, error_model="numpy")
def quantiles(table: Any, wanted: Any, values: Any) -> None:
    """Compute the quantile of each window; `wanted` has one for each step."""
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b > a:
                values[series, step] = quantile(wanted[step], numbers[a:b])


@njit(cache=True, nogil=True, error_model="numpy")
def quantile(wanted: Any, numbers: Any) -> Any:
    """Interpolate between the two nearest numbers. NaN is smaller than all others."""
    if np.isnan(wanted):
        return np.nan
    if wanted < 0:
        return -np.inf
    if wanted > 1:
        return np.inf
    count = len(numbers)
    ordered = _sort_numbers(numbers)
    unordered = 0
    while unordered < count and np.isnan(ordered[count - 1 - unordered]):
        unordered += 1
    rank = wanted * (count - 1.0)
    low = int(np.floor(rank))
    high = min(count - 1, low + 1)
    weight = rank - np.floor(rank)
    # NaN sorts first for quantiles but last in `ordered`, so ranks are shifted by the number of NaN.
    lower = np.nan if low < unordered else ordered[low - unordered]
    upper = np.nan if high < unordered else ordered[high - unordered]
    return lower * (1 - weight) + upper * weight


@njit(cache=True, nogil=True)
def _sort_numbers(numbers: Any) -> Any:
    """Sort ascending, NaN last."""
    if len(numbers) > 64:
        return np.sort(numbers)
    ordered = numbers.copy()  # insertion sort, which beats a general sort for few numbers
    for at in range(1, len(ordered)):
        number = ordered[at]
        place = at
        while place > 0 and (ordered[place - 1] > number or (np.isnan(ordered[place - 1]) and not np.isnan(number))):
            ordered[place] = ordered[place - 1]
            place -= 1
        ordered[place] = number
    return ordered


@njit(cache=True, nogil=True, error_model="numpy")
def median_deviations(table: Any, values: Any) -> None:
    """Compute the median of the distances from the median; NaN if any number is NaN."""
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b <= a:
                continue
            if np.isnan(numbers[a:b]).any():
                values[series, step] = np.nan
            else:
                values[series, step] = quantile(0.5, np.abs(numbers[a:b] - quantile(0.5, numbers[a:b])))
