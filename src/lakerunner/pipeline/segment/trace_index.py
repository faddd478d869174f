"""Build the trace index of a segment: one row per trace, so that traces are found without reading spans.

Comes in: the row groups, sorted by trace_id and time. Goes out: a Parquet file sorted by trace_id
(docs/formats/segments.md states its columns). It describes the spans in this segment only. A trace may continue in the
next row group: the last trace of a row group is held until the next one arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import TIME, TRACES
from lakerunner.pipeline.segment.writer import SideFile
from lakerunner.pipeline.steps.arrow_columns import CODED_TEXT, changes, codes, column, plain

TRACE_INDEX = "traces.parquet"
MAX_SERVICES = 50  # of one trace; a trace of more has the first of them in the order of time
ROW_GROUP_TRACES = 20_000
ERROR = 2  # the status code
SCHEMA = pa.schema(
    [
        pa.field("trace_id", pa.binary(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("spans", pa.int64(), nullable=False),
        pa.field("errors", pa.int64(), nullable=False),
        pa.field("start_timestamp", TIME, nullable=False),
        pa.field("end_timestamp", TIME),
        pa.field("root_service_name", CODED_TEXT),
        pa.field("root_name", CODED_TEXT),
        pa.field("services", pa.list_(CODED_TEXT), nullable=False),
    ]
)


def _held(field: pa.Field) -> pa.Field:
    """Return the field without dictionaries, which differ between row groups, and with times as numbers."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_list(kind):
        kind = pa.list_(pa.string())
    return field.with_type(pa.int64() if kind == TIME else kind)


_HELD = pa.schema(_held(field) for field in SCHEMA)


class TraceIndexSide:
    """Builds the trace index."""

    def __init__(self) -> None:
        self._rows = 0
        self._held = _HELD.empty_table()
        self._sink = pa.BufferOutputStream()
        self._writer = _open_index(self._sink)

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        found = _traces(batch, self._rows)
        self._rows += batch.num_rows
        held = self._held
        if len(held) and held.column("trace_id")[-1] == found.column("trace_id")[0]:
            one, other = held.slice(len(held) - 1).to_pylist()[0], found.slice(0, 1).to_pylist()[0]
            joined = pa.Table.from_pylist([_joined(one, other)], _HELD)
            held, found = pa.concat_tables([held.slice(0, len(held) - 1), joined]), found.slice(1)
        held = pa.concat_tables([held, found]).combine_chunks()
        while len(held) > ROW_GROUP_TRACES:
            self._write(held.slice(0, ROW_GROUP_TRACES))
            held = held.slice(ROW_GROUP_TRACES)
        self._held = held

    def finish(self) -> SideFile:
        self._write(self._held)
        self._writer.close()
        return SideFile(self._sink.getvalue())

    def _write(self, traces: pa.Table) -> None:
        columns = [
            traces.column(field.name).dictionary_encode()
            if pa.types.is_dictionary(field.type)
            else traces.column(field.name).cast(field.type)
            for field in SCHEMA
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), row_group_size=ROW_GROUP_TRACES)


def _open_index(sink: pa.NativeFile) -> pq.ParquetWriter:
    """Open the file, to be written in tables of SCHEMA, sorted by trace_id."""
    return pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=["root_service_name", "root_name", "services.list.element"],
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(SCHEMA, [("trace_id", "ascending")]),
        store_schema=False,
    )


def _traces(batch: pa.RecordBatch, rows_before: int) -> pa.Table:
    """Return the traces of this row group, as if it were the segment."""
    ids = plain(batch.column("trace_id"))
    first = np.flatnonzero(changes(ids))
    started = batch.column("timestamp").cast(pa.int64()).to_numpy()
    ended = column(batch, "end_timestamp", TIME).cast(pa.int64()).fill_null(-1).to_numpy()
    is_error = plain(batch.column("status_code")).to_numpy() == ERROR
    parent = column(batch, "parent_span_id", TRACES.schema.field("parent_span_id").type)
    is_root = pc.equal(pc.binary_length(parent).fill_null(0), 0).to_numpy(zero_copy_only=False)
    # The earliest span without a parent; one past the last row where there is none.
    roots = np.minimum.reduceat(np.where(is_root, np.arange(len(ids)), len(ids)), first)
    root = pa.array(roots, mask=roots == len(ids))
    ends = np.maximum.reduceat(ended, first)
    services, names = codes(batch.column("service_name"))
    found, offsets = _distinct_codes(services, first, len(names))
    columns = {
        "trace_id": ids.take(pa.array(first)),
        "first_row": first + rows_before,
        "spans": np.diff(first, append=len(ids)),
        "errors": np.add.reduceat(is_error, first, dtype=np.int64),
        "start_timestamp": np.minimum.reduceat(started, first),
        "end_timestamp": pa.array(ends, mask=ends < 0),
        "root_service_name": plain(batch.column("service_name")).take(root),
        "root_name": plain(batch.column("name")).take(root),
        "services": pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(found))),
    }
    return pa.table(columns, schema=_HELD)


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Join two parts of a trace; `one` has the earlier spans."""
    root = other if one["root_name"] is None else one
    ends = [end for end in (one["end_timestamp"], other["end_timestamp"]) if end is not None]
    return one | {
        "spans": one["spans"] + other["spans"],
        "errors": one["errors"] + other["errors"],
        "start_timestamp": min(one["start_timestamp"], other["start_timestamp"]),
        "end_timestamp": max(ends, default=None),
        "root_service_name": root["root_service_name"],
        "root_name": root["root_name"],
        "services": [*dict.fromkeys([*one["services"], *other["services"]])][:MAX_SERVICES],
    }


@njit(cache=True)
def _distinct_codes(codes: Any, first: Any, known: Any) -> Any:
    """Return (the distinct codes of each run in the order of first occurrence, up to MAX_SERVICES, and where each run's
    start)."""
    seen = np.full(known, -1, np.int64)
    found, offsets = np.empty(len(codes), np.int32), np.empty(len(first) + 1, np.int32)
    count = 0
    for run in range(len(first)):
        offsets[run] = count
        end = first[run + 1] if run + 1 < len(first) else len(codes)
        for row in range(first[run], end):
            if seen[codes[row]] != run and count - offsets[run] < MAX_SERVICES:
                seen[codes[row]] = run
                found[count] = codes[row]
                count += 1
    offsets[len(first)] = count
    return found[:count].copy(), offsets
