"""Queries in Spark for the API: each in its organization's share, in a process that runs nothing else (process.py).

What always holds: a query gives its place back when it has ended, failed or been cancelled. One that does not end in
time, nor when it is cancelled, ends with the process that runs it.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import Crashed, LakerunnerError, TooLong, Unavailable
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.model.segment import Segment
from lakerunner.pipeline.ask import frames
from lakerunner.pipeline.ask.process import Child, QueryProcesses
from lakerunner.pipeline.ask.run import cancelled
from lakerunner.pipeline.ask.shares import Shares
from lakerunner.plan.spark import SparkPlan

_START_SECONDS = 180.0  # three Java processes may start at once on a small machine
_GRACE_SECONDS = 15.0  # to stop a query by itself that is over its time
_CANCEL_SECONDS = 10.0  # planning cannot be interrupted; tasks end within four
_END_SECONDS = 20.0


class RemoteQueries:
    """A Spark (query/outgrown.py). Safe to use from many threads. `seconds` is the longest run of one query."""

    def __init__(self, processes: QueryProcesses, shares: Shares, seconds: float) -> None:
        self._processes = processes
        self._shares = shares
        self._seconds = seconds

    def start(self, organization: UUID, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> RemoteRun:
        """At once: the work begins when its rows are read. `segments` are those of each scan."""
        return RemoteRun(self._processes, lambda: self._shares.take(organization), (plan, segments), self._seconds)


class RemoteRun:
    """One query. `batches` is read by one thread; any thread may cancel."""

    def __init__(
        self,
        processes: QueryProcesses,
        take: Callable[[], Callable[[], None]],
        query: tuple[SparkPlan, Sequence[Sequence[Segment]]],
        seconds: float,
    ) -> None:
        self._processes = processes
        self._take = take
        self._query = query
        self._seconds = seconds
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._answered = False
        self._connected: tuple[Child, socket.socket] | None = None
        self._give_back: Callable[[], None] = _nothing

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Once: the rows, in this schema."""
        self._begin(schema)
        try:
            while True:
                kind, content = self._next()
                if kind == frames.END:
                    return
                if kind == frames.FAILURE:
                    raise frames.failure_of(content)
                yield from frames.rows_of(content, schema)
        finally:
            self._end()

    def cancel(self) -> None:
        """Stop the query, or keep it from starting. Twice is fine."""
        with self._lock:
            first = not self._cancelled.is_set()
            self._cancelled.set()
            if not first or self._connected is None:
                return
            child, connection = self._connected
            if self._answered:  # Spark is done: it is only the rows that nobody wants
                self._let_go()
                return
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        timer = threading.Timer(_CANCEL_SECONDS, self._kill_if_running, (child,))
        timer.daemon = True
        timer.start()

    def _begin(self, schema: pa.Schema) -> None:
        if self._cancelled.is_set():
            raise cancelled()
        give_back = self._take()
        try:
            connected = self._processes.connect()
        except BaseException:
            give_back()
            raise
        with self._lock:
            self._connected, self._give_back = connected, give_back
            if self._cancelled.is_set():
                self._let_go()
                raise cancelled()
        child, connection = connected
        connection.settimeout(_START_SECONDS)  # a large request fits into the socket only when it is read
        try:
            frames.send(connection, frames.REQUEST, pickle.dumps((*self._query, schema)))
        except OSError:
            error = cancelled() if self._cancelled.is_set() else child.failure(_END_SECONDS)
            self._end()
            raise error from None

    def _next(self) -> tuple[bytes, bytearray]:
        """The next frame. What goes wrong on the way says why the process ended."""
        with self._lock:
            if self._connected is None:
                raise cancelled()
            child, connection = self._connected
        try:
            if not child.ready.wait(_START_SECONDS):
                raise self._over(child, Unavailable(f"Spark for queries did not start within {_START_SECONDS:g} s"))
            connection.settimeout(self._seconds + _GRACE_SECONDS)
            told: tuple[bytes, bytearray] | None = receive_frame(connection)
        except TimeoutError:
            raise self._over(child, TooLong(f"stopped after {self._seconds:g} s: limit query_seconds")) from None
        except (OSError, BrokenStream):
            told = None
        with self._lock:
            self._answered = True
            if self._connected is None:  # let go by a cancel, which closed the connection
                raise cancelled()
        if told is None:
            error = child.failure(_END_SECONDS)  # waits for its end, so that no other query is given to it
            raise cancelled() if self._cancelled.is_set() else error
        if told[0] not in (frames.ROWS, frames.END, frames.FAILURE):
            raise self._over(child, Crashed("Spark for queries sent an invalid answer"))
        return told

    def _over(self, child: Child, error: LakerunnerError) -> LakerunnerError:
        child.kill()
        return error

    def _end(self) -> None:
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        """Under the lock."""
        if self._connected is not None:
            child, connection = self._connected
            self._connected = None
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            connection.close()
            self._processes.put_back(child)
        self._give_back()

    def _kill_if_running(self, child: Child) -> None:
        with self._lock:
            running = self._connected is not None and not self._answered
        if running:
            child.kill()


def _nothing() -> None:
    """There is no place to give back."""
