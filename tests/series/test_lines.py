"""A language of log lines: times are nanoseconds, several lines of a series may have one time, there are only ranges.

What its functions give is compared with plain Python over lists of lines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.evaluation.fragments import split
from lakerunner.series.expression import Aggregate, Call, Expression, Given, Kind, Number, Range, Selector, Span
from lakerunner.series.function import Function, Invocation
from lakerunner.series.language import Language
from lakerunner.series.notes import Misfit, Note, Notes
from lakerunner.series.values import Samples, Scalar, Steps, Vector, Windows, window_bounds
from lakerunner.series.window_kernels import Table, extremes, means, quantiles, sums, table_of, variances

SECOND = 1_000_000_000
NOW = 1_790_000_000 * SECOND  # above 2^53: a float would not tell it from its neighbours
LINES = Selector((Matcher("app", "=", "shop"),))

# ---- the language


def _windows(invocation: Invocation) -> Windows:
    return next(value for value in invocation.arguments if isinstance(value, Windows))


def _of_numbers(invocation: Invocation, kernel: Callable[[Table, Floats], None]) -> Vector:
    windows = _windows(invocation)
    values = np.zeros(windows.shape)
    kernel(table_of(windows), values)
    return Vector(windows.samples.labels, values, windows.last > windows.first)


def _count(invocation: Invocation, *, per_second: bool = False) -> Vector:
    windows = _windows(invocation)
    counts = windows.last - windows.first
    return Vector(windows.samples.labels, counts / (windows.range / SECOND if per_second else 1), counts > 0)


def _picked(invocation: Invocation, place: Callable[[Windows], Ints]) -> Vector:
    windows = _windows(invocation)
    present = windows.last > windows.first
    numbers = np.append(windows.samples.values, 0.0)
    return Vector(windows.samples.labels, numbers[np.where(present, place(windows), -1)], present)


def _quantile(invocation: Invocation) -> Vector:
    wanted = invocation.arguments[0]
    assert isinstance(wanted, Scalar)
    return _of_numbers(invocation, lambda table, values: quantiles(table, wanted.values, values))


def _extreme(sign: float) -> Callable[[Invocation], Vector]:
    return partial(_of_numbers, kernel=lambda table, values: extremes(table, sign, False, False, values))


def _function(name: str, evaluate: Callable[[Invocation], Vector], *before: Kind) -> Function:
    """Lines have no metric name that could be dropped."""
    return Function(name, (*before, Kind.MATRIX), Kind.VECTOR, evaluate, keeps_name=True)


LANGUAGE = Language(
    {
        one.name: one
        for one in (
            _function("count_over_time", _count),
            _function("rate", partial(_count, per_second=True)),
            _function("bytes_over_time", partial(_of_numbers, kernel=sums)),
            _function("sum_over_time", partial(_of_numbers, kernel=sums)),
            _function("avg_over_time", partial(_of_numbers, kernel=means)),
            _function("min_over_time", _extreme(-1.0)),
            _function("max_over_time", _extreme(1.0)),
            _function("first_over_time", partial(_picked, place=lambda windows: windows.first)),
            _function("last_over_time", partial(_picked, place=lambda windows: windows.last - 1)),
            _function("stdvar_over_time", partial(_of_numbers, kernel=variances)),
            _function("quantile_over_time", _quantile, Kind.SCALAR),
        )
    }
)


def quantile_of(numbers: Sequence[float], wanted: float) -> float:
    ordered, rank = sorted(numbers), wanted * (len(numbers) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(numbers) - 1)
    return ordered[low] * (1 - (rank - low)) + ordered[high] * (rank - low)


PLAIN: dict[str, Callable[[Sequence[float], int], float]] = {
    "count_over_time": lambda numbers, _: len(numbers),
    "rate": lambda numbers, range_: len(numbers) / (range_ / SECOND),
    "bytes_over_time": lambda numbers, _: math.fsum(numbers),
    "sum_over_time": lambda numbers, _: math.fsum(numbers),
    "avg_over_time": lambda numbers, _: math.fsum(numbers) / len(numbers),
    "min_over_time": lambda numbers, _: min(numbers),
    "max_over_time": lambda numbers, _: max(numbers),
    "first_over_time": lambda numbers, _: numbers[0],
    "last_over_time": lambda numbers, _: numbers[-1],
    "stdvar_over_time": lambda numbers, _: statistics.pvariance(numbers),
    "quantile_over_time": lambda numbers, _: quantile_of(numbers, 0.9),
}

# ---- lines

Line = tuple[int, float]  # ns after NOW, the number that is taken from it
numbers = st.integers(-1000, 1000).map(lambda number: number / 8)
# A few moments for many lines, so that most of them have a time that others have as well.
lines = st.lists(st.tuples(st.integers(0, 12), numbers), max_size=20).map(
    lambda found: sorted(found, key=lambda line: line[0])
)
series = st.lists(lines, min_size=1, max_size=3)


class Held:
    """A source of these lines."""

    def __init__(self, held: Sequence[Sequence[Line]]) -> None:
        every = [line for own in held for line in own]
        self.samples = Samples(
            [(("app", "shop"), ("pod", str(number))) for number in range(len(held))],
            np.cumsum([0, *map(len, held)]).astype(np.int64),
            np.array([NOW + time for time, _ in every], np.int64),
            np.array([number for _, number in every], np.float64),
        )

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        return self.samples


def call(name: str, range_: int) -> Call:
    before = (Number(0.9),) if name == "quantile_over_time" else ()
    return Call(name, (*before, Range(LINES, range_)))


def answer(expression: Expression, steps: Steps, held: Sequence[Sequence[Line]]) -> dict[Any, list[float | None]]:
    value, notes = evaluate(expression, steps, Held(held), LANGUAGE)
    assert isinstance(value, Vector)
    assert notes.all() == ()
    rows = zip(value.labels, value.values.tolist(), value.present.tolist(), strict=True)
    return {
        labels: [number if there else None for number, there in zip(own, present, strict=True)]
        for labels, own, present in rows
    }


def inside(own: Sequence[Line], end: int, range_: int) -> list[float]:
    return [number for time, number in own if end - range_ < NOW + time <= end]


STEPS = Steps(NOW - 1, NOW + 14, 3)


@pytest.mark.parametrize("name", PLAIN)
@given(held=series, range_=st.integers(1, 15))
def test_lines_of_one_time_all_count(name: str, held: list[list[Line]], range_: int) -> None:
    found = answer(call(name, range_), STEPS, held)
    for number, own in enumerate(held):
        windows = [inside(own, end, range_) for end in STEPS.times.tolist()]
        expected = [pytest.approx(PLAIN[name](window, range_), 1e-12, 1e-12) if window else None for window in windows]
        if any(windows):
            assert found.pop((("app", "shop"), ("pod", str(number)))) == expected
    assert found == {}


@given(held=series, range_=st.integers(1, 15))
def test_an_aggregation_takes_the_lines_of_all_series(held: list[list[Line]], range_: int) -> None:
    expression = Aggregate("sum", call("count_over_time", range_), grouping=("app",))
    totals = [sum(len(inside(own, end, range_)) for own in held) for end in STEPS.times.tolist()]
    expected = {(("app", "shop"),): [float(total) if total else None for total in totals]} if any(totals) else {}
    assert answer(expression, STEPS, held) == expected


@given(held=series, range_=st.integers(1, 15))
def test_windows_are_those_of_plain_loops(held: list[list[Line]], range_: int) -> None:
    samples, ends = Held(held).samples, STEPS.times
    first, last = window_bounds(samples.offsets, samples.times, ends, range_)
    for row in range(len(held)):
        own = range(samples.offsets[row], samples.offsets[row + 1])
        for step, end in enumerate(ends.tolist()):
            places = [place for place in own if end - range_ < samples.times[place] <= end]
            assert list(range(first[row, step], last[row, step])) == places


# ---- what it leaves out


def test_workers_do_its_fragments() -> None:
    expression = Aggregate("sum", call("rate", 5 * SECOND))
    found = split(expression, STEPS, LANGUAGE)
    assert [one.expression for one in found.fragments] == [expression]
    assert found.rest == Given(0)


def test_it_has_no_instant_selectors() -> None:
    with pytest.raises(TypeError, match="the language has no instant selectors"):
        evaluate(LINES, STEPS, Held([[(0, 1.0)]]), LANGUAGE)


def test_it_has_no_notes() -> None:
    outside = Aggregate("quantile", call("count_over_time", 5), Number(7.0))
    assert answer(outside, Steps(NOW, NOW), [[(0, 1.0)]]) == {(): [math.inf]}


def test_words_of_a_language_are_filled_in() -> None:
    notes = Notes({Misfit.QUANTILE_OUTSIDE: ("info", "no quantile: {got}")})
    notes.report(Misfit.QUANTILE_OUTSIDE, Span(2, 5), got="7")
    notes.report(Misfit.RATIO_CAPPED, Span(2, 5), got="2", limit="1")
    assert notes.all() == (Note("info", "no quantile: 7", 2, 5),)
