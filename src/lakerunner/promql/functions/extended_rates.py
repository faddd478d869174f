"""The kernel for rates over extended ranges of float samples.

Comes in: a table of windows. Goes out: a value for each window that has one, and whether it has. What always holds: the
float operations are those of Prometheus, in its order, so that the bits are the same.
"""

from __future__ import annotations

from typing import Any

from lakerunner.kernel_cache import njit
from lakerunner.promql.selection.smoothing import on_line


@njit(cache=True, nogil=True, error_model="numpy")
def between_ends(table: Any, range_: Any, smoothed: Any, counter: Any, seconds: Any, values: Any, present: Any) -> None:
    """Compute extended ranges, whose first and last samples may lie outside: the increase between the range's ends. The
    value at an end is that of the first or last sample, or with `smoothed` on the line to the next one inside."""
    times, numbers, _, first, last, ends = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step] - 1
            if b < a:
                continue
            start, end = ends[step] - range_, ends[step]
            left, right = numbers[a], numbers[b]
            if smoothed and times[a] < start:
                left = on_line(numbers[a], times[a], numbers[a + 1], times[a + 1], start, counter)
            if smoothed and times[b] > end:
                right = on_line(numbers[b - 1], times[b - 1], numbers[b], times[b], end, counter)
            increase = right - left
            if counter:
                inside = a + 1 if times[a] <= start else a
                behind = b if times[b] >= end else b + 1
                before = left
                correction = 0.0
                for at in range(inside, behind):
                    if numbers[at] < before:
                        correction += before
                    before = numbers[at]
                if right < before:
                    correction += before
                increase += correction
            values[series, step] = increase / seconds if seconds != 0 else increase
            present[series, step] = True
