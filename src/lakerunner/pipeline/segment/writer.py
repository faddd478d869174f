"""Write sorted rows as one segment: its Parquet file, the files beside it, and its index row.

Comes in: row groups of one schema in the signal's order, one after the other. Goes out: the file, through the sink; the
bytes of the side files; and the index row, which describes these rows alone. Ingest, merges and rollups write segments
in this one way. One row group is in memory at a time. The same row groups give the same bytes.

Every row group is passed to the builders of side files, to the summary, and to further consumers: anything else that is
made of the rows of a segment while they are written. They get row groups as these are written, so that a side file that
counts by row groups or rows counts those of the segment.

The summary is what the index records beside the size: time range, rows, statistics, fingerprints. Fingerprints prune: a
segment that lacks the fingerprint of `service_name` = x, or of an attribute key, holds no such row.
model/segment.py lists for each signal the columns whose values have fingerprints. If there are too many
fingerprints to keep, INCOMPLETE replaces all of them.

The memory of a summary is bounded: if a column has more than `most` distinct texts, only those that the statistics list
are kept; their count is then left out, and no fingerprint prunes. If a merge gives several segments, each has all of
their columns. Columns without a value are not labels of a segment and have no fingerprint, but count as keys: a reader
of the columns and labels of a segment finds as many as `key_count` states.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.segment import INCOMPLETE, MAX_FINGERPRINTS, VALUES, Column, Segment, field_fingerprints
from lakerunner.model.signal import ATTRIBUTES, SCOPES, Scope, SignalSpec
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.segment.encoding import Encoding, writer_options
from lakerunner.pipeline.steps.arrow_columns import plain

_BLOOM_FALSE_POSITIVES = 0.01
MAX_VALUES = 100  # of a column, in the statistics
MAX_NAME = 256  # characters of a value in the statistics
MOST_HELD = 10_000


class Consumer(Protocol):
    """Takes the rows of a segment while they are written."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next row group of the segment, whole."""


@dataclass(frozen=True)
class SideFile:
    """The bytes of a side file. `values` are further values that prune, by their column: other names of the same rows
    that only this file has."""

    data: pa.Buffer
    values: Mapping[str, Collection[str]] = field(default_factory=dict)


class Side(Consumer, Protocol):
    """A side file being built. Memory is bounded by what the file holds, not by the rows."""

    def finish(self) -> SideFile | None:
        """Return the file, None if this segment has none; Damaged, with the segment's id, where a file beside an input
        that it is made of cannot be read. Call it once, after the last row group."""


class SeriesFacts(Protocol):
    """Facts about series that are not in the columns of their points: names in Prometheus, labels, resource."""

    def of(self, series: pa.Table) -> pa.Table:
        """Return the columns of series_files.FACTS for these series, in their order. `series` has their
        `metric_name`, `series`, and `first_row`, the place in the segment of the first point of each."""


@dataclass(frozen=True)
class SideInputs:
    """What a builder may need. `columns` of the segment, as `Segment.columns`; `facts` about the series of metrics."""

    columns: Sequence[Column] = ()
    facts: SeriesFacts | None = None


BuildSide = Callable[[SideInputs], Side]


class Summarizer:
    """Builds the summary. `columns` are those of the segment, as `Segment.columns`."""

    def __init__(self, spec: SignalSpec, columns: Sequence[Column], most: int = MOST_HELD) -> None:
        self._words = VALUES[spec.name]
        self._values = {name: _DistinctTexts(most) for name in self._words}
        self._keys = {scope: _DistinctTexts(most) for scope in SCOPES}
        self._shredded = {scope: _shredded_keys(scope, columns) for scope in SCOPES}
        self._empty = {scope: dict(named) for scope, named in self._shredded.items()}
        self._rows, self._start, self._end = 0, 1 << 63, -(1 << 63)

    def add(self, batch: pa.RecordBatch) -> None:
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        self._rows += len(times)
        self._start, self._end = min(self._start, int(times.min())), max(self._end, int(times.max()) + 1)
        for name, values in self._values.items():
            values.add(plain(pc.unique(batch.column(name))).to_pylist())
        for scope, keys in self._keys.items():
            empty = self._empty[scope]
            filled = [name for name in empty if batch.column(name).null_count < batch.num_rows]
            keys.add(empty.pop(name) for name in filled)
            maps = batch.column(scope.map_column)
            first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
            if last > first:
                keys.add(pc.unique(maps.keys.slice(first, last - first)).to_pylist())

    def finish(self, further: Iterable[Mapping[str, Collection[str]]] = ()) -> dict[str, Any]:
        """Return these fields of the index row; `further` are values of columns that prune too, as SideFile.values."""
        statistics: dict[str, Any] = {}
        listed = {word: self._values[name] for name, word in self._words.items()} | {"label": self._keys[ATTRIBUTES]}
        for word, values in listed.items():
            statistics[f"{word}s"] = [value[:MAX_NAME] for value in sorted(values.found)[:MAX_VALUES]]
            if values.is_whole:
                statistics[f"{word}_count"] = len(values.found)
        if all(keys.is_whole for keys in self._keys.values()):
            statistics["key_count"] = sum(
                len(self._keys[scope].found.union(named.values())) for scope, named in self._shredded.items()
            )
        time, fingerprints = TimeRange(self._start, self._end), self._fingerprints(further)
        return {"time": time, "rows": self._rows, "statistics": statistics, "fingerprints": fingerprints}

    def _fingerprints(self, further: Iterable[Mapping[str, Collection[str]]]) -> tuple[int, ...]:
        if not all(texts.is_whole for texts in (*self._values.values(), *self._keys.values())):
            return (INCOMPLETE,)
        found = {name: set(values.found) for name, values in self._values.items()}
        for named in further:
            for name, names in named.items():
                found[name].update(names)
        count = sum(1 + len(values) for values in found.values()) + sum(len(keys.found) for keys in self._keys.values())
        if count > MAX_FINGERPRINTS:
            return (INCOMPLETE,)
        made = {number for name, values in found.items() for number in field_fingerprints(name, values)}
        for scope, keys in self._keys.items():
            made.update(number for key in keys.found for number in field_fingerprints(scope.prefix + key))
        return tuple(sorted(made))


