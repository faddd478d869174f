"""NDJSON: a line per row, as rows come. One that fails on the way ends with an `{"error": ...}` line and is cut off."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import orjson
import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.errors import error_body
from lakerunner.api.formats.format import Close, Format, log_bug, streamed, written
from lakerunner.api.stream import Broken
from lakerunner.query.answer import Answer
from lakerunner.query.rows import json_rows


async def _respond(answer: Answer, close: Close) -> Response:
    return await streamed(answer, close, NDJSON.media_type, _lines(answer))


async def _lines(answer: Answer) -> AsyncGenerator[bytes]:
    begun = False
    try:
        async for lines in written(answer, _written):
            yield lines
            begun = True
    except Exception as error:
        if not begun:
            raise
        log_bug(error)
        yield orjson.dumps({"error": error_body(error)}) + b"\n"
        raise Broken from error


def _written(batch: pa.RecordBatch) -> bytes:
    return b"".join(row + b"\n" for row in json_rows(batch))


NDJSON = Format("ndjson", "application/x-ndjson", _respond)
