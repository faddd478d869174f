"""The stream table beside a segment of logs: its resources, with the lines of each level and the deliveries.

pipeline/segment/stream_side.py writes it, query/ reads it; docs/formats/segments.md states its columns. What always
holds: its rows describe all rows of the segment, each resource once, sorted by `resource_id`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt

STREAM_TABLE = "streams.parquet"
RESOURCE_ID, DETECTED_LEVEL = "resource_id", "detected_level"
# A segment with more has no table.
MAX_RESOURCES, MAX_DELIVERIES, MAX_RESOURCE_BYTES = 50_000, 2_000_000, 32 << 20

LEVEL_ROWS = pa.struct(
    [
        pa.field("level", pa.string()),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("first_ns", pa.int64(), nullable=False),
        pa.field("last_ns", pa.int64(), nullable=False),
    ]
)
STREAM_SCHEMA = pa.schema(
    [
        pa.field(RESOURCE_ID, pa.int64(), nullable=False),
        pa.field("resource", pa.string(), nullable=False),
        pa.field("resource_schema_url", pa.string(), nullable=False),
        pa.field("service_name", pa.string(), nullable=False),
        pa.field("levels", pa.list_(pa.field("element", LEVEL_ROWS, nullable=False)), nullable=False),
        pa.field("deliveries", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
        pa.field("repeats", pa.bool_(), nullable=False),
    ]
)


def read_stream_table(data: bytes | memoryview | pa.Buffer) -> pa.Table:
    """Read a stream table. Raise Corrupt if it is damaged."""
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            table = file.read()
        return table.select(STREAM_SCHEMA.names).cast(STREAM_SCHEMA)
    except (pa.ArrowException, KeyError, OSError) as error:
        raise Corrupt(f"not a stream table: {error}") from error
