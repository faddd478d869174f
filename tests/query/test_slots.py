"""So many at once, so many in line, for so long; and whoever leaves the line holds nothing."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from threading import Event
from uuid import UUID

import pytest

from lakerunner.model.errors import Busy, UserError
from lakerunner.query.slots import Slots

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def test_one_past_the_line_is_turned_away() -> None:
    slots = Slots(2, waiting=1, seconds=240)
    with ExitStack() as running:
        slots.take(running, A, Event())
        slots.take(running, A, Event())
        waiting, stop = [], Event()

        def wait() -> None:
            try:
                slots.take(ExitStack(), A, stop)
            except UserError as error:
                waiting.append(str(error))

        line = threading.Thread(target=wait)
        line.start()
        while not slots.in_line:
            time.sleep(0.005)
        with pytest.raises(Busy, match="runs 2 units, 1 waiting: try again later"):
            slots.take(ExitStack(), A, Event())
        stop.set()
        line.join(60)
        assert waiting == ["the query was cancelled"]
        assert (slots.free, slots.in_line) == (0, 0)
    assert slots.free == 2


def test_the_wait_has_an_end() -> None:
    slots = Slots(1, seconds=0.1)
    with ExitStack() as running:
        slots.take(running, A, Event())
        with pytest.raises(Busy, match=r"had no free place \(1, setting worker_units\) for 0.1 s"):
            slots.take(ExitStack(), A, Event())
    with ExitStack() as next_:
        slots.take(next_, A, Event())
        assert slots.free == 0


def test_those_in_line_come_in_their_order() -> None:
    slots = Slots(1)
    order: list[int] = []
    first = ExitStack()
    slots.take(first, A, Event())

    def wait(n: int) -> None:
        with ExitStack() as held:
            slots.take(held, A, Event())
            order.append(n)

    threads = []
    for n in range(8):
        threads.append(threading.Thread(target=wait, args=(n,)))
        threads[-1].start()
        while slots.in_line <= n:
            time.sleep(0.005)
    first.close()
    for thread in threads:
        thread.join(60)
    assert order == list(range(8))
    assert slots.free == 1


def test_an_organization_without_a_place_does_not_wait_for_another() -> None:
    slots = Slots(2, waiting=4, seconds=0.1)
    with ExitStack() as held:
        for organization in (A, A, B, C):
            slots.take(held, organization, Event())
        for organization in (A, B, UUID(int=4)):
            with pytest.raises(Busy, match="no free place"):
                slots.take(ExitStack(), organization, Event())
    assert slots.free == 2


def test_one_organization_does_not_fill_the_line() -> None:
    slots = Slots(1, waiting=3, seconds=240)
    stop = Event()
    with ExitStack() as held:
        slots.take(held, A, Event())
        slots.take(held, B, Event())
        line = [threading.Thread(target=_wait, args=(slots, A, stop)) for _ in range(3)]
        for thread in line:
            thread.start()
        while slots.in_line < 3:
            time.sleep(0.005)
        with pytest.raises(Busy, match="runs 2 units, 3 waiting"):
            slots.take(ExitStack(), A, Event())
        waits = threading.Thread(target=_wait, args=(slots, B, stop))
        waits.start()
        while slots.in_line < 4:
            time.sleep(0.005)
        stop.set()
        for thread in (*line, waits):
            thread.join(60)
    assert (slots.free, slots.in_line) == (1, 0)


def _wait(slots: Slots, organization: UUID, stop: Event) -> None:
    with suppress(UserError):
        slots.take(ExitStack(), organization, stop)


def test_the_organization_with_the_fewest_places_is_next() -> None:
    slots = Slots(4)
    order: list[UUID] = []
    places = [ExitStack() for _ in range(4)]
    for place, organization in zip(places, (A, A, A, B), strict=True):
        slots.take(place, organization, Event())
    done = Event()

    def wait(organization: UUID) -> None:
        with ExitStack() as held:
            slots.take(held, organization, Event())
            order.append(organization)
            done.wait(60)

    threads = []
    for n, organization in enumerate((A, B)):
        threads.append(threading.Thread(target=wait, args=(organization,)))
        threads[-1].start()
        while slots.in_line <= n:
            time.sleep(0.005)
    places[0].close()
    while not order:
        time.sleep(0.005)
    assert order[0] == B
    done.set()
    for place in places:
        place.close()
    for thread in threads:
        thread.join(60)
    assert order == [B, A]
