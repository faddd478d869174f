"""The law of rollups: windows of windows are the windows of the points, through all tiers."""

from __future__ import annotations

import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.tier import RAW, TIERS
from pipeline.windows_oracle import PREFIX, STALE_MARKER, Row, batch_of, bits, chain, raw, rolled, rows_of

WHOLE = st.integers(-1000, 1000).map(float)
ANY = st.one_of(
    WHOLE,
    st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-3),
    st.sampled_from([0.0, -0.0, 0.1, math.inf, -math.inf, math.nan, STALE_MARKER]),
)
TIMES = st.one_of(st.integers(0, 200_000), st.integers(0, 400_000).map(lambda n: n * 1000))
_SUMS = (PREFIX + "sum", PREFIX + "sum_error", PREFIX + "increase", PREFIX + "reset_sum")


def points_of(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[int, int, float]]]:
    return st.lists(st.tuples(TIMES, st.integers(1, 3), values), min_size=1, max_size=60)


def rows_of_points(points: list[tuple[int, int, float]]) -> list[Row]:
    return [raw(time, series=series, value=value, description=str(n)) for n, (time, series, value) in enumerate(points)]


def without_sums(rows: list[Row]) -> list[Row]:
    return [{name: bits(value) for name, value in row.items() if name not in _SUMS} for row in rows]


@settings(max_examples=80, deadline=None)
@given(points_of(ANY), st.sampled_from(TIERS))
def test_all_but_sums_is_equal_bit_for_bit(points: list[tuple[int, int, float]], tier: int) -> None:
    batch = batch_of(rows_of_points(points))
    direct, through = rows_of(rolled([batch], RAW, tier)), rows_of(chain([batch], tier))
    assert without_sums(direct) == without_sums(through)
    for one, other in zip(direct, through, strict=True):
        assert_sums_equal(one, other, [v for _, s, v in points if s == one["series"]])


def assert_sums_equal(one: Row, other: Row, values: list[float]) -> None:
    """Within the bound of compensated summation: as if the sum was exact and rounded once, and n^2 eps^2 of all
    magnitudes; increases add the values before resets, a rounding each."""
    magnitude = math.fsum(abs(value) for value in values if math.isfinite(value))
    eps = 2.0**-52
    sums = [(row[PREFIX + "sum"] or 0.0) + (row[PREFIX + "sum_error"] or 0.0) for row in (one, other)]
    bound = eps * abs(sums[0]) + len(values) ** 2 * eps**2 * magnitude
    assert sums[0] == pytest.approx(sums[1], rel=0, abs=bound if math.isfinite(bound) else 0, nan_ok=True)
    for name in ("increase", "reset_sum"):
        pair = [row[PREFIX + name] for row in (one, other)]
        if pair[0] is None or pair[1] is None:
            assert pair[0] is pair[1]
            continue
        assert pair[0] == pytest.approx(pair[1], rel=0, abs=eps * len(values) * magnitude, nan_ok=True)


@settings(max_examples=80, deadline=None)
@given(points_of(WHOLE), st.sampled_from(TIERS))
def test_of_whole_numbers_everything_is_equal_bit_for_bit(points: list[tuple[int, int, float]], tier: int) -> None:
    batch = batch_of(rows_of_points(points))
    assert bits(rows_of(rolled([batch], RAW, tier))) == bits(rows_of(chain([batch], tier)))


@settings(max_examples=40, deadline=None)
@given(points_of(WHOLE), st.lists(st.integers(1, 59), max_size=4))
def test_a_row_of_a_later_segment_takes_the_place_of_an_earlier_one(
    points: list[tuple[int, int, float]], cuts: list[int]
) -> None:
    """Points arrive in parts. Each recomputes exactly the windows that it has points in, from all points so far, and
    is rolled up to the next tier in the same way; at last every tier is as if all had come at once."""
    at = sorted({0, len(points), *(min(cut, len(points)) for cut in cuts)})
    arrived: list[Row] = []
    tiers: dict[int, list[Row]] = {tier: [] for tier in TIERS[:3]}
    for begin, end in pairwise(at):
        fresh = rows_of_points(points)[begin:end]
        arrived += fresh
        source, held = RAW, arrived
        for tier in tiers:
            touched = {(row["series"], window_of(row, tier)) for row in fresh}
            batch = batch_of((row for row in held if (row["series"], window_of(row, tier)) in touched), SCHEMAS[source])
            fresh = rows_of(rolled([batch], source, tier))
            tiers[tier] += fresh
            source, held = tier, tiers[tier]
    whole = batch_of(rows_of_points(points))
    for tier, written in tiers.items():
        last = {(row["series"], row["timestamp"]): row for row in written}
        ordered = [last[key] for key in sorted(last)]
        assert bits(ordered) == bits(rows_of(rolled([whole], RAW, tier)))


def window_of(row: Row, tier: int) -> int:
    return int(-(-(row["timestamp"] // 1_000_000) // tier))


_FIRST = batch_of([])
SCHEMAS: dict[int, pa.Schema] = {RAW: _FIRST.schema}
for _source, _tier in pairwise((RAW, *TIERS)):
    SCHEMAS[_tier] = rolled([batch_of([], SCHEMAS[_source])], _source, _tier).schema


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=200),
    st.sampled_from([0.5, 0.95, 0.99]),
    st.booleans(),
)
def test_quantiles_of_a_sketch_are_within_one_percent(values: list[float], quantile: float, negative: bool) -> None:
    signed = sorted(-value if negative else value for value in values)
    batch = batch_of(raw(1 + 97 * n, value=value) for n, value in enumerate(signed))
    (row,) = rows_of(chain([batch], TIERS[1]))
    found = quantile_of(row, quantile)
    rank = max(math.ceil(quantile * len(signed)), 1) - 1
    assert found == pytest.approx(signed[rank], rel=0.01)


def quantile_of(row: Row, quantile: float) -> float:
    """The middle of the bucket in which the value of this rank is."""
    left = max(math.ceil(quantile * row["count"]), 1)
    counted: list[tuple[float, int]] = []
    for name, sign in (("negative", -1), ("positive", 1)):
        side = row[name] or {"offset": 0, "counts": []}
        bounds = [2.0 ** ((side["offset"] + n) / 64) for n in range(len(side["counts"]) + 1)]
        middles = [sign * 2 * low * high / (low + high) for low, high in pairwise(bounds)]
        counted += sorted(zip(middles, side["counts"], strict=True))
    for middle, count in counted:
        left -= count
        if left <= 0:
            return middle
    raise AssertionError(counted)
