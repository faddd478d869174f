"""Frames on a socket between the server and a sandbox: one byte of kind, four bytes of length, the payload.

Comes in and goes out: JSON and Arrow IPC, nothing else. The server never unpickles what a sandbox sends, since a fault
in the engine may have made it. What always holds: a stream of frames is whole only when its end frame came; a socket
that closes before it raises BrokenStream.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import orjson
import pyarrow as pa

SCHEMA, BATCH, END, ERROR, VALUE = b"S", b"A", b"Z", b"E", b"J"
_KINDS = SCHEMA + BATCH + END + ERROR + VALUE
MAX_BYTES = 512 << 20  # of one frame; a sandbox cuts batches long before
REQUEST = struct.Struct(">I")  # in front of a request to a sandbox: its bytes of JSON
CANCEL = struct.Struct(">I")  # on the control socket: the number of the request to cancel
_HEAD = struct.Struct(">cI")
_SOCKET_BYTES = 1 << 20
_TOGETHER = 64 << 10  # head and payload up to this size go out in one call


class BrokenStream(Exception):
    """The other side closed its end, or sent what is no frame."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    return pair


def send_frame(sink: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    head = _HEAD.pack(kind, len(payload))
    if len(payload) <= _TOGETHER:
        sink.sendall(head + payload)
    else:
        sink.sendall(head)
        sink.sendall(payload)


def send_json(sink: socket.socket, kind: bytes, value: Any) -> None:
    send_frame(sink, kind, orjson.dumps(value))


class FrameReader:
    """The frames of one socket, in order. Closing the socket is the owner's business."""

    def __init__(self, source: socket.socket) -> None:
        self._file = source.makefile("rb", buffering=_TOGETHER)

    def next(self) -> tuple[bytes, bytes]:
        """Kind and payload. TimeoutError where the socket has a timeout that passes."""
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size))
        if kind not in _KINDS or length > MAX_BYTES:
            raise BrokenStream(f"frame of kind {kind!r} and {length} bytes")
        return kind, self._exactly(length)

    def close(self) -> None:
        self._file.close()

    def _exactly(self, size: int) -> bytes:
        try:
            data: bytes = self._file.read(size)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise BrokenStream(str(error)) from error
        if len(data) < size:
            raise BrokenStream("the other side closed its end")
        return data


class Piece:
    """A file that Arrow reads: the payload of the frame that came last."""

    closed = False

    def __init__(self) -> None:
        self._data = memoryview(b"")

    def put(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, size: int = -1) -> memoryview:
        end = len(self._data) if size < 0 else size
        taken, self._data = self._data[:end], self._data[end:]
        return taken

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is held."""


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


class BatchWriter:
    """Batches of one schema as frames: the schema first, then one frame for each batch, then the end."""

    def __init__(self, sink: socket.socket, schema: pa.Schema) -> None:
        self._socket = sink
        self._pieces = Sink()
        self._writer = pa.ipc.new_stream(self._pieces, schema)
        send_frame(sink, SCHEMA, schema.serialize().to_pybytes())

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        send_frame(self._socket, BATCH, self._pieces.take())

    def end(self) -> None:
        send_frame(self._socket, END)


class BatchReader:
    """The other side of BatchWriter. Frames of other kinds are the caller's to judge."""

    def __init__(self, schema_payload: bytes) -> None:
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(schema_payload))
        self._piece = Piece()
        self._reader: pa.RecordBatchReader | None = None

    def batch(self, payload: bytes) -> pa.RecordBatch:
        self._piece.put(payload)
        if self._reader is None:  # Arrow writes the stream's own schema in front of the first batch
            self._reader = pa.ipc.open_stream(self._piece)
        return self._reader.read_next_batch()
