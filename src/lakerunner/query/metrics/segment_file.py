"""Columns of a segment's row groups, as arrays.

Input: a segment's file as the cache leases it. Output: the requested columns, row group by row group. Only leased row
groups are read; what cannot be read is Corrupt and names the segment. Files are opened by pyarrow's low-level reader,
because building a ParquetFile takes time quadratic in the number of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.lru import LruCache
from lakerunner.model.segment import Segment
from lakerunner.model.sketch import column_values
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.metrics.kernels import NS_PER_MS, Numbers, PointColumns, join_numbers, read_only
from lakerunner.query.segment_cache.footers import Footer
from lakerunner.query.segment_cache.lease import LeasedFile
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.rollups import Sketches

_NOTHING: Any = np.zeros(0, np.uint8)
_NO_DOUBLES: Any = np.zeros(0, np.float64)
_NO_INTS: Any = np.zeros(0, np.int64)
_ALL: Any = np.zeros(0, np.bool_)
_NUMBER = "value"
_HISTOGRAMS = ("count", "float_count")  # a native histogram has one of these columns
_NO_RECORDED_VALUE = 1


def open_reader(path: Path, metadata: pq.FileMetaData | None = None) -> Any:
    """Open a reader; `metadata` is the file's footer if it is known already."""
    reader = pq.core.ParquetReader()
    reader.open(
        pa.memory_map(str(path)),
        metadata=metadata,
        pre_buffer=False,
        page_checksum_verification=True,  # uncompressed numbers show damage in no other way
    )
    return reader


class ParquetTable:
    """A small file of which some columns are read whole."""

    def __init__(self, path: Path) -> None:
        self._reader = open_reader(path)

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Return the numbers of each column's Parquet leaves."""
        leaves: dict[str, list[int]] = {}
        for leaf, path in enumerate(self._reader.column_paths):
            leaves.setdefault(path[0], []).append(leaf)
        return leaves

    def read(self, columns: tuple[str, ...]) -> pa.Table:
        """Read columns. KeyError for one that the file lacks."""
        leaves = [leaf for name in columns for leaf in self.leaves[name]]
        return self._reader.read_all(column_indices=leaves, use_threads=False)


class Footprint:
    """What is remembered of a segment's footer."""

    def __init__(self, footer: Footer) -> None:
        self.metadata = footer.metadata
        self.rows = footer.rows
        self.leaves = footer.leaves
        self.columns = frozenset(self.leaves)
        self.flagged = [self._is_flagged(n) for n in range(len(self.rows))]
        self.histograms = [any(self._has_some(n, name) for name in _HISTOGRAMS) for n in range(len(self.rows))]

    @property
    def bytes(self) -> int:
        return int(self.metadata.serialized_size) * 4 + 1000

    def constant(self, group: int, name: str) -> int | None:
        """Return the value that every row of the row group has in this integer column; None: it must be read."""
        statistics = self._statistics(group, name) if name in self.leaves else None
        if statistics is None or not (statistics.has_min_max and statistics.has_null_count):
            return None
        return int(statistics.min) if statistics.min == statistics.max and not statistics.null_count else None

    def _is_flagged(self, group: int) -> bool:
        """Return whether a point of the row group may have flags."""
        if "flags" not in self.leaves:
            return False
        statistics = self._statistics(group, "flags")
        return statistics is None or not statistics.has_min_max or statistics.max != 0

    def _has_some(self, group: int, name: str) -> bool:
        """Return whether a point of the row group may have a value in this column."""
        if name not in self.leaves:
            return False
        begin, end = self.rows[group]
        statistics = self._statistics(group, name)
        return statistics is None or not statistics.has_null_count or statistics.null_count < end - begin

    def _statistics(self, group: int, name: str) -> pq.Statistics | None:
        return self.metadata.row_group(group).column(self.leaves[name][0]).statistics


