"""Merge the rows of several segments into one order, each row once, in bounded memory.

Comes in: open segments, ordered by `ingested`, and how much memory their rows may take. Goes out: batches of the merged
segment's schema, sorted by the signal's `sort_by`; rows with equal sort keys in the order of the inputs, then of their
rows; of rows that were delivered twice the last one (pipeline/merge/duplicates.py). Rows that are parts
(docs/decisions/0030) are added up instead, those of one sort key to one row.

Some rows of each input are in memory, its lookahead. Rows before the smallest of the lookaheads' last keys cannot be
followed by anything smaller: they are taken from all lookaheads until they fill a row group, which is then assembled.
If the rows of one sort key take more than twice the memory of the lookaheads, they are taken input after input: a first
reading finds by digests which of them are repeated (pipeline/merge/duplicates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column
from lakerunner.model.signal import SCOPES, SignalSpec
from lakerunner.pipeline.merge.duplicates import Identify, drop_repeated, find_kept
from lakerunner.pipeline.merge.inputs import Damaged, SegmentFile
from lakerunner.pipeline.merge.lookahead import Lookahead, RowSlice, SortKey, rank_rows, sort_rows
from lakerunner.pipeline.merge.output import concat_batches
from lakerunner.pipeline.merge.unify import UnifiedColumns, move_attributes, unify
from lakerunner.pipeline.segment.encoding import LEAST_ROWS, RUN_BYTES, RUN_ROWS, RUNS
from lakerunner.pipeline.segment.writer import Consumer
from lakerunner.pipeline.steps.stream_columns import DERIVED, StreamColumns

# The lookaheads take a tenth of the memory; the rest is for rows that are assembled, sorted and written.
_LOOKAHEADS = 10
_LEAST_ROWS = 128
_LARGE = 16  # a batch is large if it takes a sixteenth of the memory
_DIGEST_BYTES = 64  # memory for each row whose digest is compared with others
# The columns' read buffers take a sixteenth of the memory; below the least size, disk reads would be too small.
_BUFFERS, _LEAST_BUFFER, _MOST_BUFFER = 16, 4 << 10, 256 << 10
RowFilter = Callable[[pa.RecordBatch], pa.Array]
# Adds up the rows of each key, as pipeline/rollup/parts.py: (sorted rows, where each key begins and the last ends).
AddRows = Callable[[pa.RecordBatch, Any], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class MergedRows:
    """The merged rows; iterating again starts at the first row. A batch has at most the rows of a row group. `memory`
    bounds the rows of the inputs. `row_filter` selects rows of an input batch, whose texts may be dictionaries.
    `same_row` identifies rows that were delivered twice, of which the last stays; without it all stay. `dropped` gets
    the others, in the columns of the merged segment. `derive` makes columns of the others for inputs that lack them.
    `add` adds up rows, which may fill the columns `more`."""

    spec: SignalSpec
    inputs: Sequence[SegmentFile]
    memory: int
    row_filter: RowFilter | None = None
    same_row: Identify | None = None
    derive: Callable[[Sequence[Column]], StreamColumns] | None = None
    dropped: Consumer | None = None
    add: AddRows | None = None
    more: tuple[str, ...] = ()

    @cached_property
    def unified(self) -> UnifiedColumns:
        derived = [field.name for field in DERIVED] if self.derive else []
        return unify(self.spec, self.inputs, [*derived, *self.more])

    @cached_property
    def _derived(self) -> dict[int, StreamColumns]:
        """What derives the columns of inputs that lack them, by the number of the input."""
        if self.derive is None:
            return {}
        lacking = (n for n, opened in enumerate(self.inputs) if DERIVED[0].name not in opened.schema.names)
        return {number: self.derive(self.inputs[number].segment.columns) for number in lacking}

    @property
    def schema(self) -> pa.Schema:
        return self.unified.schema

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.unified.columns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        taken: list[RowSlice] = []
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
        """Return runs of rows from all parts of all inputs, unfiltered and unsorted; None if there are too few rows to
        measure anything."""
        if sum(opened.segment.rows for opened in self.inputs) < LEAST_ROWS:
            return None
        runs = []
        for number in range(RUNS):
            chosen = number * len(self.inputs) // RUNS
            batch = self.inputs[chosen].run(number / RUNS, RUN_ROWS)
            if batch.nbytes > RUN_BYTES:
                batch = batch.slice(0, batch.num_rows * RUN_BYTES // batch.nbytes)
            runs.append(RowSlice(chosen, batch, 0, batch.num_rows))
        shaped = [self._shaped(run) for run in runs]
        arrays = [_concat_arrays([columns[field.name] for columns in shaped]) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _steps(self) -> Iterator[list[RowSlice]]:
        """Yield rows that nothing smaller can follow: those of equal sort keys together, or without repeated rows."""
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
            # All rows are at the bound or after it: inputs whose last row is at it may have more rows of that key.
            short = [lookahead for lookahead in lookaheads if not lookahead.is_done and lookahead.last == bound]
            is_long = any(lookahead.batches > 1 for lookahead in short)
            if is_long and sum(lookahead.size for lookahead in lookaheads) * _LOOKAHEADS > 2 * self.memory:
                yield from self._long_run([lookahead for lookahead in lookaheads if lookahead.first == bound], bound)
            else:
                for lookahead in short:
                    lookahead.load()

    def _long_run(self, lookaheads: Sequence[Lookahead], key: SortKey) -> Iterator[list[RowSlice]]:
        """Yield the rows of this key, input after input, without repeated ones; finding those needs a second reading.
        All lookaheads start with this key."""
        keep = None
        if self.add is not None:
            yield [one for lookahead in lookaheads for one in self._added_run(lookahead, key, self.add)]
            return
        if self.same_row is not None:
            rows = sum(self.inputs[lookahead.number].segment.rows for lookahead in lookaheads)
            at_once = max(self.memory // _LOOKAHEADS // _DIGEST_BYTES, _LEAST_ROWS)
            keep = find_kept(self._identities(lookaheads, key, self.same_row), rows, at_once)
        place = 0
        for lookahead in lookaheads:
            for part in lookahead.run(key):
                if keep is None:
                    yield [part]
                    continue
                is_kept = keep[place : place + part.rows]
                chosen = part.batch.filter(pa.array(is_kept))
                place += part.rows
                if chosen.num_rows < part.rows:
                    others = part.batch.filter(pa.array(~is_kept))
                    self._drop(self._shaped(RowSlice(part.input, others, 0, others.num_rows)))
                if chosen.num_rows:
                    yield [RowSlice(part.input, chosen, 0, chosen.num_rows)]

    def _added_run(self, lookahead: Lookahead, key: SortKey, add: AddRows) -> list[RowSlice]:
        """Return the sum of the rows of this key, of which one batch is in memory at a time."""
        held: list[pa.RecordBatch] = []
        for part in lookahead.run(key):
            batch = part.batch
            for name in [one for one in self.more if one not in batch.schema.names]:
                batch = batch.append_column(name, pa.nulls(batch.num_rows, self.schema.field(name).type))
            batch = concat_batches([*held, batch])
            held = list(add(batch, np.array([0, batch.num_rows])))
        return [RowSlice(lookahead.number, one, 0, one.num_rows) for one in held]

    def _identities(
        self, lookaheads: Sequence[Lookahead], key: SortKey, same_row: Identify
    ) -> Iterator[tuple[Any, Any]]:
        """Yield (digests, has_identity) of the rows of this key, without advancing the lookaheads."""
        for lookahead in lookaheads:
            for part in lookahead.again().run(key):
                yield same_row(self._shaped(part), np.arange(part.rows))

    def _read(self, opened: SegmentFile, start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (row of the segment, batch) of the rows that pass the filter, each batch as large as a lookahead."""
        share = self.memory // _LOOKAHEADS // max(1, len(self.inputs))
        rows = min(max(share // opened.row_bytes, _LEAST_ROWS), self.spec.row_group_rows)
        streams = sum(one.metadata.num_columns for one in self.inputs)
        buffer_bytes = min(max(self.memory // _BUFFERS // max(1, streams), _LEAST_BUFFER), _MOST_BUFFER)
        for batch in opened.batches(rows, buffer_bytes=buffer_bytes, start=start):
            chosen = batch if self.row_filter is None else batch.filter(self.row_filter(batch))
            if chosen.num_rows:
                yield start, chosen
            start += batch.num_rows

    def _assembled(self, taken: list[RowSlice]) -> Iterator[pa.RecordBatch]:
        """Sort these rows and yield them, at most a row group at a time."""
        parts = _join_adjacent(sorted(taken, key=lambda part: part.input))
        taken.clear()  # free what is no longer needed at once, here and below
        keys = [rank_rows(_concat_arrays([part.batch.column(name) for part in parts])) for name in self.spec.sort_by]
        order, is_same = sort_rows(keys)
        self._check_order(parts, order)
        shaped = [self._shaped(part) for part in parts]
        del parts
        columns = {name: _concat_arrays([columns.pop(name) for columns in shaped]) for name in self.schema.names}
        if self.same_row is not None:
            order = drop_repeated(self.same_row, columns, order, is_same)
            if self.dropped is not None and len(order) < len(is_same):
                others = pa.array(np.setdiff1d(np.arange(len(is_same)), order, assume_unique=True))
                self._drop({name: _take_rows(columns[name], others) for name in columns})
        if len(order) != len(is_same) or (order[1:] < order[:-1]).any():
            places = pa.array(order)
            for name in columns:
                columns[name] = _take_rows(columns[name], places)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)
        columns.clear()
        if batch.nbytes * _LARGE >= self.memory:
            # Otherwise the allocator keeps freed memory for a while and takes as much again from the system.
            pa.default_memory_pool().release_unused()
        starts = None if self.add is None else np.append(np.flatnonzero(~is_same), len(is_same))
        for whole in [batch] if self.add is None else self.add(batch, starts):
            for start in range(0, whole.num_rows, self.spec.row_group_rows):
                yield whole.slice(start, self.spec.row_group_rows)

    def _drop(self, columns: Mapping[str, pa.Array]) -> None:
        if self.dropped is not None:
            self.dropped.add(pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema))

    def _check_order(self, parts: Sequence[RowSlice], order: Any) -> None:
        """Raise Damaged if the rows of a part were not in order: a stable sort would have left ordered ones as they
        are."""
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        is_down = place[1:] < place[:-1]
        start = 0
        for part in parts:
            stop = start + part.rows
            if is_down[start : stop - 1].any():
                raise Damaged(self.inputs[part.input].segment.id, "its rows are not in order")
            start = stop

    def _shaped(self, part: RowSlice) -> dict[str, pa.Array]:
        """Return these rows of one input as columns of the merged segment."""
        opened, batch = self.inputs[part.input], part.batch
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if part.input in self._derived:
            columns |= self._derived[part.input].derive(batch)
        for scope in SCOPES:
            own_kinds = self.unified.given_keys[part.input][scope]
            own = {key: columns.pop(scope.prefix + key) for key in own_kinds}
            try:
                maps, moved = move_attributes(columns[scope.map_column], own, own_kinds, self.unified.keys[scope])
            except Corrupt as error:
                raise Damaged(opened.segment.id, error) from error
            columns[scope.map_column] = maps
            columns |= {scope.prefix + key: array for key, array in moved.items()}
        return {
            field.name: _cast_column(columns.get(field.name), field.type, batch.num_rows)
            for field in self.unified.schema
        }


def _join_adjacent(parts: Sequence[RowSlice]) -> list[RowSlice]:
    """Join parts that continue each other: every part costs something for every column."""
    found: list[RowSlice] = []
    for part in parts:
        if found and found[-1].goes_on_as(part):
            found[-1] = replace(found[-1], stop=part.stop)
        else:
            found.append(part)
    return found


def _cast_column(array: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Cast a column to its type in the merged segment; nulls if the input lacks it."""
    if array is None:
        return pa.nulls(rows, kind)
    if array.type == kind:
        return array
    if pa.types.is_dictionary(kind):
        return array.cast(kind.value_type).dictionary_encode()
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode().cast(kind)
    return array.cast(kind)


def _concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    kinds = {array.type for array in arrays}
    if len(kinds) > 1:  # only sort columns, which are joined as they were read
        arrays = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in arrays]
    chunked = pa.chunked_array(arrays)
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    joined = chunked.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _take_rows(array: pa.Array, places: pa.Array) -> pa.Array:
    """Take these rows. Most map columns are empty in all rows: build their result without looking at the rows."""
    if pa.types.is_map(array.type) and array.null_count == 0:
        offsets = array.offsets
        if offsets[0].as_py() == offsets[-1].as_py():
            nothing = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.array(np.zeros(len(places) + 1, np.int32)), nothing, nothing).cast(
                array.type
            )
    return pc.take(array, places)
