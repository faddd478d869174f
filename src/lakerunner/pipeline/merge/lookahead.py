"""The rows of a segment that a merge looks ahead at: those that are in memory and not yet taken.

Comes in: a segment that is open, and how its rows are read. Goes out: rows up to a sort key. What always holds: rows
are in order, or the segment is Damaged; a lookahead grows only by `load`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.pipeline.merge.keys import Key, Keys
from lakerunner.pipeline.merge.opened import Damaged, Opened

# From this row of the segment on: batches that have rows, each with the row of the segment where it was read.
Read = Callable[[Opened, int], Iterator[tuple[int, pa.RecordBatch]]]


@dataclass(frozen=True)
class Taken:
    """The rows of a batch of an input, by its number, from `start` to before `stop`."""

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

    def goes_on_as(self, other: Taken) -> bool:
        """Whether the other has the rows that follow on these."""
        return self.source is other.source and self.stop == other.start


@dataclass
class _Chunk:
    """`start`: the first row of the batch that was not taken; `row`: where in the segment the batch was read."""

    batch: pa.RecordBatch
    keys: Keys
    start: int
    row: int


class Lookahead:
    def __init__(self, number: int, opened: Opened, sort_by: Sequence[str], read: Read, row: int = 0) -> None:
        self.is_done = False
        self.number = number
        self._opened = opened
        self._sort_by = sort_by
        self._read = read
        self._batches = read(opened, row)
        self._chunks: deque[_Chunk] = deque()
        self._end: Key | None = None

    def __bool__(self) -> bool:
        """Whether it has rows."""
        return bool(self._chunks)

    @property
    def first(self) -> Key:
        return self._chunks[0].keys.at(self._chunks[0].start)

    @property
    def last(self) -> Key:
        """The key of the last row that was loaded."""
        assert self._end is not None  # noqa: S101 - those without rows are not used
        return self._end

    @property
    def batches(self) -> int:
        """How many are in memory."""
        return len(self._chunks)

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return sum(chunk.keys.rows for chunk in self._chunks) * self._opened.row_bytes

    def fill(self) -> None:
        if not self._chunks and not self.is_done:
            self.load()

    def load(self) -> None:
        """The next batch."""
        row, batch = next(self._batches, (0, None))
        if batch is None:
            self.is_done = True
            return
        keys = Keys(batch, self._sort_by)
        if self._end is not None and keys.at(0) < self._end:
            raise Damaged(self._opened.segment.id, "its rows are not in order")
        self._end = keys.at(keys.rows - 1)
        self._chunks.append(_Chunk(batch, keys, 0, row))

    def take(self, bound: Key | None) -> Iterator[Taken]:
        """The rows before this key, or all, of those in memory."""
        while self._chunks:
            chunk = self._chunks[0]
            yield from self._until(chunk.keys.rows if bound is None else chunk.keys.below(bound, chunk.start))
            if chunk.start < chunk.keys.rows:
                return

    def run(self, key: Key) -> Iterator[Taken]:
        """All rows of this key, those before it left out: what is not in memory is loaded, a batch at a time."""
        self.fill()
        while self._chunks and self.first <= key:
            chunk = self._chunks[0]
            chunk.start = chunk.keys.below(key, chunk.start)
            yield from self._until(chunk.keys.through(key, chunk.start))
            self.fill()

    def again(self) -> Lookahead:
        """Another one that has nothing in memory yet, and will have all rows that this one has."""
        return Lookahead(self.number, self._opened, self._sort_by, self._read, self._chunks[0].row)

    def _until(self, stop: int) -> Iterator[Taken]:
        """The rows of the first batch before this one."""
        chunk = self._chunks[0]
        start, chunk.start = chunk.start, stop
        if stop == chunk.keys.rows:
            self._chunks.popleft()
        if stop > start:
            yield Taken(self.number, chunk.batch, start, stop)
