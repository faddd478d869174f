"""The sketches of rows of rollup segments.

Comes in: a row group, and rows of it that are windows of numbers. Goes out: their sketches. What always holds: lists
are never gone through row by row; a block's sketches hold no more buckets than its query may hold samples; one whose
buckets are not as many as it says is Corrupt.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.bucket_columns import buckets
from lakerunner.model.errors import Corrupt
from lakerunner.model.sketch import Parts
from lakerunner.query.metrics.reading import SegmentFile
from lakerunner.series.arrays import Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.sketches import Sketches

SKETCH_COLUMNS = ("count", "zero_count", "positive", "negative")
_SIDES = ("positive", "negative")


class Room:
    """For the buckets of one block. Safe to use from many threads."""

    def __init__(self, limit: Bounds) -> None:
        self._limit = limit
        self._lock = Lock()
        self._taken = 0

    def take(self, buckets: int) -> None:
        """TooLarge if there is not so much left."""
        with self._lock:
            self._taken += buckets
        self._limit.hold_points(self._taken)

    def check(self, buckets: int) -> None:
        """TooLarge if there would never be so much."""
        self._limit.hold_points(buckets)


def sketches_of_rows(file: SegmentFile, group: int, rows: Ints, room: Room) -> Sketches:
    key = file.segment.organization, file.segment.id, group
    whole = file.sketches.get(key)
    if whole is None:
        room.check(_least_buckets(file, group))
        whole = _read(file, group)
        file.sketches.put(key, whole, whole.bytes)
    room.take(whole.buckets_of(rows))
    found = whole.alone(rows)
    if not found.sound():
        raise Corrupt("the bucket counts of a sketch do not add up to its count")
    return found


def _read(file: SegmentFile, group: int) -> Sketches:
    """Of all rows; of those that are no windows of numbers it says nothing."""
    there = tuple(name for name in SKETCH_COLUMNS if name in file.columns)
    table = file.table(group, there)
    columns = {name: _one(table.column(name)) for name in there}
    first, behind = file.footprint.rows[group]
    positive, negative = (_side(columns.get(name), behind - first) for name in _SIDES)
    found, zeros = (_counts(columns.get(name), behind - first) for name in ("count", "zero_count"))
    return Sketches(found, zeros, (positive, negative))


def _side(column: Any, rows: int) -> Parts:
    side = buckets(column, rows)
    return Parts(side.offset, side.counts.begins, side.counts.sizes, side.counts.values)


def _counts(column: Any, rows: int) -> Ints:
    """0 where there is none."""
    if column is None:
        return np.zeros(rows, np.int64)
    found: Ints = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _least_buckets(file: SegmentFile, group: int) -> int:
    """That are in the row group, by its footer: a row with fewer than two has one value there."""
    first, behind = file.footprint.rows[group]
    described = file.footprint.metadata.row_group(group)
    leaves = [file.footprint.leaves[name] for name in _SIDES if name in file.columns]
    return sum(max(described.column(leaf).num_values for leaf in own) - (behind - first) for own in leaves)
