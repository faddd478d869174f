"""Rows on their way from many workers to one reader, within bounds.

There are two ways to wait: in a short queue that blocks its writers until the reader comes, or without blocking, in
memory and beyond a few megabytes in an unnamed file, which disappears when it is closed. Rows for a reader that may not
come for long must be spooled: a blocked writer keeps its worker's slot, and the reader may be waiting for that very
slot.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import IO

import pyarrow as pa

from lakerunner.model.errors import TooLarge, Unavailable

_QUEUE_BYTES = 32 << 20
_QUEUE_BATCHES = 256
_MEMORY_BYTES = 8 << 20


class ReaderGone(Exception):
    """The reader has left and needs no more rows."""


@dataclass(frozen=True)
class Spool:
    """Where rows wait on disk, and how many bytes of one leaf may. `directory` None: the temporary directory."""

    directory: Path | None = None
    max_bytes: int = 4 << 30


class Inflow(ABC):
    """Written by many threads, read by one."""

    def __init__(self) -> None:
        self._state = Condition()
        self._bytes = 0
        self._ended = False
        self._closed = False

    @abstractmethod
    def put(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises ReaderGone once it is closed."""

    def end(self) -> None:
        """State that all rows have been put."""
        with self._state:
            self._ended = True
            self._state.notify_all()

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, once. Ends after all rows, or when it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Close from any thread; closing twice is fine."""


class QueuedInflow(Inflow):
    """A queue of bounded batches and bytes; a larger batch waits alone."""

    def __init__(self) -> None:
        super().__init__()
        self._batches: deque[pa.RecordBatch] = deque()

    def put(self, batch: pa.RecordBatch) -> None:
        with self._state:
            self._state.wait_for(lambda: self._closed or self._has_room(batch.nbytes))
            if self._closed:
                raise ReaderGone
            self._batches.append(batch)
            self._bytes += batch.nbytes
            self._state.notify_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._take()) is not None:
            yield batch

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._batches.clear()
            self._state.notify_all()

    def _take(self) -> pa.RecordBatch | None:
        with self._state:
            self._state.wait_for(lambda: self._closed or self._ended or bool(self._batches))
            if not self._batches:
                return None
            batch = self._batches.popleft()
            self._bytes -= batch.nbytes
            self._state.notify_all()
            return batch

    def _has_room(self, more: int) -> bool:
        if not self._batches:
            return True
        return len(self._batches) < _QUEUE_BATCHES and self._bytes + more <= _QUEUE_BYTES


class SpooledInflow(Inflow):
    """Never blocks writers; raises TooLarge past the spool's bytes. The reader waits for the end."""

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._memory: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._reading = False

    def put(self, batch: pa.RecordBatch) -> None:
        with self._state:
            if self._closed:
                raise ReaderGone
            self._bytes += batch.nbytes
            if self._bytes > self._spool.max_bytes:
                raise TooLarge(
                    f"the query gathers more than query_spool_bytes {self._spool.max_bytes} of one table's rows: "
                    "narrow its time range or filter more"
                )
            self._memory.append(batch)
            if self._bytes > _MEMORY_BYTES:
                self._write()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._state:
            self._state.wait_for(lambda: self._ended or self._closed)
            if self._closed:
                return
            self._reading = True
        yield from self._from_file()
        yield from self._memory

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._memory.clear()
            self._state.notify_all()
            if self._file is not None and not self._reading:  # else its reader closes it
                self._file.close()

    def _from_file(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None or self._file is None:
            return
        with self._file as file:
            self._writer.close()
            file.seek(0)
            yield from pa.ipc.open_stream(file)

    def _write(self) -> None:
        try:
            if self._writer is None:
                if self._spool.directory is not None:  # it may have been removed with the cache
                    self._spool.directory.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._spool.directory)  # noqa: SIM115 - close() closes it
                self._writer = pa.ipc.new_stream(self._file, self._memory[0].schema)
            for batch in self._memory:
                self._writer.write_batch(batch)
        except OSError as error:
            raise Unavailable(f"cannot write gathered rows to disk: {error.strerror or error}") from error
        self._memory.clear()
