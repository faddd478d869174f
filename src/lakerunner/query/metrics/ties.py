"""Several points of one series in one ms, where their nanoseconds decide which one counts.

Input: the samples of some groups with times in ns, entries in their order, and the samples of the same groups by ms.
Output: the latter with the right sample of each ms. This is rare: only where two segments hold different values of one
stored series in one ms. So only these groups are read again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.query.metrics.kernels import NS_PER_MS, Runs, SampleColumns, ordered, run_of
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.values import Samples


@njit(cache=True, nogil=True)
def merge_exactly(offsets: Any, out: Any, index: Any, runs: Any) -> Any:
    """Turn times in ns into ms, each once: of those in one ms the last by stored series, time and place is kept. Return
    the new offsets; samples beyond the last one are garbage."""
    longest = 0
    for number in range(len(offsets) - 1):
        longest = max(longest, offsets[number + 1] - offsets[number])
    borders = np.empty(longest + 1, np.int64)
    order, spare = np.empty(longest, np.int64), np.empty(longest, np.int64)
    moved = np.zeros(len(offsets), np.int64)
    at = 0
    for number in range(len(offsets) - 1):
        begin, end = offsets[number], offsets[number + 1]
        places = ordered(out.times[begin:end], borders, order, spare)[: end - begin]
        # Copies, since the result is written from the front of the same arrays.
        times, values = out.times[begin:end].copy(), out.values[begin:end].copy()
        starts = out.starts[begin:end].copy() if len(out.starts) else out.starts
        indexes = index[begin:end].copy() if len(index) else index
        best, highest = np.int64(-1), np.int64(-1)
        for n in range(len(places)):
            stored = runs.stored[run_of(runs, begin + places[n])]
            if stored >= highest:  # equal: the later time or place wins
                best, highest = places[n], stored
            time = times[places[n]] // NS_PER_MS
            if n + 1 < len(places) and times[places[n + 1]] // NS_PER_MS == time:
                continue
            out.times[at], out.values[at] = time, values[best]
            if len(starts):
                out.starts[at] = starts[best]
            if len(indexes):
                index[at] = indexes[best]
            highest = np.int64(-1)
            at += 1
        moved[number + 1] = at
    return moved


def warm() -> None:
    """Compile the kernel, or load it from numba's cache."""
    some = np.zeros(1, np.int64)
    out = SampleColumns(np.zeros(1, np.int64), np.zeros(1), some[:0])
    merge_exactly(np.array([0, 1]), out, some[:0], Runs(some, some))


def overlay(samples: Samples, chosen: Bools, exact: Samples) -> None:
    """Put the exact samples of the chosen series in their places. They have the same times."""
    places: Ints = np.flatnonzero(np.repeat(chosen, np.diff(samples.offsets)))
    if not np.array_equal(samples.times[places], exact.times):
        raise ValueError("points that were read again differ from the first read")
    samples.values[places] = exact.values
    if samples.starts is not None:
        samples.starts[places] = 0 if exact.starts is None else exact.starts
    if samples.histograms is not None:
        samples.histograms[places] = None if exact.histograms is None else exact.histograms
