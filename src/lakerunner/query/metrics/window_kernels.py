"""Windows of rollup segments to the windows of series: the loops over every row, in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.query.metrics.kernels import read_only


@njit(cache=True, nogil=True)
def spans(ends: Any, low: Any, high: Any, between: Any) -> None:
    """Make each low:high, whose ends ascend, shorter by what is outside of (start, end]."""
    for place in range(len(low)):
        a, b = low[place], high[place]
        while a < b and ends[a] <= between[0]:
            a += 1
        while a < b and ends[b - 1] > between[1]:
            b -= 1
        low[place], high[place] = a, b


@njit(cache=True, nogil=True)
def copied(source: Any, low: Any, high: Any, target: Any, at: Any) -> None:
    """What is at low:high of `source` to `at` of `target`."""
    for place in range(len(low)):
        shift = at[place] - low[place]
        for row in range(low[place], high[place]):
            target[row + shift] = source[row]


@njit(cache=True, nogil=True)
def in_order(offsets: Any, ends: Any) -> Any:
    """Whether the windows of each series ascend, and none is there twice."""
    for series in range(len(offsets) - 1):
        for place in range(offsets[series] + 1, offsets[series + 1]):
            if ends[place] <= ends[place - 1]:
                return False
    return True


def warm() -> None:
    """Compile, or load from numba's cache."""
    some, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    spans(read_only(some), some.copy(), one.copy(), (-1, 1))
    copied(read_only(some), some, one, some.copy(), some)
    copied(read_only(np.zeros(1)), some, one, np.zeros(1), some)
    in_order(np.array([0, 1]), some)
