"""Quantiles, fractions and variance of a native histogram.

Inside a bucket observations are assumed to be spread evenly on a logarithmic scale; on a linear one in custom buckets
and in the zero bucket. If all buckets have one sign the zero bucket has that sign too. Observations of NaN are in the
count but in no bucket; a sum of NaN reveals them.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.series.arrays import Floats
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, bound
from lakerunner.series.math.exponential import exp2, log2


class NanFact(IntEnum):
    """How observations of NaN affected a result."""

    NONE = 0
    RESULT = 1  # the result is NaN, since the rank lies beyond the buckets
    SKEW = 2  # they count as greater than all others
    EXCLUDED = 3  # they are left out of the fraction


_NONE, _RESULT, _SKEW = 0, 1, 2
_CUSTOM, _POSITIVE, _NEGATIVE, _BOTH = 2, 1, -1, 0  # of what kind the buckets are


def quotient(dividend: float, divisor: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return float(np.float64(dividend) / np.float64(divisor))


def quantile(histogram: Histogram, q: float) -> tuple[float, NanFact]:
    if q < 0 or q > 1:
        return math.copysign(math.inf, q), NanFact.NONE
    if histogram.count == 0 or math.isnan(q):
        return math.nan, NanFact.NONE
    kind = _CUSTOM if histogram.is_custom else _signs(histogram)
    value, fact = _quantile(*_bucket_arrays(histogram), q, histogram.count, math.isnan(histogram.sum), kind)
    return value, NanFact(fact)


def fraction(histogram: Histogram, lower: float, upper: float) -> tuple[float, NanFact]:
    """Return the fraction of observations between two values."""
    if histogram.count == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan, NanFact.NONE
    if lower >= upper:
        return 0.0, NanFact.NONE
    spread, signs = _bucket_arrays(histogram), _signs(histogram)
    below = [_rank(*spread, value, histogram.is_custom, signs) for value in (lower, upper)]
    count, fact = histogram.count, NanFact.NONE
    if math.isnan(histogram.sum):
        in_buckets = np.cumsum(spread[2])
        count = float(in_buckets[-1]) if len(in_buckets) else 0.0
        fact = NanFact.EXCLUDED if count < histogram.count else NanFact.NONE
    ranks = [count if rank > count else rank for rank in below]
    return quotient(ranks[1] - ranks[0], histogram.count), fact


def variance(histogram: Histogram) -> float:
    """Return the variance, as if all observations of a bucket were at its middle."""
    mean = quotient(histogram.sum, histogram.count)
    return quotient(_squares(*_bucket_arrays(histogram), mean, histogram.is_custom), histogram.count)


def _signs(histogram: Histogram) -> int:
    if len(histogram.negative) == 0 and len(histogram.positive) > 0:
        return _POSITIVE
    return _NEGATIVE if len(histogram.positive) == 0 and len(histogram.negative) > 0 else _BOTH


def _bucket_arrays(histogram: Histogram) -> tuple[Floats, Floats, Floats]:
    """Return lower bounds, upper bounds and counts of all buckets, ascending, as all_buckets() yields them."""
    lower, upper = _bounds_of(histogram, histogram.positive)
    counts, threshold = histogram.positive.counts, histogram.zero_threshold
    if len(lower) and threshold > lower[0]:
        lower = np.where((lower > 0) & (lower < threshold), threshold, lower)
    if histogram.zero_count > 0:
        lower, upper = np.append(-threshold, lower), np.append(threshold, upper)
        counts = np.append(histogram.zero_count, counts)
    if len(histogram.negative):
        near, far = _bounds_of(histogram, histogram.negative)
        near = np.where((near > 0) & (near < threshold), threshold, near)
        lower, upper = np.concatenate((-far[::-1], lower)), np.concatenate((-near[::-1], upper))
        counts = np.concatenate((histogram.negative.counts[::-1], counts))
    return lower, upper, counts


def _bounds_of(histogram: Histogram, buckets: BucketCounts) -> tuple[Floats, Floats]:
    return _bounds(histogram.schema, histogram.custom_values, buckets.indexes.tobytes())


@lru_cache(maxsize=4096)
def _bounds(schema: int, custom_values: tuple[float, ...], indexes: bytes) -> tuple[Floats, Floats]:
    """Return the bounds of buckets. Cached: the histograms of a series mostly have the same buckets."""
    layout = Histogram(schema, 0.0, 0.0, custom_values=custom_values)
    places = np.frombuffer(indexes, np.int32).tolist()
    upper = np.array([bound(layout, index) for index in places])
    return np.array([bound(layout, index - 1) for index in places]), upper


@njit(cache=True, nogil=True, error_model="numpy")
def fraction_below(lower: Any, upper: Any, value: Any, linear: Any) -> Any:
    """Return the part of a bucket's width, from 0 to 1, that is below a value inside it."""
    if linear:
        return (value - lower) / (upper - lower)
    log_lower, log_upper, here = log2(abs(lower)), log2(abs(upper)), log2(abs(value))
    if value > 0:
        return (here - log_lower) / (log_upper - log_lower)
    return 1 - (here - log_upper) / (log_lower - log_upper)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantile(lowers: Any, uppers: Any, counts: Any, q: Any, total: Any, may_have_nan: Any, kind: Any) -> Any:
    """Find the bucket of the rank. Counts are taken from the nearer end, but from below if there may be observations of
    NaN, since the total includes those."""
    forward = may_have_nan or q < 0.5
    rank = (q if forward else 1 - q) * total
    count, place = 0.0, -1
    for n in range(len(counts)):
        place = n if forward else len(counts) - 1 - n
        count += counts[place]
        if counts[place] != 0 and count >= rank:
            break
    lower, upper, here = 0.0, 0.0, 0.0
    if place >= 0:
        lower, upper, here = lowers[place], uppers[place], counts[place]
    if kind == _CUSTOM:
        if upper == np.inf and lower != -np.inf:
            return lower, _NONE
        if lower == -np.inf and upper <= 0:
            return upper, _NONE
        lower = 0.0 if lower == -np.inf else lower
    elif lower < 0 < upper:
        lower, upper = 0.0 if kind == _POSITIVE else lower, 0.0 if kind == _NEGATIVE else upper
    count = total if count > total else count
    if count < rank:
        return (np.nan, _RESULT) if may_have_nan else (upper, _NONE)
    rank = rank - (count - here) if forward else count - rank
    fact = _NONE
    if may_have_nan:
        for n in range(place + 1, len(counts)):  # rounding may leave the rank beyond all counts: take the last bucket
            lower, upper, here = lowers[n], uppers[n], counts[n]
            count += here
        fact = _SKEW if count < total else _NONE
    return _inside(lower, upper, rank / here, kind), fact


