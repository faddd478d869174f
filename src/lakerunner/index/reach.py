"""Whether the server can be reached, so that only the first to find it gone waits for it.

Comes in: that a wait for the server was in vain. Goes out: Unavailable, at once, for whoever wants the server then,
until it answers a probe. What always holds: a server that answers probes in time is never called away, however busy it
is; while it is away, one caller in PROBE_SECONDS begins a probe and waits PATIENCE_SECONDS for it, and no other waits.
A probe that takes longer goes on in a thread of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import Event, Lock, Thread

from psycopg.pq import ConnStatus, PGconn, PollingStatus

from lakerunner.model.errors import Unavailable

# What a server replies, and PQping takes for no answer: it starts, stops, or recovers. In another language of the
# server's it is taken for an answer, and the connection then fails by itself.
_NOT_NOW = b"the database system is"
PROBE_SECONDS = 1.0
PATIENCE_SECONDS = 0.5


class Reach:
    """Safe to use from many threads. `answers` is the probe; `clock` counts seconds; `detail` is for logs."""

    def __init__(self, answers: Callable[[], bool], clock: Callable[[], float], detail: str = "") -> None:
        self._answers = answers
        self._clock = clock
        self._detail = detail
        self._lock = Lock()
        self._probe_at: float | None = None  # None while the server is there, as far as is known
        self._probe: _Probe | None = None  # the one under way

    def check(self) -> None:
        """Unavailable if the server is away."""
        with self._lock:
            if self._probe_at is None:
                return
        if not self.missed():
            raise Unavailable("PostgreSQL does not answer", detail=self._detail)

    def missed(self) -> bool:
        """A wait was in vain: return whether the server answers all the same, and is only busy."""
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
    refuses it, for its password or because there are too many, is there.

    libpq has PQping for this, which psycopg calls without letting go of Python's global lock: while a frozen server is
    pinged nothing else in the process runs. Here libpq connects step by step, and this function waits."""
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
    """A socket that the other side closed can be read too, and has none."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        try:
            return bool(peer.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
