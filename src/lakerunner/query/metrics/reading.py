"""Columns of a segment's row groups, as arrays.

Comes in: a segment's file as the cache holds it. Goes out: row group by row group what is asked for. What always holds:
only row groups that are there are read; what cannot be read is Damaged and names the segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.plan.vectors.arrays import STALE, Bools, Floats, Ints
from lakerunner.query.held import HeldFile
from lakerunner.query.metrics.kernels import NS_PER_MS, Points
from lakerunner.query.spans import Span

_NOTHING: Any = np.zeros(0, np.uint8)
_NO_DOUBLES: Any = np.zeros(0, np.float64)
_NO_INTS: Any = np.zeros(0, np.int64)
_NO_RECORDED_VALUE = 1


class Damaged(Corrupt):
    """A segment that cannot be read: without it the others can."""

    def __init__(self, segment: Segment, reason: object) -> None:
        super().__init__(str(reason) if segment.path in str(reason) else f"{segment.path}: {reason}")
        self.segment = segment


@contextmanager
def explained(segment: Segment) -> Iterator[None]:
    try:
        yield
    except Damaged:
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError, Corrupt) as error:
        raise Damaged(segment, error) from error


class Footprint:
    """What is remembered of a segment's footer."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        self.rows: list[Span] = list(pairwise(accumulate(counts, initial=0)))
        self.leaves: dict[str, list[int]] = {}
        for leaf in range(metadata.num_columns):
            self.leaves.setdefault(metadata.schema.column(leaf).path.partition(".")[0], []).append(leaf)
        self.columns = frozenset(self.leaves)
        self.flagged = [self._is_flagged(n) for n in range(len(self.rows))]

    @property
    def bytes(self) -> int:
        return int(self.metadata.serialized_size) * 4 + 1000

    def _is_flagged(self, group: int) -> bool:
        """Whether a point of the row group may have flags."""
        if "flags" not in self.leaves:
            return False
        statistics = self.metadata.row_group(group).column(self.leaves["flags"][0]).statistics
        return statistics is None or not statistics.has_min_max or statistics.max != 0


@dataclass(frozen=True, eq=False)
class SegmentFile:
    """One segment of a query."""

    segment: Segment
    held: HeldFile
    footprint: Footprint

    @cached_property
    def _reader(self) -> Any:
        """What a ParquetFile reads with. To make one of those takes the square of the number of columns."""
        reader = pq.core.ParquetReader()
        reader.open(pa.memory_map(str(self.held.path)), metadata=self.footprint.metadata, pre_buffer=False)
        return reader

    @property
    def columns(self) -> frozenset[str]:
        return self.footprint.columns

    def groups(self, first: Ints, rows: Ints) -> Iterator[tuple[int, Bools]]:
        """The row groups that are there and have points of such entries, with which entries these are."""
        for group, (begin, end) in enumerate(self.footprint.rows):
            if self.held.rows is not None and not any(a <= begin and end <= b for a, b in self.held.rows):
                continue
            wanted = (first < end) & (first + rows > begin)
            if wanted.any():
                yield group, wanted

    def read(self, group: int, columns: tuple[str, ...]) -> RowGroup:
        leaves = [leaf for name in columns for leaf in self.footprint.leaves.get(name, ())]
        table = self._reader.read_row_group(group, column_indices=leaves, use_threads=False)
        first, end = self.footprint.rows[group]
        if table.num_rows != end - first:
            raise ValueError(f"row group {group} has {table.num_rows} rows, its footer says {end - first}")
        return RowGroup(first, table, self.footprint.flagged[group])


