"""A Parquet file, zstd. Whole or an error status, and bounded in size: a file has its directory at its end."""

from __future__ import annotations

import io
from contextlib import aclosing

import pyarrow as pa
import pyarrow.parquet as pq
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.formats.format import Close, Format, said_in_headers, schema_of, too_large, written
from lakerunner.model.errors import UserError
from lakerunner.query.answer import Answer

PARQUET_MAX_BYTES = 64 << 20
_GROUP_BYTES = 16 << 20  # of Arrow, before they become a row group


async def _respond(answer: Answer, close: Close) -> Response:
    file = _File(await schema_of(answer))
    async with aclosing(written(answer, file.add)) as batches:
        async for _ in batches:
            pass
    data = await to_thread.run_sync(file.finish)
    headers = said_in_headers(answer.account)
    await to_thread.run_sync(close)
    return Response(data, headers=headers, media_type=PARQUET.media_type)


class _File:
    """A file in memory, in row groups that are worth one."""

    def __init__(self, schema: pa.Schema) -> None:
        self._buffer = io.BytesIO()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._schema = schema
        try:
            self._writer = pq.ParquetWriter(self._buffer, schema, compression="zstd")
        except pa.ArrowNotImplementedError as error:
            raise UserError(f"cannot write the answer as Parquet: {error}. Cast the column to VARCHAR") from error

    def add(self, batch: pa.RecordBatch) -> int:
        """How many rows were added."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write()
        return int(batch.num_rows)

    def finish(self) -> bytes:
        self._write()
        self._writer.close()
        return self._buffer.getvalue()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0
        if self._buffer.tell() > PARQUET_MAX_BYTES:
            raise too_large("Parquet", PARQUET_MAX_BYTES)


PARQUET = Format("parquet", "application/vnd.apache.parquet", _respond)
