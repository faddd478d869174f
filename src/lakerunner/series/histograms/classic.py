"""Classic histograms: series of cumulative counts, one for each upper bound in the label `le`.

Comes in: a vector. Goes out: its histograms (series that differ only in `le`), then quantiles and fractions of them at
every step. Which buckets are present may differ from step to step. What always holds: the buckets of a histogram are
adjacent rows, sorted by bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.labels import Labels, value_of
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.values import Vector

BOUND = "le"
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_HEX = re.compile(r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?\d+", re.IGNORECASE | re.ASCII)
_SMALL = 1e-12  # relative difference below which counts are equal
_LEAST_NORMAL = 2.2250738585072014e-308
_GREATEST = 1.7976931348623157e308


@dataclass(frozen=True)
class ClassicHistograms:
    """The buckets of histogram n are the rows `offsets[n]:offsets[n + 1]`."""

    labels: Sequence[Labels]  # without the bound
    offsets: Ints  # [histograms + 1]
    bounds: Floats  # [buckets]
    values: Floats  # [buckets, steps]
    present: Bools  # [buckets, steps]

    def occupied(self) -> Bools:
        """Return where there is any bucket, [histograms, steps]."""
        if not self.labels:
            return np.zeros((0, self.present.shape[1]), bool)
        there: Bools = np.logical_or.reduceat(self.present, self.offsets[:-1], axis=0)
        return there


@dataclass(frozen=True)
class Quantiles:
    """`fall` is how far the count of a bucket was below that of a lower one, where counts had to be raised for that,
    else zero; `lowest` and `highest` are the bounds of the raised buckets."""

    values: Floats  # [histograms, steps], as are the others
    fall: Floats
    lowest: Floats
    highest: Floats


def bound_of(text: str) -> float | None:
    """Parse the label of a bound; None if it is not a number."""
    if _NUMBER.fullmatch(text):
        number = float(text)
    elif _HEX.fullmatch(text):
        try:
            number = float.fromhex(text)
        except OverflowError:
            return None
    else:
        return None
    return None if math.isinf(number) and "inf" not in text.lower() else number


def classic_histograms(vector: Vector, present: Bools) -> tuple[ClassicHistograms, list[int]]:
    """Group the samples that `present` marks; also return the rows that have such samples but no valid bound."""
    groups: dict[Labels, list[tuple[float, int]]] = {}
    without_bound = []
    for row in np.flatnonzero(present.any(axis=1)).tolist():
        labels = vector.labels[row]
        bound = bound_of(value_of(labels, BOUND))
        if bound is None:
            without_bound.append(row)
        else:
            groups.setdefault(tuple(pair for pair in labels if pair[0] != BOUND), []).append((bound, row))
    for buckets in groups.values():
        buckets.sort(key=lambda bucket: (math.isnan(bucket[0]), bucket[0]))
    ordered = [bucket for buckets in groups.values() for bucket in buckets]
    rows = np.array([row for _, row in ordered], np.int64)
    offsets = np.cumsum([0, *(len(buckets) for buckets in groups.values())], dtype=np.int64)
    bounds = np.array([bound for bound, _ in ordered], np.float64)
    return ClassicHistograms(list(groups), offsets, bounds, vector.values[rows], present[rows]), without_bound


def quantiles(histograms: ClassicHistograms, q: Floats) -> Quantiles:
    """Compute quantiles; `q` has one for each step."""
    answer = np.zeros((4, len(histograms.labels), histograms.values.shape[1]))
    _quantiles(histograms.offsets, histograms.bounds, histograms.values, histograms.present, q, answer)
    return Quantiles(*answer)


def fractions(histograms: ClassicHistograms, lower: Floats, upper: Floats) -> Floats:
    """Compute the fraction of observations between two values, which are given for each step."""
    answer = np.zeros((len(histograms.labels), histograms.values.shape[1]))
    _fractions(
        histograms.offsets, histograms.bounds, histograms.values, histograms.present, np.stack((lower, upper)), answer
    )
    return answer


@njit(cache=True, nogil=True)
def _gather(bounds: Any, values: Any, present: Any, step: Any, found: Any) -> Any:
    """Copy the bounds and counts of the buckets that are present at this step, adding up equal bounds; return their
    number."""
    number = 0
    for row in range(len(bounds)):
        if not present[row, step]:
            continue
        if number > 0 and bounds[row] == found[0, number - 1]:
            found[1, number - 1] += values[row, step]
        else:
            found[0, number] = bounds[row]
            found[1, number] = values[row, step]
            number += 1
    return number


@njit(cache=True, nogil=True)
def _nearly_equal(a: Any, b: Any) -> Any:
    if np.isnan(a) and np.isnan(b):
        return True
    # Relative to the sum, but absolute near zero where the ratio is meaningless.
    total = abs(a) + abs(b)
    if a == 0 or b == 0 or total < _LEAST_NORMAL:
        return abs(a - b) < _SMALL * _LEAST_NORMAL
    return abs(a - b) / min(total, _GREATEST) < _SMALL


@njit(cache=True, nogil=True)
def _raise_falling(bounds: Any, counts: Any) -> Any:
    """Make the counts ascend, in place. Return the greatest decrease, and the lowest and highest bound where there was
    one."""
    fall, lowest, highest = 0.0, np.inf, -np.inf
    before = counts[0]
    for n in range(1, len(counts)):
        here = counts[n]
        if here == before:
            continue
        if _nearly_equal(before, here):
            counts[n] = before
        elif here < before:
            counts[n] = before
            lowest, highest, fall = min(lowest, bounds[n]), max(highest, bounds[n]), max(fall, before - here)
        else:
            before = here
    return fall, lowest, highest


@njit(cache=True, nogil=True, error_model="numpy")
def _quantile(bounds: Any, counts: Any, q: Any) -> Any:
    # The last bucket is +Inf: a rank inside it gives the highest finite bound.
    last = len(bounds) - 1
    if last < 1 or counts[last] == 0:
        return np.nan
    rank = q * counts[last]
    low, high = 0, last  # binary search for the first bucket, before the last, whose count reaches the rank
    while low < high:
        middle = (low + high) // 2
        if counts[middle] >= rank:
            high = middle
        else:
            low = middle + 1
    if low == last:
        return bounds[last - 1]
    if low == 0 and bounds[0] <= 0:
        return bounds[0]
    start, count = 0.0, counts[low]
    if low > 0:
        start = bounds[low - 1]
        count -= counts[low - 1]
        rank -= counts[low - 1]
    return start + (bounds[low] - start) * (rank / count)


@njit(cache=True, nogil=True)
def _quantiles(offsets: Any, bounds: Any, values: Any, present: Any, q: Any, out: Any) -> None:
    found = np.empty((2, len(bounds)))
    for group in range(len(offsets) - 1):
        own = slice(offsets[group], offsets[group + 1])
        for step in range(values.shape[1]):
            number = _gather(bounds[own], values[own], present[own], step, found)
            if number == 0 or np.isnan(q[step]):
                out[0, group, step] = np.nan
            elif q[step] < 0 or q[step] > 1:
                out[0, group, step] = -np.inf if q[step] < 0 else np.inf
            elif found[0, number - 1] != np.inf:
                out[0, group, step] = np.nan
            else:
                here, counts = found[0, :number], found[1, :number]
                out[1, group, step], out[2, group, step], out[3, group, step] = _raise_falling(here, counts)
                out[0, group, step] = _quantile(here, counts, q[step])


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(bounds: Any, counts: Any, value: Any) -> Any:
    """Return how many observations are below the value, at most all."""
    rank, total = 0.0, counts[-1]
    lower = -np.inf if bounds[0] <= 0 else 0.0
    for n in range(len(bounds)):
        if n > 0:
            lower = bounds[n - 1]
        if lower >= value:
            return min(rank, total)
        if bounds[n] > value:
            if lower == -np.inf:  # the position inside an open bucket is unknown
                return min(counts[n], total)
            return min(rank + (counts[n] - rank) * (value - lower) / (bounds[n] - lower), total)
        rank = counts[n]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _fractions(offsets: Any, bounds: Any, values: Any, present: Any, between: Any, out: Any) -> None:
    found = np.empty((2, len(bounds)))
    for group in range(len(offsets) - 1):
        own = slice(offsets[group], offsets[group + 1])
        for step in range(values.shape[1]):
            lower, upper = between[0, step], between[1, step]
            number = _gather(bounds[own], values[own], present[own], step, found)
            here, counts = found[0, :number], found[1, :number]
            if number == 0 or here[-1] != np.inf or counts[-1] == 0 or np.isnan(lower) or np.isnan(upper):
                out[group, step] = np.nan
            elif lower >= upper:
                out[group, step] = 0.0
            else:
                out[group, step] = (_rank(here, counts, upper) - _rank(here, counts, lower)) / counts[-1]
