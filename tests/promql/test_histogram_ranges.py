"""Ranges of native histograms, and of both kinds of samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lakerunner.promql.selection.notes import WORDS
from lakerunner.promql.selection.smoothing import smoothed_instant
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint, equal
from lakerunner.series.notes import Notes
from promql.ranges import LOOKBACK, Point, cells, row, samples_of

GAUGE, RESET, NOT_RESET = ResetHint.GAUGE, ResetHint.RESET, ResetHint.NOT_RESET
MIXED = 'encountered a mix of histograms and floats for metric name "made_total"'
SCHEMAS = 'vector contains a mix of histograms with exponential and custom buckets schemas for metric name "made_total"'
NO_COUNTER = 'this native histogram metric is not a counter: "made_total"'
NO_GAUGE = 'this native histogram metric is not a gauge: "made_total"'


def histogram(*counts: float, hint: ResetHint = ResetHint.UNKNOWN, bounds: tuple[float, ...] = ()) -> Histogram:
    """Return a histogram with buckets from index 1 on; its sum is ten times its count."""
    first = 0 if bounds else 1
    buckets = BucketCounts(np.arange(first, first + len(counts), dtype=np.int32), np.array(counts))
    schema = CUSTOM_BUCKETS if bounds else 0
    total = float(sum(counts))
    return Histogram(schema, total, 10 * total, positive=buckets, custom_values=bounds, reset_hint=hint)


def minutes(*values: Any) -> list[Point]:
    return [(60_000 * n, value) for n, value in enumerate(values)]


def said(notes: Notes) -> list[str]:
    return [note.message for note in notes.all()]


def check(got: Any, expected: Histogram) -> None:
    assert isinstance(got, Histogram)
    assert equal(replace(got, reset_hint=expected.reset_hint), expected), got
    assert got.reset_hint == expected.reset_hint


RISING = minutes(*(histogram(n, 2.0 * n) for n in range(1, 6)))
FALLING = minutes(histogram(4.0, 4.0), histogram(5.0, 5.0), histogram(1.0, 1.0), histogram(3.0, 1.0))


def test_a_rate_of_histograms_is_a_gauge() -> None:
    [found] = row("increase", RISING, 240_001, at=240_000)
    assert found.count == pytest.approx(12, rel=1e-5)
    assert found.sum == pytest.approx(120, rel=1e-5)
    assert found.positive.counts.tolist() == pytest.approx([4, 8], rel=1e-5)
    assert found.reset_hint == GAUGE
    [rate] = row("rate", RISING, 240_001, at=240_000)
    assert rate.count == pytest.approx(12 / 240, rel=1e-4)


def test_what_was_counted_before_a_reset_is_added() -> None:
    [found] = row("increase", FALLING, 180_001, at=180_000)
    assert found.count == pytest.approx(2 + 4, rel=1e-4)  # 8 -> 10, then 4 since
    assert row("resets", FALLING, 180_001, at=180_000) == [1.0]
    assert row("changes", FALLING, 180_001, at=180_000) == [3.0]


def test_irate_and_idelta_take_the_last_two() -> None:
    notes = Notes(WORDS)
    [rate] = row("irate", RISING, 300_000, at=240_000, notes=notes)
    check(
        rate,
        Histogram(
            0,
            3 / 60,
            30 / 60,
            positive=BucketCounts(np.array([1, 2], np.int32), np.array([1, 2]) / 60),
            reset_hint=GAUGE,
        ),
    )
    assert said(notes) == []
    [delta] = row("idelta", RISING, 300_000, at=240_000, notes=notes)
    assert delta.count == 3
    assert said(notes) == [NO_GAUGE]
    [after] = row("irate", FALLING, 300_000, at=120_000)
    assert after.count == 2 / 60


@pytest.mark.parametrize("name", ["rate", "increase", "delta", "irate", "idelta", "sum_over_time", "avg_over_time"])
def test_a_window_of_both_kinds_has_a_warning_and_no_value(name: str) -> None:
    notes = Notes(WORDS)
    assert row(name, minutes(histogram(1.0), 2.0), 300_000, at=60_000, notes=notes) == [None]
    assert said(notes) == [MIXED]


def test_a_series_may_turn_into_another_kind() -> None:
    points = minutes(1.0, 2.0, 3.0, histogram(1.0), histogram(3.0))
    notes = Notes(WORDS)
    first, second, both, last = row("increase", points, 119_999, at=range(60_000, 240_001, 60_000), notes=notes)
    assert first == second == pytest.approx(2, rel=1e-4)
    assert both is None
    assert last.count == pytest.approx(3, rel=1e-4)
    assert said(notes) == [MIXED]


@pytest.mark.parametrize("name", ["min_over_time", "max_over_time", "stddev_over_time", "mad_over_time", "deriv"])
def test_functions_of_floats_say_what_they_leave_out(name: str) -> None:
    notes = Notes(WORDS)
    assert row(name, minutes(histogram(1.0), 1.0, 1.0), 300_000, at=120_000, notes=notes) != [None]
    assert said(notes) == [
        'ignored histograms in a range containing both floats and histograms for metric name "made_total"'
    ]
    silent = Notes(WORDS)
    assert row(name, minutes(histogram(1.0), histogram(2.0)), 300_000, at=120_000, notes=silent) == [None]
    assert said(silent) == []


def test_samples_are_taken_as_they_come() -> None:
    points = minutes(histogram(1.0), 2.0, histogram(3.0))
    assert row("count_over_time", points, 300_000, at=120_000) == [3.0]
    check(row("first_over_time", points, 300_000, at=120_000)[0], histogram(1.0))
    check(row("last_over_time", points, 300_000, at=120_000)[0], histogram(3.0))
    assert row("last_over_time", points, 300_000, at=60_000) == [2.0]
    assert row("changes", points, 300_000, at=120_000) == [2.0]
    assert row("resets", points, 300_000, at=120_000) == [2.0]
    assert row("ts_of_last_over_time", points, 300_000, at=120_000) == [120.0]


def test_sums_and_means_of_histograms() -> None:
    check(row("sum_over_time", RISING[:3], 300_000, at=120_000)[0], histogram(6.0, 12.0))
    check(row("avg_over_time", RISING[:3], 300_000, at=120_000)[0], histogram(2.0, 4.0))


def test_gauges_and_counters_are_told_apart() -> None:
    gauges = minutes(histogram(1.0, hint=GAUGE), histogram(2.0, hint=GAUGE), histogram(3.0, hint=GAUGE))
    for name, points, message in (
        ("rate", gauges, [NO_COUNTER]),
        ("irate", gauges, [NO_COUNTER]),
        ("delta", gauges, []),
        ("delta", RISING, [NO_GAUGE]),
        ("rate", RISING, []),
    ):
        notes = Notes(WORDS)
        assert row(name, points, 300_000, at=120_000, notes=notes) != [None]
        assert said(notes) == message, name


@pytest.mark.parametrize("name", ["rate", "delta", "idelta", "sum_over_time", "avg_over_time"])
def test_exponential_and_custom_buckets_do_not_go_together(name: str) -> None:
    points = minutes(histogram(2.0, bounds=(1.0, 2.0)), histogram(1.0), histogram(3.0, bounds=(1.0, 2.0)))
    notes = Notes(WORDS)
    # delta looks at the first and the last alone
    assert row(name, points[:2] if name == "delta" else points, 300_000, at=120_000, notes=notes) == [None]
    assert SCHEMAS in said(notes)


def test_custom_bounds_that_differ_are_reconciled_and_named() -> None:
    points = minutes(histogram(1.0, 1.0, bounds=(1.0, 2.0)), histogram(2.0, 2.0, 1.0, bounds=(1.0, 1.5, 2.0)))
    notes = Notes(WORDS)
    [found] = row("sum_over_time", points, 300_000, at=60_000, notes=notes)
    assert found.custom_values == (1.0, 2.0)
    assert said(notes) == ["mismatched custom buckets were reconciled during aggregation"]


def test_hints_that_contradict_each_other_are_warned_of() -> None:
    notes = Notes(WORDS)
    row(
        "sum_over_time",
        minutes(histogram(1.0, hint=RESET), histogram(2.0, hint=NOT_RESET)),
        300_000,
        at=60_000,
        notes=notes,
    )
    assert said(notes) == ["conflicting counter resets during histogram aggregation"]


def test_deltas_of_histograms_are_read_by_their_start_times() -> None:
    deltas = [(60_000 * n, histogram(60.0), 60_000 * (n - 1)) for n in range(2, 12)]
    found = row("increase", deltas, 300_000, at=[600_000])
    assert found[0].count == 300
    assert row("resets", deltas, 300_000, at=600_000) == [4.0]
    [alone] = row("rate", [(120_000, histogram(60.0), 60_000)], 300_000, at=180_000)
    assert alone.count == 0.2


def test_extended_ranges_of_histograms() -> None:
    [anchored] = row("increase", RISING, 90_000, at=200_000, extended="anchored")
    assert anchored.count == 6  # from the sample at 60 s to that at 180 s
    [smoothed] = row("increase", RISING, 60_000, at=150_000, extended="smoothed")
    assert smoothed.count == pytest.approx(3)
    notes = Notes(WORDS)
    assert row("rate", minutes(1.0, histogram(1.0)), 30_000, at=60_000, extended="anchored", notes=notes) == [None]
    assert said(notes) == [MIXED]


def test_a_smoothed_instant_of_histograms() -> None:
    points = minutes(histogram(2.0), histogram(4.0), histogram(1.0))
    times = np.array([0, 30_000, 90_000, 150_000])
    first, between, anew, carried = cells(smoothed_instant(samples_of([points]), times, LOOKBACK))[0]
    check(first, histogram(2.0))
    assert between.count == 3
    assert anew.count == 0.5  # from zero towards 1
    check(carried, histogram(1.0))
    notes = Notes(WORDS)
    both = smoothed_instant(samples_of([minutes(1.0, histogram(1.0))]), times, LOOKBACK, notes)
    assert cells(both) == [[None] * 4]
    assert said(notes) == [MIXED]
