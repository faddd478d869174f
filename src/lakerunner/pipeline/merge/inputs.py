"""The inputs of a merge or rollup: segment files on this machine, tables of series, a scratch directory.

Comes in: the index rows of segments and their store. Goes out: each as an open Parquet file that matches the index in
rows, bytes and columns. What always holds: a file is fetched piece by piece, never whole in memory. Anything that is
wrong with it, as a checksum on every page shows, is Damaged and names the segment.

The facts about the series of the output come from the tables of series beside the inputs: for each series those of the
first input that has it. Memory is bounded by the series of the output and of one input: tables are read one after the
other, and from each only the series that no earlier table had are kept.

A scratch directory is removed at the end of its task. Each has a lock, which the kernel releases when the process ends;
the next task on the machine removes directories whose lock is free.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.segment.encoding import leaf_columns
from lakerunner.pipeline.segment.series_files import FACTS, KEY
from lakerunner.pipeline.steps.arrow_columns import is_textual

PIECE_BYTES = 8 << 20
BUFFER_BYTES = 16 << 10  # for each column of a row group, which would otherwise be read as a whole
# A column whose dictionary is larger than this in a row group, compressed, is read as plain texts: every batch would
# carry the dictionary along.
DICTIONARY_BYTES = 16 << 10
_OF_THE_FILE = (None, errno.ENOENT)  # Arrow raises OSError without a number if the bytes are damaged


class Damaged(Corrupt):
    """A segment that cannot be read: only this one is set aside."""

    def __init__(self, segment: UUID, reason: object) -> None:
        super().__init__(segment, reason)
        self.segment = segment
        self.reason = " ".join(str(reason).split())  # Arrow says some things in several lines

    def __str__(self) -> str:
        return self.reason if str(self.segment) in self.reason else f"segment {self.segment}: {self.reason}"


@contextmanager
def damage_reported(segment: Segment) -> Iterator[None]:
    """Raise Damaged for whatever makes this segment unreadable. Trouble of this machine, such as a full disk, passes:
    then the work fails and is tried again."""
    try:
        yield
    except Damaged:
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError, Corrupt) as error:
        if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
            raise
        raise Damaged(segment.id, error) from error


class SegmentFile:
    """A segment's file. Texts with few distinct values are read as dictionaries, all others plain."""

    def __init__(self, segment: Segment, path: Path) -> None:
        self.segment = segment
        self.path = path
        with damage_reported(segment):
            self.metadata = pq.read_metadata(path)
            if path.stat().st_size != segment.bytes or self.metadata.num_rows != segment.rows:
                raise ValueError(
                    f"the file has {path.stat().st_size} bytes and {self.metadata.num_rows} rows, in the "
                    f"index {segment.bytes} and {segment.rows}"
                )
            self.schema: pa.Schema = self.metadata.schema.to_arrow_schema()
            if self.schema.names != [column.name for column in segment.columns]:
                raise ValueError("the columns of the file differ from the index")

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """The numbers of the Parquet leaf columns of each column."""
        found: dict[str, list[int]] = {}
        number = 0
        for field in self.schema:
            count = sum(1 for _ in leaf_columns(field.name, field.type))
            found[field.name] = list(range(number, number + count))
            number += count
        return found

    def _chunks(self, name: str) -> Iterator[Any]:
        """Yield the footer's metadata of this column, row group by row group; of its first leaf if it has several."""
        for group in range(self.metadata.num_row_groups):
            yield self.metadata.row_group(group).column(self._leaves[name][0])

    def filled(self, name: str) -> int:
        """Return how many rows have a value in this column, which is neither a list nor a map."""
        nulls = 0
        for chunk in self._chunks(name):
            if chunk.statistics is None or not chunk.statistics.has_null_count:
                raise Damaged(self.segment.id, f"column {name} has no statistics")
            nulls += int(chunk.statistics.null_count)
        return self.segment.rows - nulls

    @cached_property
    def coded(self) -> frozenset[str]:
        """The columns that are read as dictionaries."""
        return frozenset(
            field.name
            for field in self.schema
            if is_textual(field.type) and all(_has_small_dictionary(chunk) for chunk in self._chunks(field.name))
        )

    @cached_property
    def row_bytes(self) -> int:
        """About how many bytes a row takes in memory: its values, and an array's overhead for each of them."""
        packed = sum(self.metadata.row_group(n).total_byte_size for n in range(self.metadata.num_row_groups))
        return int(packed) // self.segment.rows + 5 * int(self.metadata.num_columns) + 16

    def batches(
        self, rows: int, columns: Sequence[str] | None = None, buffer_bytes: int = BUFFER_BYTES, start: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows from `start` on in their order, at most `rows` at a time; `buffer_bytes` of each column are
        read at a time."""
        with damage_reported(self.segment):
            groups, read = self._groups_from(start)
            with self._open(buffer_bytes) as file:
                for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=columns, use_threads=False):
                    before, read = read, read + batch.num_rows
                    if read > start:
                        yield batch.slice(max(0, start - before))
            if read != self.segment.rows:
                raise ValueError(f"{read} rows are readable, {self.segment.rows} in the index")

    def _groups_from(self, row: int) -> tuple[list[int], int]:
        """Return (the row groups from the one with this row on, how many rows come before them)."""
        before = 0
        for group in range(self.metadata.num_row_groups):
            following = before + self.metadata.row_group(group).num_rows
            if following > row:
                return list(range(group, self.metadata.num_row_groups)), before
            before = following
        return [], before

    def run(self, part: float, rows: int) -> pa.RecordBatch:
        """Return about this many rows at this part of the file, 0 for its start and 1 for its end."""
        group, place = divmod(part * self.metadata.num_row_groups, 1)
        with damage_reported(self.segment), self._open() as file:
            skipped = int(place * self.metadata.row_group(int(group)).num_rows) // rows * rows
            # One batch and not many: each costs something for every column.
            batch = next(file.iter_batches(batch_size=skipped + rows, row_groups=[int(group)], use_threads=False))
            return batch.slice(skipped)

    def _open(self, buffer_bytes: int = BUFFER_BYTES) -> pq.ParquetFile:
        return pq.ParquetFile(
            self.path,
            metadata=self.metadata,
            read_dictionary=sorted(self.coded),
            memory_map=False,
            pre_buffer=False,
            buffer_size=buffer_bytes,
            page_checksum_verification=True,
        )


def open_segments(store: SegmentStore, segments: Sequence[Segment], directory: Path) -> list[SegmentFile]:
    """Open these segments, in their order; files that are not on this machine are fetched into the directory. Damaged
    if one is missing or does not match the index."""
    return [SegmentFile(segment, _fetch(store, segment, directory)) for segment in segments]


def _fetch(store: SegmentStore, segment: Segment, directory: Path) -> Path:
    with damage_reported(segment):
        path = store.local_path(segment.path)
        if path is not None:
            return path
        path = directory / f"{segment.id}.parquet"
        with path.open("wb") as file:
            for start in range(0, segment.bytes, PIECE_BYTES):
                file.write(store.get_range(segment.path, start, min(PIECE_BYTES, segment.bytes - start)))
        return path


def _has_small_dictionary(chunk: Any) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.data_page_offset - chunk.dictionary_page_offset <= DICTIONARY_BYTES


def read_side(store: SegmentStore, segment: Segment, name: str) -> memoryview | None:
    """Return the side file of this name, None if the segment has none."""
    size = segment.statistics.get("side_bytes", {}).get(name)
    if size is None:
        return None
    with damage_reported(segment):
        return store.get_range(segment.side_path(name), 0, size)


ReadSide = Callable[[Segment, str], memoryview | None]


@dataclass(frozen=True)
class InputSeries:
    """Facts from the tables of series of the inputs. `read_side` returns a side file of an input, or None."""

    inputs: Sequence[Segment]
    read_side: ReadSide

    def of(self, series: pa.Table) -> pa.Table:
        left = series.select(list(KEY)).append_column("place", pa.array(np.arange(len(series))))
        parts: list[pa.Table] = []
        places = []
        for segment in self.inputs:
            if not len(left):
                break
            table = self._read(segment)
            keys = table.select(list(KEY)).append_column("row", pa.array(np.arange(len(table))))
            found = left.join(keys, list(KEY), join_type="inner", use_threads=False)
            parts.append(table.select(list(FACTS)).take(found.column("row")))
            places.append(found.column("place").to_numpy())
            left = left.join(keys, list(KEY), join_type="left anti", use_threads=False)
        if len(left):
            one = left.select(list(KEY)).slice(0, 1).to_pylist()[0]
            raise Corrupt(
                f"series {one['series']} of metric {one['metric_name']!r} is missing from the "
                f"tables of series of {', '.join(str(segment.id) for segment in self.inputs)}: "
                "ingest their metrics again"
            )
        at = np.empty(len(series), np.int64)
        at[np.concatenate(places)] = np.arange(len(series))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(at))

    def _read(self, segment: Segment) -> pa.Table:
        key = segment.side_path(SERIES_TABLE)
        data = self.read_side(segment, SERIES_TABLE)
        if data is None:
            raise Damaged(segment.id, f"{key}: table of series is missing: ingest its metrics again")
        try:
            table = pq.read_table(pa.BufferReader(data), use_threads=False, page_checksum_verification=True)
            if "as_sent" not in table.column_names:
                raise Damaged(
                    segment.id,
                    f"{key}: this table of series was written by an earlier version: ingest its metrics "
                    "again, into a new home",
                )
            kinds = {name: METRICS.schema.field(name).type for name in KEY} | FACTS
            return table.select(list(kinds)).cast(pa.schema(kinds.items()))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise Damaged(segment.id, f"{key}: cannot read this table of series: {error}") from error


SCRATCH_PREFIX = "lakerunner-merge-"
_LOCK = "lock"


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new directory, empty but for its lock."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    while True:
        directory = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        with (directory / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock.fileno()).st_nlink:
                continue  # another task locked it between our open and our lock, and removed it as abandoned
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            return


def _remove_abandoned(parent: Path) -> None:
    """Remove directories of dead tasks. One without a lock file is just being created or deleted: the next task looks
    again."""
    for directory in parent.glob(SCRATCH_PREFIX + "*"):
        with suppress(OSError):
            if directory.stat().st_uid != os.getuid():
                continue
            with (directory / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
