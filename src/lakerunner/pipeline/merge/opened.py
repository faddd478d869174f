"""Segments to merge, as files of this machine.

Comes in: the index rows of segments and their store. Goes out: each as a Parquet file that is open and as the index
says: so many rows and bytes, these columns. What always holds: a file is fetched piece by piece, never
whole in memory; what is not as it should be, which a checksum on every page tells, is Damaged and names the segment.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.encoding import leaves

PIECE_BYTES = 8 << 20
BUFFER_BYTES = 16 << 10  # of each column of a row group, which would else be read as a whole
# Texts of a column whose dictionary has more bytes, packed, than this in a row group are read without it: every batch
# carries the dictionary along.
DICTIONARY_BYTES = 16 << 10
_OF_THE_FILE = (None, errno.ENOENT)  # Arrow raises OSError without a number where bytes are not as they should be


class Damaged(Corrupt):
    """A segment that cannot be read: it alone is to be set aside."""

    def __init__(self, segment: UUID, reason: object) -> None:
        super().__init__(segment, reason)
        self.segment = segment
        self.reason = " ".join(str(reason).split())  # Arrow says some things in several lines

    def __str__(self) -> str:
        return self.reason if str(self.segment) in self.reason else f"segment {self.segment}: {self.reason}"


@contextmanager
def explained(segment: Segment) -> Iterator[None]:
    """What cannot be read of this segment is Damaged. Trouble of this machine, such as a full disk, is not: with it the
    work fails, and is tried again."""
    try:
        yield
    except Damaged:
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError, Corrupt) as error:
        if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
            raise
        raise Damaged(segment.id, error) from error


class Opened:
    """A segment's file. Texts with few different values are read as dictionaries, all others plain."""

    def __init__(self, segment: Segment, path: Path) -> None:
        self.segment = segment
        self.path = path
        with explained(segment):
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
        """The numbers of the columns that each column is in the file."""
        found: dict[str, list[int]] = {}
        number = 0
        for field in self.schema:
            count = sum(1 for _ in leaves(field.name, field.type))
            found[field.name] = list(range(number, number + count))
            number += count
        return found

    def _chunks(self, name: str) -> Iterator[Any]:
        """What the footer says of this column, row group by row group; of the first where it is several."""
        for group in range(self.metadata.num_row_groups):
            yield self.metadata.row_group(group).column(self._leaves[name][0])

    def filled(self, name: str) -> int:
        """How many rows have a value in this column, which is neither a list nor a map."""
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
            if (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
            and all(_is_coded(chunk) for chunk in self._chunks(field.name))
        )

    @cached_property
    def row_bytes(self) -> int:
        """About what a row takes in memory: its values, and what stands for each of them in an array."""
        packed = sum(self.metadata.row_group(n).total_byte_size for n in range(self.metadata.num_row_groups))
        return int(packed) // self.segment.rows + 5 * int(self.metadata.num_columns) + 16

    def batches(
        self, rows: int, columns: Sequence[str] | None = None, buffer_bytes: int = BUFFER_BYTES, start: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The rows from this one on in their order, so many at a time, or fewer; so many bytes of each column are read
        at a time."""
        with explained(self.segment):
            groups, read = self._groups_from(start)
            with self._open(self.coded, buffer_bytes) as file:
                for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=columns, use_threads=False):
                    before, read = read, read + batch.num_rows
                    if read > start:
                        yield batch.slice(max(0, start - before))
            if read != self.segment.rows:
                raise ValueError(f"{read} rows are readable, {self.segment.rows} in the index")

    def _groups_from(self, row: int) -> tuple[list[int], int]:
        """(the row groups from the one on that has this row, how many rows come before them)"""
        before = 0
        for group in range(self.metadata.num_row_groups):
            following = before + self.metadata.row_group(group).num_rows
            if following > row:
                return list(range(group, self.metadata.num_row_groups)), before
            before = following
        return [], before

    def run(self, part: float, rows: int) -> pa.RecordBatch:
        """About so many rows at this part of the file, 0 its start and 1 its end."""
        group, place = divmod(part * self.metadata.num_row_groups, 1)
        with explained(self.segment), self._open(self.coded) as file:
            skipped = int(place * self.metadata.row_group(int(group)).num_rows) // rows * rows
            # One batch and not many: each costs something for every column.
            batch = next(file.iter_batches(batch_size=skipped + rows, row_groups=[int(group)], use_threads=False))
            return batch.slice(skipped)

    def _open(self, coded: Sequence[str] | frozenset[str], buffer_bytes: int = BUFFER_BYTES) -> pq.ParquetFile:
        return pq.ParquetFile(
            self.path,
            metadata=self.metadata,
            read_dictionary=sorted(coded),
            memory_map=False,
            pre_buffer=False,
            buffer_size=buffer_bytes,
            page_checksum_verification=True,
        )


def open_segments(store: SegmentStore, segments: Sequence[Segment], directory: Path) -> list[Opened]:
    """These segments, in their order; what is no file of this machine already is put into the directory. Damaged if one
    is not there or not as it should be."""
    return [Opened(segment, _fetched(store, segment, directory)) for segment in segments]


def _fetched(store: SegmentStore, segment: Segment, directory: Path) -> Path:
    with explained(segment):
        path = store.local_path(segment.path)
        if path is not None:
            return path
        path = directory / f"{segment.id}.parquet"
        with path.open("wb") as file:
            for start in range(0, segment.bytes, PIECE_BYTES):
                file.write(store.get_range(segment.path, start, min(PIECE_BYTES, segment.bytes - start)))
        return path


def _is_coded(chunk: Any) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.data_page_offset - chunk.dictionary_page_offset <= DICTIONARY_BYTES


def side_of(store: SegmentStore, segment: Segment, name: str) -> memoryview | None:
    """The file of this name beside the segment, None if it has none."""
    size = segment.statistics.get("side_bytes", {}).get(name)
    if size is None:
        return None
    with explained(segment):
        return store.get_range(segment.side_path(name), 0, size)
