"""Queries in Spark for the API: each leases a process that runs nothing else (process.py), in the share of its
organization, for as long as its answer lives.

What always holds: a query gives its process and its place back when it has ended, failed or been cancelled, and not
before its jobs have ended. One that does not end in time, nor when it is cancelled, ends with the process that runs it.
As long as one organization may run fewer queries than all may, it cannot keep the others out.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition
from uuid import UUID

import pyarrow as pa

from lakerunner.model.display import plural
from lakerunner.model.errors import Busy, Crashed, LakerunnerError, TooLong, Unavailable, UserError
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.model.segment import Segment
from lakerunner.pipeline.ask import frames
from lakerunner.pipeline.ask.process import Child, QueryProcesses
from lakerunner.pipeline.ask.run import cancelled
from lakerunner.plan.spark import SparkPlan

_START_SECONDS = 180.0  # three Java processes may start at once on a small machine
_GRACE_SECONDS = 15.0  # for a query that is over its time to stop by itself
_CANCEL_SECONDS = 10.0  # planning cannot be interrupted; tasks end within four
_END_SECONDS = 20.0


@dataclass(frozen=True)
class ShareLimits:
    """Queries at once in all, and of one organization; how many seconds one waits for its turn."""

    in_all: int = 2
    of_one: int = 1
    wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.in_all < 1:
            raise UserError(f"query_spark_concurrency must be 1 or more, not {self.in_all}")
        if self.of_one < 1:
            raise UserError(f"org_concurrent_spark_queries must be 1 or more, not {self.of_one}")


class Shares:
    """Safe to use from many threads."""

    def __init__(self, limits: ShareLimits) -> None:
        self._limits = limits
        self._running: Counter[UUID] = Counter()
        self._left = Condition()

    def take(self, organization: UUID) -> Callable[[], None]:
        """Wait for a place and return what gives it back; calling that twice is fine. Busy after the wait."""
        limits = self._limits
        with self._left:
            if not self._left.wait_for(lambda: self._has_room(organization), limits.wait_seconds):
                raise Busy(self._reason(organization))
            self._running[organization] += 1
        held = [organization]

        def give_back() -> None:
            with self._left:
                if held:
                    self._running[held.pop()] -= 1
                    self._running += Counter()  # forget the organizations that run nothing
                    self._left.notify_all()

        return give_back

    def _has_room(self, organization: UUID) -> bool:
        return self._running[organization] < self._limits.of_one and self._running.total() < self._limits.in_all

    def _reason(self, organization: UUID) -> str:
        limits, waited = self._limits, f"and none ended within {self._limits.wait_seconds:g} s: try again later"
        if self._running[organization] >= limits.of_one:
            return f"your organization runs {limits.of_one} in Spark (org_concurrent_spark_queries), {waited}"
        return f"Spark runs {plural(limits.in_all, 'query', 'queries')} (query_spark_concurrency), {waited}"


class QuerySpark:
    """Spark for queries: a Spark (query/outgrown.py) for SQL that runs whole, and a TaskPool (query/workers.py) for
    units. Safe to use from many threads. `seconds` is the longest run of one query or unit, `slots` how many tasks run
    at once."""

    def __init__(self, processes: QueryProcesses, shares: Shares, seconds: float, slots: int = 1) -> None:
        self.slots = slots
        self._processes = processes
        self._shares = shares
        self._seconds = seconds

    def start(self, organization: UUID, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> SqlRun:
        """Return at once: the work begins when its rows are read. `segments` are those of each scan."""
        return SqlRun(self.lease(organization), plan, segments)

    def lease(self, organization: UUID) -> Lease:
        """Return at once: the process is leased when the first call needs it."""
        return Lease(self._processes, lambda: self._shares.take(organization), self._seconds)


class Lease:
    """One process for one query, from its first call on until it is closed. Safe to use from many threads."""

    def __init__(self, processes: QueryProcesses, take: Callable[[], Callable[[], None]], seconds: float) -> None:
        self._processes = processes
        self._take = take
        self._seconds = seconds
        self._opening = threading.Lock()  # held by the call that waits for the place and the process
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._give_back: Callable[[], None] | None = None
        self._failure: LakerunnerError | None = None
        self._calls: set[Call] = set()
        self._was_cut = False
        self._closed = False

    def start(self, content: bytes) -> Call:
        """Return at once: a task of this content, which runs when its chunks are read."""
        return self.call(frames.TASK, content)

    def call(self, kind: bytes, content: bytes) -> Call:
        return Call(self, kind, content, self._seconds)

    def close(self) -> None:
        """Cancel what still runs, and give the process and the place back when that has ended. Return at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            child, calls = self._child, list(self._calls)
        for call in calls:
            call.cancel()
        if child is None:
            return
        if calls or self._was_cut:
            threading.Thread(target=self._settle, args=(child,), name="query-spark-settle", daemon=True).start()
        else:
            self._end(child)

    def connect(self, call: Call) -> tuple[Child, socket.socket]:
        """Open the connection of a call. The first one waits for a place; all that follow get the same process, or the
        same error."""
        with self._opening:
            self._refuse_closed()
            if self._failure is not None:
                raise self._failure
            try:
                child, connection = self._connect_again() if self._child else self._connect_first()
            except LakerunnerError as error:
                self._failure = error
                raise
        with self._lock:
            self._calls.add(call)
            closed = self._closed
        if closed:
            connection.close()
            self.ended(call)
            raise cancelled()
        return child, connection

    def ended(self, call: Call) -> None:
        with self._lock:
            self._calls.discard(call)
            self._was_cut = self._was_cut or not call.is_over

    def _refuse_closed(self) -> None:
        if self._closed:
            raise cancelled()

    def _connect_first(self) -> tuple[Child, socket.socket]:
        give_back = self._take()
        try:
            self._refuse_closed()
            child, connection = self._processes.connect()
        except BaseException:
            give_back()
            raise
        with self._lock:
            self._child, self._give_back = child, give_back
            closed = self._closed
        if closed:  # while we waited: `close` saw no process that it could give back
            connection.close()
            self._end(child)
            raise cancelled()
        return child, connection

    def _connect_again(self) -> tuple[Child, socket.socket]:
        child = self._child
        assert child is not None  # noqa: S101 - for mypy
        try:
            return child, child.connect()
        except OSError:
            raise child.failure(_END_SECONDS) from None

    def _settle(self, child: Child) -> None:
        """Wait until no job of this query runs; a process in which one does not stop is killed."""
        settled = False
        with suppress(OSError, BrokenStream):
            if child.ready.wait(_START_SECONDS):
                with child.connect() as connection:
                    connection.settimeout(_CANCEL_SECONDS)
                    frames.send(connection, frames.IDLE)
                    settled = receive_frame(connection)[0] == frames.END
        if not settled:
            child.kill()
        self._end(child)

    def _end(self, child: Child) -> None:
        self._processes.put_back(child)
        if self._give_back is not None:
            self._give_back()


