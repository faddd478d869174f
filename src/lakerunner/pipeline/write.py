"""Sorted rows to one segment: its Parquet file, the files beside it, and its index row.

Comes in: row groups of one schema in the signal's order, one after the other. Goes out: the file, through the sink; the
bytes of the side files; and the index row, which describes these rows alone. Ingest, merges and rollups write segments
in this one way. A row group is in memory at a time. The same row groups give the same bytes.

Every row group is shown to the builders of side files, to the summary, and to further consumers: whatever else is to be
made of the rows of a segment while they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.encoding import Encoding, options
from lakerunner.pipeline.sides.side import Consumer, Side
from lakerunner.pipeline.summary import MOST_HELD, Summarizer

_BLOOM_FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Identity:
    """What a segment is, beside its rows."""

    id: UUID
    organization: UUID
    collector: str
    spec: SignalSpec
    frequency_ms: int = 0
    level: int = 0
    rolled: bool = False
    ingested: int = 0


@dataclass(frozen=True)
class FileForm:
    """How the file of a segment is laid out. `columns` are those of the schema as the index lists them; `encodings` by
    the column's path in the file; `blooms` the most different values of a row group for each column with a bloom
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
            bloom_filter_options={name: _bloom(values) for name, values in self.blooms.items()},
            **options(self.encodings),
        )


@dataclass(frozen=True)
class Written:
    """The index row of a segment, and the files beside it by their names."""

    segment: Segment
    sides: Mapping[str, pa.Buffer]


class SegmentWriter:
    """One segment in the making. `most_held` bounds the memory of its summary."""

    def __init__(
        self,
        identity: Identity,
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

    def finish(self) -> Written:
        """Close the file; return what the index is to record, and the files to be stored beside it, before it. Call it
        once, after the last row group."""
        self._writer.close()
        files = {name: side.finish() for name, side in self._sides.items()}
        summary = self._summarizer.finish(file.values for file in files.values())
        made = self._identity
        segment = Segment(
            made.id,
            made.organization,
            made.collector,
            made.spec.name,
            summary.time,
            summary.rows,
            self.bytes,
            made.spec.sort_version,
            self._form.columns,
            frequency_ms=made.frequency_ms,
            level=made.level,
            statistics=summary.statistics | {"side_bytes": {name: file.data.size for name, file in files.items()}},
            fingerprints=summary.fingerprints,
            ingested=made.ingested,
            rolled=made.rolled,
        )
        return Written(segment, {name: file.data for name, file in files.items()})


def _bloom(values: int) -> dict[str, Any]:
    return {"ndv": max(1, values), "fpp": _BLOOM_FALSE_POSITIVES}
