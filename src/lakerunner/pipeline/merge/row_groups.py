"""The row groups of a merged segment or a rollup: where each ends, and its dictionaries.

Comes in: batches of one schema in the signal's order, cut anywhere. Goes out: row groups, which are the same however
the batches were cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.encoding import RUN_ROWS, RUNS
from lakerunner.pipeline.merge.keys import Keys

ROW_GROUP_BYTES = 32 << 20  # in memory; reached only where rows are large
_LEAST_OF_GROUP = 0.25  # of a full row group: smaller ones cost more than they spare


class Groups:
    """Batches as row groups: of as many rows as the signal says, or fewer where rows are large, or where the first sort
    column begins another value that would go on in the next one: who asks for one value reads little of others."""

    def __init__(self, batches: Iterable[pa.RecordBatch], spec: SignalSpec) -> None:
        self._batches = iter(batches)
        self._spec = spec
        self._held: list[pa.RecordBatch] = []
        self._next: pa.RecordBatch | None = None

    def peek(self) -> pa.RecordBatch | None:
        """The one that comes, None at the end."""
        if self._next is None:
            self._next = self._group()
        return self._next

    def take(self) -> pa.RecordBatch | None:
        """The same, which is then the caller's alone."""
        group, self._next = self.peek(), None
        return group

    def _group(self) -> pa.RecordBatch | None:
        rows = sum(batch.num_rows for batch in self._held)
        size = sum(batch.nbytes for batch in self._held)
        while rows <= self._spec.row_group_rows and size < ROW_GROUP_BYTES:  # and one, which may be like the last
            batch = next(self._batches, None)
            if batch is None:
                break
            if batch.num_rows:
                self._held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        if not self._held:
            return None
        whole = _joined(self._held)
        self._held.clear()
        rows = min(whole.num_rows, self._spec.row_group_rows)
        while rows > 1 and whole.slice(0, rows).nbytes > ROW_GROUP_BYTES:
            rows = (rows + 1) // 2
        if rows < whole.num_rows:
            rows = self._before_a_break(whole, rows)
            self._held.append(whole.slice(rows))
        return _with_own_dictionaries(whole.slice(0, rows))

    def _before_a_break(self, batch: pa.RecordBatch, rows: int) -> int:
        """So many rows, or those before the value that the last of them shares with the next one, unless few."""
        keys = Keys(batch.slice(0, rows + 1), self._spec.sort_by[:1])
        begins = keys.below(keys.at(rows), 0)
        return begins if begins >= rows * _LEAST_OF_GROUP else rows


def runs_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Runs of rows, evenly spread."""
    starts = [batch.num_rows * number // RUNS for number in range(RUNS)]
    ends = [*starts[1:], batch.num_rows]
    return _joined([batch.slice(start, min(RUN_ROWS, end - start)) for start, end in zip(starts, ends, strict=True)])


def _with_own_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Dictionaries of the values that occur, in the order in which they do: so much is written, and however the batches
    before had been cut, the same."""
    arrays = [_with_own(array) if pa.types.is_dictionary(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _with_own(array: pa.Array) -> pa.Array:
    values = len(array.dictionary)
    codes = (array.indices.fill_null(values) if array.indices.null_count else array.indices).to_numpy()
    first = np.full(values + 1, len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several the last counts, which is the first row
    used = np.flatnonzero(first[:values] < len(codes))
    used = used[np.argsort(first[used])]
    if len(used) == values and (used == np.arange(values)).all():
        return array
    place = np.zeros(values + 1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    nulls = codes == values if array.indices.null_count else None
    return pa.DictionaryArray.from_arrays(pa.array(place[codes], mask=nulls), array.dictionary.take(pa.array(used)))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch; one dictionary for each column that has any."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    (batch,) = table.to_batches()
    return batch
