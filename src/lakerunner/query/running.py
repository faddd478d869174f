"""SQL that runs in a sandbox, as an answer: streamed, bounded, and stopped from any thread.

What always holds: it ends whole or with an error, and whatever ends it, all that it held is given back.
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
from lakerunner.query.account import Account
from lakerunner.query.failures import EngineError, Limits, cancelled, too_many_rows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.protocol import END, ERROR, send_batches, socket_pair

_STOP_SECONDS = 0.3  # for a sandbox to stop by itself and be used again; then it is killed
_OPEN_SECONDS = 5.0  # that closing waits for what nothing interrupts, such as a fetch
_ANSWER_SECONDS = 5.0  # beyond the limit, at which DuckDB stops by itself
T = TypeVar("T")


class Source(Protocol):
    """Where the rows of the SQL's relations come from. For any thread."""

    @property
    def account(self) -> Account:
        """What it took so far."""

    @property
    def failure(self) -> Exception | None:
        """What went wrong there: a sandbox that reads a broken stream reports no more than that it broke."""

    def close(self) -> None:
        """Stop: whoever waits for it gets an error within a second. More than once is fine."""


@dataclass(frozen=True)
class Work:
    """SQL over `views` (relation -> SELECT over the sandbox's own files, or over nothing) and `streams` of rows.
    `bind`: only its columns are wanted, and nothing is run."""

    sql: str
    views: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, pa.RecordBatchReader] = field(default_factory=dict)
    bind: bool = False


class Running:
    """An Answer (query/answer.py) that a sandbox works out. One thread reads it; any thread may close it. `open_` lends
    the sandbox and says what it has to do; what it leaves in the stack is closed at the end."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        open_: Callable[[ExitStack], tuple[Sandbox, Work]],
        limits: Limits,
        source: Source,
    ) -> None:
        self._sandboxes = sandboxes
        self._open = open_
        self._limits = limits
        self._source = source
        self._held = ExitStack()
        self._sandbox: Sandbox | None = None
        self._batches: BatchDecoder | None = None
        self._sql = ""
        self._state = Condition()
        self._busy = False
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        if self._batches is None:
            self._batches = self._step(self._begin)
        return self._batches.schema

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

    def _begin(self) -> BatchDecoder:
        sandbox, work = self._open(self._held)
        self._sql = work.sql
        with self._state:
            self._sandbox = sandbox
            self._state.notify_all()
            if self._closed:  # while the segments were fetched, which nothing interrupts
                raise cancelled()
        request = {"do": "run", "sql": work.sql, "views": work.views, "streams": [*work.streams], "bind": work.bind}
        with ExitStack() as theirs:
            ends = [theirs.enter_context(self._pump(reader)) for reader in work.streams.values()]
            sandbox.request(request, ends)
        return BatchDecoder(self._frame())

    def _next(self) -> pa.RecordBatch | None:
        if self._sandbox is None or self._batches is None:
            raise cancelled()
        payload = self._frame()
        return self._batches.decode(payload) if payload else None

    def _frame(self) -> bytearray:
        """The payload of the next frame; empty at the end."""
        assert self._sandbox is not None  # noqa: S101 - for mypy: _begin has set it
        kind, payload = self._sandbox.next(self._limits.seconds + _ANSWER_SECONDS)
        if kind == ERROR:
            error = self._sandboxes.reported(self._sandbox, payload)
            if isinstance(error, EngineError):
                error.sql = self._sql
            raise error
        return bytearray() if kind == END else payload

    def _pump(self, rows: pa.RecordBatchReader) -> socket.socket:
        """Start to write the rows to a socket; its other end, for the sandbox."""
        ours, theirs = socket_pair()
        thread = Thread(target=_write, args=(ours, rows), name="sandbox-feed", daemon=True)
        self._held.callback(thread.join, _OPEN_SECONDS)
        self._held.callback(_shut, ours)
        thread.start()
        return theirs

    def _step(self, step: Callable[[], T]) -> T:
        """One step of the work. Whoever comes last, this or `close`, lets go of what is held."""
        with self._state:
            if self._closed:
                raise cancelled()
            self._busy = True
        try:
            result = step()
        except BaseException as error:  # noqa: BLE001 - raised again, or what it stands for
            stopped, self._closed = self._closed, True
            raise (self._explained(error, stopped) or error) from None
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
                if self._closed:
                    self._release()
        return result

    def _explained(self, error: BaseException, stopped: bool) -> Exception | None:
        """The error to raise in place of this one; None for itself."""
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
        self._source.close()  # a thread that writes a stream may wait for its rows
        if self._sandbox is not None and not self._sandbox.settle(_STOP_SECONDS):
            self._sandbox.kill()
        self._sandbox = None
        self._held.close()


def _shut(stream: socket.socket) -> None:
    with suppress(OSError):  # closed already, when it was written to its end
        stream.shutdown(socket.SHUT_RDWR)


def _write(sink: socket.socket, rows: pa.RecordBatchReader) -> None:
    """What breaks off is not ended: the sandbox sees a broken stream, and the reader of the answer the rows' error."""
    with sink, suppress(OSError, LakerunnerError, pa.ArrowException):
        send_batches(sink, rows.schema, rows)
