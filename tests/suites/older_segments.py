"""Segments of logs as older releases wrote them: without the columns and the table of streams."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace

import pyarrow.parquet as pq

from lakerunner.model.segment import Segment
from lakerunner.model.streams.stream_table import DETECTED_LEVEL, RESOURCE_ID, STREAM_TABLE


def without_stream_table(segment: Segment) -> Segment:
    """Return the index row of a segment whose table was not written."""
    sides = {name: size for name, size in segment.statistics["side_bytes"].items() if name != STREAM_TABLE}
    return replace(segment, statistics={**segment.statistics, "side_bytes": sides})


def older_segment(segment: Segment, data: bytes) -> tuple[Segment, bytes]:
    """Return the index row and the file of this segment as an older release would have written them."""
    file = pq.ParquetFile(io.BytesIO(data))
    kept = [name for name in file.schema_arrow.names if name not in (RESOURCE_ID, DETECTED_LEVEL)]
    sink = io.BytesIO()
    schema = file.schema_arrow.empty_table().select(kept).schema
    with pq.ParquetWriter(sink, schema, write_page_checksum=True, write_page_index=True, store_schema=False) as writer:
        for number in range(file.num_row_groups):
            writer.write_table(file.read_row_group(number, columns=kept).select(kept))
    columns = tuple(column for column in segment.columns if column.name in kept)
    return replace(without_stream_table(segment), columns=columns, bytes=len(sink.getvalue())), sink.getvalue()


def older_files(
    segments: tuple[Segment, ...], files: Mapping[str, bytes]
) -> tuple[tuple[Segment, ...], dict[str, bytes]]:
    """Return these segments and all files, as of an older release."""
    made = [(segment.path, *older_segment(segment, files[segment.path])) for segment in segments]
    return tuple(segment for _, segment, _ in made), {**files, **{path: data for path, _, data in made}}
