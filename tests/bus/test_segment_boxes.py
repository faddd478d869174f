"""Boxes of segments close by age, size and count, drop what is not worth one, and answer for every delivery once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus.boxes import COMPACTION, ROLLUP, Boxes, Boxing, BoxLimits, ClosedBox
from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import Candidate, CompactBox, RollupBox, SegmentsCommitted
from lakerunner.model.time import DAY_NS, HOUR_NS

ORG = UUID(int=1)
LIMITS = BoxLimits(max_seconds=60.0, max_bytes=100, max_items=3, max_held=10)


def one(number: int, hour: float = 0, size: int = 1) -> Candidate:
    return Candidate(UUID(int=number), int(hour * HOUR_NS), size)


def told(*segments: Candidate, level: int = 0, frequency_ms: int = 0, collector: str = "edge") -> SegmentsCommitted:
    return SegmentsCommitted(ORG, collector, "metrics", frequency_ms, level, segments)


def delivered(number: int) -> Delivery:
    return Delivery("boxer.metrics.compact", b"", (0, number))


def numbers(closed: list[ClosedBox]) -> list[list[int]]:
    boxes = [done.box for done in closed]
    return [[id_.int for id_ in box.segments] for box in boxes if isinstance(box, CompactBox | RollupBox)]


def answered(closed: list[ClosedBox]) -> list[int]:
    return sorted(delivery.position[1] for done in closed for delivery in done.deliveries)


@pytest.mark.parametrize(("level", "seconds"), [(0, 60.0), (1, 600.0), (2, 3600.0)])
def test_a_box_closes_by_the_age_of_its_level(level: int, seconds: float) -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    boxes.add(delivered(1), told(one(2), level=level), now=10.0)
    boxes.add(delivered(2), told(one(1), level=level), now=11.0)
    assert boxes.seconds_until_due(11.0) == seconds - 1
    assert boxes.take_due(10.0 + seconds - 0.1) == []
    (closed,) = boxes.take_due(10.0 + seconds)
    assert closed.box == CompactBox(ORG, "edge", "metrics", 0, level, (UUID(int=1), UUID(int=2)))
    assert closed.deliveries == (delivered(1), delivered(2))
    assert boxes.seconds_until_due(0.0) == float("inf")
    assert boxes.held == 0


def test_a_box_closes_by_count_and_by_size() -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    boxes.add(delivered(1), told(one(1), one(2), one(3), one(4)), now=0.0)
    closed = boxes.take_due(0.0)
    assert numbers(closed) == [[1, 2, 3]]
    assert answered(closed) == []  # the fourth is in an open box
    boxes.add(delivered(2), told(one(5, size=99)), now=0.0)
    closed = boxes.take_due(0.0)
    assert numbers(closed) == [[4, 5]]
    assert answered(closed) == [1, 2]


def test_what_is_full_or_of_the_last_level_is_no_candidate() -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    boxes.add(delivered(1), told(one(1, size=100), one(2, size=500)), now=0.0)
    boxes.add(delivered(2), told(one(3), one(4), level=3), now=0.0)
    assert boxes.seconds_until_due(0.0) == 0.0
    closed = boxes.take_due(0.0)
    assert numbers(closed) == []
    assert answered(closed) == [1, 2]
    assert boxes.held == 0


def test_one_that_stays_alone_is_dropped() -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    boxes.add(delivered(1), told(one(1)), now=0.0)
    boxes.add(delivered(2), told(one(1)), now=1.0)  # the same again
    assert boxes.take_due(60.0) == [ClosedBox(None, (delivered(1), delivered(2)))]


@pytest.mark.parametrize(
    ("boxing", "changes", "expected"),
    [
        (COMPACTION, {}, [[1, 2], [3, 4]]),  # by hour
        (COMPACTION, {"level": 1}, [[1, 2], [3, 4]]),
        (COMPACTION, {"level": 2}, [[1, 2, 3, 4]]),  # by day
        (ROLLUP, {}, [[1, 2], [3, 4]]),
        (ROLLUP, {"frequency_ms": 60_000}, [[1, 2], [3, 4]]),
        (ROLLUP, {"frequency_ms": 300_000}, [[1, 2, 3, 4]]),  # windows of an hour, by day
    ],
)
def test_a_box_holds_one_hour_or_day(
    boxing: Boxing[SegmentsCommitted], changes: dict[str, Any], expected: list[list[int]]
) -> None:
    limits = BoxLimits(max_seconds=1.0, max_bytes=100, max_items=10, max_held=10)
    boxes = Boxes(boxing, limits)
    boxes.add(delivered(1), told(one(1), one(3, hour=1), one(2, hour=0.9), one(4, hour=1.5), **changes), now=0.0)
    closed = boxes.take_due(1e6)
    assert sorted(numbers(closed)) == expected
    assert answered(closed) == [1]


def test_collectors_levels_and_tiers_stay_apart() -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    changed: tuple[dict[str, Any], ...] = ({}, {"collector": "core"}, {"level": 1}, {"frequency_ms": 10_000})
    for number, changes in enumerate(changed):
        boxes.add(delivered(number), told(one(2 * number), one(2 * number + 1), **changes), now=0.0)
    assert sorted(numbers(boxes.take_due(1e6))) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_rollups_of_one_segment_of_any_size_and_none_past_the_last_tier() -> None:
    boxes = Boxes(ROLLUP, LIMITS)
    boxes.add(delivered(1), told(one(1, size=1000)), now=0.0)
    closed = boxes.take_due(0.0)
    assert [done.box for done in closed if done.box] == [RollupBox(ORG, "edge", 0, 10_000, (UUID(int=1),))]
    assert answered(closed) == [1]
    boxes.add(delivered(2), told(one(2), frequency_ms=3_600_000), now=0.0)
    assert numbers(boxes.take_due(60 * 60 - 1)) == []
    (day,) = boxes.take_due(60 * 60)
    assert day.box == RollupBox(ORG, "edge", 3_600_000, 86_400_000, (UUID(int=2),))
    boxes.add(delivered(3), told(one(3), frequency_ms=86_400_000), now=0.0)
    assert boxes.take_due(0.0) == [ClosedBox(None, (delivered(3),))]


def test_one_past_the_bound_on_held_messages_closes_the_oldest_box() -> None:
    boxes = Boxes(COMPACTION, BoxLimits(60.0, 100, 5, max_held=3))
    boxes.add(delivered(0), told(one(0), one(10)), now=0.0)
    for number in (1, 2):
        boxes.add(delivered(number), told(one(number, hour=number)), now=float(number))
    assert boxes.take_due(2.0) == []
    boxes.add(delivered(3), told(one(3, hour=3)), now=3.0)
    assert numbers(boxes.take_due(3.0)) == [[0, 10]]
    assert boxes.held == 3


ADDED = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 50), st.integers(1, 120)), max_size=6
)  # (segment, hour, size)


@given(st.lists(st.tuples(ADDED, st.integers(0, 3)), max_size=40), st.sampled_from([COMPACTION, ROLLUP]))
def test_every_delivery_comes_out_once_and_no_candidate_is_lost(
    messages: list[tuple[list[tuple[int, int, int]], int]], boxing: Boxing[SegmentsCommitted]
) -> None:
    boxes = Boxes(boxing, LIMITS)
    closed: list[ClosedBox] = []
    for number, (segments, level) in enumerate(messages):
        before = answered(closed)
        boxes.add(delivered(number), told(*(one(*given) for given in segments), level=level), now=float(number))
        closed += boxes.take_due(float(number))
        assert boxes.held <= LIMITS.max_held
        assert len(answered(closed)) - len(before) + boxes.held >= 1
    closed += boxes.take_due(1e9)
    assert answered(closed) == list(range(len(messages)))
    assert boxes.held == 0
    for box in (done.box for done in closed):
        if isinstance(box, CompactBox | RollupBox):
            assert len(set(box.segments)) == len(box.segments) <= LIMITS.max_items
    if boxing is ROLLUP:
        wanted = {number for segments, _ in messages for number, _, _ in segments}
        assert {number for box in numbers(closed) for number in box} == wanted


def test_before_the_epoch_too() -> None:
    boxes = Boxes(COMPACTION, LIMITS)
    boxes.add(delivered(1), told(one(1, hour=-0.5), one(2, hour=0.5), one(3, hour=-0.9)), now=0.0)
    assert numbers(boxes.take_due(60.0)) == [[1, 3]]
    assert DAY_NS == 24 * HOUR_NS
