"""Sorted rows to one segment: its file, what stands beside it, and its index row.

Comes in: batches of one schema in the signal's order, the builders of side files. Goes out: the files, through
`put_file`, those beside the segment first, and the index row, which tells of these rows alone. A row group is in memory
at a time: the file grows on the local disk. The same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.encoding import DICTIONARY, LENGTHS, PLAIN, RUN_ROWS, RUNS, encodings_by, options
from lakerunner.pipeline.merge.arrays import plain
from lakerunner.pipeline.merge.keys import Keys
from lakerunner.pipeline.merge.sides import Side
from lakerunner.pipeline.merge.summary import Summary

# Few different values among neighbours are as small without a dictionary as with one, but not in a whole row group.
_FEW_NUMBERS = 0.1
_BLOOM_FALSE_POSITIVES = 0.01
ROW_GROUP_BYTES = 32 << 20  # in memory; reached only where rows are large
_LEAST_OF_GROUP = 0.25  # of a full row group: smaller ones cost more than they spare
PutFile = Callable[[str, Path], None]


@dataclass(frozen=True)
class Made:
    """What a segment is, beside its rows."""

    organization: UUID
    collector: str
    spec: SignalSpec
    frequency_ms: int
    level: int
    id: UUID
    rolled: bool
    ingested: int


def write_sorted(
    made: Made,
    schema: pa.Schema,
    /,
    columns: Sequence[Column],
    batches: Iterable[pa.RecordBatch] | Groups,
    sides: Mapping[str, Side],
    directory: Path,
    put_file: PutFile,
    *,
    sample: pa.RecordBatch | None = None,
    max_bytes: int | None = None,
) -> Segment | None:
    """The segment of these rows, which is in the store when this returns; None if there are none. `sample` are rows of
    all parts of it, by which its columns are encoded: without one, the first row group is. With `max_bytes` it ends
    with the first row group that reaches them and at whose end the sort key changes; then `batches` are `Groups`, which
    hold what is left."""
    groups = batches if isinstance(batches, Groups) else Groups(batches, made.spec)
    if groups.peek() is None:
        return None
    path = directory / f"{made.id}.merged"
    summary = Summary(made.spec, columns)
    written = _write(path, made.spec, schema, groups, (*sides.values(), summary), sample, max_bytes)
    files = {name: _side_file(directory / f"{made.id}.{name}", side) for name, side in sides.items()}
    statistics, fingerprints = summary.finish(files)
    segment = Segment(
        made.id,
        made.organization,
        made.collector,
        made.spec.name,
        written.time,
        written.rows,
        path.stat().st_size,
        made.spec.sort_version,
        tuple(columns),
        frequency_ms=made.frequency_ms,
        level=made.level,
        statistics=statistics | {"side_bytes": {name: file.stat().st_size for name, file in files.items()}},
        fingerprints=fingerprints,
        ingested=made.ingested,
        rolled=made.rolled,
    )
    for name, file in files.items():
        put_file(segment.side_path(name), file)
    put_file(segment.path, path)
    for file in (*files.values(), path):
        file.unlink()
    return segment


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


@dataclass(frozen=True)
class _Written:
    time: TimeRange
    rows: int


def _write(
    path: Path,
    spec: SignalSpec,
    schema: pa.Schema,
    groups: Groups,
    told: Sequence[Side | Summary],
    sample: pa.RecordBatch | None,
    max_bytes: int | None,
) -> _Written:
    """`told` are shown each row group."""
    sample = runs_of(groups.peek()) if sample is None else sample
    rows, start, stop = 0, 1 << 63, -(1 << 63)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pq.ParquetWriter(
            sink,
            schema,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in spec.sort_by]),
            bloom_filter_options={name: _bloom(sample, name, spec) for name in spec.bloom if name in schema.names},
            **options(encodings_by(schema, _few(sample), spec, sample, (PLAIN, LENGTHS, DICTIONARY))),
        ) as writer,
    ):
        while (group := groups.take()) is not None:
            writer.write_batch(group, row_group_size=spec.row_group_rows)
            for one in told:
                one.add(group)
            times = group.column("timestamp").cast(pa.int64()).to_numpy()
            rows, start, stop = rows + len(times), min(start, int(times.min())), max(stop, int(times.max()) + 1)
            last = Keys(group.slice(len(times) - 1), spec.sort_by).at(0)
            del group, times  # before another is made
            if max_bytes is not None and sink.tell() >= max_bytes:
                following = groups.peek()
                if following is None or Keys(following.slice(0, 1), spec.sort_by).at(0) != last:
                    break
    return _Written(TimeRange(start, stop), rows)


def runs_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Runs of rows, evenly spread."""
    starts = [batch.num_rows * number // RUNS for number in range(RUNS)]
    ends = [*starts[1:], batch.num_rows]
    return _joined([batch.slice(start, min(RUN_ROWS, end - start)) for start, end in zip(starts, ends, strict=True)])


def _few(sample: pa.RecordBatch) -> frozenset[str]:
    """The columns with few different values: texts that come as dictionaries, and numbers by the sample."""
    return frozenset(
        field.name
        for field in sample.schema
        if pa.types.is_dictionary(field.type)
        or (pa.types.is_integer(field.type) and _share(sample.column(field.name)) <= _FEW_NUMBERS)
    )


def _share(array: pa.Array) -> float:
    """Of the values, how many are different."""
    values = len(array) - array.null_count
    return pc.count_distinct(array).as_py() / values if values else 0.0


def _bloom(sample: pa.RecordBatch, name: str, spec: SignalSpec) -> dict[str, Any]:
    """Room for as many different values as a row group would have if all of it were like that run of the sample that
    has the most: rather too much room than too little."""
    column = plain(sample.column(name))
    runs = [column.slice(start, RUN_ROWS) for start in range(0, len(column), RUN_ROWS)]
    most = max((pc.count_distinct(run).as_py() / len(run) for run in runs), default=1.0)
    return {"ndv": max(1, int(np.ceil(most * spec.row_group_rows))), "fpp": _BLOOM_FALSE_POSITIVES}


def _side_file(path: Path, side: Side) -> Path:
    with path.open("wb") as file:
        file.write(side.finish())
    return path


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
