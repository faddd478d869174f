from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.series.values import Steps
from promql.ranges import Point, bits, call, cells, inside, row, samples_of, series, shapes, windows_of

LINE = [(n * 10_000, 5.0 + 2 * n) for n in range(1, 7)]  # 0.2 per second, 5 at zero


def test_the_line_through_samples_on_a_line() -> None:
    assert row("deriv", LINE, 60_000, at=60_000) == [pytest.approx(0.2, rel=1e-14)]
    assert row("predict_linear", LINE, 60_000, 100.0, at=60_000) == [pytest.approx(5 + 0.2 * 160, rel=1e-14)]
    assert row("deriv", LINE, 10_000, at=60_000) == [None]


def test_a_prediction_starts_at_the_step_whatever_the_offset() -> None:
    assert row("predict_linear", LINE, 60_000, 0.0, at=70_000, offset=10_000) == [pytest.approx(19.0, rel=1e-14)]


def test_a_level_line_is_exact_unless_it_is_infinite() -> None:
    assert row("deriv", [(1, 0.1), (2, 0.1), (3, 0.1)], 10, at=5) == [0.0]
    assert row("predict_linear", [(1, 0.1), (2, 0.1)], 10, 60.0, at=5) == [0.1]
    assert math.isnan(row("deriv", [(1, math.inf), (2, math.inf)], 10, at=5)[0])


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((0.0, 0.5), "invalid smoothing factor. Expected: 0 < sf < 1, got: 0.000000"),
        ((1.5, 0.5), "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.500000"),
        ((math.inf, 0.5), "invalid smoothing factor. Expected: 0 < sf < 1, got: +Inf"),
        ((0.5, 1.0), "invalid trend factor. Expected: 0 < tf < 1, got: 1.000000"),
    ],
)
def test_factors_lie_between_zero_and_one(factors: tuple[float, float], said: str) -> None:
    with pytest.raises(UserError) as error:
        row("double_exponential_smoothing", LINE, 60_000, *factors, at=60_000)
    assert error.value.message == said
    assert row("double_exponential_smoothing", [], 60_000, *factors, at=60_000) == [None]


def plus(value: float, pair: tuple[float, float]) -> tuple[float, float]:
    total, lost = pair
    grown = total + value
    if math.isinf(grown):
        return grown, 0.0
    return grown, lost + ((total - grown) + value if abs(total) >= abs(value) else (value - grown) + total)


def line(points: list[Point], origin: int) -> tuple[float, float]:
    if all(point[1] == points[0][1] for point in points[1:]):
        return (math.nan, math.nan) if math.isinf(points[0][1]) else (0.0, points[0][1])
    x = y = xy = xx = (0.0, 0.0)
    for time, value in points:  # type: ignore[misc]
        seconds = (time - origin) / 1e3
        x, y = plus(seconds, x), plus(value, y)
        xy, xx = plus(seconds * value, xy), plus(seconds * seconds, xx)
    sx, sy, sxy, sxx = (np.float64(sum(pair)) for pair in (x, y, xy, xx))
    count = float(len(points))
    slope = (sxy - sx * sy / count) / (sxx - sx * sx / count)
    return float(slope), float(sy / count - slope * sx / count)


def smoothed(points: list[Point], smoothing: float, trend: float) -> float:
    level, rise = points[0][1], points[1][1] - points[0][1]
    before = 0.0
    for number, (_, value) in enumerate(points[1:]):  # type: ignore[misc]
        if number:
            rise = trend * (level - before) + (1 - trend) * rise
        before, level = level, smoothing * value + (1 - smoothing) * (level + rise)
    return level


@settings(max_examples=150, deadline=None)
@given(st.lists(series(), min_size=1, max_size=3), shapes(), st.floats(0.01, 0.99), st.floats(-1e4, 1e4))
def test_every_window_has_the_bits_of_its_definition(
    drawn: list[list[Point]], shape: tuple[Steps, int], factor: float, ahead: float
) -> None:
    steps, range_ = shape
    windows = windows_of(samples_of(drawn), steps, range_)
    slopes = cells(call("deriv", windows, steps))
    predicted = cells(call("predict_linear", windows, steps, ahead))
    curves = cells(call("double_exponential_smoothing", windows, steps, factor, 1 - factor))
    for row_, points in enumerate(drawn):
        for step, end in enumerate(steps.times.tolist()):
            found = inside(points, end, range_)
            if len(found) < 2:
                assert slopes[row_][step] is predicted[row_][step] is curves[row_][step] is None
                continue
            with np.errstate(all="ignore"):
                slope, height = line(found, end)
                assert bits(slopes[row_][step]) == bits(line(found, found[0][0])[0])
                assert bits(predicted[row_][step]) == bits(slope * ahead + height)
                assert bits(curves[row_][step]) == bits(smoothed(found, factor, 1 - factor))
