"""Which buckets of which series new segments have rows in.

Comes in: the segments, of which only the columns `series` and `timestamp` are read. Goes out: pairs of series and
bucket, by which the rows of all source segments are chosen. Memory: 16 bytes for each pair, three times while they are
put in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.model.bucket_columns import values_of
from lakerunner.pipeline.merge.opened import Opened
from lakerunner.pipeline.rollup.batch_columns import NS_PER_MS, numbers
from lakerunner.pipeline.rollup.buckets import cut

_KEYS = ("series", "timestamp")
_READ_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Touched:
    """Each pair once, sorted by series, then by the bucket's end in ms."""

    tier: int
    series: Any
    ends: Any

    def wanted(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are of these buckets."""
        series, times = numbers(batch, "series", np.int64), _times(batch)
        starts, ends = cut(series, times, self.tier)
        return pa.array(_marked(starts, series, ends, self.series, self.ends))

    def without(self, others: Touched, before: int) -> Touched:
        """But for those of the others that begin before this, in ms."""
        marks = _marked(np.arange(len(self.ends) + 1), self.series, self.ends, others.series, others.ends)
        kept = ~(marks & (self.ends - self.tier < before))
        return Touched(self.tier, self.series[kept], self.ends[kept])


def touched_by(opened: Sequence[Opened], tier: int) -> Touched:
    """The buckets of this tier that these segments have rows in."""
    all_series, all_ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for one in opened:
        for batch in one.batches(_READ_ROWS, list(_KEYS)):
            series = numbers(batch, "series", np.int64)
            starts, ends = cut(series, _times(batch), tier)
            all_series.append(series[starts[:-1]])
            all_ends.append(ends)
    series, ends = np.concatenate(all_series), np.concatenate(all_ends)
    order = np.lexsort((ends, series))
    series, ends = series[order], ends[order]
    again = np.append(False, (series[1:] == series[:-1]) & (ends[1:] == ends[:-1]))[: len(series)]
    return Touched(tier, series[~again], ends[~again])


def _times(batch: pa.RecordBatch) -> Any:
    """ms."""
    return values_of(batch.column("timestamp"), np.int64) // NS_PER_MS


@njit(cache=True, nogil=True)
def _marked(starts: Any, series: Any, ends: Any, pair_series: Any, pair_ends: Any) -> Any:
    """Of each row whether its bucket is among the pairs. A bucket is looked for once for all of its rows."""
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
