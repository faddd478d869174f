"""A native histogram as a sample of a series: its buckets are float counts.

What always holds: indexes of buckets ascend; a bucket of count zero may or may not stand there and means the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lakerunner.series.arrays import Floats, Objects, filled
from lakerunner.series.histograms.bucket_bounds import exponential_bound

HISTOGRAM_POINTS = 64  # samples of 16 bytes that would take the memory of a histogram, its buckets aside
CUSTOM_BUCKETS = -53  # the schema of histograms whose bounds are listed in `custom_values`


class ResetHint(IntEnum):
    """Numbered as remote write numbers them. A gauge histogram may fall; of the others the hint says whether the sample
    before it was counted on from."""

    UNKNOWN = 0
    RESET = 1
    NOT_RESET = 2
    GAUGE = 3


@dataclass(frozen=True, eq=False)
class Buckets:
    """Of schema s, bucket i holds the values of (2^((i - 1) / 2^s), 2^(i / 2^s)]; of custom buckets those of
    (custom_values[i - 1], custom_values[i]], open at both ends."""

    indexes: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    counts: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.indexes)

    def compacted(self) -> Buckets:
        """Without those of count zero."""
        filled = self.counts != 0
        return self if filled.all() else Buckets(self.indexes[filled], self.counts[filled])


@dataclass(frozen=True, eq=False)
class Histogram:
    schema: int
    count: float
    sum: float
    zero_threshold: float = 0.0
    zero_count: float = 0.0
    positive: Buckets = field(default_factory=Buckets)
    negative: Buckets = field(default_factory=Buckets)
    custom_values: tuple[float, ...] = ()
    reset_hint: ResetHint = ResetHint.UNKNOWN

    @property
    def is_custom(self) -> bool:
        return self.schema == CUSTOM_BUCKETS


class Bucket(NamedTuple):
    lower: float
    upper: float
    observations: float
    lower_inclusive: bool = False
    upper_inclusive: bool = True


def bound(histogram: Histogram, index: int) -> float:
    """The upper end of this bucket, of absolute values."""
    if not histogram.is_custom:
        return exponential_bound(index, histogram.schema)
    if index < 0:
        return -math.inf
    return histogram.custom_values[index] if index < len(histogram.custom_values) else math.inf


def positive_buckets(histogram: Histogram) -> Iterator[Bucket]:
    """Ascending. Of custom buckets all, whatever their sign."""
    custom = histogram.is_custom
    for index, count in zip(histogram.positive.indexes.tolist(), histogram.positive.counts.tolist(), strict=True):
        lower, upper = bound(histogram, index - 1), bound(histogram, index)
        yield Bucket(lower, upper, count, lower_inclusive=custom and index == 0, upper_inclusive=custom or upper > 0)


def negative_buckets(histogram: Histogram) -> Iterator[Bucket]:
    """Descending: away from zero."""
    for index, count in zip(histogram.negative.indexes.tolist(), histogram.negative.counts.tolist(), strict=True):
        lower, upper = -bound(histogram, index), -bound(histogram, index - 1)
        yield Bucket(lower, upper, count, lower_inclusive=lower < 0, upper_inclusive=False)


def zero_bucket(histogram: Histogram) -> Bucket:
    threshold = histogram.zero_threshold
    return Bucket(-threshold, threshold, histogram.zero_count, lower_inclusive=True)


def all_buckets(histogram: Histogram) -> list[Bucket]:
    """Ascending. A bucket that the zero bucket reaches into begins where that ends."""
    threshold = histogram.zero_threshold
    below = [
        bucket._replace(upper=-threshold) if -threshold < bucket.upper < 0 else bucket
        for bucket in negative_buckets(histogram)
    ]
    zero = [zero_bucket(histogram)] if histogram.zero_count > 0 else []
    above = [
        bucket._replace(lower=threshold) if 0 < bucket.lower < threshold else bucket
        for bucket in positive_buckets(histogram)
    ]
    return below[::-1] + zero + above


def points_of(histograms: Objects | None) -> int:
    """How many samples would take as much memory: each filled bucket counts as one."""
    if histograms is None:
        return 0
    some = histograms[filled(histograms)]
    return len(some) * HISTOGRAM_POINTS + sum(len(one.positive) + len(one.negative) for one in some)


def equal(left: Histogram, right: Histogram) -> bool:
    """Whether both say the same, to the bit (so NaN is equal to itself); the reset hint is not looked at."""
    return (
        left.schema == right.schema
        and left.custom_values == right.custom_values
        and left.zero_threshold == right.zero_threshold
        and _bits(left.count, left.sum, left.zero_count) == _bits(right.count, right.sum, right.zero_count)
        and _same(left.positive, right.positive)
        and _same(left.negative, right.negative)
    )


def _bits(*values: float) -> bytes:
    return struct.pack(f"{len(values)}d", *values)


def _same(left: Buckets, right: Buckets) -> bool:
    left, right = left.compacted(), right.compacted()
    return np.array_equal(left.indexes, right.indexes) and left.counts.tobytes() == right.counts.tobytes()
