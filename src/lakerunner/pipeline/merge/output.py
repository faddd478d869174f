"""Write the rows of a merge or a rollup as segments: cut row groups, write a local file, put it into the store.

Comes in: batches of one schema in the signal's order, cut anywhere, and the builders of side files. Goes out: the
files, through `put_file`, side files before the segment they belong to, and the index row. Row groups are the same
however the batches were cut. The file grows on the local disk, so that one row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.merge.lookahead import SortKeys
from lakerunner.pipeline.segment.encoding import DICTIONARY, LENGTHS, PLAIN, RUN_ROWS, RUNS, choose_encodings
from lakerunner.pipeline.segment.writer import FileForm, SegmentIdentity, SegmentWriter, Side
from lakerunner.pipeline.steps.arrow_columns import plain

# Numbers with a smaller share of distinct values get a dictionary: neighbours alone would not show that it pays.
_FEW_NUMBERS = 0.1
PutFile = Callable[[str, Path], None]


@dataclass(frozen=True)
class SegmentOutput:
    """Writes segments of this schema. `sample` are rows of all parts of them, by which the encodings of columns are
    chosen; without one, the first row group of each segment is the sample. With `max_bytes` a segment ends with the
    first row group that reaches it and after which the sort key changes."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    directory: Path
    put_file: PutFile
    sample: pa.RecordBatch | None = None
    max_bytes: int | None = None

    def write(self, identity: SegmentIdentity, groups: RowGroups, sides: Mapping[str, Side]) -> Segment:
        """Write the segment of the next row groups, of which there is at least one; it is in the store when this
        returns. Row groups beyond `max_bytes` stay in `groups`."""
        path = self.directory / f"{identity.id}.merged"
        sample = sample_runs(groups.peek()) if self.sample is None else self.sample
        form = _file_form(identity.spec, self.schema, self.columns, sample)
        with pa.OSFile(str(path), "wb") as sink, SegmentWriter(identity, form, sides, sink) as writer:
            while (group := groups.take()) is not None:
                writer.add(group)
                last = SortKeys(group.slice(group.num_rows - 1), identity.spec.sort_by).at(0)
                del group  # before another is made
                if self.max_bytes is not None and writer.bytes >= self.max_bytes:
                    following = groups.peek()
                    if following is None or SortKeys(following.slice(0, 1), identity.spec.sort_by).at(0) != last:
                        break
            written = writer.finish()
        segment = written.segment
        for name, data in written.sides.items():
            side = self.directory / f"{identity.id}.{name}"
            side.write_bytes(data)
            self.put_file(segment.side_path(name), side)
            side.unlink()
        self.put_file(segment.path, path)
        path.unlink()
        return segment


def _file_form(spec: SignalSpec, schema: pa.Schema, columns: tuple[Column, ...], sample: pa.RecordBatch) -> FileForm:
    """Return the form of a file of rows like those of the sample."""
    encodings = choose_encodings(schema, _low_cardinality_columns(sample), spec, sample, (PLAIN, LENGTHS, DICTIONARY))
    blooms = {name: _most_distinct(sample, name, spec) for name in spec.bloom if name in schema.names}
    return FileForm(schema, columns, encodings, blooms)


def _low_cardinality_columns(sample: pa.RecordBatch) -> frozenset[str]:
    """Return the columns with few distinct values: texts that come as dictionaries, and numbers by the sample."""
    return frozenset(
        field.name
        for field in sample.schema
        if pa.types.is_dictionary(field.type)
        or (pa.types.is_integer(field.type) and _distinct_share(sample.column(field.name)) <= _FEW_NUMBERS)
    )


def _distinct_share(array: pa.Array) -> float:
    """Return the share of distinct values among the values."""
    values = len(array) - array.null_count
    return pc.count_distinct(array).as_py() / values if values else 0.0


