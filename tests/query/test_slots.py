"""So many at once, so many in line, for so long; and whoever leaves the line holds nothing."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from threading import Event

import pytest

from lakerunner.model.errors import Busy, UserError
from lakerunner.query.slots import Slots


def test_one_past_the_line_is_turned_away() -> None:
    slots = Slots(2, waiting=1, seconds=240)
    with ExitStack() as running:
        slots.take(running, Event())
        slots.take(running, Event())
        waiting, stop = [], Event()

        def wait() -> None:
            try:
                slots.take(ExitStack(), stop)
            except UserError as error:
                waiting.append(str(error))

        line = threading.Thread(target=wait)
        line.start()
        while not slots.in_line:
            time.sleep(0.005)
        with pytest.raises(Busy, match="runs 2 units and 1 wait: try again later"):
            slots.take(ExitStack(), Event())
        stop.set()
        line.join(60)
        assert waiting == ["the query was cancelled"]
        assert (slots.free, slots.in_line) == (0, 0)
    assert slots.free == 2


def test_the_wait_has_an_end() -> None:
    slots = Slots(1, seconds=0.1)
    with ExitStack() as running:
        slots.take(running, Event())
        with pytest.raises(Busy, match=r"no room for 0.1 s, 1 units ran"):
            slots.take(ExitStack(), Event())
    with ExitStack() as next_:
        slots.take(next_, Event())
        assert slots.free == 0


def test_those_in_line_come_in_their_order() -> None:
    slots = Slots(1)
    order: list[int] = []
    first = ExitStack()
    slots.take(first, Event())

    def wait(n: int) -> None:
        with ExitStack() as held:
            slots.take(held, Event())
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
