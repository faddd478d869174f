"""The formats of rows, the table FORMATS of them, and the choice by `format` or by the Accept header.

docs/formats/sql_api.md describes each format and how it writes values.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from difflib import get_close_matches
from typing import Any, Protocol

import orjson
import pyarrow as pa
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import (
    Format,
    closing_fields,
    column_list,
    log_bug,
    schema_of,
    stream_chunks,
    too_large,
    warning_headers,
    write_batches,
)
from lakerunner.api.formats.parquet_stream import PARQUET_TYPE, ParquetStream
from lakerunner.api.stream import Broken, Close, Stream, with_idle_events
from lakerunner.model.errors import UserError
from lakerunner.model.frames import Sink
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.row_text import csv_header, csv_rows, json_rows

HEARTBEAT_SECONDS = 10.0
PROGRESS_SECONDS = 0.5
JSON_MAX_BYTES = 64 << 20
PARQUET_MAX_BYTES = 64 << 20
_ANY = ("*/*", "application/*", "")


async def _respond_json(answer: Answer, close: Close) -> Response:
    """Respond with one object of columns, rows and the closing fields: complete or an error status, limited in size."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(write_batches(answer, lambda batch: list(json_rows(batch)))) as batches:
        async for rows in batches:
            size += sum(map(len, rows)) + len(rows)
            if size > JSON_MAX_BYTES:
                raise too_large("JSON", JSON_MAX_BYTES)
            parts.extend(rows)
    tail = orjson.dumps({"row_count": len(parts), **closing_fields(answer.account)})

    def whole() -> bytes:
        close()
        head = b'{"columns":' + orjson.dumps(column_list(answer.schema)) + b',"rows":['
        return head + b",".join(parts) + b"]," + tail[1:]

    return Response(await to_thread.run_sync(whole), media_type=JSON.media_type)


JSON = Format("json", "application/json", _respond_json, partial=False)


def _streamed(
    name: str, media_type: str, chunks: Callable[[Answer], AsyncGenerator[bytes]], parameters: str = ""
) -> Format:
    """Return a format whose chunks are sent as they come."""

    async def respond(answer: Answer, close: Close) -> Response:
        return await stream_chunks(answer, close, media_type + parameters, chunks(answer))

    return Format(name, media_type, respond)


async def _ndjson_lines(answer: Answer) -> AsyncGenerator[bytes]:
    """Yield a line per row. A query that fails later ends with an `{"error": ...}` line and is cut off."""
    begun = False
    try:
        async for lines in write_batches(answer, _write_ndjson):
            yield lines
            begun = True
    except Exception as error:
        if not begun:
            raise
        log_bug(error)
        yield orjson.dumps({"error": error_body(error)}) + b"\n"
        raise Broken from error


def _write_ndjson(batch: pa.RecordBatch) -> bytes:
    return b"".join(row + b"\n" for row in json_rows(batch))


NDJSON = _streamed("ndjson", "application/x-ndjson", _ndjson_lines)


async def _csv_lines(answer: Answer) -> AsyncGenerator[bytes]:
    """Yield a line of names and a line per row. The names are sent with the first rows, so that a query that fails
    before them has an error status."""
    head = csv_header((await schema_of(answer)).names)
    async for lines in write_batches(answer, csv_rows):
        yield head + lines
        head = b""
    yield head


CSV = _streamed("csv", "text/csv", _csv_lines, "; charset=utf-8; header=present")


async def _arrow_messages(answer: Answer) -> AsyncGenerator[bytes]:
    """Yield an Arrow IPC stream. If the query fails, it is cut off without an end-of-stream mark."""
    sink = Sink()
    writer = pa.ipc.new_stream(sink, await schema_of(answer))

    def message(batch: pa.RecordBatch) -> bytes:
        writer.write_batch(batch)
        return sink.take()

    async for data in write_batches(answer, message):
        yield data
    writer.close()
    yield sink.take()


ARROW = _streamed("arrow", "application/vnd.apache.arrow.stream", _arrow_messages)


async def _respond_parquet(answer: Answer, close: Close) -> Response:
    """Respond with a Parquet file: complete or an error status, limited in size, because its footer is at its end."""
    file = _open_parquet(await schema_of(answer))
    parts: list[bytes] = []
    size = 0
    async with aclosing(write_batches(answer, file.add)) as batches:
        async for data in batches:
            size += len(data)
            if size > PARQUET_MAX_BYTES:
                raise too_large("Parquet", PARQUET_MAX_BYTES)
            parts.append(data)
    parts.append(await to_thread.run_sync(file.finish))
    if size + len(parts[-1]) > PARQUET_MAX_BYTES:
        raise too_large("Parquet", PARQUET_MAX_BYTES)
    headers = warning_headers(answer.account)
    await to_thread.run_sync(close)
    return Response(b"".join(parts), headers=headers, media_type=PARQUET.media_type)


