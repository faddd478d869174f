"""What a query's time range decides in its expression."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import UserError
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.series.expression import Binary, Number, Range, Selector, Subquery, bare
from lakerunner.series.values import Steps

STEPS = Steps(60_000, 660_500, 15_000)


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("5m * 2", 600_000),
        ("5m + 1", 301_000),
        ("step()", 15_000),
        ("range()", 600_500),
        ("max_of(step(), 1m) - min_of(1, 2)", 59_000),
        ("2 ^ 3 ^ 2", 512_000),
        ("-(3 - 5)", 2_000),
        ("7 % 4", 3_000),
        ("1 / 3", 333),
        ("(5m)", 300_000),
        ("0.0015 * 1", 1),
    ],
)
def test_durations(duration: str, ms: int) -> None:
    found = resolve(parse(f"foo[{duration}]"), STEPS, instant=False)
    assert isinstance(found, Range)
    assert found.range == ms
    behind = resolve(parse(f"foo offset -({duration})"), STEPS, instant=False)
    assert isinstance(behind, Selector)
    assert behind.offset == -ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo[5m - 10m]", "4:12: duration must be greater than 0"),
        ("foo[1 / (step() - 15)]", "4:20: division by zero"),
        ("foo[1 % (step() - 15)]", "4:20: modulo by zero"),
        ("foo[10 ^ 400]", "4:12: duration is NaN or infinite"),
        ("foo offset (min_of(1, NaN))", "19:25: duration is NaN or infinite"),
        ("foo offset (10 ^ 300)", "12:20: duration is out of range"),
        ("foo[5m:step() - 1h]", "7:18: duration must be greater than 0"),
    ],
)
def test_durations_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        resolve(parse(text), STEPS, instant=False)
    assert raised.value.message == message


def test_an_instant_has_no_step_and_no_range() -> None:
    for text in ("foo[step()]", "foo[range()]"):
        with pytest.raises(UserError, match="duration must be greater than 0"):
            resolve(parse(text), Steps(5_000, 5_000), instant=True)
    assert resolve(parse("step() + range()"), Steps(5_000, 5_000), instant=True) == Binary(
        "+", _number(0, 0, 6), _number(0, 9, 16), span=parse("step() + range()").span
    )


def _number(value: float, start: int, end: int) -> Number:
    return Number(value, span=type(parse("1").span)(start, end))


@pytest.mark.parametrize(("call", "value"), [("start", 60.0), ("end", 660.5), ("step", 15.0), ("range", 600.5)])
def test_calls_become_numbers(call: str, value: float) -> None:
    found = bare(resolve(parse(f"(({call}()))"), STEPS, instant=False))
    while not isinstance(found, Number):
        found = bare(found)
    assert found.value == value


def test_a_range_of_one_time_has_a_step_for_durations_alone() -> None:
    steps = Steps(5_000, 5_000, 30_000)
    assert resolve(parse("step()"), steps, instant=False) == _number(0, 0, 6)
    found = resolve(parse("foo[step()]"), steps, instant=False)
    assert isinstance(found, Range)
    assert found.range == 30_000


def test_at_start_and_end() -> None:
    found = resolve(parse("(foo @ start())[5m:step()] @ end()"), STEPS, instant=False)
    assert isinstance(found, Subquery)
    assert (found.at, found.range, found.step) == (660_500, 300_000, 15_000)
    inner = bare(found.inner)
    assert isinstance(inner, Selector)
    assert inner.at == 60_000


def test_a_step_of_less_than_a_ms_is_the_default() -> None:
    found = resolve(parse("foo[5m:0.0001]"), STEPS, instant=False)
    assert isinstance(found, Subquery)
    assert found.step is None
