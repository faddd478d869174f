"""The order of rows: by a signal's sort columns, as pipeline/steps/order.py sorts them; equal rows stay in input order.

Texts are compared by their bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.pipeline.steps.arrow_columns import is_textual

SortKey = tuple[bytes | int, ...]


class SortKeys:
    """The sort keys of a batch whose rows are in order."""

    def __init__(self, batch: pa.RecordBatch, sort_by: Sequence[str]) -> None:
        self._values = [_value_at(batch.column(name)) for name in sort_by]
        self.rows: int = batch.num_rows

    def at(self, row: int) -> SortKey:
        return tuple(value_at(row) for value_at in self._values)

    def below(self, key: SortKey, start: int) -> int:
        """Return the first row from `start` on that is not before this key."""
        return self._span(key, start)[0]

    def through(self, key: SortKey, start: int) -> int:
        """Return the first row from `start` on that is after this key."""
        return self._span(key, start)[1]

    def _span(self, key: SortKey, start: int) -> tuple[int, int]:
        """Return both, by a binary search in each column: rows that are equal in some columns are in the order of the
        next."""
        stop = self.rows
        for value_at, value in zip(self._values, key, strict=True):
            start = bisect_left(range(stop), value, start, key=value_at)
            if start == stop:
                break
            stop = bisect_right(range(stop), value, start, key=value_at)
        return start, stop


def _value_at(array: pa.Array) -> Callable[[int], Any]:
    """Return a function from row number to value."""
    column = comparable(array)
    if isinstance(column, np.ndarray):
        return column.item
    if pa.types.is_dictionary(column.type):
        codes, values = column.indices.to_numpy(), column.dictionary.to_pylist()
        return lambda row: values[codes[row]]
    return lambda row: column[row].as_py()


def comparable(array: pa.Array) -> Any:
    """Return numbers as integers, texts as bytes, dictionaries with their values as bytes."""
    if pa.types.is_dictionary(array.type):
        values = array.dictionary.cast(pa.binary())
        return pa.DictionaryArray.from_arrays(array.indices, values)
    if is_textual(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.int64()).to_numpy(zero_copy_only=False)


def rank_rows(array: pa.Array) -> Any:
    """Return integers that order the rows as this column does."""
    column = comparable(array)
    if isinstance(column, np.ndarray):
        return column
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[coded.indices.to_numpy(zero_copy_only=False)]


def sort_rows(keys: Sequence[Any]) -> tuple[Any, Any]:
    """Return (order, is_same): the row numbers in their order, and whether each has the keys of the row before it."""
    order = np.lexsort(tuple(reversed(keys)))
    is_same = np.ones(len(order), np.bool_)
    is_same[:1] = False
    for key in keys:
        is_same[1:] &= key[order[1:]] == key[order[:-1]]
    return order, is_same
