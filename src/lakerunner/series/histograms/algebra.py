"""Arithmetic of native histograms: histograms in, new ones out; none is modified.

What two histograms have in common decides: the lower schema, the wider zero bucket, of custom buckets the bounds that
both have. Exponential and custom buckets have nothing in common (IncompatibleHistograms). The order in which sums are
taken is fixed, so that they are equal to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lakerunner.series.histograms.bucket_merge import (
    CustomBucketSum,
    Sign,
    add_neumaier,
    coarsen,
    common_bounds,
    merge_buckets,
    with_common_zero,
    zero_count_up_to,
)
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint, bound


class IncompatibleHistograms(ValueError):
    """One histogram has exponential buckets, the other custom ones."""

    def __init__(self) -> None:
        super().__init__(
            "cannot apply this operation on histograms with a mix of exponential and custom bucket schemas"
        )


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum or difference. `reset_collision`: one reset hint says reset, the other not reset. `bounds_reconciled`:
    their custom bounds differ and those in common were taken."""

    histogram: Histogram
    reset_collision: bool = False
    bounds_reconciled: bool = False


def add_histograms(first: Histogram, other: Histogram) -> Sum:
    return _combine(first, None, other, 1)[0]


def subtract_histograms(first: Histogram, other: Histogram) -> Sum:
    """Subtract the other. The hint is that of a sum; a caller that subtracts samples for a user makes it a gauge."""
    return _combine(first, None, other, -1)[0]


def scale_histogram(histogram: Histogram, factor: float) -> Histogram:
    with np.errstate(invalid="ignore", over="ignore"):
        return _with_sides(
            histogram,
            lambda side: BucketCounts(side.indexes, side.counts * factor),
            count=histogram.count * factor,
            sum=histogram.sum * factor,
            zero_count=histogram.zero_count * factor,
            reset_hint=ResetHint.GAUGE if factor < 0 else histogram.reset_hint,
        )


def divide_histogram(histogram: Histogram, divisor: float) -> Histogram:
    """Divide by a number. Division by zero leaves no buckets."""

    def divide(side: BucketCounts) -> BucketCounts:
        return BucketCounts(side.indexes, side.counts / divisor) if divisor else BucketCounts()

    hint = ResetHint.GAUGE if divisor < 0 else histogram.reset_hint
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        whole = np.array([histogram.count, histogram.sum, histogram.zero_count]) / divisor
        count, total, zero_count = whole.tolist()
        return _with_sides(histogram, divide, count=count, sum=total, zero_count=zero_count, reset_hint=hint)


def compact_histogram(histogram: Histogram) -> Histogram:
    """Drop the buckets of count zero."""
    return _with_sides(histogram, BucketCounts.compacted)


def reduce_schema(histogram: Histogram, schema: int) -> Histogram:
    """Convert to this schema, which must not be above its own. Custom buckets have only one schema and stay as they
    are."""
    if schema == histogram.schema:
        return histogram
    if histogram.is_custom or schema > histogram.schema:
        raise ValueError(f"a histogram of schema {histogram.schema} cannot be brought to schema {schema}")
    return _with_sides(histogram, lambda side: coarsen(side, None, histogram.schema - schema)[0], schema=schema)


def _with_sides(histogram: Histogram, change: Callable[[BucketCounts], BucketCounts], **numbers: Any) -> Histogram:
    return replace(histogram, positive=change(histogram.positive), negative=change(histogram.negative), **numbers)


def has_overflow(histogram: Histogram) -> bool:
    """Return whether any of its numbers is infinite."""
    single = (histogram.count, histogram.sum, histogram.zero_count, *histogram.custom_values)
    return (
        any(math.isinf(number) for number in single)
        or bool(np.isinf(histogram.positive.counts).any())
        or bool(np.isinf(histogram.negative.counts).any())
    )


def detect_reset(current: Histogram, previous: Histogram) -> bool:
    """Return whether the counter was reset between the two: the hint says so, or something decreased that only
    increases. A finer schema or a narrower zero bucket also means a reset. Gauges are treated like counters."""
    if current.reset_hint in (ResetHint.RESET, ResetHint.NOT_RESET):
        return current.reset_hint == ResetHint.RESET
    if current.count < previous.count:
        return True
    if current.is_custom and not previous.is_custom:
        return True
    if current.is_custom and current.custom_values != previous.custom_values:
        return _has_fallen_in_common_bounds(current, previous)
    if current.schema > previous.schema or current.zero_threshold < previous.zero_threshold:
        return True
    previous_zero, threshold, _ = zero_count_up_to(previous, None, current.zero_threshold)
    if threshold != current.zero_threshold or current.zero_count < previous_zero:
        return True
    older = reduce_schema(previous, current.schema)
    return _has_fallen(current, current.positive, older.positive) or _has_fallen(
        current, current.negative, older.negative
    )


