"""The rows of segments of logs as ingest has them in memory when it writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakerunner.model.segment import Column
from lakerunner.model.signal import LOGS
from lakerunner.pipeline.make_segments import READERS, Raw
from lakerunner.pipeline.signals import row_of
from lakerunner.pipeline.steps.layout import build_batch, lay_out
from lakerunner.pipeline.steps.order import row_groups, split_and_sort
from lakerunner.pipeline.steps.stream_columns import DERIVED, StreamColumns, with_stream_columns


def rows_of_segments(raws: Sequence[Raw]) -> Iterator[tuple[tuple[Column, ...], list[pa.RecordBatch]]]:
    """Yield the columns and the batches of each segment that ingest makes of these objects, read at once."""
    read = READERS["logs", "otlp"](raws)
    assert read.rows is not None
    assert not read.failed
    rows = read.rows
    for step in row_of(LOGS).steps:
        rows = step(rows)
    for order in split_and_sort(rows, LOGS):
        layout = lay_out(rows, order, LOGS)
        groups = row_groups(order, layout.sizes(order), LOGS.row_group_rows)
        streams = StreamColumns(layout.stored)
        columns = (*layout.stored, *(Column(field.name, "") for field in DERIVED))
        yield columns, [with_stream_columns(build_batch(layout, group), streams) for group in groups]
