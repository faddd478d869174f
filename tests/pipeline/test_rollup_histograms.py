"""Windows of histograms: deltas added, cumulative ones with what resets took, buckets that do not fit dropped."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.signal import FIRST_HISTOGRAM, RESET_HISTOGRAM
from lakerunner.model.tier import RAW, TIERS
from pipeline.windows_oracle import PREFIX, STALE_MARKER, Row, batch_of, bits, chain, raw, rolled, rows_of

TEN = TIERS[0]


def classic(time: int, counts: list[int], *, temporality: str = "delta", **columns: Any) -> Row:
    bounds = columns.pop("bounds", [float(n) for n in range(len(counts) - 1)])
    whole = {"count": sum(counts), "sum": columns.pop("sum", float(sum(counts))), "bucket_counts": counts or None}
    return raw(time, metric_type="histogram", temporality=temporality, bounds=bounds or None, **whole, **columns)


def exponential(time: int, scale: int, offset: int, counts: list[int], **columns: Any) -> Row:
    zeros = columns.pop("zero_count", 0)
    negative = columns.pop("negative", None)
    return raw(
        time,
        metric_type="exponential_histogram",
        temporality=columns.pop("temporality", "delta"),
        scale=scale,
        zero_count=zeros,
        zero_threshold=columns.pop("zero_threshold", 0.0),
        positive={"offset": offset, "counts": counts, "float_counts": None},
        negative=negative,
        count=zeros + sum(counts) + sum(negative["counts"] if negative else []),
        sum=columns.pop("sum", 1.0),
        **columns,
    )


def windows(*rows: Row, tier: int = TEN) -> list[Row]:
    return rows_of(rolled([batch_of(rows)], RAW, tier))


def test_deltas_of_equal_bounds_are_added() -> None:
    (row,) = windows(
        classic(1, [1, 2, 3], min=0.5, max=2.5),
        classic(2, [4, 0, 1], min=0.25, max=9.0),
        classic(3, [0, 0, 1], min=1.0, max=1.5),
    )
    assert (row["count"], row["sum"], row["min"], row["max"]) == (12, 12.0, 0.25, 9.0)
    assert (row["bounds"], row["bucket_counts"]) == ([0.0, 1.0], [5, 2, 5])
    assert row[PREFIX + "count"] is None
    assert (row[PREFIX + "first_timestamp"], row[PREFIX + "last_timestamp"]) == (1_000_000, 3_000_000)
    assert row["scale"] is row[FIRST_HISTOGRAM] is row[PREFIX + "resets"] is None


def test_deltas_of_other_bounds_keep_count_and_sum() -> None:
    (row,) = windows(classic(1, [1, 2]), classic(2, [1, 2], bounds=[7.0]), classic(3, [1, 2]))
    assert (row["count"], row["sum"]) == (9, 9.0)
    assert row["bounds"] is row["bucket_counts"] is None


def test_what_one_delta_does_not_know_the_window_does_not() -> None:
    (row,) = windows(classic(1, [1], sum=None, min=1.0), classic(2, [2], sum=5.0))
    assert (row["count"], row["bucket_counts"]) == (3, [3])
    assert row["sum"] is row["min"] is None


def test_exponential_deltas_are_added_at_the_coarser_scale() -> None:
    (row,) = windows(
        exponential(1, 3, -3, [1, 2, 3, 4], zero_count=2),
        exponential(2, 2, 5, [7], negative={"offset": 0, "counts": [1], "float_counts": None}),
    )
    # At scale 2 the buckets -3, -2, -1, 0 are -2, -1, -1, 0.
    assert (row["scale"], row["zero_count"], row["count"]) == (2, 2, 20)
    assert row["positive"] == {"offset": -2, "counts": [1, 5, 4, 0, 0, 0, 0, 7], "float_counts": None}
    assert row["negative"] == {"offset": 0, "counts": [1], "float_counts": None}


def test_another_zero_threshold_drops_exponential_buckets() -> None:
    (row,) = windows(exponential(1, 3, 0, [1]), exponential(2, 3, 0, [1], zero_threshold=0.5))
    assert row["count"] == 2
    assert row["scale"] is row["positive"] is row["zero_count"] is None


def test_of_cumulative_ones_the_last_stands_with_the_first_beside_it() -> None:
    rows = [classic(time, [n, n], temporality="cumulative") for time, n in ((1, 1), (2, 5), (3, 9))]
    (row,) = windows(*rows)
    assert (row["count"], row["bucket_counts"], row[PREFIX + "resets"]) == (18, [9, 9], 0)
    assert (row[FIRST_HISTOGRAM]["count"], row[FIRST_HISTOGRAM]["bucket_counts"]) == (2, [1, 1])
    assert row[RESET_HISTOGRAM] is None


@pytest.mark.parametrize("tier", TIERS[:2])
def test_the_increase_of_cumulative_ones_is_known_over_resets(tier: int) -> None:
    counts = [[1, 1], [5, 2], [1, 1], [2, 4], [3, 3]]  # falls before the third, and in one bucket before the fifth
    rows = [classic(1 + 9_000 * n, one, temporality="cumulative") for n, one in enumerate(counts)]
    (row,) = rows_of(chain([batch_of(rows)], TIERS[1])) if tier != TEN else windows(*rows, tier=TIERS[1])
    assert row[PREFIX + "resets"] == 2
    assert row[RESET_HISTOGRAM]["bucket_counts"] == [5 + 2, 2 + 4]
    grown = [
        last - first + reset
        for last, first, reset in zip(
            row["bucket_counts"],
            row[FIRST_HISTOGRAM]["bucket_counts"],
            row[RESET_HISTOGRAM]["bucket_counts"],
            strict=True,
        )
    ]
    assert grown == [4 + 1 + 1 + 3, 1 + 1 + 3 + 3]


def test_a_single_cumulative_one_is_as_it_was() -> None:
    (row,) = windows(exponential(1, 4, 7, [1, 0, 2], temporality="cumulative", min=1.0))
    assert (row["scale"], row["positive"]["offset"], row["min"], row["sum"]) == (4, 7, 1.0, 1.0)
    assert (row[PREFIX + "resets"], row[FIRST_HISTOGRAM]) == (0, None)


def test_summaries_and_float_histograms_are_as_the_last_one() -> None:
    summary = [
        raw(t, metric_type="summary", count=t, sum=2.0 * t, quantiles=[0.5], quantile_values=[t]) for t in (1, 2)
    ]
    (row,) = windows(*summary)
    assert (row["count"], row["sum"], row["quantile_values"]) == (2, 4.0, [2.0])
    floats = [raw(t, metric_type="histogram", temporality="cumulative", float_count=0.5 * t) for t in (1, 2)]
    (row,) = windows(*floats)
    assert (row["float_count"], row[PREFIX + "resets"], row[FIRST_HISTOGRAM]) == (1.0, None, None)


def test_stale_markers_of_histograms_are_none() -> None:
    (first, second) = windows(
        classic(1, [1]), classic(2, [], flags=1), classic(3, [5]), classic(10_001, [3], sum=STALE_MARKER)
    )
    assert (first["bucket_counts"], first[PREFIX + "stale_timestamp"]) == ([6], 2_000_000)
    assert (second[PREFIX + "count"], second["count"]) == (0, None)


def test_a_window_of_numbers_and_histograms_is_one_of_histograms() -> None:
    rows = [raw(1, value=1.0), exponential(2, 3, 0, [1], temporality="cumulative"), raw(3, value=2.0)]
    (row,) = windows(*rows)
    assert row[PREFIX + "count"] is row[PREFIX + "sum"] is None
    assert (row["scale"], row["count"], row[PREFIX + "last_timestamp"]) == (3, 1, 2_000_000)


COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=4)
SIDE = st.one_of(
    st.none(),
    st.tuples(st.integers(-9, 9), COUNTS).map(lambda o: {"offset": o[0], "counts": o[1], "float_counts": None}),
)


@st.composite
def histogram(draw: st.DrawFn) -> Row:
    series = draw(st.integers(1, 4))  # 1, 2: deltas; 3, 4: cumulative ones
    temporality = "delta" if series < 3 else "cumulative"
    time = draw(st.one_of(st.integers(0, 100_000), st.integers(0, 400).map(lambda n: n * 1000)))
    known: dict[str, Any] = {
        "series": series,
        "temporality": temporality,
        "min": draw(st.one_of(st.none(), st.just(1.0), st.just(2.0))),
    }
    known["sum"] = draw(st.one_of(st.none(), st.integers(-9, 9).map(float), st.just(math.inf)))
    if draw(st.integers(0, 9)) == 0:
        return classic(time, [], **known, flags=1)
    if series % 2:
        return classic(time, draw(COUNTS), **known)
    counts = draw(COUNTS)
    scale, zeros = draw(st.integers(-2, 4)), draw(st.integers(0, 2))
    threshold = 0.5 if draw(st.integers(0, 30)) == 0 else 0.0
    more = {"zero_count": zeros, "negative": draw(SIDE), "zero_threshold": threshold}
    return exponential(time, scale, draw(st.integers(-9, 9)), counts, **known, **more)


@settings(max_examples=80, deadline=None)
@given(st.lists(histogram(), min_size=1, max_size=40), st.sampled_from(TIERS))
def test_windows_of_windows_are_the_windows_of_the_points(rows: list[Row], tier: int) -> None:
    batch = batch_of(rows)
    assert bits(rows_of(rolled([batch], RAW, tier))) == bits(rows_of(chain([batch], tier)))
