"""Windows of numbers: each value against the plain way, the rows that are samples, and how batches are cut."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.tier import RAW, TIERS
from lakerunner.pipeline.rollup import buckets
from pipeline.windows_oracle import PREFIX, STALE_MARKER, Row, batch_of, bits, expected, raw, rolled, rows_of
from suites.sketch_oracle import bucket

TEN = TIERS[0]
VALUES = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e3, 1e3).filter(lambda value: value == 0 or abs(value) > 1e-3),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5, 1e9, math.inf, -math.inf, math.nan, STALE_MARKER]),
)
POINTS = st.lists(st.tuples(st.integers(-25_000, 60_000), VALUES), min_size=1, max_size=40)


def ms(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1_000_000


@settings(max_examples=200, deadline=None)
@given(POINTS)
def test_a_window_holds_what_the_plain_way_says(points: list[tuple[int, float]]) -> None:
    table = rolled([batch_of(raw(time, value=value) for time, value in points)], RAW, TEN)
    wanted = expected(points, TEN)
    rows = rows_of(table)
    assert [ms(row["timestamp"]) for row in rows] == sorted(wanted)
    for row in rows:
        window = wanted[ms(row["timestamp"]) or 0]
        assert ms(row["start_timestamp"]) == (ms(row["timestamp"]) or 0) - TEN
        assert row[PREFIX + "count"] == window["count"]
        assert ms(row[PREFIX + "stale_timestamp"]) == window["stale_timestamp"]
        if not window["count"]:
            assert row["positive"] is row["scale"] is row["count"] is row[PREFIX + "sum"] is None
            continue
        for name in ("min", "max"):  # of equal ones either: Prometheus takes the first, and 0.0 is -0.0
            assert row[PREFIX + name] == pytest.approx(window[name], rel=0, abs=0, nan_ok=True)
        for name in ("first", "last", "resets", "changes"):
            assert bits(row[PREFIX + name]) == bits(window[name])
        for name in ("first_timestamp", "last_timestamp"):
            assert ms(row[PREFIX + name]) == window[name]
        assert row["scale"] == 6
        assert {name: row[name] for name in window["sketch"]} == window["sketch"]
        assert_sum(row, window["values"])
        total = window["last"] - window["first"] + sum(window["falls"])
        assert row[PREFIX + "increase"] == pytest.approx(total, rel=1e-9, nan_ok=True)


def assert_sum(row: Row, values: list[float]) -> None:
    total, error = row[PREFIX + "sum"], row[PREFIX + "sum_error"]
    if all(math.isfinite(value) for value in values):
        if math.isfinite(total):
            exact = math.fsum(values)
            scale = math.fsum(map(abs, values))
            assert abs(total + error - exact) <= 1e-15 * abs(exact) + 1e-30 * len(values) ** 2 * scale + 5e-324
    elif any(math.isnan(value) for value in values) or {math.inf, -math.inf} <= set(values):
        assert math.isnan(total)
    else:
        assert total == (math.inf if math.inf in values else -math.inf)
        assert error == 0


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool))
def test_the_bucket_of_a_number_is_exact(value: float) -> None:
    (row,) = rows_of(rolled([batch_of([raw(1, value=value)])], RAW, TEN))
    held = row["positive"] or row["negative"]
    assert (held["offset"], held["counts"]) == (bucket(value), [1])


@pytest.mark.parametrize("power", [-1074, -1022, -3, 0, 1, 10, 1023])
def test_a_power_of_two_is_the_upper_bound_of_its_bucket(power: int) -> None:
    values = (2.0**power, math.nextafter(2.0**power, math.inf))
    rows = [rows_of(rolled([batch_of([raw(1, value=value)])], RAW, TEN))[0] for value in values]
    first, second = (row["positive"]["offset"] for row in rows)
    assert first == power * 64 - 1
    assert second >= power * 64


@settings(max_examples=50, deadline=None)
@given(POINTS, st.lists(st.integers(0, 40), max_size=6), st.integers(1, 3))
def test_how_rows_are_cut_into_batches_does_not_matter(
    points: list[tuple[int, float]], cuts: list[int], series: int
) -> None:
    whole = batch_of(raw(t, value=v, series=1 + n % series) for n, (t, v) in enumerate(points))
    at = sorted({0, whole.num_rows, *(min(cut, whole.num_rows) for cut in cuts)})
    parts = [whole.slice(a, b - a) for a, b in pairwise(at)]
    assert bits(rows_of(rolled([whole], RAW, TEN))) == bits(rows_of(rolled(parts, RAW, TEN)))


def test_windows_are_made_in_parts_where_sketches_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [raw(t * 1000, value=value) for t, value in enumerate([1e-300, 1e300, 3.0, -2.0] * 20)]
    fine = rolled([batch_of(rows)], RAW, TEN)
    batches = fine.to_batches()
    whole, coarse = rows_of(fine), rows_of(rolled(batches, TEN, TIERS[1]))
    monkeypatch.setattr(buckets, "MOST_CELLS", 1000)
    assert rows_of(rolled([batch_of(rows)], RAW, TEN)) == whole
    assert rows_of(rolled(batches, TEN, TIERS[1])) == coarse


def test_which_rows_are_samples() -> None:
    rows = [
        raw(1, int_value=7, is_int=True),
        raw(2, metric_type="sum"),  # OTLP without a number: 0
        raw(3, value=5.0, flags=1),  # NO_RECORDED_VALUE
        raw(4, value=STALE_MARKER),
        raw(5, metric_type="unknown"),  # Prometheus sent an exemplar alone
        raw(6, metric_type="metadata", value=1.0),
        raw(7, series=2, metric_type="gauge"),  # as sent: no number is no sample
        raw(8, series=2, metric_type="gauge", value=2.0),
        raw(9, series=3, metric_type="sum"),
    ]
    table = rolled([batch_of(rows)], RAW, TEN, lambda series: np.isin(series, [2, 3]))
    found = [
        (r["series"], r[PREFIX + "count"], r[PREFIX + "sum"], ms(r[PREFIX + "stale_timestamp"])) for r in rows_of(table)
    ]
    assert found == [(1, 2, 7.0, 4), (2, 1, 2.0, None)]


def test_of_one_ms_the_last_row_counts() -> None:
    rows = [
        raw(1.2, value=1.0),
        raw(1.7, value=2.0),
        raw(1.7, value=3.0),
        raw(2, value=9.0),
        raw(2, metric_type="unknown"),
    ]
    (row,) = rows_of(rolled([batch_of(rows)], RAW, TEN))
    assert (row[PREFIX + "count"], row[PREFIX + "sum"], row[PREFIX + "first"]) == (2, 12.0, 3.0)


def test_what_describes_a_window_is_that_of_its_last_point() -> None:
    schema = pa.schema([*batch_of([]).schema, pa.field("attributes.pod", pa.string())])
    rows = [
        {**raw(1, value=1.0, description="old", unit="s"), "attributes.pod": "a"},
        {**raw(2, value=2.0, description="new", unit="ms", attributes=[("k", '"v"')]), "attributes.pod": "b"},
        {**raw(3, value=1.0, flags=1, description="marker"), "attributes.pod": "c"},
        {**raw(10_001, value=2.0, description="later"), "attributes.pod": "d"},
    ]
    table = rolled([batch_of(rows, schema)], RAW, TEN)
    first, second = rows_of(table)
    assert (first["description"], first["attributes.pod"], first["flags"]) == ("marker", "c", 1)
    assert (second["description"], second["attributes.pod"]) == ("later", "d")
    assert first[PREFIX + "count"] == 2
    assert "exemplars" not in table.schema.names
    assert table.schema.field("metric_name").nullable is False


def test_the_increase_of_deltas_is_their_sum() -> None:
    rows = [raw(t, value=v, metric_type="sum", temporality="delta", monotonic=True) for t, v in ((1, 5.0), (2, 3.0))]
    (row,) = rows_of(rolled([batch_of(rows)], RAW, TEN))
    assert row[PREFIX + "increase"] == 8.0
