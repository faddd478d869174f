"""The side index of a traces segment: one row per trace, so that traces are listed and found without reading spans.

Comes in: the layout and the row numbers in their order, sorted by trace_id and time. Goes out: a Parquet file sorted by
trace_id (docs/formats/segments.md states its columns). It tells of the spans in this segment only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from lakerunner.model.signal import TIME
from lakerunner.pipeline.read.memory import same
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows, Texts
from lakerunner.pipeline.steps.layout import Layout
from lakerunner.pipeline.steps.take import CODED_TEXT, coded_array, numbers_array, slices_array, slices_of

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


def index_traces(layout: Layout, order: Any) -> pa.Buffer:
    """The file of these rows' traces."""
    sink = pa.BufferOutputStream()
    with open_index(sink) as writer:
        writer.write_table(_traces(layout.rows, order), row_group_size=ROW_GROUP_TRACES)
    return sink.getvalue()


def open_index(sink: pa.NativeFile) -> pq.ParquetWriter:
    """The file, to be written in tables of SCHEMA, sorted by trace_id."""
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


def _traces(rows: Rows, order: Any) -> pa.Table:
    ids = slices_of(rows.column("trace_id", Texts), order)
    first = _first_rows(rows.data, ids.at, ids.size)
    end_column = rows.column("end_timestamp", Numbers)
    ends = np.maximum.reduceat(np.where(end_column.valid, end_column.values, -1)[order], first)
    services, names = _codes(rows, "service_name", order), _codes(rows, "name", order)
    numbers = {
        "first_row": first,
        "spans": np.diff(first, append=len(order)),
        "errors": np.add.reduceat(rows.column("status_code", Numbers).values[order] == ERROR, first, dtype=np.int64),
        "start_timestamp": np.minimum.reduceat(rows.column("timestamp", Numbers).values[order], first),
    }
    # The earliest span without a parent; one past the last row where there is none.
    is_root = rows.column("parent_span_id", Texts).size[order] == 0
    roots = np.minimum.reduceat(np.where(is_root, np.arange(len(order)), len(order)), first)
    arrays = {
        "trace_id": slices_array(slices_of(rows.column("trace_id", Texts), order[first]), rows.data, pa.binary()),
        **{name: numbers_array(values, None, SCHEMA.field(name).type) for name, values in numbers.items()},
        "end_timestamp": numbers_array(ends, ends >= 0, TIME),
        "root_service_name": _of_roots(services, roots, rows.column("service_name", Coded).values),
        "root_name": _of_roots(names, roots, rows.column("name", Coded).values),
        "services": _services(services, first, rows.column("service_name", Coded).values),
    }
    return pa.Table.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def _codes(rows: Rows, name: str, order: Any) -> Any:
    column = rows.column(name, Coded)
    return column.codes[order if column.owner is None else column.owner[order]]


def _of_roots(codes: Any, roots: Any, values: pa.Array) -> pa.Array:
    """What the roots have in this column, null where there is no root."""
    return coded_array(np.append(codes, np.int32(-1))[roots].astype(np.int32), values)


def _services(codes: Any, first: Any, values: pa.Array) -> pa.Array:
    found, offsets = distinct_codes(codes, first, len(values))
    return pa.ListArray.from_arrays(pa.array(offsets), coded_array(found, values))


@njit(cache=True)
def _first_rows(data: Any, at: Any, size: Any) -> Any:
    """Where each run of equal ids starts."""
    first = np.empty(len(at), np.int64)
    count = 0
    for row in range(len(at)):
        if (
            row == 0
            or size[row] != size[row - 1]
            or not same(data, np.int64(at[row]), np.int64(at[row - 1]), np.int64(size[row]))
        ):
            first[count] = row
            count += 1
    return first[:count].copy()


@njit(cache=True)
def distinct_codes(codes: Any, first: Any, known: Any) -> Any:
    """(the different codes of each run in the order of first sight, up to MAX_SERVICES, and where each run's start)."""
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
