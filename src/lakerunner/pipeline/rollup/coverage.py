"""Find the buckets that new segments have rows in, and the hour or day of each bucket.

Comes in: the new segments, of which only the columns `series` and `timestamp` are read. Goes out: pairs of series and
bucket, by which the rows of all source segments are selected. Memory: 16 bytes for each pair, three times that while
they are sorted.

A segment of buckets covers an hour (tiers up to a minute) or a day. A bucket belongs to the hour or day of its last
instant: one that ends at midnight belongs to the day before. If buckets fall into several of these periods, they wait
on the local disk until their period is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.sketch import column_values
from lakerunner.model.tier import window_end
from lakerunner.model.time import DAY_NS, HOUR_NS, MS_NS, TimeRange
from lakerunner.pipeline.merge.inputs import SegmentFile
from lakerunner.pipeline.rollup.buckets import find_buckets
from lakerunner.pipeline.steps.arrow_columns import numbers, times_ms

_KEYS = ("series", "timestamp")
_READ_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class TouchedBuckets:
    """Pairs of series and bucket, each once, sorted by series, then by the bucket's end in ms."""

    tier: int
    series: Any
    ends: Any

    def select_rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which rows belong to these buckets."""
        series, times = numbers(batch, "series", np.int64), times_ms(batch)
        starts, ends = find_buckets(series, times, self.tier)
        return pa.array(_mark_rows(starts, series, ends, self.series, self.ends))

    def without(self, others: TouchedBuckets, before: int) -> TouchedBuckets:
        """Return these buckets except those of `others` that begin before this time in ms."""
        marks = _mark_rows(np.arange(len(self.ends) + 1), self.series, self.ends, others.series, others.ends)
        kept = ~(marks & (self.ends - self.tier < before))
        return TouchedBuckets(self.tier, self.series[kept], self.ends[kept])


def find_touched(opened: Sequence[SegmentFile], tier: int) -> TouchedBuckets:
    """Return the buckets of this tier that these segments have rows in."""
    all_series, all_ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for one in opened:
        for batch in one.batches(_READ_ROWS, list(_KEYS)):
            series = numbers(batch, "series", np.int64)
            starts, ends = find_buckets(series, times_ms(batch), tier)
            all_series.append(series[starts[:-1]])
            all_ends.append(ends)
    series, ends = np.concatenate(all_series), np.concatenate(all_ends)
    order = np.lexsort((ends, series))
    series, ends = series[order], ends[order]
    again = np.append(False, (series[1:] == series[:-1]) & (ends[1:] == ends[:-1]))[: len(series)]
    return TouchedBuckets(tier, series[~again], ends[~again])


@njit(cache=True, nogil=True)
def _mark_rows(starts: Any, series: Any, ends: Any, pair_series: Any, pair_ends: Any) -> Any:
    """Return for each row whether its bucket is among the pairs, by one binary search for each bucket."""
    marked = np.zeros(len(series), np.bool_)
    for bucket in range(len(ends)):
        one, end = series[starts[bucket]], ends[bucket]
        low, high = 0, len(pair_series)
        while low < high:
            middle = (low + high) // 2
            if pair_series[middle] < one or (pair_series[middle] == one and pair_ends[middle] < end):
                low = middle + 1
            else:
                high = middle
        if low < len(pair_series) and pair_series[low] == one and pair_ends[low] == end:
            marked[starts[bucket] : starts[bucket + 1]] = True
    return marked


_HOURLY = 60_000  # the coarsest tier with a segment for each hour


def period_ns(tier: int) -> int:
    """Return the length of the period that a segment of this tier covers."""
    return HOUR_NS if tier <= _HOURLY else DAY_NS


def period_of(end_ns: Any, tier: int) -> Any:
    """Return the hour or day of the bucket that ends then, counted from the epoch."""
    return (end_ns - 1) // period_ns(tier)


def periods_of(time: TimeRange, tier: int) -> range:
    """Return the periods that rows of this time can have buckets in."""
    ends = (window_end(at // MS_NS, tier) * MS_NS for at in (time.start_ns, time.end_ns - 1))
    first, last = (period_of(end, tier) for end in ends)
    return range(first, last + 1)


def split_by_period(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, periods: range, tier: int, directory: Path
) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
    """Yield (hour or day, its buckets); take those of one before asking for the next."""
    if len(periods) == 1:
        yield periods[0], batches
        return
    files: dict[int, tuple[Any, Any]] = {}
    try:
        for batch in batches:
            for period, part in _split_batch(batch, tier):
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


def _split_batch(batch: pa.RecordBatch, tier: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    periods = period_of(column_values(batch.column("timestamp"), np.int64), tier)
    found = np.unique(periods).tolist()
    for period in found:
        yield period, batch if len(found) == 1 else batch.filter(pa.array(periods == period))
