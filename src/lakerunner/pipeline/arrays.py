"""Columns of the record batches of a segment, as the builders of its files look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Texts as numbers of a dictionary's entries.
CODED_TEXT = pa.dictionary(pa.int32(), pa.string())


def plain(array: pa.Array) -> pa.Array:
    """The same values, without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """This column without a dictionary; nulls where the batch has none: no row fills it."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return plain(batch.column(name)).cast(kind)


def codes(array: pa.Array) -> tuple[Any, pa.Array]:
    """(a number for each row, the values that have these numbers). No row has null."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return coded.indices.to_numpy(), coded.dictionary


def changes(array: pa.Array) -> Any:
    """For each row whether it has another value than the row before; of the first it is said. No row has null."""
    values = array.indices if pa.types.is_dictionary(array.type) else array  # a dictionary has a value once
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    return np.append(True, differs)
