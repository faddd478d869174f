"""What a format of answers is, and what several formats share.

A format turns an answer into a response. No client can take a part of an answer for the whole: JSON and Parquet are
complete or an error status; SSE ends with `done` or `error`; the other formats, whose rows are sent as they come, are
cut off without an end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.stream import Broken, Close, Stream, blocking, in_thread
from lakerunner.model.errors import LakerunnerError, TooLarge
from lakerunner.model.time import iso_time
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account

DEGRADED_HEADER = "lakerunner-degraded"
WARNINGS_HEADER = "lakerunner-warnings"
_logger = logging.getLogger("lakerunner.api.sql")
T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """A format of answers. `respond` owns the answer: it, or the response it returns, calls `close`, which may block.
    `partial` is the default of a request; None if the format cannot report that an answer lacks data."""

    name: str
    media_type: str
    respond: Callable[[Answer, Close], Awaitable[Response]]
    partial: bool | None = None


def column_list(schema: pa.Schema) -> list[dict[str, str]]:
    """Return the names and types of columns, for JSON."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def closing_fields(account: Account) -> dict[str, Any]:
    """Return whether the answer is complete, what it lacks, and what it took: the end of JSON and SSE answers."""
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
    """Return the error of an answer that is larger than its format allows."""
    return TooLarge(
        f"the answer as {what} is larger than {max_bytes} bytes: add a LIMIT, or stream it, "
        "for example as ndjson or arrow"
    )


async def stream_chunks(answer: Answer, close: Close, media_type: str, chunks: AsyncGenerator[bytes]) -> Response:
    """Respond with these chunks, cut off if they fail. A query that fails before the first has an error status."""
    first = await anext(chunks, b"")
    headers = warning_headers(answer.account)

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


def warning_headers(account: Account) -> dict[str, str]:
    """Return the headers with warnings, for formats whose bodies have no place for them."""
    texts = {DEGRADED_HEADER: account.degraded, WARNINGS_HEADER: "; ".join(sorted(account.warnings))}
    return {name: header_text(text) for name, text in texts.items() if text}


async def schema_of(answer: Answer) -> pa.Schema:
    """Return the schema of an answer, which is known when its query has begun."""
    return await blocking(lambda: answer.schema)


def write_batches(answer: Answer, write: Callable[[pa.RecordBatch], T]) -> AsyncGenerator[T]:
    """Yield `write(batch)` of each batch. It runs in the thread that waits for the batch: on the event loop, large rows
    would delay all other requests."""
    return in_thread(map(write, answer))


def log_bug(error: Exception) -> None:
    """Log an error outside of the error tree, which is a bug; the client does not see its details."""
    if not isinstance(error, LakerunnerError | Broken):
        _logger.error("query failed", exc_info=error)


def header_text(text: str) -> str:
    """Return the text in ASCII on one line, as a header needs it."""
    return " ".join(text.split()).encode("ascii", "replace").decode()
