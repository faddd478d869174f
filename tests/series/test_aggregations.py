"""Aggregations: values by hand, and against a model that goes from step to step and sample to sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.aggregations import AGGREGATIONS, SPLITS, NotSplit, aggregate
from lakerunner.series.aggregations.subsets import label_hashes
from lakerunner.series.expression import Aggregate, Number, Selector, Span
from lakerunner.series.grouping import group_series
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint
from lakerunner.series.notes import Notes
from lakerunner.series.numerals import number_text, scalar_text
from lakerunner.series.values import Scalar, String, Vector
from suites.vectors import floats, named, rows, vector

INNER = Selector((), span=Span(4, 9))


def node(op: str, *by: str, without: bool = False, parameter: float | None = None) -> Aggregate:
    given = None if parameter is None else Number(parameter, span=Span(1, 2))
    return Aggregate(op, INNER, given, by, without, Span(0, 10))


def done(
    op: str, given: Vector, *by: str, parameter: float | Sequence[float] | str | None = None, without: bool = False
) -> tuple[Vector, list[str]]:
    notes = Notes(WORDS)
    value: Scalar | String | None = None
    if isinstance(parameter, str):
        value = String(parameter)
    elif parameter is not None:
        value = Scalar(np.broadcast_to(np.array(parameter, float), given.values.shape[1]).copy())
    single = parameter if isinstance(parameter, float | int) else 0.0
    result = aggregate(node(op, *by, without=without, parameter=single), given, value, notes)
    return result, [f"{note.level}: {note.message} @{note.start}" for note in notes.all()]


A1, A2, B1 = named("m", job="a", i="1"), named("m", job="a", i="2"), named("m", job="b", i="1")
THREE = vector([(A1, [1.0, 5.0, None]), (A2, [3.0, None, None]), (B1, [10.0, 20.0, None])])
A, B, ALL = named(job="a"), named(job="b"), named()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("sum", {A: [4, 5, None], B: [10, 20, None]}),
        ("avg", {A: [2, 5, None], B: [10, 20, None]}),
        ("count", {A: [2, 1, None], B: [1, 1, None]}),
        ("group", {A: [1, 1, None], B: [1, 1, None]}),
        ("min", {A: [1, 5, None], B: [10, 20, None]}),
        ("max", {A: [3, 5, None], B: [10, 20, None]}),
        ("stdvar", {A: [1, 0, None], B: [0, 0, None]}),
        ("stddev", {A: [1, 0, None], B: [0, 0, None]}),
    ],
)
def test_by_a_label(op: str, expected: dict[Labels, list[float | None]]) -> None:
    result, notes = done(op, THREE, "job")
    assert floats(result) == expected
    assert notes == []


def test_without_takes_the_name_away_too() -> None:
    result, _ = done("sum", THREE, "i", without=True)
    assert floats(result) == {A: [4, 5, None], B: [10, 20, None]}
    result, _ = done("sum", THREE, without=True)
    assert list(result.labels) == [named(job="a", i="1"), named(job="a", i="2"), named(job="b", i="1")]


def test_no_series_give_nothing() -> None:
    for op in AGGREGATIONS:
        parameter: float | str | None = {"count_values": "v"}.get(op, 0.5 if op == "quantile" else 1.0)
        result, _ = done(op, vector([], steps=3), parameter=parameter)
        assert len(result) == 0


def test_names_to_be_dropped_still_group_and_are_handed_on() -> None:
    given = vector([(named("x", i="1"), [1.0, None]), (named("x", i="2"), [2.0, 3.0])], drop_name=[True, False])
    result, _ = done("sum", given, "__name__")
    assert list(result.labels) == [named("x")]
    assert result.drop_name.tolist() == [False]  # at the last step only the second counts
    given = vector([(named("x", i="1"), [1.0]), (named("x", i="2"), [2.0])], drop_name=[False, True])
    for op in ("sum", "avg", "count", "group", "min", "max", "stddev", "quantile"):
        assert done(op, given, "__name__", parameter=0.5)[0].drop_name.tolist() == [True]


def test_sums_keep_what_rounding_takes() -> None:
    given = vector([(named(i=str(i)), [value]) for i, value in enumerate([1.0, 1e100, 1.0, -1e100])])
    assert floats(done("sum", given)[0]) == {ALL: [2.0]}
    assert floats(done("avg", given)[0]) == {ALL: [0.5]}


def test_a_mean_does_not_overflow() -> None:
    given = vector([(named(i=str(i)), [1.7e308]) for i in range(4)])
    assert floats(done("avg", given)[0]) == {ALL: [1.6999999999999997e308]}  # as Prometheus' steps round it
    assert floats(done("sum", given)[0]) == {ALL: [math.inf]}
    infinite = vector([(named(i="1"), [math.inf, math.inf, 1.0]), (named(i="2"), [1.0, -math.inf, math.nan])])
    assert floats(done("avg", infinite)[0]) == {ALL: [math.inf, "NaN", "NaN"]}


def test_nan_is_the_least_and_never_an_extreme_if_there_is_another() -> None:
    given = vector([(named(i="1"), [math.nan, math.nan]), (named(i="2"), [1.0, math.nan])])
    assert floats(done("max", given)[0]) == {ALL: [1.0, "NaN"]}
    assert floats(done("min", given)[0]) == {ALL: [1.0, "NaN"]}
    assert floats(done("quantile", given, parameter=0.0)[0]) == {ALL: ["NaN", "NaN"]}
    assert floats(done("quantile", given, parameter=1.0)[0]) == {ALL: [1.0, "NaN"]}


def test_quantile_between_two_values() -> None:
    given = vector([(named(i=str(i)), [float(i)] * 3) for i in range(4)])
    result, notes = done("quantile", given, parameter=[0.5, 1.5, -1.0])
    assert floats(result) == {ALL: [1.5, math.inf, -math.inf]}
    assert notes == [
        "warning: quantile value should be between 0 and 1, got 1.5 @1",
        "warning: quantile value should be between 0 and 1, got -1 @1",
    ]
    result, notes = done("quantile", given, parameter=math.nan)
    assert floats(result) == {ALL: ["NaN"] * 3}
    assert notes == ["warning: quantile value should be between 0 and 1, got NaN @1"]


# ---- topk and the like


def test_topk_of_an_instant_is_in_the_order_of_values() -> None:
    given = vector([(named("m", i=str(i)), [value]) for i, value in enumerate([3.0, math.nan, 7.0, 5.0])])
    assert [samples[0] for _, samples in rows(done("topk", given, parameter=3)[0])] == [7, 5, 3]
    assert [samples[0] for _, samples in rows(done("bottomk", given, parameter=2)[0])] == [3, 5]
    assert str(rows(done("topk", given, parameter=4)[0])[-1][1][0]) == "nan"


def test_topk_with_another_k_at_each_step_and_in_each_group() -> None:
    given = vector([(A1, [1.0, 1.0, 1.0]), (A2, [2.0, 2.0, 2.0]), (B1, [0.0, 0.0, 0.0])])
    result, _ = done("topk", given, "job", parameter=[1.0, 0.5, 2.0])
    assert floats(result) == {A1: [None, None, 1], A2: [2, None, 2], B1: [0, None, 0]}


def test_of_equal_values_the_heap_decides() -> None:
    given = vector([(named(i=str(i)), [value]) for i, value in enumerate([1.0, 1.0, 2.0])])
    assert [labels for labels, _ in rows(done("topk", given, parameter=2)[0])] == [named(i="2"), named(i="1")]


def test_limitk_takes_the_first_that_are_there() -> None:
    given = vector([(A1, [None, 1.0]), (A2, [2.0, 2.0]), (B1, [3.0, 3.0])])
    assert floats(done("limitk", given, parameter=1)[0]) == {A1: [None, 1], A2: [2, None]}
    assert floats(done("limitk", given, "job", parameter=1)[0]) == {A1: [None, 1], A2: [2, None], B1: [3, 3]}


@pytest.mark.parametrize("op", ["topk", "bottomk", "limitk"])
def test_a_k_that_is_none(op: str) -> None:
    assert len(done(op, THREE, parameter=0.9)[0]) == 0
    with pytest.raises(UserError, match=r"^Parameter value is NaN$"):
        done(op, THREE, parameter=math.nan)
    with pytest.raises(UserError, match=r"^Scalar value 1e\+30 overflows int64$"):
        done(op, THREE, parameter=1e30)
    with pytest.raises(UserError, match=r"^Scalar value -1e\+30 underflows int64$"):
        done(op, THREE, parameter=[-1e30, 2.0, 2.0])


def test_limit_ratio_and_its_complement_are_all() -> None:
    given = vector([(named("m", i=str(i)), [1.0]) for i in range(100)])
    some, rest = done("limit_ratio", given, parameter=0.3)[0], done("limit_ratio", given, parameter=-0.7)[0]
    assert 15 < len(some) < 45
    assert sorted([*some.labels, *rest.labels]) == sorted(given.labels)
    assert len(done("limit_ratio", given, parameter=0.0)[0]) == 0
    result, notes = done("limit_ratio", given, parameter=1.1)
    assert len(result) == 100
    assert notes == ["warning: ratio value should be between -1 and 1, got 1.1, capping to 1 @1"]
    assert done("limit_ratio", given, parameter=-3.0)[1] == [
        "warning: ratio value should be between -1 and 1, got -3, capping to -1 @1"
    ]
    with pytest.raises(UserError, match=r"^Ratio value is NaN$"):
        done("limit_ratio", given, parameter=math.nan)


def test_hash_of_labels_is_xxh64() -> None:
    assert label_hashes([()]).tolist() == [0xEF46DB3751D8E999]  # of no bytes, as published with the algorithm


def test_limit_ratio_chooses_what_prometheus_chooses() -> None:
    # Values of up to 420 bytes, so that all ways through the hash are taken; seen in Prometheus 3.15.
    given = vector([(named(i="x" * (i * 7) + str(i)), [1.0]) for i in range(60)])
    chosen = [dict(labels)["i"].lstrip("x") for labels in done("limit_ratio", given, parameter=0.1)[0].labels]
    assert chosen == ["2", "7", "10", "21", "27", "30", "58"]


# ---- count_values


def test_count_values() -> None:
    given = vector([(A1, [1.0, 0.5]), (A2, [1.0, None]), (B1, [-0.0, 1e21])])
    result, _ = done("count_values", given, parameter="v")
    assert floats(result) == {
        named(v="1"): [2, None],
        named(v="-0"): [1, None],
        named(v="0.5"): [None, 1],
        named(v="1000000000000000000000"): [None, 1],
    }
    result, _ = done("count_values", given, "job", parameter="job")
    assert named(job="1") in floats(result)
    result, _ = done("count_values", given, "i", parameter="v", without=True)
    assert floats(result)[named(job="a", v="1")] == [2, None]
    result, _ = done("count_values", given, "i", "job", "v", parameter="v", without=True)
    assert floats(result) == {ALL: [3, 2]}
    with pytest.raises(UserError, match=r'^invalid label name ""$'):
        done("count_values", given, parameter="")
    with pytest.raises(UserError, match=r'^invalid label name "a\\xc5z"$'):
        done("count_values", given, parameter="a\udcc5z")


def test_numbers_as_text() -> None:
    assert [scalar_text(x) for x in (1.0, 1e-7, 123456789.5, math.inf, -math.inf, math.nan)] == [
        "1",
        "0.0000001",
        "123456789.5",
        "+Inf",
        "-Inf",
        "NaN",
    ]
    assert [number_text(x) for x in (1.5, 100000.0, 1e6, 1.25e-5, 1e30, -2.5e300)] == [
        "1.5",
        "100000",
        "1e+06",
        "1.25e-05",
        "1e+30",
        "-2.5e+300",
    ]


# ---- histograms


def histogram(count: float, hint: ResetHint = ResetHint.UNKNOWN, bounds: tuple[float, ...] = ()) -> Histogram:
    return Histogram(CUSTOM_BUCKETS if bounds else 0, count, count * 2, custom_values=bounds, reset_hint=hint)


def counts_of(given: Vector) -> dict[Labels, list[float | None]]:
    return {
        labels: [one.count if isinstance(one, Histogram) else one for one in samples] for labels, samples in rows(given)
    }


def test_histograms_are_summed_and_averaged() -> None:
    given = vector([(A1, [histogram(2), 1.0]), (A2, [histogram(4), 2.0])])
    result, notes = done("sum", given, "job")
    assert counts_of(result) == {A: [6, 3]}
    assert notes == []
    assert counts_of(done("avg", given, "job")[0]) == {A: [3, 1.5]}
    assert floats(done("count", given, "job")[0]) == {A: [2, 2]}


def test_floats_and_histograms_do_not_mix() -> None:
    given = vector([(A1, [histogram(2)]), (A2, [1.0]), (B1, [3.0])])
    for op in ("sum", "avg"):
        result, notes = done(op, given, "job")
        assert floats(result) == {B: [3]}
        assert notes == ["warning: encountered a mix of histograms and floats for aggregation @4"]


@pytest.mark.parametrize("op", ["min", "max", "stddev", "stdvar", "quantile"])
def test_histograms_are_passed_over(op: str) -> None:
    result, notes = done(op, vector([(A1, [histogram(2)]), (A2, [4.0])]), parameter=0.5)
    assert floats(result) == {ALL: [0.0 if op.startswith("std") else 4.0]}
    assert notes == [f"info: ignored histogram in {op} aggregation @4"]


def test_topk_passes_over_histograms_and_limitk_does_not() -> None:
    given = vector([(A1, [histogram(2)]), (A2, [4.0])])
    result, notes = done("topk", given, parameter=5)
    assert floats(result) == {A2: [4]}
    assert notes == ["info: ignored histogram in topk aggregation @0"]
    assert counts_of(done("limitk", given, parameter=5)[0]) == {A1: [2], A2: [4]}


def test_kinds_of_buckets_do_not_mix() -> None:
    given = vector([(A1, [histogram(2)]), (A2, [histogram(3, bounds=(1.0, 2.0))]), (B1, [1.0])])
    result, notes = done("sum", given)
    assert rows(result) == []
    # the float comes after the group was given up: it is not looked at
    assert notes == [
        "warning: vector contains a mix of histograms with exponential and custom buckets schemas for metric name "
        '"m" @4'
    ]


def test_custom_bounds_are_reconciled() -> None:
    given = vector([(A1, [histogram(2, bounds=(1.0, 2.0))]), (A2, [histogram(3, bounds=(1.0,))])])
    result, notes = done("sum", given)
    assert counts_of(result) == {ALL: [5]}
    assert notes == ["info: mismatched custom buckets were reconciled during aggregation @4"]


def test_hints_that_contradict_each_other() -> None:
    given = vector([(A1, [histogram(2, ResetHint.RESET)]), (A2, [histogram(3, ResetHint.NOT_RESET)])])
    for op in ("sum", "avg"):
        result, notes = done(op, given)
        assert len(rows(result)) == 1
        assert notes == ["warning: conflicting counter resets during histogram aggregation @4"]


# ---- groups


def test_groups_of_the_same_series_are_found_once() -> None:
    labels = [named("m", i=str(i), job=str(i % 3)) for i in range(9)]
    first = group_series(labels, ("job",), False)
    assert first.indexes.tolist() == [0, 1, 2] * 3
    assert group_series(labels, ("job",), False) is first
    assert group_series(list(labels), ("job",), False) is not first
    assert group_series(labels, ("job",), True) is not first


# ---- the model


def model(op: str, values: Sequence[float], parameter: float) -> float:
    if op == "count":
        return float(len(values))
    if op == "group":
        return 1.0
    if op in ("min", "max"):
        known = [value for value in values if not math.isnan(value)]
        return (min if op == "min" else max)(known) if known else math.nan
    if op == "quantile":
        return _model_quantile(values, parameter)
    if op in ("stddev", "stdvar"):
        return _model_variance(op, values)
    total = math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    return total if op == "sum" else total / len(values)


def _model_quantile(values: Sequence[float], quantile: float) -> float:
    if not 0 <= quantile <= 1:
        return math.inf if quantile > 1 else -math.inf
    ordered = sorted(values, key=lambda value: (not math.isnan(value), 0 if math.isnan(value) else value))
    rank = quantile * (len(ordered) - 1)
    low = math.floor(rank)
    return ordered[low] * (1 - (rank - low)) + ordered[min(low + 1, len(ordered) - 1)] * (rank - low)


def _model_variance(op: str, values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return math.sqrt(variance) if op == "stddev" else variance


def close(found: Sequence[object], expected: Sequence[object], relative: float, absolute: float = 0.0) -> bool:
    def same(one: object, other: object) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return one == other or other == pytest.approx(one, relative, absolute, nan_ok=True)
        return one == other

    return len(found) == len(expected) and all(map(same, found, expected))


NUMBERS = st.one_of(st.sampled_from([0.0, 1.0, 2.0, math.nan, math.inf, -math.inf, 1e16]), st.floats(-1e6, 1e6))
SAMPLES = st.one_of(st.none(), NUMBERS)


@st.composite
def vectors(draw: st.DrawFn, samples: st.SearchStrategy[float | None] = SAMPLES) -> Vector:
    steps = draw(st.integers(1, 3))
    count = draw(st.integers(1, 8))
    every = [
        (named("m", i=str(i), job=draw(st.sampled_from("abc"))), [draw(samples) for _ in range(steps)])
        for i in range(count)
    ]
    return vector(every)


@settings(max_examples=60)
@given(vectors(), st.sampled_from(["", "job", "i"]), st.booleans(), st.sampled_from([0.0, 0.25, 0.9, 1.0, -1.0]))
def test_what_the_model_says(given_: Vector, label: str, without: bool, parameter: float) -> None:
    by = (label,) if label else ()
    for op in ("sum", "avg", "count", "group", "min", "max", "stddev", "stdvar", "quantile"):
        expected = _modelled(given_, by, without, partial(model, op, parameter=parameter))
        result = dict(rows(done(op, given_, *by, without=without, parameter=parameter)[0]))
        assert result.keys() == expected.keys()
        for labels, samples in expected.items():
            assert close(result[labels], samples, 1e-9, 1e-9), op


def _modelled(
    given_: Vector, by: tuple[str, ...], without: bool, of: Callable[[Sequence[float]], float]
) -> dict[Labels, list[float | None]]:
    steps = given_.values.shape[1]
    found: dict[Labels, list[float | None]] = {}
    for step in range(steps):
        groups: dict[Labels, list[float]] = {}
        for labels, samples in rows(given_):
            kept = tuple(p for p in labels if (p[0] not in (*by, "__name__")) == without and (without or p[0] in by))
            if samples[step] is not None:
                groups.setdefault(kept, []).append(samples[step])  # type: ignore[arg-type]
        for kept, values in groups.items():
            found.setdefault(kept, [None] * steps)[step] = of(values)
    return found


# ---- splits


def parted(given_: Vector, parts: Sequence[int]) -> list[Vector]:
    of = np.resize(np.array(parts), len(given_))
    return [given_.rows(np.flatnonzero(of == part)) for part in range(max(parts) + 1)]


@settings(max_examples=60)
@given(vectors(), st.lists(st.integers(0, 2), min_size=1, max_size=8), st.sampled_from(["", "job"]))
def test_parts_folded_are_the_whole(given_: Vector, parts: list[int], label: str) -> None:
    by = (label,) if label else ()
    for op, split in SPLITS.items():
        expected, expected_notes = done(op, given_, *by, parameter=2)
        notes = Notes(WORDS)
        its = node(op, *by, parameter=2)
        try:
            partials = [split.partial(its, part, notes) for part in parted(given_, parts)]
            folded = floats(split.fold(its, partials, notes))
        except NotSplit:
            assert op in ("topk", "bottomk")
            continue
        whole = floats(expected)
        if op in ("sum", "avg"):  # one unit in the last place, where compensated sums differ
            assert folded.keys() == whole.keys()
            for labels, samples in whole.items():
                assert close(folded[labels], samples, 1e-15), op
        else:
            assert folded == whole, op
        assert [note.message for note in notes.all()] == [note.split(": ", 1)[1] for note in expected_notes]


def test_a_fold_keeps_what_rounding_takes() -> None:
    given_ = vector([(named(i=str(i)), [value]) for i, value in enumerate([1.0, 1e100, 1.0, -1e100])])
    for parts in ([0, 1], [0, 1, 2, 3], [1, 0, 0, 1]):
        partials = [SPLITS["sum"].partial(node("sum"), part, Notes(WORDS)) for part in parted(given_, parts)]
        assert floats(SPLITS["sum"].fold(node("sum"), partials, Notes(WORDS))) == {ALL: [2.0]}


def test_what_hangs_on_the_order_is_not_folded() -> None:
    large = vector([(named(i=str(i)), [1.7e308]) for i in range(4)])
    for parts in ([0, 1], [0, 0, 1, 1]):
        with pytest.raises(NotSplit):
            folded("avg", large, parts)
    kinds = vector([(A1, [histogram(2)]), (A2, [histogram(3, bounds=(1.0, 2.0))]), (B1, [histogram(1)])])
    for parts in ([0, 1, 2], [0, 0, 1]):
        with pytest.raises(NotSplit):
            folded("sum", kinds, parts)
    equal = vector([(named(i=str(i)), [1.0]) for i in range(4)])
    with pytest.raises(NotSplit):
        folded("topk", equal, [0, 1])


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_zero_buckets_of_different_widths_are_not_folded(op: str) -> None:
    """A zero bucket that ends inside a bucket of the lower schema: what lies there counts twice, as in Prometheus, or
    once, as the order has it."""
    fine = Histogram(0, 3, 6, positive=BucketCounts(np.array([-1, 0], np.int32), np.array([1.0, 2.0])))
    wide = Histogram(
        -1, 5, 9, zero_threshold=0.5, zero_count=4, positive=BucketCounts(np.array([0], np.int32), np.ones(1))
    )
    given_ = vector([(A1, [fine]), (A2, [wide]), (B1, [fine])])
    sums = [done("sum", given_.rows(np.array(order)))[0].histograms for order in ([0, 1], [1, 0])]
    filled = [float(one[0, 0].zero_count + one[0, 0].positive.counts.sum()) for one in sums if one is not None]
    assert filled == [8.0, 9.0]
    for parts in ([0, 1, 0], [0, 0, 0], [0, 1, 2]):
        with pytest.raises(NotSplit):
            folded(op, given_, parts)
    alike = folded(op, given_.rows(np.array([0, 2])), [0, 1])[0]
    assert alike.histograms is not None
    assert alike.histograms[0, 0].count == (6 if op == "sum" else 3)


def folded(op: str, given_: Vector, parts: Sequence[int], *by: str) -> tuple[Vector, list[str]]:
    notes = Notes(WORDS)
    its = node(op, *by, parameter=2)
    partials = [SPLITS[op].partial(its, part, notes) for part in parted(given_, parts)]
    result = SPLITS[op].fold(its, partials, notes)
    return result, [f"{note.level}: {note.message} @{note.start}" for note in notes.all()]


MIXED = vector(
    [
        (A1, [histogram(2, ResetHint.RESET), 1.0, histogram(1), histogram(1, bounds=(1.0, 2.0))]),
        (A2, [histogram(4, ResetHint.NOT_RESET), histogram(1), 5.0, histogram(2, bounds=(1.0,))]),
        (B1, [histogram(6), 2.0, 4.0, histogram(3, bounds=(2.0,))]),
    ],
    drop_name=[False, True, True],
)


@pytest.mark.parametrize("op", ["sum", "avg", "count", "group", "min", "max"])
@pytest.mark.parametrize("parts", [[0], [0, 1, 2], [0, 1, 1], [1, 0, 1]])
@pytest.mark.parametrize("by", [(), ("job",), ("__name__",)])
def test_histograms_in_parts(op: str, parts: list[int], by: tuple[str, ...]) -> None:
    expected, expected_notes = done(op, MIXED, *by)
    result, notes = folded(op, MIXED, parts, *by)
    assert counts_of(result) == counts_of(expected)
    assert sorted(notes) == sorted(expected_notes)
    dropped = [dict(zip(one.labels, one.drop_name.tolist(), strict=True)) for one in (result, expected)]
    assert dropped[0] == dropped[1]
