"""The inside of a sandbox: reads requests, answers with rows or an error, one at a time, until the server closes its
end.

    run     SQL over views of its own files and over streams of rows: a schema, batches, the end
    types   names and types that a SELECT gives over an empty relation
    syntax  whether DuckDB can parse a text, and where not

Invariants: each request has its own DuckDB connection, the SQL is checked (guard.py) before it runs, and a request ends
with exactly one frame of kind END, VALUE or ERROR. A cancelled request ends with ERROR.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.frames import BatchDecoder, BrokenStream, receive_frame
from lakerunner.query.sandbox.guard import check_sql
from lakerunner.query.sandbox.protocol import BATCH, CANCEL, END, ERROR, REQUEST, VALUE, send_batches, send_json
from lakerunner.query.segment_cache.sql_text import quoted

_MAX_STREAMS = 64
_BATCH_ROWS = 2048  # the size of DuckDB's vectors: the first rows are sent as soon as there are any
_BATCH_BYTES = 16 << 20
_ROW_BYTES = 64 << 20  # the limit of a whole answer in JSON
_MESSAGE_CHARACTERS = 4096
_INTERRUPT_EVERY = 0.01
_JSON_ERROR = re.compile(r"([A-Za-z][A-Za-z ]*? Error: )(\{.*\})", re.DOTALL)
_EXPLAIN = "EXPLAIN (FORMAT json) "
_STREAM_SCAN = '"name": "PYTHON_ARROW_SCAN"'
_MOST_TYPE_LISTS = 1024
_arrow_types: dict[tuple[str, ...], tuple[pa.DataType, ...]] = {}


class _Cancelled(Exception):
    """The server has cancelled this request."""


class _Refused(Exception):
    """DuckDB's error for `_EXPLAIN` followed by the SQL."""

    def __init__(self, cause: duckdb.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Child:
    """Serves the requests of one sandbox. `root` is a locked instance (instance.py)."""

    def __init__(self, root: duckdb.DuckDBPyConnection, data: socket.socket, control: socket.socket) -> None:
        self._root = root
        self._data = data
        self._control = control
        self._state = threading.Condition()
        self._number = 0
        self._running: duckdb.DuckDBPyConnection | None = None
        self._cancelled = False

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            request, streams = _receive(self._data)
            with ExitStack() as held:
                for stream in streams:
                    held.enter_context(stream)
                try:
                    self._answer(request, streams)
                except BrokenPipeError:
                    return
                except BaseException as error:  # noqa: BLE001 - reported to the server, which decides what it means
                    send_json(self._data, ERROR, _describe_error(error, str(request.get("sql", ""))))

    def _answer(self, request: dict[str, Any], streams: list[socket.socket]) -> None:
        with closing(self._root.cursor()) as connection:
            with self._state:
                self._number, self._running, self._cancelled = request["number"], connection, False
            try:
                if request["do"] == "run":
                    self._run(connection, request, streams)
                else:
                    send_json(self._data, VALUE, _ANSWERS[request["do"]](connection, request))
            finally:
                with self._state:
                    self._running = None
                    self._state.notify_all()

    def _run(
        self, connection: duckdb.DuckDBPyConnection, request: dict[str, Any], streams: list[socket.socket]
    ) -> None:
        for name, sql in request["views"].items():
            connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS {sql}")
        names = request["streams"]
        for name, stream in zip(names, streams, strict=True):
            connection.register(name, _incoming(stream))
        sql = request["sql"]
        check_sql(connection, sql, {*request["views"], *names})
        if names:
            _materialize_if_read_twice(connection, sql, names)
        rows = _bound(connection, sql)
        types = arrow_types(connection, tuple(map(str, rows.types)))
        schema = _with_unique_names(pa.schema(list(zip(rows.columns, types, strict=True))))
        send_batches(self._data, schema, () if request["bind"] else self._batches(rows, schema))

    def _batches(self, rows: duckdb.DuckDBPyRelation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with closing(rows.to_arrow_reader(_BATCH_ROWS)) as reader:
            for batch in reader:
                for part in _split_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema)):
                    if self._cancelled:
                        raise _Cancelled
                    yield part

    def _listen(self) -> None:
        """Interrupt the request that the server names, repeatedly: DuckDB ignores an interrupt that comes before it
        begins."""
        while len(data := self._control.recv(CANCEL.size, socket.MSG_WAITALL)) == CANCEL.size:
            (number,) = CANCEL.unpack(data)
            with self._state:
                while self._running is not None and self._number == number:
                    self._cancelled = True
                    self._running.interrupt()
                    self._state.wait(_INTERRUPT_EVERY)
        os._exit(0)  # the server has closed its end


