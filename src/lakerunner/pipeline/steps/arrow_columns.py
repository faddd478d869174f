"""Read columns of the record batches of a segment, for the builders of its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
