"""Where the windows of a range begin and end among the samples of its series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.series.arrays import Ints


def window_bounds(offsets: Ints, times: Ints, ends: Ints, range_: int) -> tuple[Ints, Ints]:
    """First and behind the last of the samples of (end - range, end], [series, steps]."""
    first = np.empty((len(offsets) - 1, len(ends)), np.int64)
    last = np.empty((len(offsets) - 1, len(ends)), np.int64)
    _bounds(offsets, times, ends, range_, first, last)
    return first, last


@njit(cache=True, nogil=True)
def _bounds(offsets: Any, times: Any, ends: Any, range_: Any, first: Any, last: Any) -> None:
    for series in range(len(offsets) - 1):
        low = high = offsets[series]
        stop = offsets[series + 1]
        for step in range(len(ends)):
            end = ends[step]
            while high < stop and times[high] <= end:
                high += 1
            while low < high and times[low] <= end - range_:
                low += 1
            first[series, step] = low
            last[series, step] = high
