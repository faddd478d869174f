"""Server-sent events: the schema, rows as they come, signs of life between them, and exactly one closing event.

`done` closes an answer that came to its end and says whether it is complete; `error` closes one that did not. A
response without either broke off.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import orjson
import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import Close, Format, closing, columns, log_bug, schema_of, written
from lakerunner.api.stream import Stream, with_signs
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.rows import json_rows

HEARTBEAT_SECONDS = 10.0
PROGRESS_SECONDS = 0.5


async def _respond(answer: Answer, close: Close) -> Response:
    return Stream(_events(answer), SSE.media_type, close)


async def _events(answer: Answer) -> AsyncGenerator[bytes]:
    rows = _Rows(answer)
    signs = Signs(answer, lambda kind, fields: _event({"type": kind, **(fields or {})}), HEARTBEAT_SECONDS)
    every = min(PROGRESS_SECONDS, HEARTBEAT_SECONDS)
    try:
        async for chunk in with_signs(rows.events(), signs.after, every):
            yield chunk
    except Exception as error:  # noqa: BLE001 - reported to the client, and logged where it is a bug
        log_bug(error)
        yield _event({"type": "error", "error": error_body(error)})
        return
    yield _event({"type": "done", "row_count": rows.count, **closing(answer.account)})


class _Rows:
    def __init__(self, answer: Answer) -> None:
        self.count = 0
        self._answer = answer

    async def events(self) -> AsyncGenerator[bytes]:
        yield _event({"type": "schema", "columns": columns(await schema_of(self._answer))})
        async for count, events in written(self._answer, _written):
            self.count += count
            yield events


def _written(batch: pa.RecordBatch) -> tuple[int, bytes]:
    return batch.num_rows, b"".join(b'data: {"type":"result","data":' + row + b"}\n\n" for row in json_rows(batch))


class Accounted(Protocol):
    @property
    def account(self) -> Account: ...


class Signs:
    """How many segments are done, when that has changed; a heartbeat where nothing else was to be said for long.
    `event` writes one of a kind, with its fields if it has any."""

    def __init__(
        self, answer: Accounted, event: Callable[[str, dict[str, Any] | None], bytes], heartbeat_seconds: float
    ) -> None:
        self._answer = answer
        self._event = event
        self._heartbeat_seconds = heartbeat_seconds
        self._last = (0, 0)

    def after(self, silent_seconds: float) -> bytes | None:
        account = self._answer.account
        now = (account.done, account.considered)
        if now != self._last:
            self._last = now
            return self._event("progress", {"segments_done": now[0], "segments_total": now[1]})
        return self._event("heartbeat", None) if silent_seconds >= self._heartbeat_seconds else None


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


SSE = Format("sse", "text/event-stream", _respond, partial=True)
