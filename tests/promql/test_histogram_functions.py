"""What the functions of histograms say, of classic and of native ones, and what they tell besides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, labels_of
from lakerunner.promql.functions.histograms import HISTOGRAMS
from lakerunner.promql.selection.notes import WORDS, raised_text
from lakerunner.series.expression import Call, Selector, Span
from lakerunner.series.function import Evaluation, Invocation
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Scalar, Steps, String, Value, Vector

TABLE = {function.name: function for function in HISTOGRAMS}
NAN, INF = math.nan, math.inf


def native(count: float, sum_: float, *counts: float, first: int = 1, **rest: Any) -> Histogram:
    buckets = BucketCounts(np.arange(first, first + len(counts), dtype=np.int32), np.array(counts, float))
    return Histogram(rest.pop("schema", 0), count, sum_, positive=buckets, **rest)


Rows = dict[Labels, Sequence[float | Histogram | None]]


def vector(rows: Mapping[Labels, Sequence[float | Histogram | None]]) -> Vector:
    cells = list(rows.values())
    histograms = np.array([[c if isinstance(c, Histogram) else None for c in row] for row in cells], object)
    values = np.array([[c if isinstance(c, (int, float)) else 0.0 for c in row] for row in cells], float)
    present = np.array([[c is not None for c in row] for row in cells], bool)
    return Vector(list(rows), values, present, histograms if any(histograms.ravel()) else None)


def classic(
    name: str, counts: Mapping[str, float | list[float | None]]
) -> dict[Labels, list[float | Histogram | None]]:
    return {
        labels_of({"__name__": name, "le": bound}): list(count) if isinstance(count, list) else [count]
        for bound, count in counts.items()
    }


def call(
    name: str, *arguments: float | list[float] | str | Vector
) -> tuple[dict[Labels, list[float | None]], list[str]]:
    """The series with None where there is no sample; and the notes."""
    steps = next(a.values.shape[1] for a in arguments if isinstance(a, Vector))
    given: list[Value] = [
        a if isinstance(a, Vector)
        else String(a) if isinstance(a, str)
        else Scalar(np.array(a if isinstance(a, list) else [a] * steps, float))
        for a in arguments
    ]  # fmt: skip
    written = tuple(Selector((), span=Span(n + 1, n + 2)) for n in range(len(arguments)))
    notes = Notes(WORDS)
    evaluation = cast("Evaluation", SimpleNamespace(notes=notes, delayed_names=True, is_steady=lambda _: False))
    found = TABLE[name].evaluate(
        Invocation(Call(name, written), tuple(given), Steps(0, (steps - 1) * 1000, 1000), evaluation)
    )
    assert isinstance(found, Vector)
    answer = {
        labels: [float(v) if p else None for v, p in zip(found.values[n], found.present[n], strict=True)]
        for n, labels in enumerate(found.labels)
        if found.present[n].any()
    }
    assert sum(row.any() for row in found.present) == len(answer)
    told = [(note, raised_text(note.raised) if note.raised else "") for note in notes.all()]
    return answer, [f"{note.level}@{note.start}: {note.message}{raised}" for note, raised in told]


BUCKETS = classic("h", {"0.1": 2, "+Inf": 4, "1": 3, "0": 0})
H = labels_of({"__name__": "h"})


@pytest.mark.parametrize(
    ("q", "value"),
    [
        (0, 0.0),
        (0.25, 0.05),
        (0.5, 0.1),
        (0.6, 0.1 + 0.9 * 0.4),
        (0.75, 1.0),
        (1, 1.0),
        (-0.1, -INF),
        (1.1, INF),
        (NAN, NAN),
    ],
)
def test_a_quantile_of_a_classic_histogram(q: float, value: float) -> None:
    answer, notes = call("histogram_quantile", q, vector(BUCKETS))
    assert answer[H] == [pytest.approx(value, nan_ok=True)]
    assert bool(notes) == (not 0 <= q <= 1)


def test_a_quantile_outside_0_to_1_is_told_of_where_it_stands() -> None:
    _, notes = call("histogram_quantile", [1.5, 0.5], vector(classic("h", {"+Inf": [1, 1]})))
    assert notes == ["warning@1: quantile value should be between 0 and 1, got 1.5"]


def test_buckets_may_come_and_go_from_step_to_step() -> None:
    rows = classic("h", {"1": [2, None, 2], "2": [2, 4, 3], "+Inf": [4, 4, None]})
    answer, _ = call("histogram_quantile", 0.5, vector(rows))
    assert answer[H] == [pytest.approx(1.0), pytest.approx(1.0), pytest.approx(NAN, nan_ok=True)]


def test_bounds_written_in_two_ways_are_one_bucket() -> None:
    rows = classic("h", {"1": 1, "1.0": 1, "2": 4, "+Inf": 4})
    assert call("histogram_quantile", 0.25, vector(rows))[0] == {H: [pytest.approx(0.5)]}


def test_counts_that_fall_are_raised_and_told_of_once_for_all_steps() -> None:
    rows = classic("h", {"1": [5, 5], "2": [3, 5], "4": [4, 2], "+Inf": [10, 10]})
    answer, notes = call("histogram_quantile", 0.5, vector(rows))
    assert answer[H] == [1.0, 1.0]
    assert notes == [
        "info@2: input to histogram_quantile needed to be fixed for monotonicity "
        "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile) "
        'for metric name "h", from buckets 2 to 4, with a max diff of 3, over 2 samples '
        "from 1970-01-01T00:00:00Z to 1970-01-01T00:00:01Z"
    ]
    close = classic("h", {"1": 5, "2": 5 * (1 - 1e-13), "+Inf": 10})
    assert call("histogram_quantile", 0.5, vector(close)) == ({H: [1.0]}, [])


def test_a_series_without_bound_is_told_of() -> None:
    rows: Rows = {**BUCKETS, labels_of({"__name__": "h", "le": "x"}): [1.0], labels_of({"__name__": "g"}): [1.0]}
    answer, notes = call("histogram_quantile", 0.5, vector(rows))
    assert list(answer) == [H]
    assert notes == [
        'warning@2: bucket label "le" is missing or has a malformed value of "x" for metric name "h"',
        'warning@2: bucket label "le" is missing or has a malformed value of "" for metric name "g"',
    ]


def test_a_step_with_both_kinds_has_neither() -> None:
    rows: dict[Labels, list[float | Histogram | None]] = {
        **classic("h", {"1": [1, None, 1], "+Inf": [2, None, 2]}),
        H: [native(4, 8, 4), native(4, 8, 4), None],
    }
    answer, notes = call("histogram_quantile", 0.5, vector(rows))
    assert answer == {H: [None, pytest.approx(math.sqrt(2)), pytest.approx(1.0)]}
    assert notes == ['warning@2: vector contains a mix of classic and native histograms for metric name "h"']


@pytest.mark.parametrize(
    ("histogram", "q", "value"),
    [
        (native(4, 8, 4), 0.5, math.sqrt(2)),
        (native(12, 100, 2, 3, 0, 1, 4, first=0, zero_count=2, zero_threshold=0.001), 0.08, 0.001 * 0.96 / 2),
        (native(0, 0), 0.5, NAN),
        (native(4, 8, 4), -1, -INF),
        (native(4, 4, 1, 3, first=0, schema=CUSTOM_BUCKETS, custom_values=(5.0,)), 0.5, 5.0),
        (native(4, 4, 2, 2, first=0, schema=CUSTOM_BUCKETS, custom_values=(5.0, 10.0)), 0.25, 2.5),
        (native(4, 4, 2, 2, first=0, schema=CUSTOM_BUCKETS, custom_values=(-5.0, 10.0)), 0.25, -5.0),
    ],
)
def test_a_quantile_of_a_native_histogram(histogram: Histogram, q: float, value: float) -> None:
    assert call("histogram_quantile", q, vector({H: [histogram]}))[0] == {H: [pytest.approx(value, nan_ok=True)]}


def test_observations_of_nan_are_told_of() -> None:
    with_nan = vector({H: [native(6, NAN, 4)]})
    assert call("histogram_quantile", 0.5, with_nan) == (
        {H: [pytest.approx(2**0.75)]},
        ['info@2: input to histogram_quantile has NaN observations, result is skewed higher for metric name "h"'],
    )
    assert call("histogram_quantile", 0.9, with_nan) == (
        {H: [pytest.approx(NAN, nan_ok=True)]},
        ['info@2: input to histogram_quantile has NaN observations, result is NaN for metric name "h"'],
    )
    told = "input to histogram_fraction has NaN observations, which are excluded from all fractions"
    assert call("histogram_fraction", -INF, INF, with_nan) == (
        {H: [pytest.approx(4 / 6)]},
        [f'info@3: {told} for metric name "h"'],
    )


def test_a_fraction_of_both_kinds() -> None:
    rows: Rows = {**BUCKETS, labels_of({"__name__": "n"}): [native(4, 8, 2, 2)]}
    answer, notes = call("histogram_fraction", 0.05, math.sqrt(2), vector(rows))
    assert answer == {H: [pytest.approx(0.5)], labels_of({"__name__": "n"}): [pytest.approx(0.25)]}
    assert notes == []
    assert call("histogram_fraction", 1, 0, vector(BUCKETS))[0] == {H: [0.0]}
    assert call("histogram_fraction", NAN, 1, vector(BUCKETS))[0] == {H: [pytest.approx(NAN, nan_ok=True)]}


def test_several_quantiles_are_told_apart_by_their_label() -> None:
    rows = vector(classic("h", {"1": [2, 2], "+Inf": [2, 2]}))
    answer, notes = call("histogram_quantiles", rows, "q", 0.5, [1, 0.25])
    assert answer == {
        labels_of({"__name__": "h", "q": "0.5"}): [0.5, 0.5],
        labels_of({"__name__": "h", "q": "1.0"}): [1.0, None],
        labels_of({"__name__": "h", "q": "0.25"}): [None, 0.25],
    }
    assert notes == []


def test_what_a_native_histogram_tells_of_itself() -> None:
    # Two observations at sqrt(2), two at sqrt(8), mean 2: each is as far from it as its bucket's middle.
    rows = vector({H: [native(4, 8, 2, 2)], labels_of({"__name__": "f"}): [1.0]})
    variance = ((math.sqrt(2) - 2) ** 2 + (math.sqrt(8) - 2) ** 2) / 2
    for name, value in (
        ("histogram_count", 4.0),
        ("histogram_sum", 8.0),
        ("histogram_avg", 2.0),
        ("histogram_stdvar", variance),
        ("histogram_stddev", math.sqrt(variance)),
    ):
        assert call(name, rows) == ({H: [pytest.approx(value)]}, [])


def test_a_label_of_quantiles_must_not_make_two_series_one() -> None:
    rows = {labels_of({"a": a, "le": "+Inf"}): [1.0, 1.0] for a in "xy"}
    assert len(call("histogram_quantiles", vector(rows), "q", 0.5)[0]) == 2
    with pytest.raises(UserError, match="vector cannot contain metrics with the same labelset"):
        call("histogram_quantiles", vector(rows), "a", 0.5)
