"""What is done to the buckets of one sign: put together, made coarser, brought to other custom bounds.

Counts come with what their sums have lost by rounding (`Lost`, an array beside the counts), or with None where that is
not kept. The order in which sums are taken is fixed, so that they are equal to the bit.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.histograms.histogram import Buckets

Lost = Floats | None
Sign = Literal[1, -1]


def increased(total: float, lost: float, by: float) -> tuple[float, float]:
    """Neumaier's sum: the new total and what it has lost by rounding so far."""
    new = total + by
    if math.isinf(new):
        return new, 0.0
    return new, lost + ((total - new) + by if abs(total) >= abs(by) else (by - new) + total)


def _all_increased(totals: Floats, lost: Floats, by: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore", over="ignore"):
        new = totals + by
        rounding = np.where(np.abs(totals) >= np.abs(by), (totals - new) + by, (by - new) + totals)
        return new, np.where(np.isinf(new), 0.0, lost + rounding)


def merged(first: Buckets, lost: Lost, other: Buckets, other_lost: Lost, sign: Sign = 1) -> tuple[Buckets, Lost]:
    """The buckets of both; sign -1 takes those of the other away."""
    if len(other) == 0:
        return first, lost
    by = other.counts if sign == 1 else -other.counts
    by_lost = other_lost if other_lost is None or sign == 1 else -other_lost
    if len(first) == len(other) and bool((first.indexes == other.indexes).all()):
        counts, lost = _increased_by(first.counts, lost, by, by_lost)
        return Buckets(first.indexes, counts), lost
    common = _among(other.indexes, first.indexes)
    # What is added up soon has every bucket that comes: then there is nothing to put in order.
    indexes = first.indexes if common.all() else np.union1d(first.indexes, other.indexes)
    at_first, at_other = np.searchsorted(indexes, first.indexes), np.searchsorted(indexes, other.indexes)
    counts = _spread(len(indexes), at_first, first.counts)
    all_lost = None if lost is None else _spread(len(indexes), at_first, lost)
    new, new_lost = _increased_by(counts[at_other], None if all_lost is None else all_lost[at_other], by, by_lost)
    counts[at_other] = np.where(common, new, by)
    if all_lost is not None and new_lost is not None:
        all_lost[at_other] = np.where(common, new_lost, 0.0 if by_lost is None else by_lost)
    return Buckets(indexes, counts), all_lost


def _among(wanted: npt.NDArray[np.int32], ascending: npt.NDArray[np.int32]) -> Bools:
    place = np.searchsorted(ascending, wanted)
    found: Bools = place < len(ascending)
    found[found] = ascending[place[found]] == wanted[found]
    return found


def _spread(length: int, places: Ints, values: Floats) -> Floats:
    spread = np.zeros(length)
    spread[places] = values
    return spread


def _increased_by(counts: Floats, lost: Lost, by: Floats, by_lost: Lost) -> tuple[Floats, Lost]:
    if lost is None:
        with np.errstate(invalid="ignore", over="ignore"):
            return counts + by, None
    counts, lost = _all_increased(counts, lost, by)
    if by_lost is None or not by_lost.any():
        return counts, lost
    again, lost_again = _all_increased(counts, lost, by_lost)
    return np.where(by_lost != 0, again, counts), np.where(by_lost != 0, lost_again, lost)


def coarsened(buckets: Buckets, lost: Lost, halvings: int) -> tuple[Buckets, Lost]:
    """In a schema lower by `halvings`: each bucket goes into the one that has it inside."""
    if halvings == 0 or len(buckets) == 0:
        return buckets, lost
    indexes, first, group = np.unique(((buckets.indexes - 1) >> halvings) + 1, return_index=True, return_inverse=True)
    counts = buckets.counts[first]
    later = np.setdiff1d(np.arange(len(buckets)), first, assume_unique=True)
    if lost is None:
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(counts, group[later], buckets.counts[later])
        return Buckets(indexes, counts), None
    new_lost = lost[first]
    for n in later.tolist():
        at = group[n]
        for by in (float(buckets.counts[n]), float(lost[n])):
            counts[at], new_lost[at] = increased(float(counts[at]), float(new_lost[at]), by)
    return Buckets(indexes, counts), new_lost


def without_empty(buckets: Buckets, lost: Lost) -> tuple[Buckets, Lost]:
    filled = buckets.counts != 0 if lost is None else (buckets.counts != 0) | (lost != 0)
    return Buckets(buckets.indexes[filled], buckets.counts[filled]), None if lost is None else lost[filled]


def common_bounds(first: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    there = set(other)
    return tuple(bound for bound in first if bound in there)


class Rebounded:
    """Custom buckets brought to fewer bounds. `bounds` are some of those of every histogram that is added."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0.0] * (len(bounds) + 1)
        self.lost = [0.0] * (len(bounds) + 1)

    def add(self, buckets: Buckets, lost: Lost, bounds: tuple[float, ...], sign: Sign = 1) -> None:
        places = [*np.searchsorted(np.array(self.bounds), np.array(bounds)).tolist(), len(self.bounds)]
        for n, index in enumerate(buckets.indexes.tolist()):
            at = places[index]
            for by in (sign * float(buckets.counts[n]), *(() if lost is None else (float(lost[n]),))):
                self.counts[at], self.lost[at] = increased(self.counts[at], self.lost[at], by)

    def buckets(self) -> tuple[Buckets, Floats]:
        counts, lost = np.array(self.counts), np.array(self.lost)
        filled = np.flatnonzero((counts != 0) | (lost != 0)).astype(np.int32)
        return Buckets(filled, counts[filled]), lost[filled]
