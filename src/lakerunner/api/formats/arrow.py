"""Arrow's IPC stream, as rows come. One that fails on the way has no end-of-stream mark and is cut off."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pyarrow as pa
from starlette.responses import Response

from lakerunner.api.formats.format import Close, Format, schema_of, streamed, written
from lakerunner.model.frames import Sink
from lakerunner.query.answer import Answer


async def _respond(answer: Answer, close: Close) -> Response:
    return await streamed(answer, close, ARROW.media_type, _messages(answer))


async def _messages(answer: Answer) -> AsyncGenerator[bytes]:
    sink = Sink()
    writer = pa.ipc.new_stream(sink, await schema_of(answer))

    def message(batch: pa.RecordBatch) -> bytes:
        writer.write_batch(batch)
        return sink.take()

    async for data in written(answer, message):
        yield data
    writer.close()
    yield sink.take()


ARROW = Format("arrow", "application/vnd.apache.arrow.stream", _respond)
