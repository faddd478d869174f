"""SQL over HTTP: POST /api/v1/sql {"query": "..."}; the Accept header chooses JSON, NDJSON or SSE.

JSON is whole or an error status, and bounded in size. NDJSON and SSE send rows as they come; when a query fails on
the way, NDJSON ends with an `{"error": ...}` line and a cut connection, SSE with an `error` event instead of `done`. So
no client can take part of an answer for the whole.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import anyio
import orjson
import pyarrow as pa
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import read_json
from lakerunner.api.errors import error_body
from lakerunner.api.limits import QueryLimits
from lakerunner.api.stream import Broken, Stream, in_thread, while_connected, with_heartbeat
from lakerunner.model.caller import Role
from lakerunner.model.errors import LakerunnerError, TooLarge, UserError
from lakerunner.query.answer import Answer
from lakerunner.query.engine import Engine, Question
from lakerunner.query.rows import json_rows

QUERY_MAX_BYTES = 1 << 20
JSON_MAX_BYTES = 64 << 20
HEARTBEAT_SECONDS = 10.0
_logger = logging.getLogger("lakerunner.api.sql")


@dataclass(frozen=True)
class SqlApi:
    """`now_ns` is the clock, handed in."""

    engine: Engine
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits

    def routes(self) -> list[Route]:
        return [Route("/api/v1/sql", self.query, methods=["POST"])]

    async def query(self, request: Request) -> Response:
        send = _format_for(request.headers.get("accept", "*/*"))
        caller = await to_thread.run_sync(self.authenticator.caller, request.headers, Role.READ)
        body = await read_json(request, QUERY_MAX_BYTES)
        text = body.get("query")
        if not isinstance(text, str) or set(body) != {"query"}:
            raise UserError('the body must be {"query": "select ..."}')
        slot = await while_connected(request, self.limits.slot(caller))
        try:
            question = Question(text, self.now_ns())
            answer = await to_thread.run_sync(self.engine.sql, caller.organization.id, question)
        except BaseException:
            slot.release()
            raise
        close = _once(answer.close, slot.release)
        try:
            return await while_connected(request, send(answer, close))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(close)
            raise


def _once(close: Callable[[], None], release: Callable[[], None]) -> Callable[[], None]:
    """Close the answer and give back its slot, from any thread, the first time this is called."""
    left = iter([None])

    def finish() -> None:
        for _ in left:
            close()
            release()

    return finish


async def _json(answer: Answer, close: Callable[[], None]) -> Response:
    parts: list[bytes] = []
    size = 0
    async with aclosing(in_thread(iter(answer))) as batches:
        async for batch in batches:
            rows = list(json_rows(batch))
            size += sum(map(len, rows)) + len(rows)
            if size > JSON_MAX_BYTES:
                raise TooLarge(
                    f"the answer is larger than {JSON_MAX_BYTES} bytes as JSON: add a LIMIT, or stream it with "
                    "`Accept: application/x-ndjson`"
                )
            parts.extend(rows)
    head = b'{"columns":' + orjson.dumps(_columns(answer.schema)) + b',"rows":['
    tail = b'],"row_count":%d}' % len(parts)
    await to_thread.run_sync(close)
    return Response(head + b",".join(parts) + tail, media_type="application/json")


async def _ndjson(answer: Answer, close: Callable[[], None]) -> Response:
    batches = in_thread(iter(answer))
    first = await anext(batches, None)  # so that a query that fails at once gets its status

    async def lines() -> AsyncGenerator[bytes]:
        try:
            if first is not None:
                yield _lines(first)
            async for batch in batches:
                yield _lines(batch)
        except Exception as error:
            _log_bug(error)
            yield orjson.dumps({"error": error_body(error)}) + b"\n"
            raise Broken from error

    return Stream(lines(), "application/x-ndjson", close)


async def _sse(answer: Answer, close: Callable[[], None]) -> Response:
    async def events() -> AsyncGenerator[bytes]:
        rows = 0
        try:
            schema = await to_thread.run_sync(lambda: answer.schema, abandon_on_cancel=True)
            yield _event({"type": "schema", "columns": _columns(schema)})
            async for batch in in_thread(iter(answer)):
                rows += batch.num_rows
                yield b"".join(b'data: {"type":"result","data":' + row + b"}\n\n" for row in json_rows(batch))
        except Exception as error:  # noqa: BLE001 - reported to the client, and logged where it is a bug
            _log_bug(error)
            yield _event({"type": "error", "error": error_body(error)})
            return
        yield _event({"type": "done", "complete": True, "row_count": rows})

    beating = with_heartbeat(events(), _event({"type": "heartbeat"}), HEARTBEAT_SECONDS)
    return Stream(beating, "text/event-stream", close)


Format = Callable[[Answer, Callable[[], None]], Awaitable[Response]]
FORMATS: dict[str, Format] = {
    "application/json": _json,
    "application/x-ndjson": _ndjson,
    "text/event-stream": _sse,
}


def _format_for(accept: str) -> Format:
    for wanted in accept.split(","):
        name = wanted.partition(";")[0].strip().lower()
        if name in FORMATS:
            return FORMATS[name]
        if name in ("*/*", "application/*", ""):
            return _json
    raise HTTPException(406, f"Accept {accept!r} is not served here: ask for {', '.join(FORMATS)}")


def _columns(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def _lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(row + b"\n" for row in json_rows(batch))


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _log_bug(error: Exception) -> None:
    if not isinstance(error, LakerunnerError):
        _logger.error("a query failed", exc_info=error)
