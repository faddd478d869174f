"""Add up parts: points that a rule made, of which those of one series and time are one point (docs/decisions/0030).

Comes in: the parts of each point, one point after the other. Goes out: how many rows each point is made of, and its
sum with the rounding error. What always holds: parts that were added before, in whatever groups, give the same point:
bit for bit where all sums are whole and below 2^53, else within the bound of compensated sums. A point of no rows
is nothing: all of its rows were taken back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.series.arrays import Floats
from lakerunner.series.grouping import add_compensated


class PartSums(NamedTuple):
    """Arrays with one element for each part, or each point. `counts` are rows, negative in parts that take back."""

    counts: Any
    sums: Any
    errors: Any

    @property
    def totals(self) -> Floats:
        """Return the sums with what their rounding lost."""
        found: Floats = np.where(np.isfinite(self.sums), self.sums + self.errors, self.sums)
        return found


def add_parts(starts: Any, parts: PartSums) -> PartSums:
    """Return the points; the parts of point n are `starts[n]:starts[n + 1]`."""
    points = len(starts) - 1
    found = PartSums(np.zeros(points, np.int64), np.zeros(points), np.zeros(points))
    _add_parts(starts, PartSums(*map(_read_only, parts)), found)
    return found


@njit(cache=True, nogil=True)
def _add_parts(starts: Any, parts: Any, points: Any) -> None:
    for point in range(len(starts) - 1):
        count, total, lost = np.int64(0), 0.0, 0.0
        for part in range(starts[point], starts[point + 1]):
            count += parts.counts[part]
            total, lost = add_compensated(parts.sums[part], total, lost)
            if not np.isinf(total):
                lost += parts.errors[part]
        points.counts[point], points.sums[point], points.errors[point] = count, total, lost


def _read_only(array: Any) -> Any:
    """Return a read-only view, as of Arrow's arrays, so that the kernel is compiled for one type only."""
    found = array.view()
    found.flags.writeable = False
    return found


def warm() -> None:
    """Compile the kernel, or load it from numba's cache."""
    add_parts(np.array([0, 1]), PartSums(np.ones(1, np.int64), np.zeros(1), np.zeros(1)))
