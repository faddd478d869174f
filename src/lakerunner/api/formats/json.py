"""JSON: one object with columns, rows, and whether that is all. Whole or an error status, and bounded in size."""

from __future__ import annotations

from contextlib import aclosing

import orjson
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.formats.format import Close, Format, closing, columns, too_large, written
from lakerunner.query.answer import Answer
from lakerunner.query.rows import json_rows

JSON_MAX_BYTES = 64 << 20


async def _respond(answer: Answer, close: Close) -> Response:
    parts: list[bytes] = []
    size = 0
    async with aclosing(written(answer, lambda batch: list(json_rows(batch)))) as batches:
        async for rows in batches:
            size += sum(map(len, rows)) + len(rows)
            if size > JSON_MAX_BYTES:
                raise too_large("JSON", JSON_MAX_BYTES)
            parts.extend(rows)
    tail = orjson.dumps({"row_count": len(parts), **closing(answer.account)})

    def whole() -> bytes:
        close()
        head = b'{"columns":' + orjson.dumps(columns(answer.schema)) + b',"rows":['
        return head + b",".join(parts) + b"]," + tail[1:]

    return Response(await to_thread.run_sync(whole), media_type=JSON.media_type)


JSON = Format("json", "application/json", _respond, partial=False)
