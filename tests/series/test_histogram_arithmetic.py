"""Native histograms: what sums, differences, resets and cuts give, by hand and by law."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.series.histograms.algebra import (
    AveragedHistogram,
    CompensatedHistogram,
    IncompatibleHistograms,
    add_histograms,
    compact_histogram,
    detect_reset,
    divide_histogram,
    has_overflow,
    reduce_schema,
    scale_histogram,
    subtract_histograms,
)
from lakerunner.series.histograms.histogram import (
    CUSTOM_BUCKETS,
    BucketCounts,
    Histogram,
    ResetHint,
    all_buckets,
    equal,
    exponential_bound,
    histogram_text,
    json_buckets,
)
from lakerunner.series.histograms.trim import trim_lower, trim_upper
from lakerunner.series.numerals import json_number, number_text


def side(first: int, *counts: float) -> BucketCounts:
    return BucketCounts(np.arange(first, first + len(counts), dtype=np.int32), np.array(counts, float))


def told(buckets: BucketCounts) -> dict[int, float]:
    return dict(zip(buckets.indexes.tolist(), buckets.counts.tolist(), strict=True))


def custom(bounds: tuple[float, ...], *counts: float, hint: ResetHint = ResetHint.UNKNOWN) -> Histogram:
    return Histogram(
        CUSTOM_BUCKETS, sum(counts), 10.0, positive=side(0, *counts), custom_values=bounds, reset_hint=hint
    )


PLAIN = Histogram(0, 7.0, 18.4, 0.001, 2.0, side(0, 1, 2), side(1, 2))

counts = st.integers(0, 1000).map(float)


@st.composite
def sides(draw: st.DrawFn) -> BucketCounts:
    indexes = sorted(draw(st.sets(st.integers(-40, 40), max_size=6)))
    return BucketCounts(np.array(indexes, np.int32), np.array([draw(counts) for _ in indexes], float))


@st.composite
def exponentials(draw: st.DrawFn) -> Histogram:
    positive, negative, zero = draw(sides()), draw(sides()), draw(counts)
    total = zero + float(positive.counts.sum() + negative.counts.sum())
    threshold = draw(st.sampled_from((0.0, 0.001, 0.3, 1.0, 1.5)))
    return Histogram(draw(st.integers(-2, 5)), total, draw(counts), threshold, zero, positive, negative)


def test_bounds_are_powers_of_two_with_the_greatest_float_before_infinity() -> None:
    assert [exponential_bound(n, 0) for n in (-1, 0, 1, 2)] == [0.5, 1.0, 2.0, 4.0]
    assert exponential_bound(1, 1) == 1.414213562373095
    assert exponential_bound(3, -2) == 4096.0
    assert (
        exponential_bound(1024, 0)
        == exponential_bound(1024 << 8, 8)
        == exponential_bound(64, -4)
        == 1.7976931348623157e308
    )
    assert exponential_bound(1025, 0) == exponential_bound(65, -4) == math.inf


def test_buckets_of_both_signs_ascend_and_end_at_the_zero_bucket() -> None:
    wide = replace(PLAIN, zero_threshold=0.75)
    assert [(b.lower, b.upper, b.observations) for b in all_buckets(wide)] == [
        (-2.0, -1.0, 2.0),
        (-0.75, 0.75, 2.0),
        (0.75, 1.0, 1.0),
        (1.0, 2.0, 2.0),
    ]


def test_a_sum_takes_the_lower_schema() -> None:
    fine = Histogram(1, 6.0, 1.0, 0.001, 0.0, side(1, 1, 2, 3))  # of schema 0: 1 and 2 are 1, 3 is 2
    found = add_histograms(PLAIN, fine).histogram
    assert (found.schema, found.count, found.sum) == (0, 13.0, 19.4)
    assert told(found.positive) == {0: 1.0, 1: 5.0, 2: 3.0}
    assert told(found.negative) == {1: 2.0}


def test_a_sum_takes_a_zero_bucket_that_ends_in_no_filled_bucket() -> None:
    wide = Histogram(0, 1.0, 0.0, 1.5, 1.0)
    found = add_histograms(PLAIN, wide).histogram  # 1.5 is inside (1, 2], which is filled: up to 2 all is taken in
    assert (found.zero_threshold, found.zero_count) == (2.0, 2.0 + 1.0 + 2.0 + 2.0 + 1.0)
    assert told(found.positive) == told(found.negative) == {}
    assert add_histograms(wide, PLAIN).histogram.zero_count == 8.0


def test_custom_bounds_that_differ_leave_those_in_common() -> None:
    found = add_histograms(custom((1.0, 2.0, 5.0), 1, 2, 3, 4), custom((2.0, 5.0, 9.0), 10, 20, 30, 40))
    assert found.bounds_reconciled
    assert found.histogram.custom_values == (2.0, 5.0)
    assert told(found.histogram.positive) == {0: 13.0, 1: 23.0, 2: 74.0}
    less = subtract_histograms(custom((1.0,), 1, 2), custom((3.0,), 1, 5))
    assert less.histogram.custom_values == ()
    assert told(less.histogram.positive) == {0: -3.0}


def test_exponential_and_custom_buckets_do_not_go_together() -> None:
    for pair in ((PLAIN, custom((1.0,), 1)), (custom((1.0,), 1), PLAIN)):
        with pytest.raises(IncompatibleHistograms):
            add_histograms(*pair)
        with pytest.raises(IncompatibleHistograms):
            subtract_histograms(*pair)


@pytest.mark.parametrize(
    ("first", "other", "hint", "collides"),
    [
        (ResetHint.RESET, ResetHint.RESET, ResetHint.RESET, False),
        (ResetHint.GAUGE, ResetHint.RESET, ResetHint.GAUGE, False),
        (ResetHint.NOT_RESET, ResetHint.GAUGE, ResetHint.GAUGE, False),
        (ResetHint.UNKNOWN, ResetHint.RESET, ResetHint.UNKNOWN, False),
        (ResetHint.NOT_RESET, ResetHint.UNKNOWN, ResetHint.UNKNOWN, False),
        (ResetHint.NOT_RESET, ResetHint.RESET, ResetHint.UNKNOWN, True),
    ],
)
def test_the_hint_of_a_sum(first: ResetHint, other: ResetHint, hint: ResetHint, collides: bool) -> None:
    found = add_histograms(replace(PLAIN, reset_hint=first), replace(PLAIN, reset_hint=other))
    assert (found.histogram.reset_hint, found.reset_collision) == (hint, collides)


def test_scaling_by_less_than_zero_makes_a_gauge_and_division_by_zero_leaves_no_bucket() -> None:
    assert scale_histogram(PLAIN, -2.0).reset_hint == ResetHint.GAUGE
    assert told(scale_histogram(PLAIN, -2.0).positive) == {0: -2.0, 1: -4.0}
    nothing = divide_histogram(PLAIN, 0.0)
    assert (nothing.count, nothing.zero_count, len(nothing.positive)) == (math.inf, math.inf, 0)
    assert math.isnan(divide_histogram(replace(PLAIN, sum=0.0), 0.0).sum)


def test_a_compensated_sum_keeps_what_rounding_takes() -> None:
    small, great = Histogram(0, 1.0, 1.0, positive=side(0, 1.0)), Histogram(0, 1e17, 1e17, positive=side(0, 1e17))
    total = CompensatedHistogram(small)
    for one in (great, small, scale_histogram(great, -1.0)):
        total.add(one)
    assert (total.value().sum, total.value().count, told(total.value().positive)) == (2.0, 2.0, {0: 2.0})
    assert add_histograms(add_histograms(small, great).histogram, scale_histogram(great, -1.0)).histogram.sum == 0.0


def test_a_mean_does_not_overflow() -> None:
    great = Histogram(0, 1e308, 1e308, positive=side(0, 1e308))
    mean = AveragedHistogram(great)
    for _ in range(3):
        mean.add(great)
    assert has_overflow(add_histograms(great, great).histogram)
    assert mean.value().count == pytest.approx(1e308)
    assert told(mean.value().positive)[0] == pytest.approx(1e308)


def test_a_reset_is_what_falls() -> None:
    more = add_histograms(PLAIN, PLAIN).histogram
    assert not detect_reset(more, PLAIN)
    assert detect_reset(PLAIN, more)
    assert detect_reset(replace(more, reset_hint=ResetHint.RESET), PLAIN)
    assert not detect_reset(replace(PLAIN, reset_hint=ResetHint.NOT_RESET), more)
    assert detect_reset(replace(more, positive=side(0, 9)), PLAIN)  # a bucket is gone
    assert detect_reset(replace(more, schema=1), PLAIN)
    assert detect_reset(replace(more, zero_threshold=0.0), PLAIN)
    assert detect_reset(replace(more, zero_threshold=1.5), PLAIN)  # ends inside a filled bucket
    wider = replace(PLAIN, zero_threshold=1.0, zero_count=3.0, positive=side(1, 2))
    assert not detect_reset(wider, PLAIN)
    assert detect_reset(replace(wider, zero_count=2.5), PLAIN)
    assert not detect_reset(custom((2.0,), 3, 4), custom((1.0, 2.0), 1, 2, 4))
    assert detect_reset(custom((2.0,), 2, 5), custom((1.0, 2.0), 1, 2, 4))


def test_what_is_cut_off_is_a_part_of_a_bucket() -> None:
    histogram = Histogram(0, 8.0, 100.0, positive=side(1, 4, 4))  # (1, 2] and (2, 4]
    below = trim_upper(histogram, 2.0 * math.sqrt(2.0))
    assert told(below.positive) == {1: 4.0, 2: pytest.approx(2.0)}
    assert below.count == pytest.approx(6.0)
    assert below.sum == pytest.approx(4.0 * math.sqrt(2.0) + 2.0 * math.sqrt(2.0 * 2.0 * math.sqrt(2.0)))
    above = trim_lower(custom((0.0, 10.0), 1, 4, 5), 5.0)
    assert told(above.positive) == {1: 2.0, 2: 5.0}
    assert above.sum == 2.0 * 7.5 + 5.0 * 10.0
    assert trim_upper(histogram, 4.0) is histogram
    assert told(trim_upper(custom((0.0, 10.0), 1, 4, 5), 5.0).positive) == {0: 1.0, 1: 2.0}


def test_texts() -> None:
    assert histogram_text(PLAIN) == "{count:7, sum:18.4, [-2,-1):2, [-0.001,0.001]:2, (0.5,1]:1, (1,2]:2}"
    assert json_buckets(PLAIN) == [
        (1, "-2", "-1", "2"),
        (3, "-0.001", "0.001", "2"),
        (0, "0.5", "1", "1"),
        (0, "1", "2", "2"),
    ]
    assert json_buckets(custom((1.0,), 1, 2)) == [(3, "-Inf", "1", "1"), (0, "1", "+Inf", "2")]
    assert json_buckets(Histogram(0, 1.0, 0.0, zero_count=1.0)) == [(3, "-0", "0", "1")]
    numbers = (1e6, 123456789.0, 100000.0, 1e-5, 0.0001, -0.5, math.nan, 1e21)
    assert [number_text(n) for n in numbers] == [
        "1e+06", "1.23456789e+08", "100000", "1e-05", "0.0001", "-0.5", "NaN", "1e+21",
    ]  # fmt: skip
    assert [json_number(n) for n in numbers] == [
        "1000000", "123456789", "100000", "0.00001", "0.0001", "-0.5", "NaN", "1e+21",
    ]  # fmt: skip


@settings(max_examples=40)
@given(exponentials(), exponentials())
def test_a_sum_is_the_same_from_both_sides(first: Histogram, other: Histogram) -> None:
    one, two = (
        compact_histogram(add_histograms(first, other).histogram),
        compact_histogram(add_histograms(other, first).histogram),
    )
    assert (one.schema, one.count, one.sum) == (two.schema, two.count, two.sum)
    assert one.zero_threshold == two.zero_threshold
    filled = one.zero_count + one.positive.counts.sum() + one.negative.counts.sum()
    # A bucket inside its own histogram's zero bucket is told apart from it only by that histogram.
    if all(_is_tidy(h) for h in (first, other)):
        assert filled == one.count
        assert one.zero_count == two.zero_count
        assert told(one.positive) == told(two.positive)
        assert told(one.negative) == told(two.negative)


def _is_tidy(histogram: Histogram) -> bool:
    sides = (histogram.positive, histogram.negative)
    lowest = [exponential_bound(b.indexes.tolist()[0] - 1, histogram.schema) for b in sides if len(b)]
    return all(bound >= histogram.zero_threshold for bound in lowest)


@settings(max_examples=40)
@given(exponentials(), exponentials(), st.integers(0, 3))
def test_the_sum_of_coarser_ones_is_the_coarser_sum(first: Histogram, other: Histogram, less: int) -> None:
    first, other = replace(first, zero_threshold=0.0), replace(other, zero_threshold=0.0)
    schema = min(first.schema, other.schema) - less
    apart = add_histograms(reduce_schema(first, schema), reduce_schema(other, schema)).histogram
    assert equal(apart, reduce_schema(add_histograms(first, other).histogram, schema))


@settings(max_examples=40)
@given(exponentials(), exponentials())
def test_what_is_added_can_be_taken_away_and_is_no_reset(first: Histogram, other: Histogram) -> None:
    first, other = replace(first, zero_threshold=0.0), replace(other, zero_threshold=0.0)
    total = add_histograms(first, other).histogram
    back = subtract_histograms(total, other).histogram
    assert equal(compact_histogram(back), compact_histogram(reduce_schema(first, back.schema)))
    assert not detect_reset(total, first)


@settings(max_examples=40)
@given(exponentials(), st.floats(1e-3, 1e3))
def test_division_undoes_scaling(histogram: Histogram, factor: float) -> None:
    back = divide_histogram(scale_histogram(histogram, factor), factor)
    assert back.count == pytest.approx(histogram.count, rel=1e-15)
    assert back.positive.counts == pytest.approx(histogram.positive.counts, rel=1e-15)


@settings(max_examples=40)
@given(st.lists(exponentials(), min_size=1, max_size=5))
def test_a_compensated_sum_of_whole_numbers_is_the_sum(histograms: list[Histogram]) -> None:
    plain, total, mean = histograms[0], CompensatedHistogram(histograms[0]), AveragedHistogram(histograms[0])
    for one in histograms[1:]:
        plain = add_histograms(plain, one).histogram
        total.add(one)
        mean.add(one)
    assert equal(compact_histogram(total.value()), compact_histogram(plain))
    assert mean.value().count == plain.count / len(histograms)


@settings(max_examples=40)
@given(exponentials(), st.floats(-1e3, 1e3))
def test_both_cuts_make_up_the_whole(histogram: Histogram, bound: float) -> None:
    parts = trim_upper(histogram, bound), trim_lower(histogram, bound)
    assert sum(part.count for part in parts) == pytest.approx(histogram.count, rel=1e-9, abs=1e-9)


def test_equal_is_to_the_bit() -> None:
    nan = replace(PLAIN, sum=math.nan)
    other_nan = replace(PLAIN, sum=struct.unpack("d", struct.pack("Q", 0x7FF8000000000007))[0])
    assert equal(nan, replace(PLAIN, sum=math.nan))
    assert not equal(nan, other_nan)
    assert equal(PLAIN, replace(PLAIN, positive=side(0, 1, 2, 0), reset_hint=ResetHint.GAUGE))
    assert not equal(PLAIN, replace(PLAIN, zero_threshold=0.002))