def _has_fallen(current: Histogram, now: BucketCounts, before: BucketCounts) -> bool:
    """Return whether a bucket outside the zero bucket is missing or counts less."""
    before = _above_zero(before, current)
    place = np.searchsorted(now.indexes, before.indexes)
    found = np.append(now.indexes, np.int32(0))[place] == before.indexes
    found &= place < len(now)
    counts = np.append(now.counts, 0.0)[place]
    return bool(np.where(found, counts < before.counts, before.counts != 0).any())


def _has_fallen_in_common_bounds(current: Histogram, previous: Histogram) -> bool:
    bounds = common_bounds(current.custom_values, previous.custom_values)
    now, before = CustomBucketSum(bounds), CustomBucketSum(bounds)
    now.add(current.positive, None, current.custom_values)
    before.add(previous.positive, None, previous.custom_values)
    return any(new < old for new, old in zip(now.counts, before.counts, strict=True))


def _above_zero(buckets: BucketCounts, zero: Histogram) -> BucketCounts:
    """Drop the buckets that end inside the zero bucket of `zero`, in whose schema they are."""
    if zero.is_custom or zero.zero_threshold == 0:
        return buckets
    inside = 0
    for index in buckets.indexes.tolist():
        if bound(zero, index) > zero.zero_threshold:
            break
        inside += 1
    return BucketCounts(buckets.indexes[inside:], buckets.counts[inside:])


def _hint_of_both(first: ResetHint, other: ResetHint) -> tuple[ResetHint, bool]:
    """Return the hint of a sum, and whether the two hints contradict each other."""
    if first == other:
        return first, False
    if ResetHint.GAUGE in (first, other):
        return ResetHint.GAUGE, False
    return ResetHint.UNKNOWN, ResetHint.UNKNOWN not in (first, other)


def _combine(first: Histogram, lost: Histogram | None, other: Histogram, sign: Sign) -> tuple[Sum, Histogram | None]:
    """Return the sum, and its rounding errors if those of the first are given."""
    if first.is_custom != other.is_custom:
        raise IncompatibleHistograms
    hint, collision = _hint_of_both(first.reset_hint, other.reset_hint)
    first = replace(first, reset_hint=hint)
    if first.is_custom:
        total, lost = _with_totals(first, lost, other, sign)
        if first.custom_values != other.custom_values:
            total, lost = _with_common_bounds(total, lost, other, sign)
            return Sum(total, collision, bounds_reconciled=True), lost
        total, lost = _with_buckets(total, lost, other, sign)
        return Sum(total, collision), lost
    first, lost, zero_count, zero_lost = with_common_zero(first, lost, other)
    if lost is None:
        first = replace(first, zero_count=first.zero_count + sign * zero_count)
    else:
        pair = add_neumaier(*add_neumaier(first.zero_count, lost.zero_count, zero_count), zero_lost)
        first, lost = replace(first, zero_count=pair[0]), replace(lost, zero_count=pair[1])
    total, lost = _with_totals(first, lost, other, sign)
    total, lost = _with_buckets(total, lost, other, sign)
    return Sum(total, collision), lost


def _with_totals(
    first: Histogram, lost: Histogram | None, other: Histogram, sign: Sign
) -> tuple[Histogram, Histogram | None]:
    """Return the first with the count and the sum of both."""
    if lost is None:
        return replace(first, count=first.count + sign * other.count, sum=first.sum + sign * other.sum), None
    count, lost_count = add_neumaier(first.count, lost.count, sign * other.count)
    total, lost_sum = add_neumaier(first.sum, lost.sum, sign * other.sum)
    return replace(first, count=count, sum=total), replace(lost, count=lost_count, sum=lost_sum)


