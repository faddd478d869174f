"""Record batches to one Parquet file in memory.

Comes in: the schema, the batches in their order, the signal. Goes out: the bytes of the file. Each batch becomes one row
group with statistics and a page index; bloom filters are sized for the ids that a row group really holds. The same batches
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import SignalSpec

ROW_GROUP_ROWS = 20_000
_COMPRESSION_LEVEL = 1


def write_parquet(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], spec: SignalSpec, distinct: Mapping[str, int]
) -> pa.Buffer:
    """`distinct`: for each of the signal's bloom columns, the most different values of one row group."""
    sink = pa.BufferOutputStream()
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    blooms = {name: {"ndv": max(1, distinct[name]), "fpp": 0.01} for name in spec.bloom}
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=dictionaries,
        write_page_index=True,
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in spec.sort_by]),
        bloom_filter_options=blooms,
        store_schema=False,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()
