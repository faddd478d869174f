"""What passes between the API and the process that runs its queries in Spark (serve.py), in frames (model/frames.py).

What always holds: an answer is JSON or Arrow IPC and is read as nothing else, because the process that wrote it has run
a stranger's query; only a request, which comes from the API, is a pickle.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import pyarrow as pa

from lakerunner.model.errors import (
    Absent,
    Corrupt,
    Crashed,
    LakerunnerError,
    TooLarge,
    TooLong,
    Unavailable,
    UserError,
)
from lakerunner.model.frames import MAX_BYTES, send_frame

ROWS, END, FAILURE = b"A", b".", b"E"  # of an answer
REQUEST = b"Q"  # a pickle: SQL that runs whole, and what a process needs to know
TASK, IDLE = b"T", b"I"  # the content of a task, in bytes; a question that is answered when no job runs
READY, ENDED = b"R", b"X"  # what the process says of itself
_MAX_MESSAGE = 4000
_ERRORS: dict[str, type[LakerunnerError]] = {
    kind.__name__: kind for kind in (UserError, TooLarge, TooLong, Unavailable, Crashed, Corrupt, Absent)
}


def send(connection: socket.socket, kind: bytes, content: bytes | memoryview = b"") -> None:
    """Send one frame. TooLarge if it is longer than a frame may be."""
    if len(content) > MAX_BYTES:
        raise TooLarge(
            f"{len(content)} bytes are more than Spark can hand over at once ({MAX_BYTES}): "
            "select fewer rows or columns"
        )
    send_frame(connection, kind, content)


def write_rows(batch: pa.RecordBatch) -> memoryview:
    """Return the batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


def read_rows(content: bytearray, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the batches. Crashed if this is not Arrow, or of another schema, or contradicts itself."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise Crashed(f"cannot read the rows that Spark for queries sent: {error}") from None
    if table.schema != schema:
        raise Crashed("Spark for queries sent rows with an unexpected schema")
    return list(table.to_batches())


def write_failure(error: LakerunnerError) -> bytes:
    """Return the error as JSON."""
    kind = next((name for name, kind in _ERRORS.items() if type(error) is kind), "Crashed")
    return json.dumps({"kind": kind, "message": str(error)[:_MAX_MESSAGE]}).encode()


def read_failure(content: bytearray) -> LakerunnerError:
    """Return the error that a failure frame names."""
    found = read_object(content)
    kind, message = found.get("kind"), found.get("message")
    if not isinstance(kind, str) or not isinstance(message, str) or kind not in _ERRORS:
        return Crashed("cannot read the error that Spark for queries sent")
    return _ERRORS[kind](message[:_MAX_MESSAGE])


def read_object(content: bytearray) -> dict[str, Any]:
    """Return the JSON object, an empty one for anything else."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
