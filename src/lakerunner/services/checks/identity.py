"""What makes a row of a segment the same row as one of another segment.

Comes in: a segment and a range of time. Goes out: a digest for each of its rows in this time. Logs are the same by
(delivery, delivery_row) and their sort key, and not known where they lack these; points and spans by all columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.segment import Segment
from lakerunner.model.signal import spec_of
from lakerunner.model.time import TimeRange
from lakerunner.objects.store import SegmentStore
from lakerunner.services.checks.reading import batches, opened
from lakerunner.services.checks.row_digest import Digests, row_digests

_DELIVERY = ("delivery", "delivery_row")


@dataclass(frozen=True)
class Identities:
    """Of some rows: their places in the segment, their digests, and whether these say which row it is."""

    rows: npt.NDArray[np.int64]
    digests: Digests
    known: npt.NDArray[np.bool_]


def identities(store: SegmentStore, segment: Segment, time: TimeRange, directory: Path) -> Iterator[Identities]:
    """Yield those of the segment's rows in this time, a batch at a time. Corrupt if its file cannot be read."""
    columns: list[str] | None = None
    there = {column.name for column in segment.columns}
    if segment.signal == "logs":
        columns = [name for name in (*_DELIVERY, *spec_of("logs", 0).sort_by) if name in there]
    json = {column.name for column in segment.columns if column.type == "json"}
    before = 0
    with opened(store, segment.path, segment.bytes, directory) as file:
        for batch in batches(file, segment.path, columns):
            within = _within(batch, time)
            rows = batch.filter(within)
            if rows.num_rows:
                places = np.flatnonzero(within.to_numpy(zero_copy_only=False)) + before
                yield Identities(places, row_digests(rows, columns, json), _known(rows, segment.signal))
            before += batch.num_rows


def _known(rows: pa.RecordBatch, signal: str) -> npt.NDArray[np.bool_]:
    known = np.ones(rows.num_rows, np.bool_)
    for name in _DELIVERY if signal == "logs" else ():
        there = name in rows.schema.names
        known &= rows.column(name).is_valid().to_numpy(zero_copy_only=False) if there else False
    return known


def _within(batch: pa.RecordBatch, time: TimeRange) -> pa.Array:
    times = batch.column("timestamp").cast(pa.int64())
    return pc.and_(pc.greater_equal(times, time.start_ns), pc.less(times, time.end_ns))