class _DistinctTexts:
    """Distinct texts; of more than `most` only the first in sort order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.found: set[str] = set()
        self.is_whole = True

    def add(self, texts: Iterable[str]) -> None:
        self.found.update(texts)
        if len(self.found) > self._most:
            self.is_whole = False
            self.found = {*nsmallest(MAX_VALUES, self.found)}


def _shredded_keys(scope: Scope, columns: Sequence[Column]) -> dict[str, str]:
    """Return the keys of this scope that have a column, by the column's name."""
    return {
        column.name: column.name.removeprefix(scope.prefix)
        for column in columns
        if column.type and column.name.startswith(scope.prefix)
    }


@dataclass(frozen=True)
class SegmentIdentity:
    """What a segment is, beside its rows."""

    id: UUID
    organization: UUID
    collector: str
    spec: SignalSpec
    frequency_ms: int = 0
    level: int = 0
    rolled: bool = False
    ingested: int = 0
    rule_set: tuple[int, ...] = ()


@dataclass(frozen=True)
class FileForm:
    """How the file of a segment is laid out. `columns` are those of the schema as the index lists them; `encodings` by
    the column's path in the file; `blooms` the most distinct values of a row group for each column with a bloom
    filter."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    encodings: Mapping[str, Encoding]
    blooms: Mapping[str, int]

    def open(self, sink: pa.NativeFile, sort_by: Sequence[str]) -> pq.ParquetWriter:
        """Open the file, with statistics, a page index, and checksums of pages."""
        sorting = pq.SortingColumn.from_ordering(self.schema, [(name, "ascending") for name in sort_by])
        return pq.ParquetWriter(
            sink,
            self.schema,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=sorting,
            bloom_filter_options={name: _bloom_options(values) for name, values in self.blooms.items()},
            **writer_options(self.encodings),
        )


@dataclass(frozen=True)
class WrittenSegment:
    """The index row of a segment, and the side files by their names."""

    segment: Segment
    sides: Mapping[str, pa.Buffer]


class SegmentWriter:
    """A segment being written. `most_held` bounds the memory of its summary."""

    def __init__(
        self,
        identity: SegmentIdentity,
        form: FileForm,
        sides: Mapping[str, Side],
        sink: pa.NativeFile,
        *,
        consumers: Sequence[Consumer] = (),
        most_held: int = MOST_HELD,
    ) -> None:
        self._identity = identity
        self._form = form
        self._sides = sides
        self._sink = sink
        self._summarizer = Summarizer(identity.spec, form.columns, most_held)
        self._consumers: tuple[Consumer, ...] = (*sides.values(), self._summarizer, *consumers)
        self._writer = form.open(sink, identity.spec.sort_by)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    @property
    def bytes(self) -> int:
        """The size of the file so far."""
        return int(self._sink.tell())

    def add(self, group: pa.RecordBatch) -> None:
        """Write the next row group."""
        self._writer.write_batch(group, row_group_size=self._identity.spec.row_group_rows)
        for consumer in self._consumers:
            consumer.add(group)

    def finish(self) -> WrittenSegment:
        """Close the file; return its index row, and the side files, which must be stored before the segment. Call it
        once, after the last row group."""
        self._writer.close()
        finished = {name: side.finish() for name, side in self._sides.items()}
        files = {name: file for name, file in finished.items() if file is not None}
        summary = self._summarizer.finish(file.values for file in files.values())
        summary["statistics"]["side_bytes"] = {name: file.data.size for name, file in files.items()}
        made = dict(vars(self._identity))
        spec: SignalSpec = made.pop("spec")
        segment = Segment(
            **made,
            **summary,
            signal=spec.name,
            bytes=self.bytes,
            sort_version=spec.sort_version,
            columns=self._form.columns,
        )
        return WrittenSegment(segment, {name: file.data for name, file in files.items()})


def _bloom_options(values: int) -> dict[str, Any]:
    return {"ndv": max(1, values), "fpp": _BLOOM_FALSE_POSITIVES}
