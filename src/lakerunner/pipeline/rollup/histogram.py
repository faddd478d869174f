"""A histogram of a metric, classic or exponential, and how two of them are added and compared.

What always holds: adding is exact and does not depend on the order, but for the rounding of `sum`, whose loss is kept.
Buckets that do not fit each other (other bounds, another zero threshold, classic and exponential) are dropped, and the
result has none: count and sum stay. Exponential ones are added at the coarser scale of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lakerunner.series.group_kernels import added

CUSTOM_BUCKETS = -53  # Prometheus' scale of histograms that have bounds
_COUNTS = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Side:
    """Buckets `offset` and following of an exponential histogram."""

    offset: int
    counts: Any

    def coarser(self, by: int) -> Side:
        """2^by neighbours are one."""
        if not by:
            return self
        places = (np.arange(len(self.counts)) + self.offset) >> by
        counts = np.zeros(int(places[-1] - places[0]) + 1, np.uint64)
        np.add.at(counts, places - places[0], self.counts)
        return Side(int(places[0]), counts)

    def over(self, low: int, high: int) -> Any:
        """The counts of buckets low to high, high not among them."""
        counts = np.zeros(high - low, np.uint64)
        counts[self.offset - low : self.offset - low + len(self.counts)] = self.counts
        return counts


def _span(one: Side, other: Side) -> tuple[int, int]:
    return min(one.offset, other.offset), max(one.offset + len(one.counts), other.offset + len(other.counts))


@dataclass(frozen=True, eq=False)
class Histogram:
    """`counts` None: no classic buckets; `scale` None: no exponential ones. A side is None where it has no buckets.
    `min` and `max` None: not known, as `sum`."""

    count: int
    sum: float | None = None
    sum_error: float = 0.0
    min: float | None = None
    max: float | None = None
    bounds: Any = None
    counts: Any = None
    scale: int | None = None
    zero_count: int = 0
    zero_threshold: float = 0.0
    positive: Side | None = None
    negative: Side | None = None

    def plus(self, other: Histogram) -> Histogram:
        total, lost = None, 0.0
        if self.sum is not None and other.sum is not None:
            total, lost = added(other.sum, self.sum, self.sum_error)
            lost = 0.0 if np.isinf(total) else lost + other.sum_error
        least = None if self.min is None or other.min is None else _least(self.min, other.min)
        most = None if self.max is None or other.max is None else -_least(-self.max, -other.max)
        whole = Histogram((self.count + other.count) & _COUNTS, total, float(lost), least, most)
        if self.scale is not None and other.scale is not None and self.zero_threshold == other.zero_threshold:
            return replace(whole, **self._exponential_sum(self.scale, other, other.scale))
        if self._same_bounds(other):
            return replace(whole, bounds=self.bounds, counts=self.counts + other.counts)
        return whole

    def _same_bounds(self, other: Histogram) -> bool:
        if self.counts is None or other.counts is None or len(self.counts) != len(other.counts):
            return False
        return bool(np.array_equal(self.bounds, other.bounds))

    def _exponential_sum(self, scale: int, other: Histogram, others: int) -> dict[str, Any]:
        coarse = min(scale, others)
        sides: dict[str, Side | None] = {}
        for name in ("positive", "negative"):
            one, two = getattr(self, name), getattr(other, name)
            one = one and one.coarser(scale - coarse)
            two = two and two.coarser(others - coarse)
            sides[name] = _side_sum(one, two) if one and two else one or two
        zeros = (self.zero_count + other.zero_count) & _COUNTS
        return {"scale": coarse, "zero_count": zeros, "zero_threshold": self.zero_threshold, **sides}

    def falls_to(self, later: Histogram) -> bool:
        """Whether a cumulative histogram that was this one has been reset before it was `later`: something that it
        counts has become less. Buckets that do not fit each other are not compared."""
        if later.count < self.count:
            return True
        if self._same_bounds(later):
            return bool((later.counts < self.counts).any())
        if self.scale is None or later.scale is None or self.zero_threshold != later.zero_threshold:
            return False
        if later.zero_count < self.zero_count:
            return True
        coarse = min(self.scale, later.scale)
        for name in ("positive", "negative"):
            one, two = getattr(self, name), getattr(later, name)
            if one is None:
                continue
            one = one.coarser(self.scale - coarse)
            two = two.coarser(later.scale - coarse) if two else Side(one.offset, one.counts[:0])
            span = _span(one, two)
            if (two.over(*span) < one.over(*span)).any():
                return True
        return False


def _least(one: float, other: float) -> float:
    return other if other < one or np.isnan(one) else one


def _side_sum(one: Side, other: Side) -> Side:
    low, high = _span(one, other)
    return Side(low, one.over(low, high) + other.over(low, high))
