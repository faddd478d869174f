"""Buckets to the hours or days that their segments are of.

Comes in: batches of buckets in their order. Goes out: of each hour (tiers up to a minute) or day its buckets, in the
same order. A bucket is of the hour or day in which it ends, its last instant that is: one that ends at midnight is of
the day before. Where there is more than one, buckets wait for their turn on the local disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.bucket_columns import values_of
from lakerunner.model.tier import window_end
from lakerunner.model.time import DAY_NS, HOUR_NS, TimeRange
from lakerunner.pipeline.rollup.batch_columns import NS_PER_MS

_HOURLY = 60_000  # the coarsest tier with a segment for each hour


def period_ns(tier: int) -> int:
    return HOUR_NS if tier <= _HOURLY else DAY_NS


def period_of(end_ns: Any, tier: int) -> Any:
    """The hour or day of the bucket that ends then, counted from the epoch."""
    return (end_ns - 1) // period_ns(tier)


def periods_of(time: TimeRange, tier: int) -> range:
    """Those that rows of this time can have buckets in."""
    ends = (window_end(at // NS_PER_MS, tier) * NS_PER_MS for at in (time.start_ns, time.end_ns - 1))
    first, last = (period_of(end, tier) for end in ends)
    return range(first, last + 1)


def by_period(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, periods: range, tier: int, directory: Path
) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
    """(hour or day, its buckets); those of one are to be taken before the next is asked for."""
    if len(periods) == 1:
        yield periods[0], batches
        return
    files: dict[int, tuple[Any, Any]] = {}
    try:
        for batch in batches:
            for period, part in _parts(batch, tier):
                if period not in files:
                    sink = pa.OSFile(str(directory / f"{period}.buckets"), "wb")
                    options = pa.ipc.IpcWriteOptions(compression="lz4")
                    files[period] = sink, pa.ipc.new_stream(sink, schema, options=options)
                files[period][1].write_batch(part)
    finally:
        for sink, writer in files.values():
            writer.close()
            sink.close()
    for period in sorted(files):
        path = directory / f"{period}.buckets"
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            yield period, reader
        path.unlink()


def _parts(batch: pa.RecordBatch, tier: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    periods = period_of(values_of(batch.column("timestamp"), np.int64), tier)
    found = np.unique(periods).tolist()
    for period in found:
        yield period, batch if len(found) == 1 else batch.filter(pa.array(periods == period))