class Call:
    """One request to a leased process, and its answer. `chunks` is read by one thread; any thread may cancel."""

    def __init__(self, lease: Lease, kind: bytes, content: bytes, seconds: float) -> None:
        self.is_over = False  # the process is done with it
        self._lease = lease
        self._request = kind, content
        self._seconds = seconds
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._connection: socket.socket | None = None

    def chunks(self) -> Iterator[bytearray]:
        """Run it, once, and give the bytes that it answers. Raise what went wrong."""
        if self._cancelled.is_set():
            raise cancelled()
        child, connection = self._lease.connect(self)
        try:
            with self._lock:
                self._connection = connection
                if self._cancelled.is_set():
                    raise cancelled()
            connection.settimeout(_START_SECONDS)  # a large request fits into the socket only when it is read
            self._send(child, connection)
            while True:
                kind, content = self._next(child, connection)
                self.is_over = kind != frames.ROWS
                if kind == frames.END:
                    return
                if kind == frames.FAILURE:
                    raise frames.read_failure(content)
                yield content
        finally:
            with self._lock:
                self._connection = None
            connection.close()
            self._lease.ended(self)

    def cancel(self) -> None:
        """Stop it, or keep it from starting. Return at once; cancelling twice is fine."""
        self._cancelled.set()
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it

    def _send(self, child: Child, connection: socket.socket) -> None:
        try:
            frames.send(connection, *self._request)
        except OSError:
            raise self._broken(child) from None

    def _next(self, child: Child, connection: socket.socket) -> tuple[bytes, bytearray]:
        """Return the next frame. What goes wrong on the way says why the process ended."""
        if not child.ready.wait(_START_SECONDS):
            child.kill()
            raise Unavailable(f"Spark for queries did not start within {_START_SECONDS:g} s")
        connection.settimeout(self._seconds + _GRACE_SECONDS)
        try:
            kind, content = receive_frame(connection)
        except TimeoutError:
            child.kill()
            raise TooLong(f"stopped after {self._seconds:g} s: limit query_seconds") from None
        except (OSError, BrokenStream):
            raise self._broken(child) from None
        if kind not in (frames.ROWS, frames.END, frames.FAILURE):
            child.kill()
            raise Crashed("Spark for queries sent an invalid answer")
        return kind, content

    def _broken(self, child: Child) -> LakerunnerError:
        return cancelled() if self._cancelled.is_set() else child.failure(_END_SECONDS)


class SqlRun:
    """A query that Spark SQL runs whole. `batches` is read by one thread; any thread may cancel."""

    def __init__(self, lease: Lease, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> None:
        self._lease = lease
        self._query = plan, segments

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Give the rows, once, in this schema."""
        try:
            for content in self._lease.call(frames.REQUEST, pickle.dumps((*self._query, schema))).chunks():
                yield from frames.read_rows(content, schema)
        finally:
            self._lease.close()

    def cancel(self) -> None:
        """Stop the query, or keep it from starting. Cancelling twice is fine."""
        self._lease.close()
