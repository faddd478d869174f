"""The rows of several segments in one order, each once, in bounded memory.

Comes in: segments that are open, ordered by `ingested`, and how much memory their rows may take. Goes out: batches of
the merged segment's schema, sorted by the signal's `sort_by`; rows with equal sort keys in the order of the inputs,
then of their rows; of rows that came twice the last one (pipeline/merge/duplicates.py).

Some rows of each input are in memory, its lookahead. Rows before the smallest of the lookaheads' last keys can be
followed by nothing smaller: they are taken from all lookaheads, until they make a row group, which is then put
together. Rows of one sort key that are more than twice what lookaheads may hold are taken input after input: which of
them come again is found by digests in a first reading (pipeline/merge/duplicates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column
from lakerunner.model.signal import SCOPES, SignalSpec
from lakerunner.pipeline.encoding import LEAST_ROWS, RUN_BYTES, RUN_ROWS, RUNS
from lakerunner.pipeline.merge.attributes import move
from lakerunner.pipeline.merge.duplicates import kept, kept_of_run
from lakerunner.pipeline.merge.keys import Key, ranks, sorted_order
from lakerunner.pipeline.merge.lookahead import Lookahead, Taken
from lakerunner.pipeline.merge.opened import Damaged, Opened
from lakerunner.pipeline.merge.unify import Unified, unify
from lakerunner.pipeline.signals import row_of

# Of the memory, the lookaheads take one part in so many; the rest is what is being put together, sorted and written.
_LOOKAHEADS = 10
_LEAST_ROWS = 128
_LARGE = 16  # a batch of one part in so many of the memory
_DIGEST_BYTES = 64  # of a row whose digest is compared with others
# Likewise the bytes that are read ahead of each column; the least makes a read of the disk worth its while.
_BUFFERS, _LEAST_BUFFER, _MOST_BUFFER = 16, 4 << 10, 256 << 10
Wanted = Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True)
class Merged:
    """Iterate it once, or again from the start. Batches have at most the rows of a row group."""

    spec: SignalSpec
    inputs: tuple[Opened, ...]
    unified: Unified
    memory: int
    wanted: Wanted | None
    dedupe: bool

    @property
    def schema(self) -> pa.Schema:
        return self.unified.schema

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.unified.columns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        taken: list[Taken] = []
        rows = size = 0
        for step in self._steps():
            taken += step
            rows += sum(part.rows for part in step)
            size += sum(part.rows * self.inputs[part.input].row_bytes for part in step)
            if rows >= self.spec.row_group_rows or size * _LOOKAHEADS >= self.memory:
                yield from self._assembled(taken)
                rows = size = 0
        if taken:
            yield from self._assembled(taken)

    def sample(self) -> pa.RecordBatch | None:
        """Runs of rows of all parts of all inputs; None where there are too few rows to tell anything. Neither `wanted`
        nor the order counts in it."""
        if sum(opened.segment.rows for opened in self.inputs) < LEAST_ROWS:
            return None
        runs = []
        for number in range(RUNS):
            chosen = number * len(self.inputs) // RUNS
            batch = self.inputs[chosen].run(number / RUNS, RUN_ROWS)
            if batch.nbytes > RUN_BYTES:
                batch = batch.slice(0, batch.num_rows * RUN_BYTES // batch.nbytes)
            runs.append(Taken(chosen, batch, 0, batch.num_rows))
        shaped = [self._shaped(run) for run in runs]
        arrays = [_joined([columns[field.name] for columns in shaped]) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _steps(self) -> Iterator[list[Taken]]:
        """Rows that nothing smaller can follow, those of equal sort keys together or without what comes twice."""
        lookaheads = [
            Lookahead(number, opened, self.spec.sort_by, self._read) for number, opened in enumerate(self.inputs)
        ]
        while True:
            for lookahead in lookaheads:
                lookahead.fill()
            lookaheads = [lookahead for lookahead in lookaheads if lookahead]
            if not lookaheads:
                return
            bounds = [lookahead.last for lookahead in lookaheads if not lookahead.is_done]
            if not bounds:
                yield [part for lookahead in lookaheads for part in lookahead.take(None)]
                return
            bound = min(bounds)
            if step := [part for lookahead in lookaheads for part in lookahead.take(bound)]:
                yield step
                continue
            # All rows are at the bound or after it: whose last row is there may have more of the same.
            short = [lookahead for lookahead in lookaheads if not lookahead.is_done and lookahead.last == bound]
            is_long = any(lookahead.batches > 1 for lookahead in short)
            if is_long and sum(lookahead.size for lookahead in lookaheads) * _LOOKAHEADS > 2 * self.memory:
                yield from self._long_run([lookahead for lookahead in lookaheads if lookahead.first == bound], bound)
            else:
                for lookahead in short:
                    lookahead.load()

    def _long_run(self, lookaheads: Sequence[Lookahead], key: Key) -> Iterator[list[Taken]]:
        """The rows of this key, input after input, without those that come again; to know these, they are read twice.
        All lookaheads start with them."""
        keep = None
        if self.dedupe:
            rows = sum(self.inputs[lookahead.number].segment.rows for lookahead in lookaheads)
            at_once = max(self.memory // _LOOKAHEADS // _DIGEST_BYTES, _LEAST_ROWS)
            keep = kept_of_run(self._identities(lookaheads, key), rows, at_once)
        place = 0
        for lookahead in lookaheads:
            for part in lookahead.run(key):
                if keep is None:
                    yield [part]
                    continue
                chosen = part.batch.filter(pa.array(keep[place : place + part.rows]))
                place += part.rows
                if chosen.num_rows:
                    yield [Taken(part.input, chosen, 0, chosen.num_rows)]

    def _identities(self, lookaheads: Sequence[Lookahead], key: Key) -> Iterator[tuple[Any, Any]]:
        """What tells the rows of this key apart. The lookaheads stay as they are."""
        for lookahead in lookaheads:
            for part in lookahead.again().run(key):
                yield row_of(self.spec).same_row(self._shaped(part), np.arange(part.rows))

    def _read(self, opened: Opened, start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of the rows that count, each as large as a lookahead."""
        share = self.memory // _LOOKAHEADS // max(1, len(self.inputs))
        rows = min(max(share // opened.row_bytes, _LEAST_ROWS), self.spec.row_group_rows)
        streams = sum(one.metadata.num_columns for one in self.inputs)
        buffer_bytes = min(max(self.memory // _BUFFERS // max(1, streams), _LEAST_BUFFER), _MOST_BUFFER)
        for batch in opened.batches(rows, buffer_bytes=buffer_bytes, start=start):
            chosen = batch if self.wanted is None else batch.filter(self.wanted(batch))
            if chosen.num_rows:
                yield start, chosen
            start += batch.num_rows

    def _assembled(self, taken: list[Taken]) -> Iterator[pa.RecordBatch]:
        """These rows in order, at most a row group at a time."""
        parts = _connected(sorted(taken, key=lambda part: part.input))
        taken.clear()  # what is not needed any more goes at once, here and below
        keys = [ranks(_joined([part.batch.column(name) for part in parts])) for name in self.spec.sort_by]
        order, is_same = sorted_order(keys)
        self._check_order(parts, order)
        shaped = [self._shaped(part) for part in parts]
        del parts
        columns = {name: _joined([columns.pop(name) for columns in shaped]) for name in self.schema.names}
        if self.dedupe:
            order = kept(row_of(self.spec).same_row, columns, order, is_same)
        if len(order) != len(is_same) or (order[1:] < order[:-1]).any():
            places = pa.array(order)
            for name in columns:
                columns[name] = _ordered(columns[name], places)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)
        columns.clear()
        if batch.nbytes * _LARGE >= self.memory:
            # Else the allocator keeps what was freed for a while, and as much again is taken from the system.
            pa.default_memory_pool().release_unused()
        for start in range(0, batch.num_rows, self.spec.row_group_rows):
            yield batch.slice(start, self.spec.row_group_rows)

    def _check_order(self, parts: Sequence[Taken], order: Any) -> None:
        """A stable sort leaves the rows of a part as they stand, if they were in order."""
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        is_down = place[1:] < place[:-1]
        start = 0
        for part in parts:
            stop = start + part.rows
            if is_down[start : stop - 1].any():
                raise Damaged(self.inputs[part.input].segment.id, "its rows are not in order")
            start = stop

    def _shaped(self, part: Taken) -> dict[str, pa.Array]:
        """The columns of the merged segment of these rows of one input."""
        opened, batch = self.inputs[part.input], part.batch
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for scope in SCOPES:
            own_kinds = self.unified.given_keys[part.input][scope]
            own = {key: columns.pop(scope.prefix + key) for key in own_kinds}
            try:
                maps, moved = move(columns[scope.map_column], own, own_kinds, self.unified.keys[scope])
            except Corrupt as error:
                raise Damaged(opened.segment.id, error) from error
            columns[scope.map_column] = maps
            columns |= {scope.prefix + key: array for key, array in moved.items()}
        return {field.name: _as(columns.get(field.name), field.type, batch.num_rows) for field in self.unified.schema}


def merged(
    spec: SignalSpec, inputs: Sequence[Opened], memory: int, *, wanted: Wanted | None = None, dedupe: bool = True
) -> Merged:
    """What these inputs make together. `wanted` says of each row of an input's batch, whose texts may be dictionaries,
    whether it counts at all."""
    return Merged(spec, tuple(inputs), unify(spec, inputs), memory, wanted, dedupe)


def _connected(parts: Sequence[Taken]) -> list[Taken]:
    """The same rows in fewer parts: each costs something for every column."""
    found: list[Taken] = []
    for part in parts:
        if found and found[-1].goes_on_as(part):
            found[-1] = replace(found[-1], stop=part.stop)
        else:
            found.append(part)
    return found


def _as(array: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    """This column as the merged segment has it."""
    if array is None:
        return pa.nulls(rows, kind)
    if array.type == kind:
        return array
    if pa.types.is_dictionary(kind):
        return array.cast(kind.value_type).dictionary_encode()
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode().cast(kind)
    return array.cast(kind)


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    kinds = {array.type for array in arrays}
    if len(kinds) > 1:  # of sort columns, which are joined as they were read
        arrays = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in arrays]
    chunked = pa.chunked_array(arrays)
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    joined = chunked.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _ordered(array: pa.Array, places: pa.Array) -> pa.Array:
    """Most maps are empty, and need no looking at."""
    if pa.types.is_map(array.type) and array.null_count == 0:
        offsets = array.offsets
        if offsets[0].as_py() == offsets[-1].as_py():
            nothing = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.array(np.zeros(len(places) + 1, np.int32)), nothing, nothing).cast(
                array.type
            )
    return pc.take(array, places)
