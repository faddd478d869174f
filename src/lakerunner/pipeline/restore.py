"""Make the rows of raw objects again, and write segments of those that were lost.

Comes in: raw objects as ingest reads them, or a damaged segment of which some row groups are intact; which of their
rows are needed. Goes out: segments in a directory of this machine, merged into one or more in the store. Nothing is
committed here.

What always holds: rows are made by the code of ingest and written by the code of merges, so they are the same rows. The
same inputs give the same ids and bytes. A file is never in memory as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Absent, Corrupt
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import SIGNALS
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.compact import CompactLimits, CompactWork, merge_segments
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.merge.inputs import damage_reported

_BATCH_ROWS = 20_000
AT_ONCE = 32  # most inputs of one merge
PutFile = Callable[[str, Path], None]


class ScratchStore:
    """Segments in a directory. Merges of them are written there too, or through `put_file`: to the store or, in a dry
    run, nowhere."""

    def __init__(self, directory: Path, put_file: PutFile | None = None) -> None:
        self._directory = directory
        self._put_file = put_file

    @property
    def inside(self) -> ScratchStore:
        """The same, with merges written to the directory."""
        return ScratchStore(self._directory)

    def put(self, key: str, data: memoryview) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def put_file(self, key: str, path: Path) -> None:
        if self._put_file is not None:
            self._put_file(key, path)
            return
        self.path(key).parent.mkdir(parents=True, exist_ok=True)
        os.link(path, self.path(key))

    def path(self, key: str) -> Path:
        return self._directory / key

    def local_path(self, key: str) -> Path:
        if not (path := self.path(key)).exists():
            raise Absent(f"{key} does not exist")
        return path

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        with self.local_path(key).open("rb") as file:
            file.seek(start)
            data = file.read(length)
        if len(data) < length:
            raise Corrupt(f"{key} has fewer than {start + length} bytes")
        return memoryview(data)

    def remove(self, segment: Segment) -> None:
        for key in (segment.path, *map(segment.side_path, segment.statistics.get("side_bytes", {}))):
            self.path(key).unlink(missing_ok=True)


@dataclass(frozen=True)
class RedirectedStore:
    """Segments of a store; merges of them are written through `write`."""

    store: SegmentStore
    write: PutFile

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        return self.store.get_range(key, start, length)

    def local_path(self, key: str) -> Path | None:
        return self.store.local_path(key)

    def put_file(self, key: str, path: Path) -> None:
        self.write(key, path)


@dataclass(frozen=True)
class RestoreWork(CompactWork):
    """Segments whose rows replace those of `lost` ones."""

    lost: tuple[UUID, ...] = ()

    def segment_id(self, number: int) -> UUID:
        inputs = [part for one in self.segments for part in (str(one.id), one.rows)]
        return segment_id("repair", sorted(map(str, self.lost)), inputs, number)


def write_again(
    work: RestoreWork, scratch: ScratchStore, limits: CompactLimits, directory: Path
) -> tuple[Segment, ...]:
    """Write the segments of all these rows, equal ones included. Many inputs are merged some at a time first, as each
    is an open file."""
    while len(work.segments) > AT_ONCE:
        folded: list[Segment] = []
        for start in range(0, len(work.segments), AT_ONCE):
            some = replace(work, segments=work.segments[start : start + AT_ONCE])
            folded += merge_segments(some, scratch.inside, limits, directory, dedupe=False)
            for segment in some.segments:
                scratch.remove(segment)
        work = replace(work, segments=tuple(folded))
    return tuple(merge_segments(work, scratch, limits, directory, dedupe=False))


def make_again(
    raw: Raw, signal: str, organization: UUID, collector: str, scratch: ScratchStore
) -> tuple[list[Segment], int]:
    """Return the segments of one raw object, and how many rows it gives. Corrupt if it cannot be read."""
    if not raw.data:
        return [], 0
    made = make_segments(SIGNALS[signal], organization, collector, [raw], scratch.put)
    if made.failed:
        raise Corrupt(made.failed[0][1])
    return list(made.segments), sum(made.counts)


def keep_rows(scratch: ScratchStore, segment: Segment, keep: npt.NDArray[np.bool_]) -> Segment:
    """Rewrite the segment's file with the rows that `keep` marks; return its index row."""
    if keep.all():
        return segment
    path = scratch.path(segment.path)
    kept = path.with_suffix(".kept")
    before = 0
    with pq.ParquetFile(path) as file, pq.ParquetWriter(kept, file.schema_arrow) as writer:
        for batch in file.iter_batches(_BATCH_ROWS):
            wanted = keep[before : before + batch.num_rows]
            before += batch.num_rows
            if wanted.any():
                writer.write_batch(batch.filter(pa.array(wanted)))
    kept.rename(path)
    return replace(segment, rows=int(keep.sum()), bytes=path.stat().st_size)


def copy_groups(
    store: SegmentStore, path: Path, segment: Segment, groups: Sequence[int], scratch: ScratchStore
) -> Segment:
    """Write these row groups of a segment's file, which is at `path`, to a segment in the scratch directory, with the
    side files that exist. Corrupt if they cannot be read."""
    target = scratch.path(segment.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with (
        damage_reported(segment),
        pq.ParquetFile(path, page_checksum_verification=True) as file,
        pq.ParquetWriter(target, file.schema_arrow) as writer,
    ):
        for group in groups:
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                writer.write_batch(batch)
                rows += batch.num_rows
    for name, size in segment.statistics.get("side_bytes", {}).items():
        with suppress(Absent, Corrupt):
            scratch.put(segment.side_path(name), store.get_range(segment.side_path(name), 0, size))
    return replace(segment, rows=rows, bytes=target.stat().st_size)
