"""What scripts of load and eval (*.test) do not reach of the functions, and what a split of the work relies on."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.regex import compile_capturing
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.functions.clock import moments
from lakerunner.promql.functions.info import shared_reference
from lakerunner.promql.functions.numbers import absent_labels
from lakerunner.promql.language import PROMQL
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.evaluation.fragments import split
from lakerunner.series.expression import Kind, Number, Selector
from lakerunner.series.function import Function, Invocation, kind_of
from lakerunner.series.functions.label_functions import template_pieces
from lakerunner.series.functions.sorting import compare_naturally
from lakerunner.series.values import NO_SAMPLES, Samples, Scalar, Steps, Vector

STEPS = Steps(0, 120_000, 60_000)


class Nothing:
    """A source without series."""

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        return NO_SAMPLES


def asked(query: str, steps: Steps = STEPS) -> list[float]:
    value, _ = evaluate(resolve(parse(query), steps, len(steps) == 1), steps, Nothing(), PROMQL)
    assert isinstance(value, Scalar | Vector)
    return np.atleast_2d(value.values)[0].tolist()


# ---- the clock


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_the_calendar_is_that_of_python(second: int) -> None:
    there = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=second)
    fields = ["year", "month", "day_of_month", "day_of_year", "day_of_week", "hour", "minute"]
    found = [asked(f"{field}(vector({second}))", Steps(0, 0))[0] for field in fields]
    of_year, of_week = there.timetuple().tm_yday, there.isoweekday() % 7
    assert found == [there.year, there.month, there.day, of_year, of_week, there.hour, there.minute]


def test_days_of_months() -> None:
    def days(year: int) -> list[float]:
        firsts = [datetime.datetime(year, month, 1, tzinfo=datetime.UTC).timestamp() for month in range(1, 13)]
        return [asked(f"days_in_month(vector({first}))", Steps(0, 0))[0] for first in firsts]

    assert days(2023) == [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    assert [days(year)[1] for year in (1900, 2000, 2024)] == [28, 29, 29]


def test_a_number_that_is_no_time_is_the_time_that_prometheus_takes_it_for() -> None:
    found = moments(np.array([math.nan, math.inf, -math.inf, 1e300, -(2.0**63), -0.9, 59.9]))
    assert found.days.tolist() == [106_751_991_167_300] * 5 + [0, 0]
    assert found.seconds.tolist() == [55_808] * 5 + [0, 59]


def test_the_steps_are_the_time() -> None:
    steps = Steps(-1_500, 118_500, 60_000)
    assert asked("time()", steps) == [-1.5, 58.5, 118.5]
    assert asked("minute()", steps) == [59, 0, 1]
    assert asked("timestamp(vector(7))", steps) == [-1.5, 58.5, 118.5]
    assert asked("start() + end() * 1000", steps) == [118_498.5] * 3
    assert asked("range() + step()", steps) == [180] * 3
    assert asked("step()", Steps(5, 5)) == [0]


# ---- labels


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("$1-$2", "a-b"),
        ("${1}x$1x", "ax"),
        ("$word/${word}", "b/b"),
        ("$$1 $", "$1 $"),
        ("${}${1$1}", "${}${1a}"),
        ("$0$3$9$123456789012$00", "abc"),
        ("$ 1$-", "$ 1$-"),
    ],
)
def test_a_template_is_expanded_as_prometheus_does(template: str, text: str) -> None:
    regex = compile_capturing("(a)(?P<word>b)c(d)?")
    found = regex.groups("abc")
    assert found is not None
    pieces = template_pieces(template, regex)
    assert "".join(piece if isinstance(piece, str) else found[piece] for piece in pieces) == text


@pytest.mark.parametrize(
    ("less", "more"),
    [("2", "10"), ("a2", "a10"), ("a", "a1"), ("", "a"), ("a1b", "a2"), ("1", "a"), ("9" * 25, "a"), ("1", "01")],
)
def test_natural_order(less: str, more: str) -> None:
    if (less, more) == ("1", "01"):  # the same number: text decides
        less, more = more, less
    assert compare_naturally(less, more) < 0 < compare_naturally(more, less)
    assert compare_naturally(less, less) == 0


def test_labels_of_what_is_absent() -> None:
    def labels(query: str) -> dict[str, str]:
        return dict(absent_labels(parse(query)))

    assert labels('x{a="1", b!="2", c=~"3", d=""}') == {"a": "1"}
    assert labels('x{a="1", a="1"}') == {}
    assert labels('x{a!="1", a="2"}') == {}  # what takes series away is looked at last
    assert labels('x{a!="", a="2"}') == {"a": "2"}
    assert labels('x{a="1", a!="2", a="3"}') == {}
    assert labels('(x{a="1"}[5m])') == {"a": "1"}
    assert labels('x{a="1"}[5m:]') == {}
    assert labels('-x{a="1"}') == {}


def test_an_expression_that_is_none_says_why() -> None:
    with pytest.raises(UserError, match=r"invalid regular expression in label_replace\(\): \("):
        asked('label_replace(vector(1), "a", "", "b", "(")')
    with pytest.raises(UserError, match=r"invalid destination label name in label_replace\(\): "):
        asked('label_replace(vector(1), "", "", "b", "")')
    with pytest.raises(UserError, match=r"invalid source label name in label_join\(\): "):
        asked('label_join(vector(1), "a", "", "")')


# ---- info


@pytest.mark.parametrize(
    ("query", "reference"),
    [
        ("x", (None, 0)),
        ("rate(x[5m] offset 1m)", (None, 60_000)),
        ("x @ 7 offset 1s + y @ 6", (7_000, 1_000)),
        ("x @ 7 + y @ 8", (None, 0)),
        ("x offset 1m + y", (None, 0)),
        ("x offset 1m + vector(1)", (None, 0)),
        ("x offset 1m + 1", (None, 60_000)),
        ("x offset 1m * scalar(y)", (None, 60_000)),
        ("sum_over_time((x offset 1m)[5m:] offset 2m)", (None, 180_000)),
        ("sum_over_time((x offset 1m)[5m:] @ 9 offset 2m)", (9_000, 180_000)),
        ("sum_over_time((x @ 5)[5m:] @ 9 offset 2m)", (5_000, 0)),
        ("info(x offset 1m, {a=~'.+'})", (None, 60_000)),
        ("vector(1)", (None, 0)),
    ],
)
def test_the_moment_that_an_expression_is_about(query: str, reference: tuple[int | None, int]) -> None:
    expression = resolve(parse(query), STEPS, False)
    assert shared_reference(expression, lambda one: kind_of(one, FUNCTIONS)) == reference


# ---- how they may be called apart


def test_what_needs_all_series_or_the_text_is_not_given_to_workers() -> None:
    def fragments(query: str) -> list[str]:
        found = split(resolve(parse(query), STEPS, False), STEPS, PROMQL)
        return [type(fragment.expression).__name__ for fragment in found.fragments]

    assert fragments("sum(abs(x))") == ["Aggregate"]
    assert fragments("timestamp(x)") == ["Call"]
    assert fragments("scalar(x)") == ["Selector"]
    assert fragments('sum(label_replace(x, "a", "b", "", ""))') == ["Selector"]
    assert fragments("absent(x)") == []
    assert fragments("info(rate(x[5m] offset 1m))") == []


def test_a_function_that_is_lazy_gets_no_arguments() -> None:
    seen: list[Invocation] = []

    def evaluate_lazily(invocation: Invocation) -> Scalar:
        seen.append(invocation)
        return Scalar(np.zeros(len(invocation.steps)))

    lazy = Function("info", (Kind.VECTOR, Kind.VECTOR), Kind.SCALAR, evaluate_lazily, lazy=True)
    call = resolve(parse("info(x, {a='1'})"), STEPS, False)
    evaluate(call, STEPS, Nothing(), replace(PROMQL, functions={"info": lazy}))
    assert seen[0].arguments == ()
    assert isinstance(seen[0].call.arguments[1], Selector)
    assert kind_of(Number(1), FUNCTIONS) == Kind.SCALAR
