"""Groups of steps: every step once, in order, cut at whole multiples of a length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.time import MS_NS
from lakerunner.query.series_answer import step_groups
from lakerunner.series.values import Steps

HOUR = 3_600_000


@given(st.integers(-(10**9), 10**13), st.integers(0, 11_000), st.integers(1, 10**8))
def test_every_step_is_in_one_group_and_in_order(start: int, count: int, step: int) -> None:
    steps = Steps(start, start + count * step, step)
    groups = list(step_groups(steps, MS_NS))
    assert [time for group in groups for time in group.times.tolist()] == steps.times.tolist()
    assert len(groups) <= 30


def test_a_day_is_cut_at_even_hours() -> None:
    day = Steps(9 * HOUR + 1_800_000, 33 * HOUR + 1_800_000, 60_000)
    groups = list(step_groups(day, MS_NS))
    assert [group.start / HOUR for group in groups] == [9.5, *range(10, 34, 2)]
    assert groups[0].last == 10 * HOUR - 60_000


def test_the_same_moment_falls_into_the_same_group_whenever_it_is_asked_for() -> None:
    one = {group.start for group in step_groups(Steps(0, 24 * HOUR, 60_000), MS_NS)}
    later = {group.start for group in step_groups(Steps(3 * HOUR, 27 * HOUR, 60_000), MS_NS)}
    assert sorted(one & later) == [n * HOUR for n in range(4, 25, 2)]


def test_an_instant_is_one_group() -> None:
    assert list(step_groups(Steps(7, 7), MS_NS)) == [Steps(7, 7)]
