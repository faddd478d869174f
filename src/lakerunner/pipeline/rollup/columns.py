"""Columns of a batch as arrays, and arrays as columns.

What always holds: a column that a batch lacks is one of nulls. Arrays of Arrow's memory are read, never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NS_PER_MS = 1_000_000


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    place = batch.schema.get_field_index(name)
    return None if place < 0 else batch.column(place)


def read_only(array: Any) -> Any:
    """As Arrow's arrays are: so kernels are compiled once."""
    found = array.view()
    found.flags.writeable = False
    return found


def numbers(batch: pa.RecordBatch, name: str, kind: Any) -> Any:
    """0 where null."""
    found = column(batch, name)
    if found is None:
        return read_only(np.zeros(batch.num_rows, kind))
    if found.null_count:
        found = found.fill_null(pa.scalar(0, found.type)) if not pa.types.is_timestamp(found.type) else _zeroed(found)
    return values_of(found, kind)


def values_of(array: pa.Array, kind: Any) -> Any:
    """As they stand in memory; where null anything."""
    if array.buffers()[1] is None:
        return read_only(np.zeros(len(array), kind))
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def _zeroed(times: pa.Array) -> pa.Array:
    return times.cast(pa.int64()).fill_null(0)


def valid(batch: pa.RecordBatch, name: str) -> Any:
    found = column(batch, name)
    if found is None:
        return np.zeros(batch.num_rows, np.bool_)
    if not found.null_count:
        return np.ones(batch.num_rows, np.bool_)
    return found.is_valid().to_numpy(zero_copy_only=False)


def texts_are(batch: pa.RecordBatch, name: str, texts: Sequence[str]) -> Any:
    """Whether the text of each row is one of these; null is none."""
    found = column(batch, name)
    if found is None:
        return np.zeros(batch.num_rows, np.bool_)
    if not pa.types.is_dictionary(found.type):
        return pc.is_in(found, value_set=pa.array(texts, found.type)).to_numpy(zero_copy_only=False)
    among = pc.is_in(found.dictionary, value_set=pa.array(texts, found.type.value_type))
    if not among.true_count:
        return np.zeros(batch.num_rows, np.bool_)
    return among.take(found.indices).fill_null(False).to_numpy(zero_copy_only=False)


@dataclass(frozen=True, eq=False)
class Lists:
    """List r is `sizes[r]` of `values` from `begins[r]` on."""

    begins: Any
    sizes: Any
    values: Any

    def __getitem__(self, row: int) -> Any:
        begin = int(self.begins[row])
        return self.values[begin : begin + int(self.sizes[row])]


def lists(array: pa.Array | None, rows: int, kind: Any) -> Lists:
    """Null is an empty one."""
    if array is None:
        return Lists(np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(0, kind))
    ends = values_of_offsets(array)
    sizes = np.diff(ends).astype(np.int64)
    if array.null_count:
        sizes[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    inner = array.values
    return Lists(ends[:-1].astype(np.int64), sizes, values_of(inner, kind))


def values_of_offsets(array: pa.Array) -> Any:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


@dataclass(frozen=True, eq=False)
class Buckets:
    """One side of exponential histograms: `offset` is the index of the first of the counts."""

    valid: Any
    offset: Any
    counts: Lists


def buckets(array: pa.Array | None, rows: int) -> Buckets:
    if array is None:
        return Buckets(np.zeros(rows, np.bool_), np.zeros(rows, np.int32), lists(None, rows, np.uint64))
    there = array.is_valid().to_numpy(zero_copy_only=False)
    found = lists(array.field("counts"), rows, np.uint64)
    found.sizes[~there] = 0
    return Buckets(there, values_of(array.field("offset"), np.int32), found)


def filled(values: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """An array of this type, null where not `where`. Integers are not negative, whatever their type."""
    wanted = kind.to_pandas_dtype()
    same = values.view(wanted) if values.dtype.itemsize == kind.bit_width // 8 else values.astype(wanted)
    return pa.array(same, kind, mask=None if where.all() else ~where)


def times_array(times_ms: Any, where: Any, kind: pa.DataType) -> pa.Array:
    if where.all():
        return pa.array(times_ms * NS_PER_MS).view(kind)
    return pa.array(np.where(where, times_ms, 0) * NS_PER_MS, mask=~where).view(kind)


def list_array(offsets: Any, values: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """`offsets` as Arrow has them: list r is values[offsets[r]:offsets[r + 1]]."""
    mask = None if where.all() else pa.array(~where)
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(values, kind.value_type), kind, mask=mask
    )


def buckets_array(low: Any, offsets: Any, counts: Any, where: Any, kind: pa.DataType) -> pa.Array:
    """One side of exponential histograms, null where not `where`."""
    fields = {field.name: field for field in kind}
    inner = list_array(offsets, counts, np.ones(len(low), np.bool_), fields["counts"].type)
    return pa.StructArray.from_arrays(
        [pa.array(low.astype(np.int32)), inner, pa.nulls(len(low), fields["float_counts"].type)],
        fields=list(kind),
        mask=None if where.all() else pa.array(~where),
    )
