"""Check the columns and the table of streams of a segment of logs against its rows.

Comes in: the stored table and the segment's file, whose pages have been checked. Goes out: what differs. Both are made
again from the rows by the code that writes them. One row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column
from lakerunner.model.signal import LOGS
from lakerunner.model.streams.stream_table import DETECTED_LEVEL, RESOURCE_ID, read_stream_table
from lakerunner.pipeline.segment.stream_side import StreamTableSide
from lakerunner.pipeline.steps.arrow_columns import plain
from lakerunner.pipeline.steps.stream_columns import StreamColumns


def stream_troubles(stored: bytes | memoryview, columns: Sequence[Column], file: pq.ParquetFile) -> Iterator[str]:
    """Yield what is wrong with a stream table."""
    try:
        there = read_stream_table(pa.py_buffer(stored))
    except Corrupt as error:
        yield f"this side file cannot be read: {error}"
        return
    streams, side = StreamColumns(columns), StreamTableSide(columns)
    own = {column.name for column in columns if column.type} | {*LOGS.schema.names}
    names = [name for name in file.schema_arrow.names if name in own]
    wrong = 0
    for group in range(file.num_row_groups):
        for batch in file.read_row_group(group, columns=names).combine_chunks().to_batches():
            made = {name: plain(array) for name, array in streams.derive(batch).items()}
            wrong += any(made[name] != plain(batch.column(name)) for name in (RESOURCE_ID, DETECTED_LEVEL))
            side.add(batch)
    if wrong:
        yield f"resource_id or detected_level of {wrong} row groups do not follow from the rows"
    again = side.finish()
    if again is None or not read_stream_table(again.data).equals(there):
        yield "this table of streams does not match the rows of its segment: lists of streams are wrong"
