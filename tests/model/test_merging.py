"""Runs of segments that one merge may take: contiguous, of one period, within bounds."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from lakerunner.model.merging import LEVELS, MergeLimits, find_runs, is_mergeable
from lakerunner.model.segment import Segment
from lakerunner.model.time import HOUR_NS, TimeRange

LIMITS = MergeLimits(max_segments=4, target_bytes=100)


def segment(number: int, **changes: Any) -> Segment:
    """Its id and its place are the number."""
    values: dict[str, Any] = {
        "id": UUID(int=number),
        "organization": UUID(int=99),
        "collector": "c",
        "signal": "logs",
        "time": TimeRange(0, 10),
        "rows": 1,
        "bytes": 10,
        "sort_version": 1,
        "columns": (),
        "ingested": number,
    }
    return Segment(**{**values, **changes})


def cut(*segments: Segment, level: int = 0, aside: tuple[int, ...] = ()) -> list[list[int]]:
    found = find_runs(segments, level, LIMITS, {UUID(int=number) for number in aside})
    return [[one.ingested for one in run] for run in found]


def test_all_in_the_order_they_came_in() -> None:
    assert cut(segment(3), segment(1), segment(2)) == [[1, 2, 3]]
    assert cut(segment(1)) == []
    assert cut() == []


@pytest.mark.parametrize(
    "between",
    [
        {"bytes": 100},  # full
        {"level": 1},
        {"level": 3},
        {"sort_version": 2},
        {"time": TimeRange(HOUR_NS, HOUR_NS + 1)},
        {"signal": "metrics"},  # not rolled up
    ],
)
def test_one_that_cannot_be_merged_ends_a_run(between: dict[str, Any]) -> None:
    segments = [segment(1), segment(2), segment(3, **between), segment(4), segment(5)]
    assert cut(*segments) == [[1, 2], [4, 5]]
    assert cut(*segments[1:]) == [[4, 5]]  # 2 stays alone


def test_one_that_is_set_aside_ends_a_run() -> None:
    assert cut(*map(segment, range(1, 6)), aside=(3,)) == [[1, 2], [4, 5]]


def test_stragglers_of_lower_levels_come_along() -> None:
    assert cut(segment(1, level=1), segment(2), segment(3, level=1), level=1) == [[1, 2, 3]]
    assert cut(segment(1), segment(2), level=2) == [[1, 2]]


def test_a_run_has_so_many_segments_and_bytes_and_the_rest_make_another() -> None:
    assert cut(*map(segment, range(1, 7))) == [[1, 2, 3, 4], [5, 6]]
    assert cut(*map(segment, range(1, 6))) == [[1, 2, 3, 4]]
    assert cut(segment(1, bytes=60), segment(2, bytes=60), segment(3, bytes=99), segment(4)) == [[1, 2], [3, 4]]


def test_hours_at_first_days_later() -> None:
    later = [segment(n, time=TimeRange(n * HOUR_NS, n * HOUR_NS + 1), level=2) for n in (1, 2, 23, 24)]
    assert cut(*later, level=2) == [[1, 2, 23]]
    assert [rule.period_ns // HOUR_NS for rule in LEVELS] == [1, 1, 24]


@pytest.mark.parametrize(
    ("changes", "mergeable"),
    [
        ({}, True),
        ({"level": 2}, True),
        ({"level": 3}, False),
        ({"bytes": 99}, True),
        ({"bytes": 100}, False),
        ({"signal": "metrics"}, False),
        ({"signal": "metrics", "rolled": True}, True),
        ({"signal": "metrics", "frequency_ms": 3_600_000}, False),
        ({"signal": "metrics", "frequency_ms": 86_400_000}, True),  # no tier after it
    ],
)
def test_what_is_mergeable(changes: dict[str, Any], mergeable: bool) -> None:
    assert is_mergeable(segment(1, **changes), 100) is mergeable


def test_runs_are_contiguous_and_within_bounds_whatever_there_is() -> None:
    chance = random.Random(5)
    for _ in range(300):
        segments = [
            segment(number, bytes=chance.choice([1, 40, 99, 100, 300]), level=chance.choice([0, 0, 1, 2, 3]))
            for number in range(chance.randint(0, 15))
        ]
        level = chance.randint(0, 2)
        shuffled = chance.sample(segments, len(segments))
        found = find_runs(shuffled, level, LIMITS)
        seen: list[int] = []
        for run in found:
            places = [one.ingested for one in run]
            assert places == list(range(places[0], places[0] + len(run)))
            assert 2 <= len(run) <= LIMITS.max_segments
            assert sum(one.bytes for one in run) < 2 * LIMITS.target_bytes
            assert all(one.level <= level and one.bytes < LIMITS.target_bytes for one in run)
            seen += places
        assert len(seen) == len(set(seen))