def _most_distinct(sample: pa.RecordBatch, name: str, spec: SignalSpec) -> int:
    """Estimate the distinct values of a row group from the run of the sample with the most: a bloom filter that is too
    large is better than one that is too small."""
    column = plain(sample.column(name))
    runs = [column.slice(start, RUN_ROWS) for start in range(0, len(column), RUN_ROWS)]
    most = max((pc.count_distinct(run).as_py() / len(run) for run in runs), default=1.0)
    return int(np.ceil(most * spec.row_group_rows))


ROW_GROUP_BYTES = 32 << 20  # in memory; reached only where rows are large
_LEAST_OF_GROUP = 0.25  # of a full row group: smaller ones cost more than they spare


class RowGroups:
    """Batches as row groups: of as many rows as the signal's spec says, or fewer if rows are large, or before a value
    of the first sort column that would continue in the next group: a query for one value then reads little of
    others."""

    def __init__(self, batches: Iterable[pa.RecordBatch], spec: SignalSpec) -> None:
        self._batches = iter(batches)
        self._spec = spec
        self._held: list[pa.RecordBatch] = []
        self._next: pa.RecordBatch | None = None

    def peek(self) -> pa.RecordBatch | None:
        """Return the next row group, None at the end."""
        if self._next is None:
            self._next = self._group()
        return self._next

    def take(self) -> pa.RecordBatch | None:
        """Return the next row group and release it, so that only the caller holds it."""
        group, self._next = self.peek(), None
        return group

    def _group(self) -> pa.RecordBatch | None:
        rows = sum(batch.num_rows for batch in self._held)
        size = sum(batch.nbytes for batch in self._held)
        while (
            rows <= self._spec.row_group_rows and size < ROW_GROUP_BYTES
        ):  # one row more, to see whether it is like the last
            batch = next(self._batches, None)
            if batch is None:
                break
            if batch.num_rows:
                self._held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        if not self._held:
            return None
        whole = concat_batches(self._held)
        self._held.clear()
        rows = min(whole.num_rows, self._spec.row_group_rows)
        while rows > 1 and whole.slice(0, rows).nbytes > ROW_GROUP_BYTES:
            rows = (rows + 1) // 2
        if rows < whole.num_rows:
            rows = self._before_a_break(whole, rows)
            self._held.append(whole.slice(rows))
        return _compact_dictionaries(whole.slice(0, rows))

    def _before_a_break(self, batch: pa.RecordBatch, rows: int) -> int:
        """Return `rows`, or fewer to end before the value that the last of them shares with the next row, unless too
        few remain."""
        keys = SortKeys(batch.slice(0, rows + 1), self._spec.sort_by[:1])
        begins = keys.below(keys.at(rows), 0)
        return begins if begins >= rows * _LEAST_OF_GROUP else rows


def sample_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return evenly spread runs of rows."""
    starts = [batch.num_rows * number // RUNS for number in range(RUNS)]
    ends = [*starts[1:], batch.num_rows]
    return concat_batches(
        [batch.slice(start, min(RUN_ROWS, end - start)) for start, end in zip(starts, ends, strict=True)]
    )


def _compact_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rebuild dictionaries of only the values that occur, in the order of first occurrence: the file is smaller, and
    the same however the batches before were cut."""
    arrays = [_compact_dictionary(array) if pa.types.is_dictionary(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _compact_dictionary(array: pa.Array) -> pa.Array:
    values = len(array.dictionary)
    codes = (array.indices.fill_null(values) if array.indices.null_count else array.indices).to_numpy()
    first = np.full(values + 1, len(codes))
    first[codes[::-1]] = np.arange(len(codes))[
        ::-1
    ]  # reversed, because the last assignment wins: the first row of each value
    used = np.flatnonzero(first[:values] < len(codes))
    used = used[np.argsort(first[used])]
    if len(used) == values and (used == np.arange(values)).all():
        return array
    place = np.zeros(values + 1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    nulls = codes == values if array.indices.null_count else None
    return pa.DictionaryArray.from_arrays(pa.array(place[codes], mask=nulls), array.dictionary.take(pa.array(used)))


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join the batches, with one dictionary for each column that has any."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    (batch,) = table.to_batches()
    return batch
