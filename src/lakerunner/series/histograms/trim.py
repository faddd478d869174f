"""The operators `</` and `>/`: remove what was observed above, or below, a value from a native histogram.

A bucket that contains the value keeps the part of its count on the kept side: on a logarithmic scale, and on a linear
one in custom buckets and in the zero bucket. The sum is then estimated from the middles of the remaining buckets; if
nothing is removed the histogram stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.series.histograms.histogram import (
    Bucket,
    BucketCounts,
    Histogram,
    negative_buckets,
    positive_buckets,
    zero_bucket,
)
from lakerunner.series.histograms.quantile import fraction_below

Share = tuple[float, float]  # the count, and the value that represents each counted observation


def trim_upper(histogram: Histogram, bound: float) -> Histogram:
    """Apply `</`: remove what is above the bound."""
    return _trim(histogram, _Cut(bound, keeps_below=True, linear=histogram.is_custom))


def trim_lower(histogram: Histogram, bound: float) -> Histogram:
    """Apply `>/`: remove what is below the bound."""
    return _trim(histogram, _Cut(bound, keeps_below=False, linear=histogram.is_custom))


@dataclass(frozen=True)
class _Cut:
    bound: float
    keeps_below: bool
    linear: bool

    def of_bucket(self, bucket: Bucket, positive: bool) -> Share:
        if self.keeps_below:
            keeps_all, cuts = bucket.upper <= self.bound, bucket.lower < self.bound
        else:
            keeps_all, cuts = bucket.lower >= self.bound, bucket.upper > self.bound
        if keeps_all:
            return bucket.observations, self._middle(bucket.lower, bucket.upper, positive)
        if not cuts:
            return 0.0, 0.0
        if math.isinf(bucket.lower) or math.isinf(bucket.upper):
            return self._of_open_bucket(bucket)
        below = bucket.observations * fraction_below(bucket.lower, bucket.upper, self.bound, self.linear)
        if self.keeps_below:
            return below, self._middle(bucket.lower, self.bound, positive)
        return bucket.observations - below, self._middle(self.bound, bucket.upper, positive)

    def _of_open_bucket(self, bucket: Bucket) -> Share:
        """Remove everything, since the distribution inside is unknown; but a bucket from -Inf to above zero is treated
        as beginning at zero."""
        if bucket.lower == -math.inf:
            finite = not math.isinf(bucket.upper)
            if self.keeps_below:
                if self.bound > 0 and bucket.upper > 0 and finite:
                    return bucket.observations * self.bound / bucket.upper, self.bound / 2
                return (bucket.observations, self.bound) if bucket.upper <= 0 else (0.0, 0.0)
            if self.bound >= 0 and finite:
                return bucket.observations * (1 - self.bound / bucket.upper), (self.bound + bucket.upper) / 2
            return 0.0, 0.0
        if not self.keeps_below and self.bound >= bucket.lower:
            return bucket.observations, self.bound
        return 0.0, 0.0

    def of_zero_bucket(self, bucket: Bucket, has_negative: bool, has_positive: bool) -> Share:
        """Cut the zero bucket. If all observations have one sign it has that sign too."""
        lower = 0.0 if has_positive and not has_negative else bucket.lower
        upper = 0.0 if has_negative and not has_positive else bucket.upper
        # Compare with the lower end first: a zero bucket may have no width.
        if self.bound <= lower:
            return (0.0, 0.0) if self.keeps_below else (bucket.observations, (lower + upper) / 2)
        if self.bound >= upper:
            return (bucket.observations, (lower + upper) / 2) if self.keeps_below else (0.0, 0.0)
        if self.keeps_below:
            return bucket.observations * ((self.bound - lower) / (upper - lower)), (lower + self.bound) / 2
        return bucket.observations * ((upper - self.bound) / (upper - lower)), (self.bound + upper) / 2

    def _middle(self, lower: float, upper: float, positive: bool) -> float:
        if math.isinf(lower):
            if math.isinf(upper):
                return 0.0
            return upper / 2 if upper > 0 else upper
        if math.isinf(upper):
            return lower
        if self.linear:
            return (lower + upper) / 2
        middle = math.sqrt(abs(lower * upper))
        return middle if positive else -middle


class _Remainder:
    """Adds up what remains of a histogram, bucket by bucket."""

    def __init__(self) -> None:
        self.count = 0.0
        self.sum = 0.0
        self.is_cut = False

    def add(self, before: float, kept: Share) -> None:
        self.count += kept[0]
        self.sum += kept[1] * kept[0]
        self.is_cut |= before != kept[0]

    def add_buckets(self, buckets: Iterable[Bucket], cut: _Cut, positive: bool) -> tuple[list[float], bool]:
        """Return the remaining counts, and whether any bucket was filled before."""
        counts, any_filled = [], False
        for bucket in buckets:
            if bucket.observations == 0:
                counts.append(0.0)
                continue
            any_filled = True
            kept = cut.of_bucket(bucket, positive)
            self.add(bucket.observations, kept)
            counts.append(kept[0])
        return counts, any_filled


def _trim(histogram: Histogram, cut: _Cut) -> Histogram:
    left = _Remainder()
    positive, has_positive = left.add_buckets(positive_buckets(histogram), cut, True)
    negative, has_negative = left.add_buckets(negative_buckets(histogram), cut, False)
    zero_count = histogram.zero_count
    if zero_count > 0:
        kept = cut.of_zero_bucket(zero_bucket(histogram), has_negative, has_positive)
        left.add(zero_count, kept)
        zero_count = kept[0]
    if not left.is_cut:
        return histogram
    return replace(
        histogram,
        count=left.count,
        sum=left.sum,
        zero_count=zero_count,
        positive=BucketCounts(histogram.positive.indexes, np.array(positive)).compacted(),
        negative=BucketCounts(histogram.negative.indexes, np.array(negative)).compacted(),
    )
