"""The lookahead of a merge input: rows that are in memory and not yet taken.

Comes in: an open segment, and how its rows are read. Goes out: rows up to a sort key. What always holds: rows are in
order, or the segment is Damaged; a lookahead grows only by `load`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.pipeline.merge.inputs import Damaged, SegmentFile
from lakerunner.pipeline.merge.sort_keys import SortKey, SortKeys

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
