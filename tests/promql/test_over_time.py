from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.notes import Note, Notes
from lakerunner.series.values import Steps
from promql.ranges import Point, bits, call, cells, inside, row, samples_of, series, shapes, windows_of

GAUGE = [(10_000, 3.0), (20_000, 1.0), (30_000, 4.0), (40_000, 1.0), (50_000, 5.0)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum_over_time", 14.0),
        ("avg_over_time", 2.8),
        ("min_over_time", 1.0),
        ("max_over_time", 5.0),
        ("count_over_time", 5.0),
        ("present_over_time", 1.0),
        ("first_over_time", 3.0),
        ("last_over_time", 5.0),
        ("stdvar_over_time", 2.56),
        ("stddev_over_time", 1.6),
        ("mad_over_time", 2.0),
        ("ts_of_first_over_time", 10.0),
        ("ts_of_last_over_time", 50.0),
        ("ts_of_min_over_time", 40.0),
        ("ts_of_max_over_time", 50.0),
    ],
)
def test_one_value_of_five_samples(name: str, expected: float) -> None:
    assert row(name, GAUGE, 60_000, at=60_000) == [pytest.approx(expected, rel=1e-15)]
    assert row(name, GAUGE, 60_000, at=1) == [None]


def test_a_range_is_open_on_the_left() -> None:
    assert row("count_over_time", GAUGE, 10_000, at=range(10_000, 60_001, 10_000)) == [1.0, 1.0, 1.0, 1.0, 1.0, None]


def test_sums_keep_what_rounding_takes() -> None:
    points = [(1, 1e100), (2, 1.0), (3, -1e100)]
    assert row("sum_over_time", points, 10, at=5) == [1.0]
    assert row("avg_over_time", points, 10, at=5) == [1 / 3]


def test_a_mean_does_not_overflow_though_the_sum_does() -> None:
    largest = 1.7976931348623157e308
    assert row("sum_over_time", [(1, largest), (2, largest)], 10, at=5) == [math.inf]
    assert row("avg_over_time", [(1, largest), (2, largest)], 10, at=5) == [largest]


def test_quantiles_lie_between_samples() -> None:
    assert row("quantile_over_time", GAUGE, 60_000, 0.5, at=60_000) == [3.0]
    assert row("quantile_over_time", GAUGE, 60_000, 0.9, at=60_000) == [pytest.approx(4.6)]


def test_quantiles_that_cannot_be_are_infinite_and_warned_of() -> None:
    notes = Notes(WORDS)
    assert row("quantile_over_time", GAUGE, 60_000, -1.5, at=60_000, notes=notes) == [-math.inf]
    assert row("quantile_over_time", GAUGE, 60_000, 2e6, at=60_000, notes=notes) == [math.inf]
    assert row("quantile_over_time", GAUGE, 60_000, math.nan, at=60_000, notes=notes) == [
        pytest.approx(math.nan, nan_ok=True)
    ]
    said = [note.message.rpartition(" ")[2] for note in notes.all()]
    assert said == ["-1.5", "2e+06", "NaN"]
    assert notes.all()[0] == Note("warning", "quantile value should be between 0 and 1, got -1.5", 5, 9)


def test_first_and_last_keep_the_name() -> None:
    from lakerunner.promql.functions import FUNCTIONS

    assert {name for name, one in FUNCTIONS.items() if name.endswith("_over_time") and one.keeps_name} >= {
        "first_over_time",
        "last_over_time",
    }


# ---- against the definition, window by window


def kahan(values: list[float]) -> tuple[float, float]:
    total = lost = 0.0
    for value in values:
        grown = total + value
        if math.isinf(grown):
            lost = 0.0
        elif abs(total) >= abs(value):
            lost += (total - grown) + value
        else:
            lost += (value - grown) + total
        total = grown
    return total, lost


def mean(values: list[float]) -> float:
    count, total, lost = 1, values[0], 0.0
    average, moving = 0.0, False
    for count, value in enumerate(values[1:], start=2):
        if not moving:
            grown, grown_lost = step(value, total, lost)
            if not math.isinf(grown):
                total, lost = grown, grown_lost
                continue
            moving, average, lost = True, total / (count - 1), lost / (count - 1)
        share = (count - 1) / count
        average, lost = step(value / count, share * average, share * lost)
    return average + lost if moving else total / count + lost / count


