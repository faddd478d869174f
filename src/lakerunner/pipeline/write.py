"""A segment's rows to one Parquet file in memory.

Comes in: the layout, the row numbers in their order, the signal. Goes out: the bytes of the file: row groups of as many
rows as the signal says, or fewer where rows are large, with statistics and a page index, and bloom filters sized for
what a row group holds. Row groups are built and written one after the other, so only one of them is in memory beside
the input. The same rows give the same bytes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.encoding import encodings_of, options
from lakerunner.pipeline.read.rows import Texts
from lakerunner.pipeline.steps.layout import Layout, batch_of
from lakerunner.pipeline.steps.order import row_groups
from lakerunner.pipeline.steps.take import count_distinct, slices_of

_BLOOM_FALSE_POSITIVES = 0.01


def write_segment(layout: Layout, order: Any, spec: SignalSpec) -> pa.Buffer:
    """The file of these rows."""
    schema = layout.schema
    groups = row_groups(order, layout.sizes(order), spec.row_group_rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in spec.sort_by]),
        bloom_filter_options={name: _bloom(layout, name, groups) for name in spec.bloom if name in schema.names},
        **options(encodings_of(layout, order, spec)),
    ) as writer:
        for group in groups:
            writer.write_batch(batch_of(layout, group), row_group_size=spec.row_group_rows)
    return sink.getvalue()


def _bloom(layout: Layout, name: str, groups: list[Any]) -> dict[str, Any]:
    """Room for the most different values that a row group has in this column."""
    column = layout.rows.column(name, Texts)
    most = max(count_distinct(slices_of(column, group), layout.rows.data)[0] for group in groups)
    return {"ndv": max(1, most), "fpp": _BLOOM_FALSE_POSITIVES}
