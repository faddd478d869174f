"""The boxer while the bus is away: what it took is neither lost nor forgotten, and it takes no more meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from lakerunner.bus.topics import IngestBox, ObjectArrived, arrivals, decode, encode, ingest_boxes
from lakerunner.model.errors import Unavailable
from lakerunner.model.source import SourceObject
from lakerunner.services.boxer import Boxer, ingest_lane
from lakerunner.settings import Settings
from servers.memory_bus import MemoryBus

BOXES = ingest_boxes("logs")


class BusThatIsAway(MemoryBus):
    """Boxes cannot be published while `away`."""

    away = False

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        if self.away and any(topic == BOXES for topic, _ in messages):
            raise Unavailable("the bus is away")
        super().publish(messages)


def arrive(bus: MemoryBus, *numbers: int) -> None:
    for number in numbers:
        source = SourceObject("lake", f"otel-raw/default/c/{number}.binpb", "e", 1, 0)
        bus.publish([(arrivals("logs"), encode(ObjectArrived(UUID(int=1), "c", "logs", source)))])


def boxed(bus: MemoryBus) -> list[list[str]]:
    boxes = [decode(payload) for payload in bus.topics[BOXES]]
    return [[s.key[19:-6] for s in box.sources] for box in boxes if isinstance(box, IngestBox)]


def boxer_of(bus: MemoryBus) -> Boxer[ObjectArrived]:
    return Boxer(ingest_lane("logs", Settings(box_max_seconds=0)), bus, lambda: 0.0)


def test_closed_boxes_wait_for_the_bus() -> None:
    bus = BusThatIsAway()
    boxer = boxer_of(bus)
    arrive(bus, 1, 2)
    bus.away = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            boxer.step()
        arrive(bus, 3)  # not taken: what is held does not grow
    bus.away = False
    boxer.step()
    assert boxed(bus) == [["1", "2"]]
    boxer.step()
    assert boxed(bus) == [["1", "2"], ["3"]]
    boxer.close()
    again = bus.subscribe([arrivals("logs")], "boxer")
    assert again.take(10, 0) == []


def test_what_was_not_published_goes_to_another_boxer() -> None:
    bus = BusThatIsAway()
    first = boxer_of(bus)
    arrive(bus, 1, 2)
    bus.away = True
    with pytest.raises(Unavailable):
        first.step()
    first.close()
    bus.away = False
    boxer_of(bus).step()
    assert boxed(bus) == [["1", "2"]]


def test_what_cannot_be_understood_is_passed_over_and_its_neighbours_are_not() -> None:
    bus = MemoryBus()
    boxer = boxer_of(bus)
    arrive(bus, 1)
    bus.publish([(arrivals("logs"), b"{nonsense")])
    arrive(bus, 2)
    boxer.step()
    assert boxed(bus) == [["1", "2"]]
    boxer.close()
    assert bus.subscribe([arrivals("logs")], "boxer").take(10, 0) == []