def step(value: float, total: float, lost: float) -> tuple[float, float]:
    grown = total + value
    if math.isinf(grown):
        return grown, 0.0
    return grown, lost + ((total - grown) + value if abs(total) >= abs(value) else (value - grown) + total)


def variance(values: list[float]) -> float:
    average = average_lost = squares = squares_lost = 0.0
    for count, value in enumerate(values, start=1):
        distance = value - (average + average_lost)
        average, average_lost = step(distance / count, average, average_lost)
        squares, squares_lost = step(distance * (value - (average + average_lost)), squares, squares_lost)
    return (squares + squares_lost) / len(values)


def quantile(wanted: float, values: list[float]) -> float:
    ordered = sorted(values, key=lambda value: (value == value, value if value == value else 0.0))
    rank = wanted * (len(values) - 1)
    low = math.floor(rank)
    high, weight = min(len(values) - 1, low + 1), rank - low
    return ordered[low] * (1 - weight) + ordered[high] * weight


def deviation(values: list[float]) -> float:
    if any(value != value for value in values):
        return math.nan
    middle = quantile(0.5, values)
    return quantile(0.5, [abs(value - middle) for value in values])


def extreme(points: list[Point], sign: int, latest: bool) -> Point:
    found = points[0]
    for point in points:
        beyond = sign * point[1] >= sign * found[1] if latest else sign * point[1] > sign * found[1]
        if beyond or found[1] != found[1]:
            found = point
    return found


def model(name: str, points: list[Point], wanted: float) -> Any:
    values = [point[1] for point in points]
    if not values:
        return None
    total, lost = kahan(values)
    with np.errstate(all="ignore"):
        spread = variance(values)
        compute: dict[str, Callable[[], float]] = {
            "sum_over_time": lambda: total if math.isinf(total) else total + lost,
            "avg_over_time": lambda: mean(values),
            "stdvar_over_time": lambda: spread,
            "stddev_over_time": lambda: float(np.sqrt(spread)),
            "quantile_over_time": lambda: quantile(wanted, values),
            "mad_over_time": lambda: deviation(values),
            "min_over_time": lambda: extreme(points, -1, False)[1],
            "max_over_time": lambda: extreme(points, 1, False)[1],
            "ts_of_min_over_time": lambda: extreme(points, -1, True)[0] / 1000,
            "ts_of_max_over_time": lambda: extreme(points, 1, True)[0] / 1000,
            "count_over_time": lambda: float(len(values)),
            "first_over_time": lambda: values[0],
            "last_over_time": lambda: values[-1],
        }
        return compute[name]()


NAMES = [
    "sum_over_time",
    "avg_over_time",
    "stdvar_over_time",
    "stddev_over_time",
    "quantile_over_time",
    "mad_over_time",
    "min_over_time",
    "max_over_time",
    "ts_of_min_over_time",
    "ts_of_max_over_time",
    "count_over_time",
    "first_over_time",
    "last_over_time",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(series(), min_size=1, max_size=3), shapes(), st.sampled_from(NAMES), st.floats(0, 1))
def test_every_window_has_the_bits_of_its_definition(
    drawn: list[list[Point]], shape: tuple[Steps, int], name: str, wanted: float
) -> None:
    steps, range_ = shape
    scalars = [wanted] if name == "quantile_over_time" else []
    got = cells(call(name, windows_of(samples_of(drawn), steps, range_), steps, *scalars))
    for points, found in zip(drawn, got, strict=True):
        for end, value in zip(steps.times.tolist(), found, strict=True):
            expected = model(name, inside(points, end, range_), wanted)
            if name in ("quantile_over_time", "mad_over_time") and value == 0.0:
                assert expected == 0.0  # how zeros of either sign are sorted is nobody's promise
            else:
                assert bits(value) == bits(expected), (end, range_)


@given(st.lists(st.floats(-1e9, 1e9), min_size=65, max_size=120), st.floats(0, 1))
def test_long_windows_are_sorted_too(values: list[float], wanted: float) -> None:
    points: list[Point] = list(enumerate(values, start=1))
    assert row("quantile_over_time", points, 1000, wanted, at=500) == [quantile(wanted, values)]


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=30))
def test_a_sum_is_as_near_as_a_float_can_be(values: list[float]) -> None:
    exact = float(sum(map(Fraction, values)))
    assert row("sum_over_time", list(enumerate(values, start=1)), 1000, at=500) == [pytest.approx(exact, rel=1e-15)]
