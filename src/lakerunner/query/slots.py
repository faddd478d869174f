"""Places for work of which only so much may run at once: first come, first served, and no endless queue."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from threading import Event, Lock

from lakerunner.model.errors import Busy
from lakerunner.query.failures import cancelled

_LOOK_EVERY = 0.05


class Slots:
    """`at_once` have a place, `waiting` more wait for one, each for `seconds`. Safe to use from many threads."""

    def __init__(self, at_once: int, *, waiting: int = 64, seconds: float = 60.0) -> None:
        if at_once < 1:
            raise ValueError(f"{at_once} slots: nothing could ever run")
        self.at_once = at_once
        self.waiting = waiting
        self._seconds = seconds
        self._lock = Lock()
        self._free = at_once
        self._queue: deque[Event] = deque()

    @property
    def free(self) -> int:
        with self._lock:
            return self._free

    @property
    def in_line(self) -> int:
        with self._lock:
            return len(self._queue)

    def take(self, held: ExitStack, stopped: Event) -> None:
        """Waits for a place, which `held` gives back. Busy if there is none in time, or too many wait already."""
        place = self._stand_in_line()
        deadline = time.monotonic() + self._seconds
        while not place.wait(_LOOK_EVERY):
            if stopped.is_set() and self._leave(place):
                raise cancelled()
            if time.monotonic() > deadline and self._leave(place):
                raise Busy(f"the worker had no room for {self._seconds:g} s, {self.at_once} units ran: try again later")
        held.callback(self._give)

    def _stand_in_line(self) -> Event:
        place = Event()
        with self._lock:
            if self._free:
                self._free -= 1
                place.set()
            elif len(self._queue) < self.waiting:
                self._queue.append(place)
            else:
                raise Busy(f"the worker runs {self.at_once} units and {self.waiting} wait: try again later")
        return place

    def _leave(self, place: Event) -> bool:
        """False if the place has been given in this moment."""
        with self._lock:
            if place.is_set():
                return False
            self._queue.remove(place)
            return True

    def _give(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._free += 1
