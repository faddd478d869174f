"""What a format is, and what several of them say in the same words.

A format turns an answer into a response. What always holds: no client can take part of an answer for the whole. JSON
and Parquet are whole or an error status; SSE closes with `done` or `error`; the others, whose rows leave as they come,
are cut off without an end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.stream import Broken, Stream, blocking, in_thread
from lakerunner.model.errors import LakerunnerError, TooLarge
from lakerunner.model.time import iso_time
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer

DEGRADED_HEADER = "lakerunner-degraded"
WARNINGS_HEADER = "lakerunner-warnings"
_logger = logging.getLogger("lakerunner.api.sql")
Close = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """`respond` owns the answer: `close`, which may block, is called by it or by the response it gives. `partial` is
    what a request that does not say means; None: the format has no place to say that an answer lacks something."""

    name: str
    media_type: str
    respond: Callable[[Answer, Close], Awaitable[Response]]
    partial: bool | None = None


def columns(schema: pa.Schema) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def closing(account: Account) -> dict[str, Any]:
    """Whether the answer is complete, what it lacks, and what it took: the last word of JSON and SSE."""
    stats = account.to_json()
    del stats["missing"], stats["degraded"], stats["warnings"]
    missing = [
        {
            "segments": one.segments,
            "start": iso_time(one.time.start_ns),
            "end": iso_time(one.time.end_ns),
            "reason": one.reason,
        }
        for one in account.missing
    ]
    return {
        "complete": account.complete,
        "missing": missing,
        "degraded": account.degraded or None,
        "warnings": sorted(account.warnings),
        "stats": stats,
    }


def too_large(what: str, max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the answer as {what} is larger than {max_bytes} bytes: add a LIMIT, or stream it, "
        "for example as ndjson or arrow"
    )


async def streamed(answer: Answer, close: Close, media_type: str, chunks: AsyncGenerator[bytes]) -> Response:
    """A response of these chunks, cut off where they fail. A query that fails before the first has its status."""
    first = await anext(chunks, b"")
    headers = said_in_headers(answer.account)

    async def all_chunks() -> AsyncGenerator[bytes]:
        try:
            yield first
            async for chunk in chunks:
                yield chunk
        except Exception as error:
            log_bug(error)
            raise Broken from error
        finally:
            await chunks.aclose()

    return Stream(all_chunks(), media_type, close, headers)


def said_in_headers(account: Account) -> dict[str, str]:
    """For formats that can say it nowhere else."""
    said = {DEGRADED_HEADER: account.degraded, WARNINGS_HEADER: "; ".join(sorted(account.warnings))}
    return {name: _one_line(text) for name, text in said.items() if text}


async def schema_of(answer: Answer) -> pa.Schema:
    return await blocking(lambda: answer.schema)


def written(answer: Answer, write: Callable[[pa.RecordBatch], T]) -> AsyncGenerator[T]:
    """What `write` makes of each batch, in the thread that waits for the batch: on the event loop large rows would hold
    up everybody."""
    return in_thread(map(write, answer))


def log_bug(error: Exception) -> None:
    """What the error tree does not know is a bug; the client is not told its details."""
    if not isinstance(error, LakerunnerError | Broken):
        _logger.error("query failed", exc_info=error)


def _one_line(text: str) -> str:
    """As a header may have it."""
    return " ".join(text.split()).encode("ascii", "replace").decode()