class RowGroup:
    """Columns of a row group; `base` is its first row's number in the segment."""

    def __init__(self, base: int, table: pa.Table, flagged: bool) -> None:
        self.base = base
        self.rows: int = table.num_rows
        self._table = table
        self._flagged = flagged

    def column(self, name: str) -> pa.Array | None:
        if name not in self._table.column_names:
            return None
        chunks = self._table.column(name)
        return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()

    @cached_property
    def times(self) -> Ints:
        """ns."""
        column = self.column("timestamp")
        found: Ints = _NO_INTS if column is None else _values(column, np.int64)
        return found

    @cached_property
    def times_ms(self) -> Ints:
        found: Ints = self.times // NS_PER_MS
        return found

    @cached_property
    def unrecorded(self) -> Bools | None:
        """Which points say that there is no value; None: none."""
        column = self.column("flags") if self._flagged else None
        return None if column is None else (_values(column, np.uint32) & _NO_RECORDED_VALUE).astype(bool)

    @cached_property
    def starts_ms(self) -> Ints:
        """0 where unknown."""
        column = self.column("start_timestamp")
        if column is None:
            return np.zeros(self.rows, np.int64)
        found: Ints = _values(column.cast(pa.int64()).fill_null(0), np.int64) // NS_PER_MS
        return found

    def valid(self, name: str) -> Bools:
        column = self.column(name)
        found: Bools = np.zeros(self.rows, bool) if column is None else _is_valid(column)
        return found

    def points(self, *, zero: bool, starts: bool) -> Points:
        """The numbers. `zero`: a point without one is 0, as Prometheus takes it."""
        if self.unrecorded is not None:
            return self._given(self._marked(self._numbers(), self.unrecorded), self.present(zero=zero), starts)
        doubles, ints = self.column("value"), self.column("int_value")
        return points_of_arrays(
            self.base,
            self.times,
            (_NO_DOUBLES, _NOTHING) if doubles is None else (_values(doubles, np.float64), _validity(doubles)),
            (_NO_INTS, _NOTHING) if ints is None else (_values(ints, np.int64), _validity(ints)),
            self.starts_ms if starts else _NO_INTS,
            zero=zero,
        )

    def points_of(self, name: str, *, starts: bool) -> Points:
        """The numbers of another column."""
        column = self.column(name)
        if column is None:
            return self._given(np.zeros(self.rows), np.zeros(self.rows, bool), starts)
        values = _values(column.fill_null(0), column.type.to_pandas_dtype()).astype(np.float64)
        return self._given(self._marked(values, self.unrecorded), self.valid(name), starts)

    def present(self, *, zero: bool) -> Bools:
        """Which points are samples that are numbers."""
        if zero:
            return np.ones(self.rows, bool)
        there = self.valid("value") | self.valid("int_value")
        return there if self.unrecorded is None else there | self.unrecorded

    def numbers(self) -> Floats:
        """0 where there is none; with stale markers."""
        return self._marked(self._numbers(), self.unrecorded)

    def _numbers(self) -> Floats:
        found = np.zeros(self.rows)
        for name in ("int_value", "value"):
            column = self.column(name)
            if column is not None:
                kind = np.int64 if name == "int_value" else np.float64
                found = np.where(self.valid(name), _values(column, kind), found)
        return found

    def _marked(self, values: Floats, unrecorded: Bools | None) -> Floats:
        return values if unrecorded is None else np.where(unrecorded, STALE, values)

    def _given(self, values: Floats, present: Bools, starts: bool) -> Points:
        valid = _NOTHING if present.all() else np.packbits(present, bitorder="little")
        ms = self.starts_ms if starts else _NO_INTS
        return points_of_arrays(self.base, self.times, (values, valid), (_NO_INTS, _NOTHING), ms, zero=False)


def points_of_arrays(
    base: int, times: Ints, doubles: tuple[Any, Any], ints: tuple[Any, Any], starts: Ints, *, zero: bool
) -> Points:
    """All arrays read-only, as Arrow's are: so kernels are compiled once."""
    given = times.view(), doubles[0].view(), doubles[1].view(), ints[0].view(), ints[1].view(), starts.view()
    for array in given:
        array.flags.writeable = False
    return Points(base, *given, zero)


def _values(column: pa.Array, kind: Any) -> Any:
    """As they stand in memory; where null anything."""
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def _validity(column: pa.Array) -> Any:
    """The bits, none where all are valid."""
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return _NOTHING
    if column.offset:
        return np.packbits(_is_valid(column), bitorder="little")
    return np.frombuffer(bits, np.uint8)


def _is_valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)
