"""Read columns of the record batches of a segment, for the builders of its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
