"""Slots for work of which a limited amount may run at once, shared fairly between organizations, with bounded queues.

Invariants: `at_once` units run, and no organization waits for another one's work: one that has nothing running gets a
slot beyond them, of which there are as many again. Among those that wait, the organization with the fewest slots is
next, then the one that came first.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from uuid import UUID

from lakerunner.model.display import plural
from lakerunner.model.errors import Busy
from lakerunner.query.contract.failures import cancelled

_LOOK_EVERY = 0.05


@dataclass(eq=False)
class _Waiter:
    organization: UUID
    given: Event = field(default_factory=Event)


class Slots:
    """`at_once` units have a slot; `waiting` more of one organization wait, and twice as many of all, each for
    `seconds`. Safe to use from many threads."""

    def __init__(self, at_once: int, *, waiting: int = 64, seconds: float = 60.0) -> None:
        if at_once < 1:
            raise ValueError(f"invalid number of slots {at_once}: must be at least 1")
        self.at_once = at_once
        self.waiting = waiting
        self._seconds = seconds
        self._lock = Lock()
        self._running: Counter[UUID] = Counter()
        self._queue: list[_Waiter] = []

    @property
    def most(self) -> int:
        """Return the most that can run at once, with the extra slots of organizations that have nothing running."""
        return 2 * self.at_once

    @property
    def most_in_line(self) -> int:
        return 2 * self.waiting

    @property
    def free(self) -> int:
        with self._lock:
            return max(0, self.at_once - self._running.total())

    @property
    def in_line(self) -> int:
        with self._lock:
            return len(self._queue)

    def take(self, held: ExitStack, organization: UUID, stopped: Event) -> None:
        """Wait for a slot; closing `held` gives it back. Busy if none is free in time, or if too many wait already."""
        waiter = self._stand_in_line(organization)
        deadline = time.monotonic() + self._seconds
        while not waiter.given.wait(_LOOK_EVERY):
            if stopped.is_set() and self._leave(waiter):
                raise cancelled()
            if time.monotonic() > deadline and self._leave(waiter):
                places = f"{self.at_once}, setting worker_units"
                raise Busy(f"the worker had no free place ({places}) for {self._seconds:g} s: try again later")
        held.callback(partial(self._give_back, organization))

    def _stand_in_line(self, organization: UUID) -> _Waiter:
        waiter = _Waiter(organization)
        with self._lock:
            if self._may_run(organization):
                self._admit(waiter)
                return waiter
            own = sum(one.organization == organization for one in self._queue)
            if len(self._queue) >= self.most_in_line or own >= self.waiting:
                running = plural(self._running.total(), "unit")
                raise Busy(f"the worker runs {running}, {len(self._queue)} waiting: try again later")
            self._queue.append(waiter)
        return waiter

    def _leave(self, waiter: _Waiter) -> bool:
        """Leave the queue; return False if a slot has been given in this moment."""
        with self._lock:
            if waiter.given.is_set():
                return False
            self._queue.remove(waiter)
            return True

    def _give_back(self, organization: UUID) -> None:
        with self._lock:
            self._running[organization] -= 1
            self._running += Counter()  # forget those that have nothing running
            while fit := [one for one in self._queue if self._may_run(one.organization)]:
                waiter = min(fit, key=lambda one: self._running[one.organization])
                self._queue.remove(waiter)
                self._admit(waiter)

    def _may_run(self, organization: UUID) -> bool:
        running = self._running.total()
        return running < self.at_once or (not self._running[organization] and running < self.most)

    def _admit(self, waiter: _Waiter) -> None:
        self._running[waiter.organization] += 1
        waiter.given.set()