@njit(cache=True, nogil=True)
def _inside(lower: Any, upper: Any, part: Any, kind: Any) -> Any:
    """Return the value at this part of the bucket."""
    if kind == _CUSTOM or lower <= 0 <= upper:
        return lower + (upper - lower) * part
    log_lower, log_upper = log2(abs(lower)), log2(abs(upper))
    if lower > 0:
        return exp2(log_lower + (log_upper - log_lower) * part)
    return -exp2(log_upper + (log_lower - log_upper) * (1 - part))


@njit(cache=True, nogil=True)
def _rank(lowers: Any, uppers: Any, counts: Any, value: Any, custom: Any, signs: Any) -> Any:
    """Return how many observations are below the value; for infinity all that are in buckets."""
    rank = 0.0
    for n in range(len(counts)):
        lower, upper = lowers[n], uppers[n]
        around_zero = lower <= 0 <= upper
        if around_zero:
            lower, upper = 0.0 if signs == _POSITIVE else lower, 0.0 if signs == _NEGATIVE else upper
        if lower >= value:
            return rank
        if upper > value:
            if lower == -np.inf and (custom or around_zero):
                return counts[n]  # the position inside an open bucket is unknown
            return rank + counts[n] * fraction_below(lower, upper, value, custom or around_zero)
        rank += counts[n]
    return np.inf


@njit(cache=True, nogil=True)
def _squares(lowers: Any, uppers: Any, counts: Any, mean: Any, custom: Any) -> Any:
    """Return the compensated sum of squared distances from the mean."""
    total, lost = 0.0, 0.0
    for n in range(len(counts)):
        if counts[n] == 0:
            continue
        lower, upper = lowers[n], uppers[n]
        if custom:
            middle = (upper + lower) / 2.0
        elif lower <= 0 <= upper:
            middle = 0.0
        else:
            middle = math.copysign(math.sqrt(upper * lower), upper)
        by = counts[n] * (middle - mean) * (middle - mean)
        new = total + by
        if math.isinf(new):
            lost = 0.0
        else:
            lost += (total - new) + by if abs(total) >= abs(by) else (by - new) + total
        total = new
    return total + lost
