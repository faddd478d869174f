"""A Parquet file that is written as its rows come.

Comes in: record batches. Goes out: the bytes of the file that are ready. What always holds: rows are held until their
row group is full, bytes until they are taken; the file is whole only after `finish`, which writes the footer.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.frames import Sink

GROUP_BYTES = 16 << 20  # of Arrow data in one row group
PARQUET_TYPE = "application/vnd.apache.parquet"


class ParquetStream:
    """`add` and `finish` return the bytes that are ready. Raise ArrowNotImplementedError if Parquet lacks a type."""

    def __init__(self, schema: pa.Schema, group_bytes: int = GROUP_BYTES) -> None:
        self._schema = schema
        self._group_bytes = group_bytes
        self._sink = Sink()
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, "w"), schema, compression="zstd")

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        if self.waiting_bytes >= self._group_bytes:
            self._write()
        return self._sink.take()

    def finish(self) -> bytes:
        self._write()
        self._writer.close()
        return self._sink.take()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self.waiting_bytes = [], 0
