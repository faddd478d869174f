"""A segment's rows to one Parquet file in memory.

Comes in: the layout, the row numbers in their order, the signal. Goes out: the bytes of the file: row groups of as many
rows as the signal says, or fewer where rows are large, with statistics and a page index, and bloom filters sized for
what a row group holds. Row groups are built and written one after the other, so only one of them is in memory beside
the input. The same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.read.rows import Texts
from lakerunner.pipeline.steps.layout import Layout, batch_of
from lakerunner.pipeline.steps.order import row_groups
from lakerunner.pipeline.steps.take import count_distinct, slices_of

_COMPRESSION_LEVEL = 1  # level 3 saves 3 % of the size, level 9 some 10 % for four times the time
_BLOOM_FALSE_POSITIVES = 0.01


def write_segment(layout: Layout, order: Any, spec: SignalSpec) -> pa.Buffer:
    """The file of these rows."""
    schema = layout.schema
    groups = row_groups(order, layout.rows.sizes[order], spec.row_group_rows)
    coded = [
        field.name
        for field in schema
        if field.name in layout.few and field.name not in spec.sequences and not pa.types.is_boolean(field.type)
    ]
    nested = [path for field in schema for path in _nested_texts(field.name, field.type) if path != field.name]
    encodings = {field.name: _encoding(field.type) for field in schema if field.name not in coded}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=[*coded, *nested],
        column_encoding={name: encoding for name, encoding in encodings.items() if encoding},
        write_page_index=True,
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in spec.sort_by]),
        bloom_filter_options={name: _bloom(layout, name, groups) for name in spec.bloom if name in schema.names},
        store_schema=False,
    ) as writer:
        for group in groups:
            writer.write_batch(batch_of(layout, group), row_group_size=spec.row_group_rows)
    return sink.getvalue()


def _bloom(layout: Layout, name: str, groups: list[Any]) -> dict[str, Any]:
    """Room for the most different values that a row group has in this column."""
    column = layout.rows.column(name, Texts)
    most = max(count_distinct(slices_of(column, group), layout.rows.data)[0] for group in groups)
    return {"ndv": max(1, most), "fpp": _BLOOM_FALSE_POSITIVES}


def _nested_texts(path: str, kind: pa.DataType) -> Iterator[str]:
    """The Parquet paths of the texts inside a column of this type."""
    if pa.types.is_map(kind):
        yield from (f"{path}.key_value.key", f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _nested_texts(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _nested_texts(f"{path}.{field.name}", field.type)
    elif pa.types.is_string(kind):
        yield path


def _encoding(kind: pa.DataType) -> str:
    """How values of this type are written where few of them are equal. Measured on logs, against plain values: a tenth
    smaller, written and read in the same time."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_LENGTH_BYTE_ARRAY"
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    return ""
