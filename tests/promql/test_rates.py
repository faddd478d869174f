from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.notes import Note, Notes
from lakerunner.series.values import Steps
from promql.ranges import Point, bits, call, cells, inside, row, samples_of, series, shapes, windows_of

COUNTER = [(n * 60_000, float(n * 60)) for n in range(11)]
RESET = [(0, 0.0), (60_000, 10.0), (120_000, 20.0), (180_000, 5.0), (240_000, 15.0)]
DELTAS = [(n * 60_000, 60.0, (n - 1) * 60_000) for n in range(2, 18)]


def test_a_rate_reaches_to_both_ends_of_its_range() -> None:
    assert row("rate", COUNTER, 300_000, at=600_000) == [1.0]
    assert row("increase", COUNTER, 300_000, at=range(300_000, 600_001, 60_000)) == [300.0] * 6
    assert row("delta", COUNTER, 300_000, at=600_000) == [300.0]


def test_a_rate_needs_two_samples() -> None:
    assert row("rate", COUNTER, 60_000, at=600_000) == [None]
    assert row("rate", [], 60_000, at=600_000) == [None]


def test_a_counter_that_falls_began_anew() -> None:
    # 20 up to the reset, 15 since; the first sample is the end of the range
    assert row("increase", RESET, 240_001, at=240_000) == [pytest.approx(35.0, rel=1e-5)]
    assert row("delta", RESET, 240_001, at=240_000) == [pytest.approx(15.0, rel=1e-5)]
    assert row("resets", RESET, 240_001, at=240_000) == [1.0]
    assert row("changes", RESET, 240_001, at=240_000) == [4.0]
    assert row("irate", RESET, 300_000, at=range(120_000, 240_001, 60_000)) == [10 / 60, 5 / 60, 10 / 60]
    assert row("idelta", RESET, 300_000, at=range(120_000, 240_001, 60_000)) == [10.0, -15.0, 10.0]


def test_deltas_are_read_as_a_counter_by_their_start_times() -> None:
    times = range(600_000, 900_001, 60_000)
    assert row("increase", DELTAS, 300_000, at=times) == [300.0] * 6
    assert row("rate", DELTAS, 300_000, at=times) == [1.0] * 6
    assert row("irate", DELTAS, 300_000, at=times) == [1.0] * 6
    assert row("resets", DELTAS, 300_000, at=times) == [4.0] * 6
    assert row("increase", [(t, v) for t, v, _ in DELTAS], 300_000, at=times) == [0.0] * 6


def test_one_sample_that_began_inside_the_range_is_enough() -> None:
    assert row("increase", [(240_000, 3.0, 90_000)], 300_000, at=360_000) == [3.0]
    assert row("increase", [(240_000, 3.0, 60_000)], 300_000, at=360_000) == [None]  # at the open end: outside


def test_start_times_that_overlap_are_warned_of() -> None:
    notes = Notes(WORDS)
    points = [(120_000, 60.0, 0), (180_000, 120.0, 60_000), (240_000, 180.0, 120_000)]
    row("rate", points, 180_000, at=240_000, notes=notes, metric="counter_total")
    text = 'sample has start time that overlaps with previous sample timestamp for metric "counter_total"'
    assert notes.all() == (Note("warning", text, 5, 9),)


@pytest.mark.parametrize(
    ("name", "labels", "said"),
    [
        ("a_total", {}, None),
        ("a_bucket", {}, None),
        ("a", {}, 'metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "a"'),
        ("a", {"__type__": "counter"}, None),
        (
            "a_total",
            {"__type__": "gauge"},
            'metric might not be a counter, __type__ label is not set to "counter" or "histogram",'
            ' got "gauge": "a_total"',
        ),
    ],
)
def test_what_might_not_be_a_counter_is_named(name: str, labels: dict[str, str], said: str | None) -> None:
    samples = samples_of([COUNTER])
    object.__setattr__(samples, "labels", [tuple(sorted({"__name__": name, **labels}.items()))])
    steps, notes = Steps(600_000, 600_000), Notes(WORDS)
    call("rate", windows_of(samples, steps, 300_000), steps, notes=notes)
    assert [note.message for note in notes.all()] == ([said] if said else [])
    silent = Notes(WORDS)
    call("rate", windows_of(samples, Steps(1, 1), 300_000), Steps(1, 1), notes=silent)
    assert silent.all() == ()  # there is no result to speak of


