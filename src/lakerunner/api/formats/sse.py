"""Rows as server-sent events: the schema, rows as they come, progress and heartbeats, and exactly one closing event.

`done` closes an answer that reached its end and says whether it is complete; `error` closes one that failed. A response
without either was cut off.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import orjson
import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import Format, closing_fields, column_list, log_bug, schema_of, write_batches
from lakerunner.api.stream import Close, Stream, with_idle_events
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.row_text import json_rows

HEARTBEAT_SECONDS = 10.0
PROGRESS_SECONDS = 0.5


async def _respond(answer: Answer, close: Close) -> Response:
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


SSE = Format("sse", "text/event-stream", _respond, partial=True)
