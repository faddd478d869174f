"""Sums of samples that are whole numbers, for each series and bucket of time, in place of a sample for each line.

Comes in: the samples of a batch. Goes out: rows of `SUM_SCHEMA`: sums, and the deliveries that they are made of. What
always holds: every window of the query is a union of buckets, so that sums over its buckets are those over its lines,
exact below 2^53. A row that was delivered twice must count once, which sums cannot undo: where a row occurs twice in
the batches of all units, `check_deliveries` raises NotSplit, and the samples of lines are read.

The rows of a delivery travel as bits: block n of a delivery has its rows from 32 n. A delivery whose rows were not
looked at travels as the time between which they are, in block -1: it may not be in two segments at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.column_samples import SampleBatch
from lakerunner.logql.columns.deliveries import Deliveries, overlapping
from lakerunner.logql.columns.line_columns import joint_codes
from lakerunner.logql.stages.sample import series_text
from lakerunner.model.labels import Labels
from lakerunner.series.aggregations.aggregation import NotSplit

SUM_SCHEMA = pa.schema(
    [
        ("labels", pa.dictionary(pa.int32(), pa.string())),
        ("timestamp", pa.int64()),  # the end of the bucket, which belongs to it
        ("value", pa.float64()),
        ("delivery", pa.int64()),
        ("block", pa.int64()),
        ("rows", pa.int64()),
    ]
)
_BLOCK, _WHOLE = 32, -1
_NO_BITS = (np.zeros(0, np.int64),) * 3


class Buckets(NamedTuple):
    """Buckets (start + n * width, start + (n + 1) * width] in ns."""

    start: int
    width: int

    @classmethod
    def of(cls, first_end: int, step: int, range_: int) -> Self:
        """Return the widest buckets of windows of this range; `step` is 0 for one window."""
        return cls(first_end - range_, gcd(step, range_))

    def ends(self, times: Any) -> Any:
        """Return the end of each time's bucket."""
        return self.start - (self.start - times) // self.width * self.width


class Windows(NamedTuple):
    """Windows (start + n * step, start + n * step + width] in ns, with gaps between them."""

    start: int
    step: int
    width: int

    @property
    def condition(self) -> str:
        """Return SQL for the rows in a window, which are all behind `start`."""
        return f"(epoch_ns(timestamp) - {self.start} - 1) % {self.step} < {self.width}"


def sum_rows(samples: SampleBatch, buckets: Buckets) -> pa.RecordBatch:
    """Return the sums of these samples, and their deliveries."""
    ends = buckets.ends(samples.rows.column("timestamp").to_numpy())
    return sum_batch(samples.series, samples.codes, samples.values, ends, _deliveries(samples.rows))


def sum_batch(
    series: Sequence[Labels], codes: Any, values: Any, ends: Any, deliveries: tuple[Any, Any, Any] = _NO_BITS
) -> pa.RecordBatch:
    """Return sums of values by series and end of a bucket. `deliveries` are (delivery, block, bits)."""
    numbers, first = joint_codes([codes, ends])
    sums = np.bincount(numbers, weights=values, minlength=len(first)) if len(numbers) else np.zeros(0)
    texts = pa.array([series_text(labels) for labels in series], pa.string())
    none = pa.nulls(len(deliveries[0]), pa.int32())
    of_series = pa.concat_arrays([pa.array(codes[first], pa.int32()), none])
    zeros = np.zeros(len(none), np.int64)
    return pa.record_batch(
        [
            pa.DictionaryArray.from_arrays(of_series, texts),
            pa.array(np.concatenate([ends[first], zeros])),
            pa.array(np.concatenate([sums, zeros.astype(np.float64)])),
            *(pa.array(np.concatenate([np.zeros(len(first), np.int64), own])) for own in deliveries),
        ],
        schema=SUM_SCHEMA,
    )


def delivery_rows(deliveries: Deliveries) -> pa.RecordBatch:
    """Return the rows that state whole deliveries."""
    count = len(deliveries.ids)
    no_series = pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], pa.string()))
    values, blocks = np.zeros(count), np.full(count, _WHOLE)
    columns = (deliveries.first_ns, values, deliveries.ids, blocks, deliveries.last_ns)
    return pa.record_batch([no_series, *map(pa.array, columns)], schema=SUM_SCHEMA)


def check_deliveries(batches: Sequence[pa.RecordBatch]) -> None:
    """Raise NotSplit if a row may be in the sums twice, or could not be summed."""
    table = pa.Table.from_batches(batches, SUM_SCHEMA)
    table = table.filter(table["labels"].is_null())
    if table["delivery"].null_count:  # see `not_summed`
        raise NotSplit
    first, ids, blocks, rest = (table[name].to_numpy() for name in ("timestamp", "delivery", "block", "rows"))
    whole = blocks == _WHOLE
    by_row, by_delivery = ~whole, ids[whole]
    if by_row.any() and np.isin(by_delivery, ids[by_row]).any():
        raise NotSplit
    _joined_bits(ids[by_row], blocks[by_row], rest[by_row])
    for _ in overlapping(by_delivery, first[whole], rest[whole]):
        raise NotSplit


def _deliveries(rows: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """Return (delivery, block, bits) of the rows that have a delivery. Raise NotSplit if one is there twice."""
    known = rows.column("delivery").is_valid().to_numpy(zero_copy_only=False)
    delivery = rows.column("delivery").fill_null(0).to_numpy()[known]
    place = rows.column("delivery_row").fill_null(0).to_numpy()[known].astype(np.int64)
    return _joined_bits(delivery, place // _BLOCK, np.left_shift(1, place % _BLOCK))


def _joined_bits(delivery: Any, block: Any, bits: Any) -> tuple[Any, Any, Any]:
    """Join the bits of equal blocks. Raise NotSplit if a bit is set twice."""
    if not len(bits):
        return delivery, block, bits
    order = np.lexsort((block, delivery))
    delivery, block, bits = delivery[order], block[order], bits[order]
    new = np.append(True, (delivery[1:] != delivery[:-1]) | (block[1:] != block[:-1]))
    first = np.flatnonzero(new)
    joined = np.bitwise_or.reduceat(bits, first)
    if np.bitwise_count(joined).sum(dtype=np.int64) != np.bitwise_count(bits).sum(dtype=np.int64):
        raise NotSplit
    return delivery[first], block[first], joined


def not_summed() -> pa.RecordBatch:
    """Return what a worker gives if it cannot sum its samples: neither a series nor a delivery."""
    return pa.record_batch([pa.nulls(1, one.type) for one in SUM_SCHEMA], SUM_SCHEMA)