def _open_parquet(schema: pa.Schema) -> ParquetStream:
    try:
        return ParquetStream(schema)
    except pa.ArrowNotImplementedError as error:
        raise UserError(f"cannot write the answer as Parquet: {error}. Cast the column to VARCHAR") from error


PARQUET = Format("parquet", PARQUET_TYPE, _respond_parquet)


async def _respond_sse(answer: Answer, close: Close) -> Response:
    """Respond with server-sent events: the schema, rows as they come, progress and heartbeats, and exactly one closing
    event. `done` closes an answer that reached its end and says whether it is complete; `error` one that failed."""
    return Stream(_events(answer), SSE.media_type, close)


async def _events(answer: Answer) -> AsyncGenerator[bytes]:
    rows = _RowEvents(answer)
    progress = ProgressEvents(answer, lambda kind, fields: _event({"type": kind, **(fields or {})}), HEARTBEAT_SECONDS)
    every = min(PROGRESS_SECONDS, HEARTBEAT_SECONDS)
    try:
        async for chunk in with_idle_events(rows.events(), progress.after, every):
            yield chunk
    except Exception as error:  # noqa: BLE001 - reported to the client, and logged where it is a bug
        log_bug(error)
        yield _event({"type": "error", "error": error_body(error)})
        return
    yield _event({"type": "done", "row_count": rows.count, **closing_fields(answer.account)})


class _RowEvents:
    """The events of the schema and the rows, and the count of rows so far."""

    def __init__(self, answer: Answer) -> None:
        self.count = 0
        self._answer = answer

    async def events(self) -> AsyncGenerator[bytes]:
        yield _event({"type": "schema", "columns": column_list(await schema_of(self._answer))})
        async for count, events in write_batches(self._answer, _write_events):
            self.count += count
            yield events


def _write_events(batch: pa.RecordBatch) -> tuple[int, bytes]:
    return batch.num_rows, b"".join(b'data: {"type":"result","data":' + row + b"}\n\n" for row in json_rows(batch))


class HasAccount(Protocol):
    """An answer whose account grows while it runs."""

    @property
    def account(self) -> Account: ...


class ProgressEvents:
    """A progress event when the number of done segments has changed; a heartbeat after a long silence. `event` encodes
    an event of a type, with its fields if it has any."""

    def __init__(
        self, answer: HasAccount, event: Callable[[str, dict[str, Any] | None], bytes], heartbeat_seconds: float
    ) -> None:
        self._answer = answer
        self._event = event
        self._heartbeat_seconds = heartbeat_seconds
        self._last = (0, 0)

    def after(self, silent_seconds: float) -> bytes | None:
        """Return the event to send after this many seconds without one; None if there is none yet."""
        account = self._answer.account
        now = (account.done, account.considered)
        if now != self._last:
            self._last = now
            return self._event("progress", {"segments_done": now[0], "segments_total": now[1]})
        return self._event("heartbeat", None) if silent_seconds >= self._heartbeat_seconds else None


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


SSE = Format("sse", "text/event-stream", _respond_sse, partial=True)


FORMATS = {one.name: one for one in (JSON, NDJSON, CSV, ARROW, PARQUET, SSE)}
_BY_MEDIA_TYPE = {one.media_type: one for one in FORMATS.values()}


def format_named(name: str) -> Format:
    """Return a format by name; the error for an unknown name suggests a near one."""
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}"
    raise UserError(f"unknown format {name!r}: {hint}")


def format_accepted(accept: str) -> Format:
    """Return the format that the client prefers; JSON if it accepts anything."""
    for name in sorted(accept.split(","), key=_liking, reverse=True):
        media_type = name.partition(";")[0].strip().lower()
        if media_type in _BY_MEDIA_TYPE:
            return _BY_MEDIA_TYPE[media_type]
        if media_type in _ANY:
            return JSON
    raise HTTPException(
        406, f"none of the types in Accept {accept!r} is supported: request one of {', '.join(_BY_MEDIA_TYPE)}"
    )


def _liking(media_type: str) -> float:
    """Return the `q` of one part of an Accept header."""
    for parameter in media_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
