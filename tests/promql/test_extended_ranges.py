"""anchored and smoothed: ranges that look beyond their ends."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.promql.selection.smoothing import extended_samples, smoothed_instant
from lakerunner.series.values import Steps
from promql.ranges import LOOKBACK, Point, bits, call, cells, row, samples_of, series, shapes, windows_of

COUNTER = [(0, 1.0), (15_000, 2.0), (30_000, 3.0), (45_000, 4.0), (60_000, 5.0), (75_000, 6.0)]
RESET = [(0, 10.0), (30_000, 20.0), (60_000, 4.0), (90_000, 8.0)]


def test_anchored_begins_with_the_sample_before() -> None:
    assert row("increase", COUNTER, 60_000, at=65_000, extended="anchored") == [4.0]
    assert row("increase", COUNTER, 60_000, at=20_000, extended="anchored") == [1.0]  # there is none before
    assert row("increase", COUNTER, 60_000, at=400_000, extended="anchored") == [None]  # nothing inside
    assert row("rate", COUNTER, 60_000, at=65_000, extended="anchored") == [4 / 60]


def test_a_sample_before_the_lookback_is_no_anchor() -> None:
    far = [(0, 1.0), (400_000, 3.0), (401_000, 4.0)]
    assert row("increase", far, 1_500, at=401_000, extended="anchored") == [1.0]
    assert row("increase", [(150_000, 1.0), *far[1:]], 1_500, at=401_000, extended="anchored") == [3.0]


def test_smoothed_draws_lines_to_both_sides() -> None:
    assert row("delta", COUNTER, 30_000, at=50_000, extended="smoothed") == [pytest.approx(2.0)]
    assert row("increase", RESET, 30_000, at=75_000, extended="smoothed") == [pytest.approx(4.0)]


def test_changes_and_resets_are_counted_from_the_anchor_on() -> None:
    assert row("changes", RESET, 30_000, at=60_000, extended="anchored") == [1.0]
    assert row("resets", RESET, 30_000, at=60_000, extended="anchored") == [1.0]
    assert row("resets", RESET, 30_000, at=60_000) == [0.0]


def test_a_smoothed_instant_lies_on_the_line() -> None:
    times = np.array([-1, 0, 7_500, 15_000, 75_000, 76_000, 75_000 + LOOKBACK - 1, 75_000 + LOOKBACK])
    vector = smoothed_instant(samples_of([COUNTER]), times, LOOKBACK)
    assert cells(vector) == [[None, 1.0, 1.5, 2.0, 6.0, 6.0, 6.0, None]]


def test_the_range_itself_has_a_sample_at_each_end() -> None:
    steps = Steps(50_000, 50_000)
    found = extended_samples(windows_of(samples_of([COUNTER, []]), steps, 30_000, extended="smoothed"))
    assert found.times.tolist() == [20_000, 30_000, 45_000, 50_000]
    assert found.values.tolist() == pytest.approx([2 + 1 / 3, 3, 4, 4 + 1 / 3])
    assert found.offsets.tolist() == [0, 4, 4]
    anchored = extended_samples(windows_of(samples_of([COUNTER]), steps, 30_000, extended="anchored"))
    assert anchored.values.tolist() == [2.0, 3.0, 4.0, 4.0]


# ---- against the definition, window by window


def on_line(one: Point, other: Point, time: int, counter: bool) -> float:
    begin = 0.0 if counter and other[1] < one[1] else one[1]
    return begin + (other[1] - begin) * float(time - one[0]) / float(other[0] - one[0])


def model(points: list[Point], end: int, range_: int, extended: str, counter: bool) -> float | None:
    start, smoothed = end - range_, extended == "smoothed"
    near = [p for p in points if start - LOOKBACK < p[0] <= end + (LOOKBACK if smoothed else 0)]
    if not any(p[0] > start for p in near) or not any(p[0] <= end for p in near):
        return None
    before = [p for p in near if p[0] <= start]
    behind = [p for p in near if p[0] >= end]
    between = [p for p in near if start < p[0] < end]
    known: list[Point] = [*before[-1:], *between, *(behind[:1] if smoothed or behind else [])]
    left, right = known[0][1], known[-1][1]
    if smoothed and known[0][0] < start:
        left = on_line(known[0], known[1], start, counter)
    if smoothed and known[-1][0] > end:
        right = on_line(known[-2], known[-1], end, counter)
    result = right - left
    if counter:
        correction, last = 0.0, left
        for value in [p[1] for p in between] + [right]:
            if value < last:
                correction += last
            last = value
        result += correction
    return result


@settings(max_examples=200, deadline=None)
@given(
    st.lists(series(st.floats(0, 1e6)), min_size=1, max_size=3),
    shapes(),
    st.sampled_from(["anchored", "smoothed"]),
    st.sampled_from(["increase", "delta"]),
)
def test_every_window_has_the_bits_of_its_definition(
    drawn: list[list[Point]], shape: tuple[Steps, int], extended: Any, name: str
) -> None:
    steps, range_ = shape
    got = cells(call(name, windows_of(samples_of(drawn), steps, range_, extended=extended), steps))
    for points, found in zip(drawn, got, strict=True):
        for end, value in zip(steps.times.tolist(), found, strict=True):
            assert bits(value) == bits(model(points, end, range_, extended, name == "increase")), (end, range_)


@settings(max_examples=100, deadline=None)
@given(series(st.floats(-1e6, 1e6)), shapes())
def test_a_smoothed_instant_is_a_point_of_its_neighbours(points: list[Point], shape: tuple[Steps, int]) -> None:
    steps, lookback = shape
    got = cells(smoothed_instant(samples_of([points]), steps.times, lookback))[0]
    for time, value in zip(steps.times.tolist(), got, strict=True):
        near = [p for p in points if time - lookback < p[0] <= time + lookback]
        at = bisect_left([p[0] for p in near], time)
        if at < len(near) and near[at][0] == time:
            expected = near[at][1]
        elif at == 0:
            expected = None
        else:
            expected = near[-1][1] if at == len(near) else on_line(near[at - 1], near[at], time, False)
        assert bits(value) == bits(expected)
