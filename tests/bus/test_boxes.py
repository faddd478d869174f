"""Boxes close by age, size and count, hold each source once, and answer for every delivery."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus.boxes import ARRIVALS, Boxes, BoxLimits
from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import ObjectArrived
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS

ORG = UUID(int=1)
LIMITS = BoxLimits(max_seconds=2.0, max_bytes=100, max_items=3, max_held=10)


def arrived(name: str, size: int = 1, hour: int = 0, collector: str = "edge") -> ObjectArrived:
    return ObjectArrived(ORG, collector, "logs", SourceObject("b", name, "e", size, hour * HOUR_NS))


def delivered(number: int) -> Delivery:
    return Delivery("objstore.ingest.logs", b"", (0, number))


def keys(closed: list[Any]) -> list[list[str]]:
    return [[source.key for source in one.box.sources] for one in closed]


def test_a_box_closes_by_age_exactly() -> None:
    boxes = Boxes(ARRIVALS, LIMITS)
    boxes.add(delivered(1), arrived("a"), now=10.0)
    assert boxes.seconds_until_due(11.5) == 0.5
    assert boxes.take_due(11.999) == []
    assert keys(boxes.take_due(12.0)) == [["a"]]
    assert boxes.seconds_until_due(12.0) == float("inf")


def test_a_box_closes_by_count_and_by_size() -> None:
    boxes = Boxes(ARRIVALS, LIMITS)
    for number, name in enumerate("cab"):
        assert boxes.take_due(0.0) == []
        boxes.add(delivered(number), arrived(name), now=0.0)
    assert keys(boxes.take_due(0.0)) == [["a", "b", "c"]]
    boxes.add(delivered(4), arrived("big", size=100), now=0.0)
    assert keys(boxes.take_due(0.0)) == [["big"]]


def test_a_box_holds_one_organization_collector_and_hour() -> None:
    boxes = Boxes(ARRIVALS, LIMITS)
    boxes.add(delivered(1), arrived("a"), now=0.0)
    boxes.add(delivered(2), arrived("b", hour=1), now=0.0)
    boxes.add(delivered(3), arrived("c", collector="core"), now=0.0)
    assert sorted(keys(boxes.take_due(2.0))) == [["a"], ["b"], ["c"]]


def test_the_same_source_twice_stands_once_and_both_deliveries_are_answered_for() -> None:
    boxes = Boxes(ARRIVALS, LIMITS)
    boxes.add(delivered(1), arrived("a"), now=0.0)
    boxes.add(delivered(2), arrived("a"), now=0.0)
    (closed,) = boxes.take_due(2.0)
    assert keys([closed]) == [["a"]]
    assert closed.deliveries == (delivered(1), delivered(2))


def test_one_past_the_bound_on_held_messages_closes_the_oldest_box() -> None:
    boxes = Boxes(ARRIVALS, BoxLimits(max_seconds=60, max_bytes=1 << 30, max_items=100, max_held=4))
    for number in range(4):
        boxes.add(delivered(number), arrived(f"k{number}", hour=number), now=float(number))
    assert boxes.take_due(4.0) == []
    boxes.add(delivered(4), arrived("k4", hour=4), now=4.0)
    assert keys(boxes.take_due(4.0)) == [["k0"]]
    assert boxes.held == 4


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.integers(0, 3)), max_size=60))
def test_nothing_is_lost_or_doubled(arrivals: list[tuple[int, int, int]]) -> None:
    boxes = Boxes(ARRIVALS, LIMITS)
    closed: list[Any] = []
    for number, (name, size, hour) in enumerate(arrivals):
        boxes.add(delivered(number), arrived(f"k{name}", size, hour), now=float(number))
        closed += boxes.take_due(float(number))
        assert boxes.held <= LIMITS.max_held
    closed += boxes.take_due(1e9)
    answered = sorted(delivery.position[1] for one in closed for delivery in one.deliveries)
    assert answered == list(range(len(arrivals)))
    assert all(len(set(one.box.sources)) == len(one.box.sources) for one in closed)