@dataclass(frozen=True, eq=False)
class SegmentFile:
    """The open file of one segment, with the caches of its decoded columns."""

    segment: Segment
    held: LeasedFile
    footprint: Footprint
    kept: LruCache[Numbers]
    sketches: LruCache[Sketches]

    @cached_property
    def _reader(self) -> Any:
        return open_reader(self.held.path, self.footprint.metadata)

    @property
    def columns(self) -> frozenset[str]:
        return self.footprint.columns

    def groups(self, first: Ints, rows: Ints) -> Iterator[tuple[int, Bools]]:
        """Yield the leased row groups that have points of these entries, with which entries these are."""
        for group, (begin, end) in enumerate(self.footprint.rows):
            if self.held.rows is not None and not any(a <= begin and end <= b for a, b in self.held.rows):
                continue
            wanted = (first < end) & (first + rows > begin)
            if wanted.any():
                yield group, wanted

    def read(self, group: int, columns: tuple[str, ...], *, exact: bool = False) -> RowGroup:
        """Return at once; columns that are not cached are read when they are used."""
        return RowGroup(self, group, tuple(name for name in columns if name in self.columns), exact=exact)

    def table(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        leaves = [leaf for name in columns for leaf in self.footprint.leaves[name]]
        table = self._reader.read_row_group(group, column_indices=leaves, use_threads=False)
        first, end = self.footprint.rows[group]
        if table.num_rows != end - first:
            raise ValueError(f"row group {group} has {table.num_rows} rows, its footer says {end - first}")
        return table


class RowGroup:
    """Columns of a row group; `base` is the number of its first row in the segment. Times of points are in ms, or in ns
    if `exact`."""

    def __init__(self, file: SegmentFile, group: int, columns: tuple[str, ...], *, exact: bool = False) -> None:
        self.base, end = file.footprint.rows[group]
        self.rows = end - self.base
        self.may_have_histograms = file.footprint.histograms[group]
        self._file = file
        self._group = group
        self._columns = columns
        self._exact = exact

    @cached_property
    def _table(self) -> pa.Table:
        return self._file.table(self._group, self._columns)

    def column(self, name: str) -> pa.Array | None:
        """Return the column, or None if the segment lacks it. Only requested columns may be used."""
        if name not in self._columns:
            if name in self._file.columns:
                raise LookupError(f"column {name} was not requested")
            return None
        chunks = self._table.column(name)
        return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()

    @cached_property
    def _times(self) -> Ints:
        """Return times in ns."""
        column = self.column("timestamp")
        found: Ints = _NO_INTS if column is None else column_values(column, np.int64)
        return found

    @property
    def times(self) -> Ints:
        """Return the times of points."""
        return self._times if self._exact else self.times_ms

    @cached_property
    def times_ms(self) -> Ints:
        kept = self._file.kept.get(self._key(_NUMBER))
        found: Ints = self._times // NS_PER_MS if kept is None else kept.times
        return found

    @cached_property
    def unrecorded(self) -> Bools | None:
        """Return which points state that there is no value; None: none does."""
        column = self.column("flags") if self._file.footprint.flagged[self._group] else None
        return None if column is None else (column_values(column, np.uint32) & _NO_RECORDED_VALUE).astype(bool)

    @cached_property
    def starts_ms(self) -> Ints:
        """Return start times, 0 where unknown."""
        column = self.column("start_timestamp")
        if column is None:
            return np.zeros(self.rows, np.int64)
        found: Ints = column_values(column.cast(pa.int64()).fill_null(0), np.int64) // NS_PER_MS
        return found

    def valid(self, name: str) -> Bools:
        column = self.column(name)
        found: Bools = np.zeros(self.rows, bool) if column is None else _is_valid(column)
        return found

    def points(self, *, zero: bool, starts: bool) -> PointColumns:
        """Return the numbers. `zero`: a point without one is 0, as in Prometheus."""
        numbers = self.numbers()
        return self._points(numbers._replace(valid=_ALL) if zero else numbers, starts)

    def points_of(self, name: str, *, starts: bool) -> PointColumns:
        """Return the numbers of another column."""
        return self._points(self.numbers(name), starts)

    def numbers(self, name: str = _NUMBER) -> Numbers:
        """Return the numbers of `value` or `int_value`, or of another column, with stale markers. Cached for the next
        query."""
        key = self._key(name)
        found = self._file.kept.get(key)
        if found is None:
            found = Numbers(*map(read_only, self._numbers() if name == _NUMBER else self._numbers_of(name)))
            self._file.kept.put(key, found, found.bytes)
        return found

    def moments(self) -> PointColumns:
        """Return the times alone."""
        return PointColumns(self.base, *map(read_only, (self.times, _NO_DOUBLES, _ALL, _NO_INTS)))

    def _key(self, name: str) -> tuple[object, ...]:
        segment = self._file.segment
        return segment.organization, segment.id, self._group, name

    def _points(self, numbers: Numbers, starts: bool) -> PointColumns:
        starts_ms = self.starts_ms if starts else _NO_INTS
        times = self._times if self._exact else numbers.times
        return PointColumns(self.base, *map(read_only, (times, numbers.values, numbers.valid, starts_ms)))

    def _numbers(self) -> Numbers:
        doubles, ints = self.column("value"), self.column("int_value")
        found = Numbers(np.empty(self.rows, np.int64), np.empty(self.rows), np.empty(self.rows, np.bool_))
        count = join_numbers(
            self._times,
            *((_NO_DOUBLES, _NOTHING) if doubles is None else (column_values(doubles, np.float64), _validity(doubles))),
            *((_NO_INTS, _NOTHING) if ints is None else (column_values(ints, np.int64), _validity(ints))),
            found,
        )
        if self.unrecorded is not None:
            return found._replace(
                values=np.where(self.unrecorded, STALE, found.values), valid=found.valid | self.unrecorded
            )
        return found._replace(valid=_ALL) if count == self.rows else found

    def _numbers_of(self, name: str) -> Numbers:
        column = self.column(name)
        if column is None:
            return Numbers(self.times_ms, np.zeros(self.rows), np.zeros(self.rows, np.bool_))
        values = column_values(column.fill_null(0), column.type.to_pandas_dtype()).astype(np.float64)
        if self.unrecorded is not None:
            values = np.where(self.unrecorded, STALE, values)
        return Numbers(self.times_ms, values, self.valid(name) if column.null_count else _ALL)


def _validity(column: pa.Array) -> Any:
    """Return the validity bits, empty where all are valid."""
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return _NOTHING
    if column.offset:
        return np.packbits(_is_valid(column), bitorder="little")
    return np.frombuffer(bits, np.uint8)


def _is_valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)
