"""SQL that runs in a sandbox, as an answer: streamed, bounded, and stopped from any thread.

Invariant: it ends complete or with an error, and in either case releases everything that it held.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Protocol, TypeVar

import pyarrow as pa

from lakerunner.model.errors import LakerunnerError
from lakerunner.model.frames import BatchDecoder, BrokenStream
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import EngineError, Limits, cancelled, too_many_rows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.protocol import END, ERROR, send_batches, socket_pair

_STOP_SECONDS = 0.3  # for a sandbox to stop by itself and be used again; then it is killed
_OPEN_SECONDS = 5.0  # how long closing waits for what cannot be interrupted, such as a fetch
_ANSWER_SECONDS = 5.0  # beyond the time limit, at which DuckDB stops by itself
_NO_COLUMNS = pa.schema([])
T = TypeVar("T")


class RowSource(Protocol):
    """Where the rows of the SQL's relations come from. Any thread may use it."""

    @property
    def account(self) -> Account:
        """Return what it took so far."""

    @property
    def failure(self) -> Exception | None:
        """Return what went wrong at the source: a sandbox that reads a broken stream only reports that it broke."""

    def close(self) -> None:
        """Stop. A thread that waits for rows gets an error within a second. Closing twice is fine."""


@dataclass(frozen=True)
class Work:
    """SQL over `views` (relation -> SELECT over the sandbox's own files, or an empty one) and `streams` of rows.
    `bind`: only the columns are needed, and nothing is run."""

    sql: str
    views: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, pa.RecordBatchReader] = field(default_factory=dict)
    bind: bool = False


class Running:
    """An Answer (query/answer.py) that a sandbox computes. One thread reads it; any thread may close it. `open_` lends
    the sandbox and states its work, or returns None if there is nothing to run: then the answer has neither rows nor
    columns. What it puts on the stack is closed at the end."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        open_: Callable[[ExitStack], tuple[Sandbox, Work] | None],
        limits: Limits,
        source: RowSource,
    ) -> None:
        self._sandboxes = sandboxes
        self._open = open_
        self._limits = limits
        self._source = source
        self._held = ExitStack()
        self._sandbox: Sandbox | None = None
        self._begun = False
        self._batches: BatchDecoder | None = None
        self._sql = ""
        self._state = Condition()
        self._busy = False
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        if not self._begun:
            self._batches = self._step(self._begin)
            self._begun = True
        return self._batches.schema if self._batches else _NO_COLUMNS

    @property
    def account(self) -> Account:
        return self._source.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        _, rows = self.schema, 0
        try:
            while (batch := self._step(self._next)) is not None:
                rows += batch.num_rows
                if rows > self._limits.max_rows:
                    raise too_many_rows(self._limits)
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        with self._state:
            self._closed = True
        self._source.close()
        with self._state:
            if self._busy and self._sandbox is None:
                self._state.wait_for(lambda: not self._busy or self._sandbox is not None, _OPEN_SECONDS)
            if self._busy and self._sandbox is not None:
                self._sandbox.cancel()
                if not self._state.wait_for(lambda: not self._busy, _STOP_SECONDS):
                    self._sandbox.kill()
                    self._state.wait_for(lambda: not self._busy, _OPEN_SECONDS)
            if not self._busy:
                self._release()

    def _begin(self) -> BatchDecoder | None:
        opened = self._open(self._held)
        if opened is None:
            return None
        sandbox, work = opened
        self._sql = work.sql
        with self._state:
            self._sandbox = sandbox
            self._state.notify_all()
            if self._closed:  # while the segments were fetched, which cannot be interrupted
                raise cancelled()
        request = {"do": "run", "sql": work.sql, "views": work.views, "streams": [*work.streams], "bind": work.bind}
        with ExitStack() as theirs:
            ends = [theirs.enter_context(self._pump(reader)) for reader in work.streams.values()]
            sandbox.request(request, ends)
        return BatchDecoder(self._frame())

    def _next(self) -> pa.RecordBatch | None:
        if self._batches is None:
            return None
        if self._sandbox is None:
            raise cancelled()
        payload = self._frame()
        return self._batches.decode(payload) if payload else None

    def _frame(self) -> bytearray:
        """Return the payload of the next frame; empty at the end."""
        assert self._sandbox is not None  # noqa: S101 - for mypy: _begin has set it
        kind, payload = self._sandbox.next(self._limits.seconds + _ANSWER_SECONDS)
        if kind == ERROR:
            error = self._sandboxes.reported(self._sandbox, payload)
            if isinstance(error, EngineError):
                error.sql = self._sql
            raise error
        return bytearray() if kind == END else payload

    def _pump(self, rows: pa.RecordBatchReader) -> socket.socket:
        """Start a thread that writes the rows to a socket; return the sandbox's end of it."""
        ours, theirs = socket_pair()
        thread = Thread(target=_write, args=(ours, rows), name="sandbox-feed", daemon=True)
        self._held.callback(thread.join, _OPEN_SECONDS)
        self._held.callback(_shut_down, ours)
        thread.start()
        return theirs

    def _step(self, step: Callable[[], T]) -> T:
        """Run one step of the work. This or `close`, whichever comes last, releases what is held."""
        with self._state:
            if self._closed:
                raise cancelled()
            self._busy = True
        try:
            result = step()
        except BaseException as error:  # noqa: BLE001 - raised again, or what it stands for
            stopped, self._closed = self._closed, True
            raise (self._translate(error, stopped) or error) from None
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
                if self._closed:
                    self._release()
        return result

    def _translate(self, error: BaseException, stopped: bool) -> Exception | None:
        """Return the error to raise instead of this one; None to raise it unchanged."""
        if self._sandbox is None or not isinstance(
            error, LakerunnerError | BrokenStream | TimeoutError | pa.ArrowException
        ):
            return None
        if stopped:
            return cancelled()
        if self._source.failure is not None:
            return self._source.failure
        return None if isinstance(error, LakerunnerError) else self._sandboxes.failed(self._sandbox, error)

    def _release(self) -> None:
        self._source.close()  # a thread that writes a stream may be waiting for rows
        if self._sandbox is not None and not self._sandbox.settle(_STOP_SECONDS):
            self._sandbox.kill()
        self._sandbox = None
        self._held.close()


def _shut_down(stream: socket.socket) -> None:
    with suppress(OSError):  # already closed if it was written to its end
        stream.shutdown(socket.SHUT_RDWR)


def _write(sink: socket.socket, rows: pa.RecordBatchReader) -> None:
    """Write the rows. If they break off, the stream lacks its END: the sandbox sees a broken stream, and the answer's
    reader gets the source's error."""
    with sink, suppress(OSError, LakerunnerError, pa.ArrowException):
        send_batches(sink, rows.schema, rows)
