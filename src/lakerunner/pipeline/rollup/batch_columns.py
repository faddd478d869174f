"""Convert columns of a batch to numpy arrays, and arrays to columns.

What always holds: a column that a batch lacks is one of nulls. Arrays of Arrow's memory are read, never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.sketch import column_values
from lakerunner.model.time import MS_NS


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the column, None if the batch lacks it."""
    place = batch.schema.get_field_index(name)
    return None if place < 0 else batch.column(place)


def read_only(array: Any) -> Any:
    """Return a read-only view, as of Arrow's arrays, so that kernels are compiled for one type only."""
    found = array.view()
    found.flags.writeable = False
    return found


def numbers(batch: pa.RecordBatch, name: str, kind: Any) -> Any:
    """Return the column's values, 0 where null."""
    return values_of(column(batch, name), batch.num_rows, kind)


def values_of(found: pa.Array | None, rows: int, kind: Any) -> Any:
    """Return the values of this column of so many rows, 0 where null."""
    if found is None:
        return read_only(np.zeros(rows, kind))
    if found.null_count:
        found = (found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found).fill_null(0)
    return column_values(found, kind)


def times_ms(batch: pa.RecordBatch) -> Any:
    """Return the times of the rows in ms."""
    return column_values(batch.column("timestamp"), np.int64) // MS_NS


def valid(batch: pa.RecordBatch, name: str) -> Any:
    """Return which rows are not null."""
    return valid_of(column(batch, name), batch.num_rows)


def valid_of(found: pa.Array | None, rows: int) -> Any:
    if found is None:
        return np.zeros(rows, np.bool_)
    if not found.null_count:
        return np.ones(rows, np.bool_)
    return found.is_valid().to_numpy(zero_copy_only=False)


def texts_are(batch: pa.RecordBatch, name: str, texts: Sequence[str]) -> Any:
    """Return whether the text of each row is one of these; false for null."""
    found = column(batch, name)
    if found is None:
        return np.zeros(batch.num_rows, np.bool_)
    if not pa.types.is_dictionary(found.type):
        return pc.is_in(found, value_set=pa.array(texts, found.type)).to_numpy(zero_copy_only=False)
    among = pc.is_in(found.dictionary, value_set=pa.array(texts, found.type.value_type))
    if not among.true_count:
        return np.zeros(batch.num_rows, np.bool_)
    return among.take(found.indices).fill_null(False).to_numpy(zero_copy_only=False)


def filled(values: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of this type, null where not `where`. Integers are never negative, whatever their type."""
    wanted = kind.to_pandas_dtype()
    same = values.view(wanted) if values.dtype.itemsize == kind.bit_width // 8 else values.astype(wanted)
    return pa.array(same, kind, mask=None if where.all() else ~where)


def times_array(times_ms: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of times, null where not `where`."""
    if where.all():
        return pa.array(times_ms * MS_NS).view(kind)
    return pa.array(np.where(where, times_ms, 0) * MS_NS, mask=~where).view(kind)


def list_array(offsets: Any, values: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of lists. `offsets` as in Arrow: list r is values[offsets[r]:offsets[r + 1]]."""
    mask = None if where.all() else pa.array(~where)
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(values, kind.value_type), kind, mask=mask
    )


def buckets_array(low: Any, offsets: Any, counts: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """Return one side of exponential histograms, null where not `where`."""
    fields = {field.name: field for field in kind}
    inner = list_array(offsets, counts, np.ones(len(low), np.bool_), fields["counts"].type)
    return pa.StructArray.from_arrays(
        [pa.array(low.astype(np.int32)), inner, pa.nulls(len(low), fields["float_counts"].type)],
        fields=list(kind),
        mask=None if where.all() else pa.array(~where),
    )