# ---- against the definition, window by window


def is_anew(before: Point, now: Point) -> bool:
    if now[1] < before[1]:
        return True
    if len(now) < 3 or len(before) < 3:
        return False
    start, start_before = now[2], before[2]
    if start in (0, start_before) or start >= now[0] or start < before[0]:
        return False
    return start > before[0] or (start_before != 0 and start_before < before[0])


def rate_of(points: list[Point], range_: int, end: int, counter: bool, per_second: bool) -> float | None:
    if not points:
        return None
    start = end - range_
    result = points[-1][1] - points[0][1]
    if counter:
        for before, now in pairwise(points):
            if is_anew(before, now):
                result += before[1]
    to_start, to_end = (points[0][0] - start) / 1000, (end - points[-1][0]) / 1000
    sampled = (points[-1][0] - points[0][0]) / 1000
    average = sampled / (len(points) - 1) if len(points) > 1 else 0.0
    begun = points[0][2] if counter and len(points[0]) > 2 else 0
    if begun and start < begun < points[0][0]:
        to_start, sampled = 0.0, (points[-1][0] - begun) / 1000
        result += points[0][1]
    elif len(points) == 1:
        return None
    else:
        if to_start >= average * 1.1:
            to_start = average / 2
        if counter and result > 0 and points[0][1] >= 0:
            with np.errstate(all="ignore"):
                to_start = min(to_start, sampled * float(np.float64(points[0][1]) / np.float64(result)))
    if to_end >= average * 1.1:
        to_end = average / 2
    factor = (sampled + to_start + to_end) / sampled
    return result * (factor / (range_ // 1000 + range_ % 1000 * 1e6 / 1e9) if per_second else factor)


def instant_of(points: list[Point], counter: bool) -> float | None:
    if len(points) < 2:
        return None
    before, now = points[-2:]
    if not counter:
        return now[1] - before[1]
    return (now[1] if is_anew(before, now) else now[1] - before[1]) / ((now[0] - before[0]) / 1000)


def model(name: str, points: list[Point], range_: int, end: int) -> Any:
    pairs = list(pairwise(points))
    match name:
        case "rate" | "increase" | "delta":
            return rate_of(points, range_, end, name != "delta", name == "rate")
        case "irate" | "idelta":
            return instant_of(points, name == "irate")
        case "resets":
            return float(sum(is_anew(*pair) for pair in pairs)) if points else None
    different = [
        now for before, now in pairs if now[1] != before[1] and not (now[1] != now[1] and before[1] != before[1])
    ]
    return float(len(different)) if points else None


NAMES = ("rate", "increase", "delta", "irate", "idelta", "resets", "changes")


@settings(max_examples=150, deadline=None)
@given(st.lists(series(), min_size=1, max_size=3), shapes(), st.sampled_from(NAMES))
def test_every_window_has_the_bits_of_its_definition(
    drawn: list[list[Point]], shape: tuple[Steps, int], name: str
) -> None:
    check(drawn, shape, name)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(series(st.integers(0, 50).map(float), starts=True), min_size=1, max_size=3),
    shapes(),
    st.sampled_from(("rate", "increase", "irate", "resets")),
)
def test_start_times_count_in_every_window(drawn: list[list[Point]], shape: tuple[Steps, int], name: str) -> None:
    check(drawn, shape, name)


def check(drawn: list[list[Point]], shape: tuple[Steps, int], name: str) -> None:
    steps, range_ = shape
    got = cells(call(name, windows_of(samples_of(drawn), steps, range_), steps))
    for points, found in zip(drawn, got, strict=True):
        for end, value in zip(steps.times.tolist(), found, strict=True):
            assert bits(value) == bits(model(name, inside(points, end, range_), range_, end)), (end, range_)