def _with_buckets(
    first: Histogram, lost: Histogram | None, other: Histogram, sign: Sign
) -> tuple[Histogram, Histogram | None]:
    """Return the first with the buckets of both, in the lower of their schemas. The zero bucket must be wide enough
    already."""
    schema = min(first.schema, other.schema)
    total = replace(first, schema=schema)
    sides, lost_sides = [], []
    for own, own_lost, others in (
        (first.positive, None if lost is None else lost.positive.counts, other.positive),
        (first.negative, None if lost is None else lost.negative.counts, other.negative),
    ):
        own, own_lost = coarsen(own, own_lost, first.schema - schema)
        others_lost = None if lost is None or other.schema == schema else np.zeros(len(others))
        others, others_lost = coarsen(others, others_lost, other.schema - schema)
        outside = _above_zero(others, total)
        if others_lost is not None:
            others_lost = others_lost[len(others) - len(outside) :]
        buckets, buckets_lost = merge_buckets(own, own_lost, outside, others_lost, sign)
        sides.append(buckets)
        lost_sides.append(BucketCounts() if buckets_lost is None else BucketCounts(buckets.indexes, buckets_lost))
    total = replace(total, positive=sides[0], negative=sides[1])
    if lost is None:
        return total, None
    return total, replace(
        lost,
        schema=schema,
        zero_threshold=total.zero_threshold,
        custom_values=total.custom_values,
        positive=lost_sides[0],
        negative=lost_sides[1],
    )


def _with_common_bounds(
    first: Histogram, lost: Histogram | None, other: Histogram, sign: Sign
) -> tuple[Histogram, Histogram | None]:
    bounds = common_bounds(first.custom_values, other.custom_values)
    both = CustomBucketSum(bounds)
    both.add(first.positive, None if lost is None else lost.positive.counts, first.custom_values)
    both.add(other.positive, None, other.custom_values, sign)
    buckets, buckets_lost = both.buckets()
    total = replace(first, positive=buckets, custom_values=bounds)
    if lost is None:
        return total, None
    return total, replace(lost, positive=BucketCounts(buckets.indexes, buckets_lost), custom_values=bounds)


class CompensatedHistogram:
    """A sum of histograms with its rounding errors, held as a histogram of the same buckets; None: nothing was added to
    the first yet. Two of them are merged by adding the other's sum, then its compensation."""

    def __init__(self, first: Histogram, compensation: Histogram | None = None) -> None:
        self.sum = first
        self.compensation = compensation

    def add(self, other: Histogram) -> Sum:
        """Add a histogram and return the Sum, for its flags. Raise IncompatibleHistograms and stay unchanged if they do
        not fit."""
        total, self.compensation = _combine(self.sum, self.compensation or _nothing_lost(self.sum), other, 1)
        self.sum = total.histogram
        return total

    @property
    def zero_threshold(self) -> float:
        return self.sum.zero_threshold

    def copy(self) -> CompensatedHistogram:
        return CompensatedHistogram(self.sum, self.compensation)

    def scale(self, factor: float) -> None:
        self.sum = scale_histogram(self.sum, factor)
        self.compensation = None if self.compensation is None else scale_histogram(self.compensation, factor)

    def divide(self, divisor: float) -> None:
        self.sum = divide_histogram(self.sum, divisor)
        self.compensation = None if self.compensation is None else divide_histogram(self.compensation, divisor)

    def value(self) -> Histogram:
        return self.sum if self.compensation is None else add_histograms(self.sum, self.compensation).histogram


def _nothing_lost(histogram: Histogram) -> Histogram:
    def nothing(side: BucketCounts) -> BucketCounts:
        return BucketCounts(side.indexes, np.zeros(len(side)))

    return _with_sides(histogram, nothing, count=0.0, sum=0.0, zero_count=0.0)


class AveragedHistogram:
    """The mean of histograms: their compensated sum divided by their number; once the sum would be infinite, a running
    mean."""

    def __init__(self, first: Histogram) -> None:
        self.count = 1
        self._total = CompensatedHistogram(first)
        self._is_mean = False

    @property
    def zero_threshold(self) -> float:
        return self._total.zero_threshold

    def add(self, other: Histogram) -> Sum:
        """Add a histogram and return the Sum, for its flags. Raise IncompatibleHistograms if they do not fit."""
        self.count += 1
        if not self._is_mean:
            total = self._total.copy()
            facts = total.add(other)
            if not has_overflow(total.sum):
                self._total = total
                return facts
            self._is_mean = True
            self._total.divide(self.count - 1)
        self._total.scale((self.count - 1) / self.count)
        return self._total.add(divide_histogram(other, self.count))

    def value(self) -> Histogram:
        total = self._total.copy()
        if not self._is_mean:
            total.divide(self.count)
        return total.value()