def _receive(data: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    head, descriptors, _, _ = socket.recv_fds(data, REQUEST.size, _MAX_STREAMS, socket.MSG_CMSG_CLOEXEC)
    if len(head) < REQUEST.size:
        os._exit(0)
    (length,) = REQUEST.unpack(head)
    body = bytearray()
    while len(body) < length:
        part = data.recv(length - len(body))
        if not part:
            os._exit(0)
        body += part
    return orjson.loads(body), [socket.socket(fileno=descriptor) for descriptor in descriptors]


def _incoming(stream: socket.socket) -> pa.RecordBatchReader:
    """Return a reader for the rows of one stream."""
    _, payload = receive_frame(stream)
    decoder = BatchDecoder(payload)

    def batches() -> Iterator[pa.RecordBatch]:
        while True:
            kind, payload = receive_frame(stream)
            if kind == END:
                return
            if kind != BATCH:
                raise BrokenStream(f"frame of kind {kind!r} among batches")
            yield decoder.decode(payload)

    return pa.RecordBatchReader.from_batches(decoder.schema, batches())


def _materialize_if_read_twice(connection: duckdb.DuckDBPyConnection, sql: str, relations: list[str]) -> None:
    """Put the streams into tables if DuckDB would read one of them twice, since a stream can be read only once.
    DuckDB's own plan decides: it may share the rows of a relation that the SQL names twice, or read a relation twice
    that it names once."""
    if _plan(connection, sql).count(_STREAM_SCAN) <= len(relations):
        return
    for name in relations:
        connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {quoted(name)}")
        connection.unregister(name)
        connection.execute(f"ALTER TABLE kept RENAME TO {quoted(name)}")


def _plan(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        (plan,) = connection.execute(f"{_EXPLAIN}{sql}").fetchall()
    except duckdb.Error as error:
        raise _Refused(error) from None
    return str(plan[1])


def _bound(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """Bind the SQL. DuckDB states a position for errors of EXPLAIN, but not for those of a relation."""
    try:
        return connection.sql(sql)
    except (duckdb.BinderException, duckdb.ConversionException):
        _plan(connection, sql)
        raise


def _split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split the batch into parts of bounded size; a single row may be larger, up to _ROW_BYTES."""
    if batch.nbytes <= _BATCH_BYTES or batch.num_rows <= 1:
        if batch.nbytes > _ROW_BYTES:
            size, most = batch.nbytes >> 20, _ROW_BYTES >> 20
            raise TooLarge(f"a row has {size} MiB, more than the {most} allowed: select fewer or smaller columns")
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _split_batch(batch.slice(0, middle))
    yield from _split_batch(batch.slice(middle))


def _with_unique_names(schema: pa.Schema) -> pa.Schema:
    """Rename a second column `n` to `n_1`, as DuckDB does in a subquery, so that a row can be a JSON object."""
    taken = set(schema.names)
    seen: set[str] = set()
    fields = []
    for field in schema:
        name = field.name
        if name in seen:
            name = next(new for n in count(1) if (new := f"{name}_{n}") not in taken)
            taken.add(name)
        seen.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


def _types(connection: duckdb.DuckDBPyConnection, request: dict[str, Any]) -> list[tuple[str, str]] | None:
    try:
        connection.execute(f"CREATE TEMP VIEW {quoted(request['relation'])} AS {request['empty']}")
        return [(name, type_) for name, type_, *_ in connection.execute(f"DESCRIBE {request['sql']}").fetchall()]
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        return None


def _syntax(connection: duckdb.DuckDBPyConnection, request: dict[str, Any]) -> dict[str, Any] | None:
    (serialized,) = connection.execute("SELECT json_serialize_sql(?)", [request["text"]]).fetchone() or ("{}",)
    parsed = json.loads(serialized)
    if not parsed.get("error"):
        return None
    return {"message": str(parsed["error_message"])[:_MESSAGE_CHARACTERS], "position": parsed.get("position")}


_ANSWERS = {"types": _types, "syntax": _syntax}


def _describe_error(error: BaseException, sql: str) -> dict[str, Any]:
    """Return what the server needs to name the error (query/contract/failures.py): its kind, DuckDB's own text, and the
    position in the SQL, if DuckDB states one."""
    if isinstance(error, _Refused):
        error, sql = error.cause, f"{_EXPLAIN}{sql}"
        before = len(_EXPLAIN)
    else:
        before = 0
    match error:
        case _Cancelled():
            kind = "cancelled"
        case TooLarge():
            kind = "large"
        case UserError():
            kind = "user"
        case MemoryError() | duckdb.OutOfMemoryException():
            kind = "memory"
        case RecursionError():
            kind = "deep"
        case duckdb.Error() | pa.ArrowException() | OSError() | BrokenStream():
            kind = "engine"
        case _:
            kind = "fault"
    message = error.message if isinstance(error, UserError) else str(error) or type(error).__name__
    message, at = _read_error(message)
    # DuckDB's position counts bytes.
    character = None if at is None else max(0, len(sql.encode()[:at].decode(errors="ignore")) - before)
    return {"kind": kind, "message": message[:_MESSAGE_CHARACTERS], "at": character}


def _read_error(message: str) -> tuple[str, int | None]:
    """Parse an error that DuckDB reports as JSON (instance.py) into its text and position; return other messages
    unchanged."""
    found = _JSON_ERROR.fullmatch(message.strip())
    try:
        given = json.loads(found[2]) if found else {}
    except ValueError:
        given = {}
    if not found or "exception_message" not in given:
        return message, None
    position = given.get("position")
    return f"{found[1]}{given['exception_message']}", int(position) if position else None


def arrow_types(connection: duckdb.DuckDBPyConnection, types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    """Return the Arrow types in which DuckDB exports these types. A reader has a schema only once the first rows have
    come, so DuckDB is asked for zero rows of these types. The result depends only on settings that are the same
    everywhere."""
    found = _arrow_types.get(types)
    if found is None:
        nothing = ", ".join(f"CAST(NULL AS {one})" for one in types)
        found = tuple(connection.sql(f"SELECT {nothing} LIMIT 0").to_arrow_table().schema.types)
        if len(_arrow_types) >= _MOST_TYPE_LISTS:
            _arrow_types.clear()
        _arrow_types[types] = found
    return found
