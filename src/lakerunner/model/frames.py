"""Frames between processes: one byte of kind, four bytes of length, the payload. Arrow's bytes are cut to fit them.

What always holds: a frame is read whole or not at all, and its length is bounded before memory is taken for it. Both
ends must agree on what the kinds mean; a stream of frames is complete only after the kind that ends it.
"""

from __future__ import annotations

import struct
from typing import Protocol

import pyarrow as pa

MAX_BYTES = 128 << 20
HEAD = struct.Struct(">cI")
_TOGETHER = 64 << 10  # head and payload up to this size go out in one call


class Connection(Protocol):
    """What is used of a socket. No module below the services opens one here."""

    def sendall(self, data: bytes | memoryview, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...


class BrokenStream(Exception):
    """The other side closed its end, or sent what is not a frame."""


def frame(kind: bytes, payload: bytes) -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def send_frame(connection: Connection, kind: bytes, payload: bytes | memoryview = b"") -> None:
    head = HEAD.pack(kind, len(payload))
    if len(payload) <= _TOGETHER:
        connection.sendall(head + payload)
    else:
        connection.sendall(head)
        connection.sendall(payload)


def receive_frame(connection: Connection) -> tuple[bytes, bytearray]:
    """Return kind and payload. Raise BrokenStream at the end; TimeoutError where the connection has a timeout that
    passes."""
    kind, length = HEAD.unpack(_exactly(connection, HEAD.size))
    if length > MAX_BYTES:
        raise BrokenStream(f"a frame of {length} bytes is longer than {MAX_BYTES}")
    return kind, _exactly(connection, length)


def _exactly(connection: Connection, size: int) -> bytearray:
    data = bytearray(size)
    with memoryview(data) as view:
        read = 0
        while read < size:
            try:
                count = connection.recv_into(view[read:])
            except TimeoutError:
                raise
            except OSError as error:
                raise BrokenStream(str(error)) from error
            if not count:
                raise BrokenStream("the other side closed its end")
            read += count
    return data


class Sink:
    """A file that Arrow writes to and that is emptied after each batch."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data

    def flush(self) -> None:
        """Nothing is buffered elsewhere."""

    def close(self) -> None:
        """The bytes stay until they are taken."""


class _Piece:
    """A file that Arrow reads: the payload of the last frame."""

    closed = False

    def __init__(self) -> None:
        self._data = memoryview(b"")

    def put(self, data: bytes | bytearray) -> None:
        self._data = memoryview(data)

    def read(self, size: int = -1) -> memoryview:
        end = len(self._data) if size < 0 else size
        taken, self._data = self._data[:end], self._data[end:]
        return taken

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is held."""


class BatchEncoder:
    """Encode batches of one schema as payloads: `schema` first, then one for each batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema.serialize().to_pybytes()
        self._pieces = Sink()
        self._writer = pa.ipc.new_stream(self._pieces, schema)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._pieces.take()


class BatchDecoder:
    """Decode what BatchEncoder encoded. Arrow raises its own exceptions for payloads that it cannot read."""

    def __init__(self, schema: bytes | bytearray) -> None:
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(schema))
        self._piece = _Piece()
        self._reader: pa.RecordBatchReader | None = None

    def decode(self, payload: bytes | bytearray) -> pa.RecordBatch:
        self._piece.put(payload)
        if self._reader is None:  # Arrow writes the stream's own schema in front of the first batch
            self._reader = pa.ipc.open_stream(self._piece)
        batch = self._reader.read_next_batch()
        batch.validate()
        return batch
