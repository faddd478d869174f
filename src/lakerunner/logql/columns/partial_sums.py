"""Sums of samples that are whole numbers, for each series and bucket of time, in place of a sample for each line.

Comes in: the samples of a batch. Goes out: rows of `SUM_SCHEMA`: sums, and the deliveries that they are made of. What
always holds: every window of the query is a union of buckets, so that sums over its buckets are those over its lines,
exact below 2^53. A row that was delivered twice must count once, which sums cannot undo: where a row occurs twice in
the batches of all units, `fold_sums` raises NotSplit, and the samples of lines are read.

The rows of a delivery travel as bits: block n of a delivery has its rows from 32 n.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple, Self

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.logql.columns.column_samples import SampleBatch
from lakerunner.logql.columns.line_columns import joint_codes
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
_BLOCK = 32


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


def sum_rows(samples: SampleBatch, buckets: Buckets) -> pa.RecordBatch:
    """Return the sums of these samples, and their deliveries."""
    ends = buckets.ends(samples.rows.column("timestamp").to_numpy())
    numbers, first = joint_codes([samples.codes, ends])
    sums = np.bincount(numbers, weights=samples.values, minlength=len(first)) if len(numbers) else np.zeros(0)
    deliveries, blocks, bits = _deliveries(samples.rows)
    texts = pa.array([orjson.dumps(labels).decode() for labels in samples.series], pa.string())
    none = pa.nulls(len(bits), pa.int32())
    codes = pa.concat_arrays([pa.array(samples.codes[first], pa.int32()), none])
    zeros = np.zeros(len(bits), np.int64)
    return pa.record_batch(
        [
            pa.DictionaryArray.from_arrays(codes, texts),
            pa.array(np.concatenate([ends[first], zeros])),
            pa.array(np.concatenate([sums, zeros.astype(np.float64)])),
            *(pa.array(np.concatenate([np.zeros(len(first), np.int64), own])) for own in (deliveries, blocks, bits)),
        ],
        schema=SUM_SCHEMA,
    )


def check_deliveries(batches: Sequence[pa.RecordBatch]) -> None:
    """Raise NotSplit if a row is in the sums twice, or could not be summed."""
    table = pa.Table.from_batches(batches, SUM_SCHEMA)
    table = table.filter(table["labels"].is_null())
    bits = table["rows"].to_numpy()
    if not bits.all():  # see `not_summed`
        raise NotSplit
    _joined_bits(table["delivery"].to_numpy(), table["block"].to_numpy(), bits)


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
    return pa.record_batch(
        [pa.array([None if n == 0 else 0], one.type) for n, one in enumerate(SUM_SCHEMA)], SUM_SCHEMA
    )
