"""Trends: deriv, predict_linear, double_exponential_smoothing. They need two float samples in a window; histograms are
ignored, with an info if a window has both."""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import UserError
from lakerunner.promql.functions.range_vectors import RangeVector, note_ignored_histograms, range_vector
from lakerunner.series.arrays import Bools, Floats
from lakerunner.series.expression import Kind
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import never_steady, scalar_of
from lakerunner.series.values import Vector
from lakerunner.series.window_kernels import plus


@njit(cache=True, nogil=True, error_model="numpy")
def lines(table: Any, origins: Any, slopes: Any, heights: Any) -> None:
    """Fit the line of least squares through each window of two or more samples: its slope per second, and its height at
    the step's origin (ms), or without `origins` at the window's first sample."""
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
def smooth_twice(table: Any, smoothing: Any, trend: Any, values: Any) -> None:
    """Compute double exponential smoothing (Holt-Winters without seasons) of each window of two or more samples."""
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


def _deriv(invocation: Invocation) -> Vector:
    given = range_vector(invocation)
    slopes, _ = given.empty()
    lines(given.table(), np.zeros(0, np.int64), slopes, np.zeros_like(slopes))
    return _vector(given, slopes)


def _predict_linear(invocation: Invocation) -> Vector:
    """Predict from the step's own time on, whatever offset the range has."""
    given, ahead = range_vector(invocation), scalar_of(invocation, 1)
    slopes, _ = given.empty()
    heights = np.zeros_like(slopes)
    lines(given.table(), invocation.steps.times, slopes, heights)
    with np.errstate(all="ignore"):
        return _vector(given, slopes * ahead + heights)


def _double_exponential_smoothing(invocation: Invocation) -> Vector:
    given, smoothing, trend = range_vector(invocation), scalar_of(invocation, 1), scalar_of(invocation, 2)
    wrong = {name: (factors <= 0) | (factors >= 1) for name, factors in (("smoothing", smoothing), ("trend", trend))}
    refused = (given.whole.last > given.whole.first) & (wrong["smoothing"] | wrong["trend"])
    if refused.any():  # report the error of the first series, at the first step at which it has samples
        at = int(np.argmax(refused)) % refused.shape[1]
        name, short, got = ("smoothing", "sf", smoothing) if wrong["smoothing"][at] else ("trend", "tf", trend)
        raise UserError(f"invalid {name} factor. Expected: 0 < {short} < 1, got: {_fixed(got[at])}")
    values, _ = given.empty()
    smooth_twice(given.table(), smoothing, trend, values)
    return _vector(given, values)


def _fixed(number: float) -> str:
    return f"{number:.6f}" if np.isfinite(number) else f"{number:+f}".replace("inf", "Inf")


def _vector(given: RangeVector, values: Floats) -> Vector:
    note_ignored_histograms(given)
    present: Bools = given.floats.last - given.floats.first >= 2
    return given.vector(values, present)


REGRESSIONS: tuple[Function, ...] = (
    Function("deriv", (Kind.MATRIX,), Kind.VECTOR, _deriv),
    Function("predict_linear", (Kind.MATRIX, Kind.SCALAR), Kind.VECTOR, _predict_linear, steady=never_steady),
    Function(
        "double_exponential_smoothing",
        (Kind.MATRIX, Kind.SCALAR, Kind.SCALAR),
        Kind.VECTOR,
        _double_exponential_smoothing,
        experimental=True,
    ),
)
