"""A client that waits for an answer of PostgreSQL no longer than the server is there.

A connection to a server that is frozen (stopped by a signal, its disk hanging, its machine swapping) stays open: the
kernel takes what is sent, and nothing ever comes back. psycopg waits for it without end. Inside `patient` a wait looks
after PROBE_AFTER seconds whether the server still answers a probe (reach.py). If it does, the work is only slow and
goes on, up to MOST_SECONDS; if it does not, the connection is closed and the wait ends with an OperationalError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

PROBE_AFTER = 0.75  # with the wait for the probe, a frozen server is given up after 1.25 s
MOST_SECONDS = 30.0

T = TypeVar("T")
_Waiting = Generator[Any, Any, T]  # psycopg's: yields what it waits for, is sent what is ready


class Patience:
    """How long one transaction waits. Of one thread. `is_there` probes the server; `clock` counts seconds."""

    def __init__(self, is_there: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._is_there = is_there
        self._clock = clock
        self._probe_at = clock() + PROBE_AFTER
        self._end = clock() + MOST_SECONDS

    def check(self) -> None:
        """OperationalError if nothing more is to be waited for."""
        now = self._clock()
        if now < self._probe_at:
            return
        if now >= self._end:
            raise psycopg.OperationalError(f"no answer within {MOST_SECONDS:g} s")
        if not self._is_there():
            raise psycopg.OperationalError("no answer to the query or to a probe")
        self._probe_at = self._clock() + PROBE_AFTER


# Of the thread that waits: psycopg's pool checks a connection before its caller has it, and passes nothing on to it.
_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(patience: Patience) -> Iterator[None]:
    """Waits of this thread end as `patience` has it."""
    before = _patience.set(patience)
    try:
        yield
    finally:
        _patience.reset(before)


class PatientConnection(psycopg.Connection[TupleRow]):
    """psycopg's own connection, but for waits inside `patient`."""

    def wait(self, gen: _Waiting[T], interval: float = 0.1, timeout: float | None = None) -> T:
        patience = _patience.get()
        if patience is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(_watched(gen, patience), interval, timeout)
        except psycopg.OperationalError:
            self.close()  # what it was asked may still come: nobody else may be given this connection
            raise


def _watched(waiting: _Waiting[T], patience: Patience) -> _Waiting[T]:
    """Pass on what is waited for; psycopg sends 0 as ready whenever its interval has passed in vain."""
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready:
                patience.check()
            wanted = waiting.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
