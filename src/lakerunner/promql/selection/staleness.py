"""Staleness: a sample may be a marker that states that its series has ended.

Comes in: samples and the times that steps look at, ascending. Goes out: arrays over series x steps. What always holds:
the lookback is open on the left and closed on the right, (t - lookback, t]; a stale marker ends a series for instant
selectors and is not a sample of a range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.rollups import COUNT, LAST, LAST_TIME, MARK_TIME, RollupSeries
from lakerunner.series.values import Samples

# Exactly this NaN marks the end of a series. Every other NaN is a value, so bits are compared, never floats.
STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], np.uint64).view(np.float64)[0]
_STALE = np.uint64(STALE_BITS)


def is_stale(values: Floats) -> Bools:
    found: Bools = values.view(np.uint64) == STALE_BITS
    return found


def latest(samples: Samples, ends: Ints, lookback: int) -> tuple[Floats, Bools]:
    """Return the value of the latest sample of (end - lookback, end], and whether there is one. Floats only."""
    values = np.empty((len(samples), len(ends)))
    present = np.empty((len(samples), len(ends)), np.bool_)
    bits = samples.values.view(np.uint64)
    _latest(samples.offsets, samples.times, bits, ends, lookback, values.view(np.uint64), present)
    return values, present


def latest_index(samples: Samples, ends: Ints, lookback: int) -> Ints:
    """Return the index of that sample; -1 if there is none, or it is a stale marker."""
    found = np.empty((len(samples), len(ends)), np.int64)
    _latest_index(samples.offsets, samples.times, stale_markers(samples), ends, lookback, found)
    return found


def latest_of_buckets(rolled: RollupSeries) -> Samples:
    """Return the last entry of each rollup bucket, a sample or a stale marker. An instant selector needs no other: a
    bucket lies either completely before the time it looks at or after it."""
    # A marker counts only if it is newer than the bucket's last sample: a series may start again after it.
    marked: Bools = (rolled[COUNT] == 0) | (rolled[MARK_TIME] > rolled[LAST_TIME])
    times = np.where(marked, rolled[MARK_TIME], rolled[LAST_TIME])
    return Samples(rolled.labels, rolled.offsets, times, np.where(marked, STALE, rolled[LAST]))


def stale_markers(samples: Samples) -> Bools:
    stale = is_stale(samples.values)
    if samples.histograms is not None:
        for place in np.flatnonzero(samples.histograms != None):  # noqa: E711 elementwise
            stale[place] = is_stale(np.array([samples.histograms[place].sum]))[0]
    return stale


def without_stale_markers(samples: Samples) -> Samples:
    if samples.histograms is None and not _has_stale(samples.values.view(np.uint64)):
        return samples
    stale = stale_markers(samples)
    return samples.where(~stale) if stale.any() else samples


@njit(cache=True, nogil=True)
def _has_stale(bits: Any) -> Any:
    found = 0
    for one in bits:  # count all without a branch, so that LLVM vectorizes the loop
        found += one == _STALE
    return found > 0


@njit(cache=True, nogil=True)
def _latest(offsets: Any, times: Any, bits: Any, ends: Any, lookback: Any, values: Any, present: Any) -> None:
    for series in range(len(offsets) - 1):
        at, stop = offsets[series], offsets[series + 1]
        for step in range(len(ends)):
            end = ends[step]
            while at < stop and times[at] <= end:
                at += 1
            there = at > offsets[series] and times[at - 1] > end - lookback and bits[at - 1] != _STALE
            present[series, step] = there
            values[series, step] = bits[at - 1] if there else np.uint64(0)


@njit(cache=True, nogil=True)
def _latest_index(offsets: Any, times: Any, stale: Any, ends: Any, lookback: Any, found: Any) -> None:
    for series in range(len(offsets) - 1):
        at, stop = offsets[series], offsets[series + 1]
        for step in range(len(ends)):
            end = ends[step]
            while at < stop and times[at] <= end:
                at += 1
            there = at > offsets[series] and times[at - 1] > end - lookback and not stale[at - 1]
            found[series, step] = at - 1 if there else -1
