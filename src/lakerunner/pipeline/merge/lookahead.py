"""The lookahead of a merge input, rows that are in memory and not yet taken, and the order of rows.

Comes in: an open segment, and how its rows are read. Goes out: rows up to a sort key. What always holds: rows are in
order, or the segment is Damaged; a lookahead grows only by `load`. Rows are ordered by a signal's sort columns, as
pipeline/steps/order.py sorts them; equal rows stay in input order. Texts are compared by their bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.pipeline.merge.inputs import Damaged, SegmentFile
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


# Yields, from this row of the segment on, non-empty batches, each with the row of the segment where it was read.
ReadBatches = Callable[[SegmentFile, int], Iterator[tuple[int, pa.RecordBatch]]]


@dataclass(frozen=True)
class RowSlice:
    """The rows of a batch of an input, by the input's number, from `start` to before `stop`."""

    input: int
    source: pa.RecordBatch
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def batch(self) -> pa.RecordBatch:
        return self.source.slice(self.start, self.rows)

    def goes_on_as(self, other: RowSlice) -> bool:
        """Return whether the other slice follows directly on this one."""
        return self.source is other.source and self.stop == other.start


@dataclass
class _Chunk:
    """A loaded batch. `start` is the first row that was not taken; `row` is where in the segment the batch was read."""

    batch: pa.RecordBatch
    keys: SortKeys
    start: int
    row: int


class Lookahead:
    """The loaded rows of one input."""

    def __init__(
        self, number: int, opened: SegmentFile, sort_by: Sequence[str], read: ReadBatches, row: int = 0
    ) -> None:
        self.is_done = False
        self.number = number
        self._opened = opened
        self._sort_by = sort_by
        self._read = read
        self._batches = read(opened, row)
        self._chunks: deque[_Chunk] = deque()
        self._end: SortKey | None = None

    def __bool__(self) -> bool:
        """Return whether it has rows."""
        return bool(self._chunks)

    @property
    def first(self) -> SortKey:
        return self._chunks[0].keys.at(self._chunks[0].start)

    @property
    def last(self) -> SortKey:
        """The key of the last row that was loaded."""
        assert self._end is not None  # noqa: S101 - those without rows are not used
        return self._end

    @property
    def batches(self) -> int:
        """How many batches are in memory."""
        return len(self._chunks)

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return sum(chunk.keys.rows for chunk in self._chunks) * self._opened.row_bytes

    def fill(self) -> None:
        """Load a batch if none is in memory."""
        if not self._chunks and not self.is_done:
            self.load()

    def load(self) -> None:
        """Load the next batch."""
        row, batch = next(self._batches, (0, None))
        if batch is None:
            self.is_done = True
            return
        keys = SortKeys(batch, self._sort_by)
        if self._end is not None and keys.at(0) < self._end:
            raise Damaged(self._opened.segment.id, "its rows are not in order")
        self._end = keys.at(keys.rows - 1)
        self._chunks.append(_Chunk(batch, keys, 0, row))

    def take(self, bound: SortKey | None) -> Iterator[RowSlice]:
        """Yield the rows in memory that come before this key, or all of them."""
        while self._chunks:
            chunk = self._chunks[0]
            yield from self._until(chunk.keys.rows if bound is None else chunk.keys.below(bound, chunk.start))
            if chunk.start < chunk.keys.rows:
                return

    def run(self, key: SortKey) -> Iterator[RowSlice]:
        """Yield all rows of this key and skip those before it; load what is not in memory, a batch at a time."""
        self.fill()
        while self._chunks and self.first <= key:
            chunk = self._chunks[0]
            chunk.start = chunk.keys.below(key, chunk.start)
            yield from self._until(chunk.keys.through(key, chunk.start))
            self.fill()

    def again(self) -> Lookahead:
        """Return a second lookahead that starts at the rows of this one, with nothing loaded."""
        return Lookahead(self.number, self._opened, self._sort_by, self._read, self._chunks[0].row)

    def _until(self, stop: int) -> Iterator[RowSlice]:
        """Yield the rows of the first batch before `stop`."""
        chunk = self._chunks[0]
        start, chunk.start = chunk.start, stop
        if stop == chunk.keys.rows:
            self._chunks.popleft()
        if stop > start:
            yield RowSlice(self.number, chunk.batch, start, stop)
