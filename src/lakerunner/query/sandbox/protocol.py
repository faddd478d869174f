"""The protocol between server and sandbox: frames (model/frames.py) of JSON and Arrow, nothing else.

The server never unpickles what a sandbox sends, because a compromised engine may have made it. A request is answered by
a SCHEMA and BATCHes, closed by END, or by one VALUE, or by an ERROR. Streams of rows to a sandbox have the same form.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

import orjson
import pyarrow as pa

from lakerunner.model.frames import BatchEncoder, send_frame

SCHEMA, BATCH, END, ERROR, VALUE = b"S", b"A", b"Z", b"E", b"J"
REQUEST = struct.Struct(">I")  # before a request to a sandbox: the length of its JSON
CANCEL = struct.Struct(">I")  # on the control socket: the number of the request to cancel
_SOCKET_BYTES = 1 << 20


def socket_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    return pair


def send_json(connection: socket.socket, kind: bytes, value: Any) -> None:
    send_frame(connection, kind, orjson.dumps(value))


def send_batches(connection: socket.socket, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Send all batches, from the schema to the end. If an error interrupts it, the stream lacks its END."""
    encoder = BatchEncoder(schema)
    send_frame(connection, SCHEMA, encoder.schema)
    for batch in batches:
        send_frame(connection, BATCH, encoder.encode(batch))
    send_frame(connection, END)
