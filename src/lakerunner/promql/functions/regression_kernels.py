"""Lines and curves through the float samples of each window, as loops over arrays. Float operations are those of
Prometheus, in its order, so that the bits are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.series.window_kernels import plus


@njit(cache=True, nogil=True, error_model="numpy")
def lines(table: Any, origins: Any, slopes: Any, heights: Any) -> None:
    """The line of least squares through each window of two or more: its slope per second, and its height at the step's
    origin (ms); where there are no `origins`, at the window's first sample."""
    times, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b - a >= 2:
                origin = origins[step] if len(origins) > 0 else times[a]
                slopes[series, step], heights[series, step] = _line(times[a:b], numbers[a:b], origin)


@njit(cache=True, nogil=True, error_model="numpy")
def _line(times: Any, numbers: Any, origin: Any) -> Any:
    x = x_lost = y = y_lost = xy = xy_lost = xx = xx_lost = 0.0
    level = True
    for at in range(len(times)):
        number = numbers[at]
        if at > 0 and number != numbers[0]:
            level = False
        seconds = (times[at] - origin) / 1e3
        x, x_lost = plus(seconds, x, x_lost)
        y, y_lost = plus(number, y, y_lost)
        xy, xy_lost = plus(seconds * number, xy, xy_lost)
        xx, xx_lost = plus(seconds * seconds, xx, xx_lost)
    if level:
        return (np.nan, np.nan) if np.isinf(numbers[0]) else (0.0, numbers[0])
    count = float(len(times))
    x += x_lost
    y += y_lost
    xy += xy_lost
    xx += xx_lost
    slope = (xy - x * y / count) / (xx - x * x / count)
    return slope, y / count - slope * x / count


@njit(cache=True, nogil=True, error_model="numpy")
def smoothed_twice(table: Any, smoothing: Any, trend: Any, values: Any) -> None:
    """Double exponential smoothing (Holt-Winters without seasons) of each window of two or more."""
    _, numbers, _, first, last, _ = table
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            a, b = first[series, step], last[series, step]
            if b - a < 2:
                continue
            weight, trend_weight = smoothing[step], trend[step]
            before, level = 0.0, numbers[a]
            rise = numbers[a + 1] - numbers[a]
            for at in range(a + 1, b):
                if at > a + 1:
                    rise = trend_weight * (level - before) + (1 - trend_weight) * rise
                before, level = level, weight * numbers[at] + (1 - weight) * (level + rise)
            values[series, step] = level
