"""What a native histogram tells of its observations: quantiles, fractions, variance; one histogram in, numbers out.

Inside a bucket observations are taken to be spread evenly on a logarithmic scale; on a linear one in custom buckets and
in the zero bucket. Where all buckets are of one sign the zero bucket has that sign only. Observations of NaN count, and
are in no bucket; the sum tells of them, being NaN.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum

import numpy as np

from lakerunner.plan.vectors.exponential import exp2, log2
from lakerunner.plan.vectors.histogram import Bucket, Histogram, all_buckets
from lakerunner.plan.vectors.histogram_buckets import increased
from lakerunner.plan.vectors.histogram_trim import fraction_below


class NanFact(Enum):
    """What observations of NaN did to a result."""

    NONE = 0
    RESULT = 1  # it is NaN, as the rank lies beyond the buckets
    SKEW = 2  # they are taken for greater than all others
    EXCLUDED = 3  # they are in no fraction


def quotient(dividend: float, divisor: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return float(np.float64(dividend) / np.float64(divisor))


def quantile(histogram: Histogram, q: float) -> tuple[float, NanFact]:
    """The buckets are counted from the nearer end, but from below where there may be observations of NaN."""
    if q < 0 or q > 1:
        return math.copysign(math.inf, q), NanFact.NONE
    if histogram.count == 0 or math.isnan(q):
        return math.nan, NanFact.NONE
    may_have_nan = math.isnan(histogram.sum)
    forward = may_have_nan or q < 0.5
    buckets = all_buckets(histogram)
    if not forward:
        buckets.reverse()
    rank = (q if forward else 1 - q) * histogram.count
    bucket, count, place = _bucket_of_rank(buckets, rank)
    bucket = _without_foreign_sign(histogram, bucket)
    if histogram.is_custom and bucket.lower == -math.inf:
        if bucket.upper <= 0:
            return bucket.upper, NanFact.NONE
        bucket = replace(bucket, lower=0.0)
    elif histogram.is_custom and bucket.upper == math.inf:
        return bucket.lower, NanFact.NONE
    count = min(count, histogram.count)
    if count < rank:
        return (math.nan, NanFact.RESULT) if may_have_nan else (bucket.upper, NanFact.NONE)
    rank = rank - (count - bucket.count) if forward else count - rank
    fact = NanFact.NONE
    if may_have_nan:
        for bucket in buckets[place + 1 :]:  # Prometheus goes on with the last one
            count += bucket.count
        fact = NanFact.SKEW if count < histogram.count else NanFact.NONE
    return _inside(histogram, bucket, quotient(rank, bucket.count)), fact


def _bucket_of_rank(buckets: list[Bucket], rank: float) -> tuple[Bucket, float, int]:
    """The bucket in which this rank lies, or the last; what is counted with it, and its place."""
    bucket, count, place = Bucket(0.0, 0.0, 0.0), 0.0, -1
    for place, bucket in enumerate(buckets):  # noqa: B007 - what they are at the end counts
        if bucket.count == 0:
            continue
        count += bucket.count
        if count >= rank:
            break
    return bucket, count, place


def _without_foreign_sign(histogram: Histogram, bucket: Bucket) -> Bucket:
    if histogram.is_custom or not bucket.lower < 0 < bucket.upper:
        return bucket
    if len(histogram.negative) == 0 and len(histogram.positive) > 0:
        return replace(bucket, lower=0.0)
    if len(histogram.positive) == 0 and len(histogram.negative) > 0:
        return replace(bucket, upper=0.0)
    return bucket


def _inside(histogram: Histogram, bucket: Bucket, fraction: float) -> float:
    """The value this far into the bucket."""
    if histogram.is_custom or bucket.lower <= 0 <= bucket.upper:
        return bucket.lower + (bucket.upper - bucket.lower) * fraction
    lower, upper = log2(abs(bucket.lower)), log2(abs(bucket.upper))
    if bucket.lower > 0:
        return float(exp2(lower + (upper - lower) * fraction))
    return -float(exp2(upper + (lower - upper) * (1 - fraction)))


def fraction(histogram: Histogram, lower: float, upper: float) -> tuple[float, NanFact]:
    """Of all observations, those between the two."""
    if histogram.count == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan, NanFact.NONE
    if lower >= upper:
        return 0.0, NanFact.NONE
    buckets = all_buckets(histogram)
    ranks = [_rank_of(histogram, buckets, value) for value in (lower, upper)]
    count, fact = histogram.count, NanFact.NONE
    if math.isnan(histogram.sum):
        count = 0.0
        for bucket in buckets:
            count += bucket.count
        fact = NanFact.EXCLUDED if count < histogram.count else NanFact.NONE
    below = [count if rank is None or rank > count else rank for rank in ranks]
    return quotient(below[1] - below[0], histogram.count), fact


def _rank_of(histogram: Histogram, buckets: list[Bucket], value: float) -> float | None:
    """How many observations are below the value; None: all that are in buckets."""
    rank = 0.0
    for bucket in buckets:
        around_zero = bucket.lower <= 0 <= bucket.upper
        if around_zero:
            bucket = _one_sided(histogram, bucket)
        if bucket.lower >= value:
            return rank
        if bucket.upper > value:
            linear = histogram.is_custom or around_zero
            if linear and bucket.lower == -math.inf:
                return bucket.count  # nothing is known of where in it they are
            return rank + bucket.count * fraction_below(bucket, value, linear)
        rank += bucket.count
    return None


def _one_sided(histogram: Histogram, bucket: Bucket) -> Bucket:
    if len(histogram.negative) == 0 and len(histogram.positive) > 0:
        return replace(bucket, lower=0.0)
    if len(histogram.positive) == 0 and len(histogram.negative) > 0:
        return replace(bucket, upper=0.0)
    return bucket


def variance(histogram: Histogram) -> float:
    """As if all observations of a bucket were its middle."""
    mean = quotient(histogram.sum, histogram.count)
    total, lost = 0.0, 0.0
    for bucket in all_buckets(histogram):
        if bucket.count == 0:
            continue
        delta = _middle(histogram, bucket) - mean
        total, lost = increased(total, lost, bucket.count * delta * delta)
    return quotient(total + lost, histogram.count)


def _middle(histogram: Histogram, bucket: Bucket) -> float:
    if histogram.is_custom:
        return (bucket.upper + bucket.lower) / 2.0
    if bucket.lower <= 0 <= bucket.upper:
        return 0.0
    middle = math.sqrt(bucket.upper * bucket.lower)
    return -middle if bucket.upper < 0 else middle
