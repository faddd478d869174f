"""Merge the buckets of native histograms: of one sign, at a coarser schema, at other custom bounds, and into one zero
bucket that is wide enough for two histograms and does not end inside a filled bucket of either.

Counts come with the rounding errors of their sums (`Lost`, an array beside the counts), or with None if those are not
tracked. The order in which sums are taken is fixed, so that they are equal to the bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, bound

Lost = Floats | None
Sign = Literal[1, -1]


def add_neumaier(total: float, lost: float, by: float) -> tuple[float, float]:
    """Add a number in Neumaier's way: return the new total and the rounding error so far."""
    new = total + by
    if math.isinf(new):
        return new, 0.0
    return new, lost + ((total - new) + by if abs(total) >= abs(by) else (by - new) + total)


def _add_neumaier_arrays(totals: Floats, lost: Floats, by: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore", over="ignore"):
        new = totals + by
        rounding = np.where(np.abs(totals) >= np.abs(by), (totals - new) + by, (by - new) + totals)
        return new, np.where(np.isinf(new), 0.0, lost + rounding)


def merge_buckets(
    first: BucketCounts, lost: Lost, other: BucketCounts, other_lost: Lost, sign: Sign = 1
) -> tuple[BucketCounts, Lost]:
    """Merge the buckets of both; sign -1 subtracts those of the other."""
    if len(other) == 0:
        return first, lost
    by = other.counts if sign == 1 else -other.counts
    by_lost = other_lost if other_lost is None or sign == 1 else -other_lost
    if len(first) == len(other) and bool((first.indexes == other.indexes).all()):
        counts, lost = _add_counts(first.counts, lost, by, by_lost)
        return BucketCounts(first.indexes, counts), lost
    common = _among(other.indexes, first.indexes)
    # A running sum soon has every bucket that comes; then the indexes need no sorting.
    indexes = first.indexes if common.all() else np.union1d(first.indexes, other.indexes)
    at_first, at_other = np.searchsorted(indexes, first.indexes), np.searchsorted(indexes, other.indexes)
    counts = _spread(len(indexes), at_first, first.counts)
    all_lost = None if lost is None else _spread(len(indexes), at_first, lost)
    new, new_lost = _add_counts(counts[at_other], None if all_lost is None else all_lost[at_other], by, by_lost)
    counts[at_other] = np.where(common, new, by)
    if all_lost is not None and new_lost is not None:
        all_lost[at_other] = np.where(common, new_lost, 0.0 if by_lost is None else by_lost)
    return BucketCounts(indexes, counts), all_lost


def _among(wanted: npt.NDArray[np.int32], ascending: npt.NDArray[np.int32]) -> Bools:
    place = np.searchsorted(ascending, wanted)
    found: Bools = place < len(ascending)
    found[found] = ascending[place[found]] == wanted[found]
    return found


def _spread(length: int, places: Ints, values: Floats) -> Floats:
    spread = np.zeros(length)
    spread[places] = values
    return spread


def _add_counts(counts: Floats, lost: Lost, by: Floats, by_lost: Lost) -> tuple[Floats, Lost]:
    if lost is None:
        with np.errstate(invalid="ignore", over="ignore"):
            return counts + by, None
    counts, lost = _add_neumaier_arrays(counts, lost, by)
    if by_lost is None or not by_lost.any():
        return counts, lost
    # The other's error is added as one more number, not to the error: that is the order of the reference.
    again, lost_again = _add_neumaier_arrays(counts, lost, by_lost)
    return np.where(by_lost != 0, again, counts), np.where(by_lost != 0, lost_again, lost)


def coarsen(buckets: BucketCounts, lost: Lost, halvings: int) -> tuple[BucketCounts, Lost]:
    """Convert buckets to a schema lower by `halvings`: each bucket is added to the one that contains it."""
    if halvings == 0 or len(buckets) == 0:
        return buckets, lost
    indexes, first, group = np.unique(((buckets.indexes - 1) >> halvings) + 1, return_index=True, return_inverse=True)
    counts = buckets.counts[first]
    later = np.setdiff1d(np.arange(len(buckets)), first, assume_unique=True)
    if lost is None:
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(counts, group[later], buckets.counts[later])
        return BucketCounts(indexes, counts), None
    new_lost = lost[first]
    # One by one: np.add.at would lose the order in which counts and their errors are added.
    for n in later.tolist():
        at = group[n]
        for by in (float(buckets.counts[n]), float(lost[n])):
            counts[at], new_lost[at] = add_neumaier(float(counts[at]), float(new_lost[at]), by)
    return BucketCounts(indexes, counts), new_lost


def without_empty(buckets: BucketCounts, lost: Lost) -> tuple[BucketCounts, Lost]:
    filled = buckets.counts != 0 if lost is None else (buckets.counts != 0) | (lost != 0)
    return BucketCounts(buckets.indexes[filled], buckets.counts[filled]), None if lost is None else lost[filled]


def common_bounds(first: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    there = set(other)
    return tuple(bound for bound in first if bound in there)


class CustomBucketSum:
    """Adds up custom buckets at fewer bounds. `bounds` must be among those of every histogram that is added."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0.0] * (len(bounds) + 1)
        self.lost = [0.0] * (len(bounds) + 1)

    def add(self, buckets: BucketCounts, lost: Lost, bounds: tuple[float, ...], sign: Sign = 1) -> None:
        places = [*np.searchsorted(np.array(self.bounds), np.array(bounds)).tolist(), len(self.bounds)]
        for n, index in enumerate(buckets.indexes.tolist()):
            at = places[index]
            for by in (sign * float(buckets.counts[n]), *(() if lost is None else (float(lost[n]),))):
                self.counts[at], self.lost[at] = add_neumaier(self.counts[at], self.lost[at], by)

    def buckets(self) -> tuple[BucketCounts, Floats]:
        counts, lost = np.array(self.counts), np.array(self.lost)
        filled = np.flatnonzero((counts != 0) | (lost != 0)).astype(np.int32)
        return BucketCounts(filled, counts[filled]), lost[filled]


Side = Literal["positive", "negative"]


def zero_count_up_to(histogram: Histogram, lost: Histogram | None, threshold: float) -> tuple[float, float, float]:
    """Return what the zero bucket would count if it reached to `threshold` (not below its own); the threshold, raised
    to the end of a filled bucket if it falls into one; and the rounding error of the count."""
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
        threshold = reached  # the wider threshold may include more positive buckets: count again


def _with_buckets(
    total: tuple[float, float], histogram: Histogram, lost: Histogram | None, side: Side, threshold: float
) -> tuple[tuple[float, float], float]:
    """Add all buckets that begin before `threshold` to the total; return it and the threshold, raised to the end of the
    last of them if that is filled."""
    buckets = _side(histogram, side)
    for n, index in enumerate(buckets.indexes.tolist()):
        if bound(histogram, index - 1) >= threshold:
            break
        here = float(buckets.counts[n])
        total = add_neumaier(*total, here)
        if lost is not None:
            total = add_neumaier(*total, float(_side(lost, side).counts[n]))
        upper = bound(histogram, index)
        if upper > threshold:
            return total, upper if here != 0 else threshold
    return total, threshold


def _side(histogram: Histogram, side: Side) -> BucketCounts:
    return histogram.positive if side == "positive" else histogram.negative


def with_wider_zero(
    histogram: Histogram, lost: Histogram | None, threshold: float
) -> tuple[Histogram, Histogram | None]:
    """Widen the zero bucket to at least `threshold`, and drop the buckets that are now inside it."""
    count, threshold, lost_count = zero_count_up_to(histogram, lost, threshold)
    positive, lost_positive = _outside(histogram, lost, "positive", threshold)
    negative, lost_negative = _outside(histogram, lost, "negative", threshold)
    wider = replace(histogram, zero_count=count, zero_threshold=threshold, positive=positive, negative=negative)
    if lost is None:
        return wider, None
    return wider, replace(
        lost, zero_count=lost_count, zero_threshold=threshold, positive=lost_positive, negative=lost_negative
    )


def _outside(
    histogram: Histogram, lost: Histogram | None, side: Side, threshold: float
) -> tuple[BucketCounts, BucketCounts]:
    """Return the filled buckets that do not begin before `threshold`, and their rounding errors."""
    buckets = _side(histogram, side)
    outside = np.array([bound(histogram, index - 1) >= threshold for index in buckets.indexes.tolist()], bool)
    kept = BucketCounts(buckets.indexes[outside], buckets.counts[outside])
    kept, kept_lost = without_empty(kept, None if lost is None else _side(lost, side).counts[outside])
    return kept, BucketCounts() if kept_lost is None else BucketCounts(kept.indexes, kept_lost)


def with_common_zero(
    histogram: Histogram, lost: Histogram | None, other: Histogram
) -> tuple[Histogram, Histogram | None, float, float]:
    """Widen the zero bucket of the first until it fits both; also return what the other counts in a zero bucket of that
    width, and the rounding error of that count."""
    other_count, other_threshold, other_lost = other.zero_count, other.zero_threshold, 0.0
    while other_threshold != histogram.zero_threshold:
        if histogram.zero_threshold > other_threshold:
            other_count, other_threshold, other_lost = zero_count_up_to(other, None, histogram.zero_threshold)
        if other_threshold > histogram.zero_threshold:
            histogram, lost = with_wider_zero(histogram, lost, other_threshold)
    return histogram, lost, other_count, other_lost
