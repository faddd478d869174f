"""One zero bucket for two native histograms: wide enough for both, and not ending inside a filled bucket of either."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from lakerunner.series.histograms.buckets import increased, without_empty
from lakerunner.series.histograms.histogram import Buckets, Histogram, bound

Side = Literal["positive", "negative"]


def zero_count_up_to(histogram: Histogram, lost: Histogram | None, threshold: float) -> tuple[float, float, float]:
    """What the zero bucket would count if it reached to `threshold`, which is not below its own; the threshold, raised
    to the end of a filled bucket that it fell into; and what the count has lost by rounding."""
    lost_count = 0.0 if lost is None else lost.zero_count
    if threshold == histogram.zero_threshold:
        return histogram.zero_count, threshold, lost_count
    while True:
        total = histogram.zero_count, lost_count
        total, threshold = _with_buckets(total, histogram, lost, "positive", threshold)
        total, reached = _with_buckets(total, histogram, lost, "negative", threshold)
        lost_count = total[1]
        if reached == threshold:
            return total[0], threshold, lost_count
        threshold = reached  # what was counted of the positive ones holds no more


def _with_buckets(
    total: tuple[float, float], histogram: Histogram, lost: Histogram | None, side: Side, threshold: float
) -> tuple[tuple[float, float], float]:
    """The total with all buckets that begin before `threshold`; and the threshold, raised to the end of the last of
    them if that is filled."""
    buckets = _side(histogram, side)
    for n, index in enumerate(buckets.indexes.tolist()):
        if bound(histogram, index - 1) >= threshold:
            break
        here = float(buckets.counts[n])
        total = increased(*total, here)
        if lost is not None:
            total = increased(*total, float(_side(lost, side).counts[n]))
        upper = bound(histogram, index)
        if upper > threshold:
            return total, upper if here != 0 else threshold
    return total, threshold


def _side(histogram: Histogram, side: Side) -> Buckets:
    return histogram.positive if side == "positive" else histogram.negative


def with_wider_zero(
    histogram: Histogram, lost: Histogram | None, threshold: float
) -> tuple[Histogram, Histogram | None]:
    """The histogram whose zero bucket reaches at least to `threshold`, without the buckets now inside it."""
    count, threshold, lost_count = zero_count_up_to(histogram, lost, threshold)
    positive, lost_positive = _outside(histogram, lost, "positive", threshold)
    negative, lost_negative = _outside(histogram, lost, "negative", threshold)
    wider = replace(histogram, zero_count=count, zero_threshold=threshold, positive=positive, negative=negative)
    if lost is None:
        return wider, None
    return wider, replace(
        lost, zero_count=lost_count, zero_threshold=threshold, positive=lost_positive, negative=lost_negative
    )


def _outside(histogram: Histogram, lost: Histogram | None, side: Side, threshold: float) -> tuple[Buckets, Buckets]:
    """The filled buckets that do not begin before `threshold`, and what they have lost."""
    buckets = _side(histogram, side)
    outside = np.array([bound(histogram, index - 1) >= threshold for index in buckets.indexes.tolist()], bool)
    kept = Buckets(buckets.indexes[outside], buckets.counts[outside])
    kept, kept_lost = without_empty(kept, None if lost is None else _side(lost, side).counts[outside])
    return kept, Buckets() if kept_lost is None else Buckets(kept.indexes, kept_lost)


def with_common_zero(
    histogram: Histogram, lost: Histogram | None, other: Histogram
) -> tuple[Histogram, Histogram | None, float, float]:
    """The first, its zero bucket wide enough for both; and what the other counts in one as wide, with what that count
    has lost by rounding."""
    other_count, other_threshold, other_lost = other.zero_count, other.zero_threshold, 0.0
    while other_threshold != histogram.zero_threshold:
        if histogram.zero_threshold > other_threshold:
            other_count, other_threshold, other_lost = zero_count_up_to(other, None, histogram.zero_threshold)
        if other_threshold > histogram.zero_threshold:
            histogram, lost = with_wider_zero(histogram, lost, other_threshold)
    return histogram, lost, other_count, other_lost
