"""Detect whether PostgreSQL answers, so that only the first caller to find it away waits for it.

Comes in: the report that a wait for the server was in vain. Goes out: Unavailable, at once, for all callers until the
server answers a probe. What always holds: a server that answers probes in time is never considered away, however busy
it is. While it is away, one caller in PROBE_SECONDS starts a probe and waits PATIENCE_SECONDS for it, and no other
waits. A probe that takes longer continues in a thread of its own.

A connection to a frozen server (stopped by a signal, its disk hanging, its machine swapping) stays open: the kernel
takes what is sent, nothing ever comes back, and psycopg waits without end. Inside `patient` a wait probes the server
after PROBE_AFTER seconds. If it answers, the query is only slow and continues, up to MOST_SECONDS; if not, the
connection is closed and the wait ends with an OperationalError.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Event, Lock, Thread
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ConnStatus, PGconn, PollingStatus
from psycopg.rows import TupleRow

from lakerunner.model.errors import Unavailable

# A server that starts, stops or recovers replies this, which PQping counts as no answer. In another language of the
# server it counts as an answer here, and the connection then fails by itself.
_NOT_NOW = b"the database system is"
PROBE_SECONDS = 1.0
PATIENCE_SECONDS = 0.5


class Reach:
    """Whether the server is away. Safe to use from many threads. `answers` is the probe; `clock` counts seconds;
    `detail` is for logs."""

    def __init__(self, answers: Callable[[], bool], clock: Callable[[], float], detail: str = "") -> None:
        self._answers = answers
        self._clock = clock
        self._detail = detail
        self._lock = Lock()
        self._probe_at: float | None = None  # None while the server is not known to be away
        self._probe: _Probe | None = None  # the one under way

    def check(self) -> None:
        """Raise Unavailable if the server is away."""
        with self._lock:
            if self._probe_at is None:
                return
        if not self.missed():
            raise Unavailable("PostgreSQL does not answer", detail=self._detail)

    def missed(self) -> bool:
        """Report that a wait was in vain; return whether the server answers a probe and is only busy."""
        with self._lock:
            if self._probe_at is not None and (self._probe is not None or self._clock() < self._probe_at):
                return False
            probe = self._probe = self._probe or self._begin()
        probe.done.wait(PATIENCE_SECONDS)
        with self._lock:
            if not probe.answered and self._probe_at is None:
                self._probe_at = self._clock() + PROBE_SECONDS
            return probe.answered

    def _begin(self) -> _Probe:
        probe = _Probe()
        Thread(target=self._run, args=(probe,), name="postgres-probe", daemon=True).start()
        return probe

    def _run(self, probe: _Probe) -> None:
        answered = self._answers()
        with self._lock:
            probe.answered = answered
            self._probe = None
            self._probe_at = None if answered else self._clock() + PROBE_SECONDS
        probe.done.set()


class _Probe:
    def __init__(self) -> None:
        self.done = Event()
        self.answered = False


def server_answers(conninfo: str, seconds: float, clock: Callable[[], float]) -> bool:
    """Return whether the server sends anything back to a connection, within a time and without a password. One that
    refuses the connection, for the password or because there are too many, answers.

    libpq has PQping for this, but psycopg calls it without releasing Python's global lock: nothing else in the process
    would run while a frozen server is pinged. Here libpq connects step by step, and this function waits."""
    end = clock() + seconds
    connection = PGconn.connect_start(conninfo.encode())
    heard = False
    try:
        while connection.status != ConnStatus.BAD:
            state = connection.connect_poll()
            if state == PollingStatus.OK:
                return True
            if state == PollingStatus.FAILED:
                break
            reads = state == PollingStatus.READING
            with DefaultSelector() as waiting:
                waiting.register(connection.socket, EVENT_READ if reads else EVENT_WRITE)
                if not waiting.select(max(0.0, end - clock())):
                    return heard
            heard = heard or (reads and _has_bytes(connection.socket))
        return heard and _NOT_NOW not in connection.error_message
    finally:
        connection.finish()


def _has_bytes(descriptor: int) -> bool:
    """Return whether there is something to read: a socket that the other side closed is readable too."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        try:
            return bool(peer.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


PROBE_AFTER = 0.75  # with the wait for the probe, a frozen server is given up after 1.25 s
MOST_SECONDS = 30.0

T = TypeVar("T")
_Waiting = Generator[Any, Any, T]  # psycopg's: yields what it waits for, is sent what is ready


class Patience:
    """How long one transaction waits; for one thread. `is_there` probes the server; `clock` counts seconds."""

    def __init__(self, is_there: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._is_there = is_there
        self._clock = clock
        self._probe_at = clock() + PROBE_AFTER
        self._end = clock() + MOST_SECONDS

    def check(self) -> None:
        """Raise OperationalError if waiting is over."""
        now = self._clock()
        if now < self._probe_at:
            return
        if now >= self._end:
            raise psycopg.OperationalError(f"no answer within {MOST_SECONDS:g} s")
        if not self._is_there():
            raise psycopg.OperationalError("no answer to the query or to a probe")
        self._probe_at = self._clock() + PROBE_AFTER


# A context variable, because psycopg's pool checks a connection before its caller has it and passes nothing to it.
_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(patience: Patience) -> Iterator[None]:
    """Bound all waits of this thread by `patience`."""
    before = _patience.set(patience)
    try:
        yield
    finally:
        _patience.reset(before)


class PatientConnection(psycopg.Connection[TupleRow]):
    """A psycopg connection whose waits inside `patient` are bounded."""

    def wait(self, gen: _Waiting[T], interval: float = 0.1, timeout: float | None = None) -> T:
        patience = _patience.get()
        if patience is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(_wait_patiently(gen, patience), interval, timeout)
        except psycopg.OperationalError:
            self.close()  # a late answer may still arrive: no other caller may get this connection
            raise


def _wait_patiently(waiting: _Waiting[T], patience: Patience) -> _Waiting[T]:
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
