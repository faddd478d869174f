"""The answer of a unit as bytes, for a worker in another process: what HTTP and Spark's tasks both carry.

An answer is a sequence of frames: one byte of kind, four bytes of length (big-endian), that many bytes. `A` is a piece
of one Arrow IPC stream, `E` an error as JSON, `Z` the end, with the account (query/contract/account.py) as JSON. An
answer without `Z` is not whole, whatever the transport reports. docs/formats/workers.md has all of it.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa

from lakerunner.model.errors import Corrupt, LakerunnerError, error_from_body, error_to_body
from lakerunner.model.frames import HEAD, Sink, frame
from lakerunner.plan.operator import Operator
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account

_ARROW, _ERROR, _END = b"A", b"E", b"Z"
# What a frame raises that no worker of ours wrote. Arrow's own exceptions are ValueErrors and OSErrors, or neither.
_NOT_AN_ANSWER = (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException)


def answer_frames(answer: Answer, operator: Operator, report: Callable[[Exception], None]) -> Iterator[bytes]:
    """Give the answer's frames as its results come. `report` gets an error before it is sent; what it raises
    itself ends the frames without a word."""
    sink = Sink()
    try:
        writer = pa.ipc.new_stream(sink, answer.schema)
        for batch in operator.encode(answer):
            writer.write_batch(batch)
            yield frame(_ARROW, sink.take())
        writer.close()
        last = frame(_ARROW, sink.take()) + frame(_END, orjson.dumps(answer.account.to_json()))
    except Exception as error:  # noqa: BLE001 - sent, and reported
        report(error)
        yield error_frame(error)
        return
    yield last


def error_frame(error: Exception) -> bytes:
    """Return the frame of a unit that failed."""
    segment = {"segment": str(error.segment)} if isinstance(error, Corrupt) and error.segment else {}
    return frame(_ERROR, orjson.dumps(error_to_body(error) | segment))


class FramedAnswer(ABC):
    """An Answer (query/answer.py) whose frames come in chunks, cut anywhere. A transport derives from it. `checked`:
    the chunks come from a process that is not trusted, so Arrow's data is validated in full."""

    def __init__(self, chunks: Iterator[bytes | bytearray], operator: Operator, *, checked: bool = False) -> None:
        self._operator = operator
        self._checked = checked
        self._bytes = _ArrowBytes(chunks, self._lost)
        self._reader: pa.RecordBatchReader | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._open().schema

    @property
    def account(self) -> Account:
        return self._bytes.account

    @property
    def is_whole(self) -> bool:
        """Whether the end was read."""
        return self._bytes.is_whole

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._operator.decode(self._batches(self._open()))
            self._bytes.read_to_end()
        except _NOT_AN_ANSWER as error:
            raise self._lost(error) from error
        finally:
            self.close()

    @abstractmethod
    def close(self) -> None:
        """Stop the work, from any thread. Closing twice is fine."""

    @abstractmethod
    def _lost(self, error: Exception) -> LakerunnerError:
        """Return what to raise where the chunks end, fail or make no sense."""

    def _open(self) -> pa.RecordBatchReader:
        if self._reader is None:
            try:
                self._reader = pa.ipc.open_stream(self._bytes)
            except _NOT_AN_ANSWER as error:
                raise self._lost(error) from error
        return self._reader

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if self._checked:
                batch.validate(full=True)
            yield batch


class _ArrowBytes(io.RawIOBase):
    """The Arrow bytes inside the frames, as a file."""

    def __init__(self, chunks: Iterator[bytes | bytearray], lost: Callable[[Exception], LakerunnerError]) -> None:
        super().__init__()
        self.account = Account()
        self.is_whole = False
        self._chunks = chunks
        self._lost = lost
        self._wire = bytearray()
        self._arrow = bytearray()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self.is_whole and (size < 0 or len(self._arrow) < size):
            self._next_frame()
        take = len(self._arrow) if size < 0 else size
        data = bytes(self._arrow[:take])
        del self._arrow[:take]
        return data

    def read_to_end(self) -> None:
        """Read the end, and what the transport sends behind it, so that its connection can be used again."""
        while not self.is_whole:
            self._next_frame()
        with suppress(Exception):  # the answer is whole
            for _ in self._chunks:
                pass

    def _next_frame(self) -> None:
        kind, length = HEAD.unpack(self._exactly(HEAD.size))
        data = self._exactly(length)
        if kind == _ARROW:
            self._arrow += data
        elif kind == _ERROR:
            raise error_from_body(orjson.loads(data))
        elif kind == _END:
            self.account = Account.from_json(orjson.loads(data))
            self.is_whole = True
        else:
            raise ValueError(f"a frame of kind {kind!r}")

    def _exactly(self, size: int) -> bytes:
        while len(self._wire) < size:
            try:
                self._wire += next(self._chunks)
            except LakerunnerError:
                raise
            except Exception as error:
                raise self._lost(error) from error
        data = bytes(self._wire[:size])
        del self._wire[:size]
        return data
