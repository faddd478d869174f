"""Convert columns of the record batches of a segment to numpy arrays, and arrays to columns.

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
from lakerunner.pipeline.read.memory import PADDING

# Texts as indices into a dictionary.
CODED_TEXT = pa.dictionary(pa.int32(), pa.string())


def plain(array: pa.Array) -> pa.Array:
    """Return the same values without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return this column without a dictionary; nulls if the batch lacks it, because no row fills it."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return plain(batch.column(name)).cast(kind)


def codes(array: pa.Array) -> tuple[Any, pa.Array]:
    """Return (a number for each row, the values with these numbers). No row may be null."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return coded.indices.to_numpy(), coded.dictionary


def value_numbers(array: pa.Array) -> Any:
    """Return a number for each row, equal for equal values; nulls have one of their own. Doubles are equal if their
    bits are."""
    if pa.types.is_floating(array.type):
        array = array.view(pa.int64())
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy() if coded.null_count else coded.indices.to_numpy()


def changes(array: pa.Array) -> Any:
    """Return for each row whether its value differs from the row before; true for the first. No row may be null."""
    values = array.indices if pa.types.is_dictionary(array.type) else array  # a dictionary has a value once
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    return np.append(True, differs)


def is_textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def padded_texts(array: pa.Array) -> tuple[Any, Any, Any]:
    """Return (the bytes of these texts with PADDING behind them, where each begins, its size)."""
    binary = array.cast(pa.large_binary())
    _, offsets, body = binary.buffers()
    at = np.frombuffer(offsets, np.int64, len(binary) + 1, 8 * binary.offset) if len(binary) else np.zeros(1, np.int64)
    data = np.zeros(int(at[-1] - at[0]) + PADDING, np.uint8)
    if body is not None:
        data[:-PADDING] = np.frombuffer(body, np.uint8)[at[0] : at[-1]]
    return data, at[:-1] - at[0], np.diff(at)


# ---- numbers, times and lists of rollups


def find_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
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
    return values_of(find_column(batch, name), batch.num_rows, kind)


def values_of(found: pa.Array | None, rows: int, kind: Any) -> Any:
    """Return the values of this column, one for each row, 0 where null."""
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
    return valid_of(find_column(batch, name), batch.num_rows)


def valid_of(found: pa.Array | None, rows: int) -> Any:
    if found is None:
        return np.zeros(rows, np.bool_)
    if not found.null_count:
        return np.ones(rows, np.bool_)
    return found.is_valid().to_numpy(zero_copy_only=False)


def texts_are(batch: pa.RecordBatch, name: str, texts: Sequence[str]) -> Any:
    """Return whether the text of each row is one of these; false for null."""
    found = find_column(batch, name)
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
