"""Which samples of a series count at a step: the latest one of an instant selector, those of a range.

Comes in: samples and the times that steps look at, ascending. Goes out: arrays over series x steps. What always holds:
ranges and lookback are open on the left and closed on the right, (t - range, t]; a stale marker ends a series for
instant selectors and is no sample of a range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.series.arrays import STALE_BITS, Bools, Floats, Ints, is_stale
from lakerunner.series.values import Samples
from lakerunner.series.window_bounds import window_bounds

_STALE = np.uint64(STALE_BITS)


def latest(samples: Samples, ends: Ints, lookback: int) -> tuple[Floats, Bools]:
    """The value of the latest sample of (end - lookback, end], and whether there is one. Of floats alone."""
    values = np.empty((len(samples), len(ends)))
    present = np.empty((len(samples), len(ends)), np.bool_)
    bits = samples.values.view(np.uint64)
    _latest(samples.offsets, samples.times, bits, ends, lookback, values.view(np.uint64), present)
    return values, present


def latest_index(samples: Samples, ends: Ints, lookback: int) -> Ints:
    """Where that sample stands; -1 where there is none, or it is a stale marker."""
    found = np.empty((len(samples), len(ends)), np.int64)
    _latest_index(samples.offsets, samples.times, stale_markers(samples), ends, lookback, found)
    return found


def windows(samples: Samples, ends: Ints, range_: int) -> tuple[Ints, Ints]:
    """First and behind the last of the samples of (end - range, end], of each series at each step."""
    return window_bounds(samples.offsets, samples.times, ends, range_)


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
    if not stale.any():
        return samples
    kept = ~stale
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
    return Samples(
        samples.labels,
        before[samples.offsets],
        samples.times[kept],
        samples.values[kept],
        None if samples.histograms is None else samples.histograms[kept],
        None if samples.starts is None else samples.starts[kept],
        samples.drop_name,
    )


@njit(cache=True, nogil=True)
def _has_stale(bits: Any) -> Any:
    found = 0
    for one in bits:  # all of them, without a branch: so it becomes vector instructions
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
