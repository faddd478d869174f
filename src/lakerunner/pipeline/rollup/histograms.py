"""Buckets of histograms: what the histograms of each become, as columns.

Comes in: a batch of points or of buckets of a finer tier, and which of its rows are the histograms of which bucket.
Goes out: the columns that such a bucket fills. What always holds: a bucket of one row has that row's columns as they
are; deltas are added; of cumulative ones the last stands in the columns, the first and the sum of those before resets
beside it; of others (summaries, gauges, floats) the last stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.bucket_columns import Buckets, Lists, buckets, lists
from lakerunner.model.signal import FIRST_HISTOGRAM, RESET_HISTOGRAM, ROLLUPS
from lakerunner.pipeline.rollup.batch_columns import column, numbers, texts_are, valid
from lakerunner.pipeline.rollup.histogram import CUSTOM_BUCKETS, Histogram, Side

_SUM_ERROR, _RESETS = "chq_rollup_sum_error", "chq_rollup_resets"
_PLAIN = ("count", "sum", "min", "max", "bounds", "bucket_counts", "scale", "zero_count", "zero_threshold")
# What deltas are added in.
_ADDED = (*_PLAIN, "positive", "negative", _SUM_ERROR)
OWN = (
    *_ADDED,
    *("float_count", "float_bucket_counts", "float_zero_count", "quantiles", "quantile_values"),
    *(_RESETS, FIRST_HISTOGRAM, RESET_HISTOGRAM),
)
_SCHEMA = ROLLUPS.schema
_STRUCT = _SCHEMA.field(FIRST_HISTOGRAM).type


@dataclass(frozen=True)
class _Result:
    """What a bucket of several rows holds beside its last row."""

    whole: Histogram | None = None  # of deltas
    resets: int | None = None  # of cumulative ones
    reset: Histogram | None = None


def histogram_columns(batch: pa.RecordBatch, rows: Sequence[Any], raw: bool) -> dict[str, pa.Array]:
    """`rows` are the numbers of the rows of each bucket, at least one each."""
    source = _Source(batch, raw)
    count = batch.num_rows
    last = np.array([some[-1] for some in rows], np.int64)
    first = np.array([some[0] for some in rows], np.int64)
    several = [number for number, some in enumerate(rows) if len(some) > 1]
    results = {number: source.joined(rows[number]) for number in several}
    columns = {name: _taken(batch, name, last) for name in OWN if name not in (_RESETS, FIRST_HISTOGRAM)}
    deltas = [number for number, result in results.items() if result.whole is not None]
    if deltas:
        index = last.copy()
        index[deltas] = count + np.arange(len(deltas))
        values = [_row(whole) for number in deltas if (whole := results[number].whole)]
        for name in _ADDED:
            more = pa.array([value[name] for value in values], _type(batch, name))
            columns[name] = pa.concat_arrays([_column(batch, name), more]).take(pa.array(index))
    resets, known = source.resets[last], source.cumulative[last]
    for number, result in results.items():
        resets[number], known[number] = result.resets or 0, result.resets is not None
    columns[_RESETS] = pa.array(resets, pa.uint64(), mask=~known)
    alone = np.array([len(some) == 1 for some in rows])
    columns[FIRST_HISTOGRAM] = source.firsts(first, known, alone)
    if several:
        index = last.copy()
        index[several] = count + np.arange(len(several))
        more = pa.array([_struct(results[number].reset) for number in several], _STRUCT)
        columns[RESET_HISTOGRAM] = pa.concat_arrays([_column(batch, RESET_HISTOGRAM), more]).take(pa.array(index))
    return columns


def _type(batch: pa.RecordBatch, name: str) -> pa.DataType:
    return _SCHEMA.field(name).type if column(batch, name) is None else batch.schema.field(name).type


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    found = column(batch, name)
    return pa.nulls(batch.num_rows, _SCHEMA.field(name).type) if found is None else found


def _taken(batch: pa.RecordBatch, name: str, rows: Any) -> pa.Array:
    found = column(batch, name)
    return pa.nulls(len(rows), _SCHEMA.field(name).type) if found is None else found.take(pa.array(rows))


class _Source:
    """The histograms of a batch."""

    def __init__(self, batch: pa.RecordBatch, raw: bool) -> None:
        self._batch = batch
        self._last = Columns(batch.num_rows, {name: column(batch, name) for name in _ADDED})
        whole = ~valid(batch, "float_count")
        of_type = texts_are(batch, "metric_type", ("histogram", "exponential_histogram"))
        self.delta = whole & of_type & texts_are(batch, "temporality", ("delta",))
        if raw:
            self.cumulative = whole & of_type & texts_are(batch, "temporality", ("cumulative",))
            self.resets = np.zeros(batch.num_rows, np.uint64)
        else:
            self.cumulative = valid(batch, _RESETS)
            self.resets = numbers(batch, _RESETS, np.uint64)
        self._has_first, self._has_reset = valid(batch, FIRST_HISTOGRAM), valid(batch, RESET_HISTOGRAM)
        self._first = self._parts(FIRST_HISTOGRAM, self._has_first)
        self._reset = self._parts(RESET_HISTOGRAM, self._has_reset)

    def _parts(self, name: str, there: Any) -> Columns:
        if not there.any():
            return self._last
        found = self._batch.column(name)
        return Columns(len(found), dict(zip((field.name for field in found.type), found.flatten(), strict=True)))

    def joined(self, rows: Any) -> _Result:
        if self.delta[rows].all():
            whole = self._last.at(rows[0])
            for row in rows[1:].tolist():
                whole = whole.plus(self._last.at(row))
            return _Result(whole)
        if not self.cumulative[rows].all():
            return _Result()
        resets, fallen = 0, []
        for place, row in enumerate(rows.tolist()):
            if place:
                before = self._last.at(rows[place - 1])
                if before.falls_to(self._first_of(row)):
                    resets += 1
                    fallen.append(before)
            resets += int(self.resets[row])
            if self._has_reset[row]:
                fallen.append(self._reset.at(row))
        reset = fallen[0] if fallen else None
        for more in fallen[1:]:
            reset = more if reset is None else reset.plus(more)
        return _Result(None, resets, reset)

    def _first_of(self, row: int) -> Histogram:
        return (self._first if self._has_first[row] else self._last).at(row)

    def firsts(self, rows: Any, known: Any, alone: Any) -> pa.Array:
        """The first histogram of each bucket, null where the bucket has no other or is not cumulative."""
        batch = self._batch
        count = batch.num_rows
        has = self._has_first[rows]
        fields = [pa.field(field.name, _type(batch, field.name)) for field in _STRUCT]
        own = pa.StructArray.from_arrays([_column(batch, field.name) for field in fields], fields=fields)
        index = np.where(has, count + rows, rows)
        there = known & (has | ~alone)
        both = pa.concat_arrays([own.cast(_STRUCT), _column(batch, FIRST_HISTOGRAM).cast(_STRUCT)])
        return both.take(pa.array(index, mask=~there))


class Columns:
    """Histograms in columns."""

    def __init__(self, rows: int, arrays: Mapping[str, pa.Array | None]) -> None:
        self._plain = pa.RecordBatch.from_arrays(
            [array for name, array in arrays.items() if name in _SINGLE and array is not None],
            names=[name for name, array in arrays.items() if name in _SINGLE and array is not None],
        )
        self._rows = rows
        self._numbers = {name: self._read(name, kind) for name, kind in _SINGLE.items()}
        self._bounds = lists(arrays.get("bounds"), rows, np.float64)
        self._counts: Lists = lists(arrays.get("bucket_counts"), rows, np.uint64)
        self._sides: dict[str, Buckets] = {name: buckets(arrays.get(name), rows) for name in ("positive", "negative")}

    def _read(self, name: str, kind: Any) -> tuple[Any, Any]:
        if name not in self._plain.schema.names:
            return np.zeros(self._rows, kind), np.zeros(self._rows, np.bool_)
        return numbers(self._plain, name, kind), valid(self._plain, name)

    def _number(self, name: str, row: int) -> Any:
        values, there = self._numbers[name]
        return values[row].item() if there[row] else None

    def at(self, row: int) -> Histogram:
        scale = self._number("scale", row)
        whole = {name: self._number(name, row) for name in ("sum", "min", "max")}
        error = self._number(_SUM_ERROR, row) or 0.0
        count = self._number("count", row) or 0
        if scale is not None and scale != CUSTOM_BUCKETS:
            return Histogram(
                count,
                sum_error=error,
                scale=scale,
                zero_count=self._number("zero_count", row) or 0,
                zero_threshold=self._number("zero_threshold", row) or 0.0,
                positive=self._side("positive", row),
                negative=self._side("negative", row),
                **whole,
            )
        counts = self._counts[row]
        if not len(counts):
            return Histogram(count, sum_error=error, **whole)
        return Histogram(count, sum_error=error, bounds=self._bounds[row], counts=counts, **whole)

    def _side(self, name: str, row: int) -> Side | None:
        side = self._sides[name]
        counts = side.counts[row]
        return Side(int(side.offset[row]), counts) if len(counts) else None


_SINGLE = {
    **dict.fromkeys(("count", "zero_count"), np.uint64),
    **dict.fromkeys(("sum", "min", "max", "zero_threshold", _SUM_ERROR), np.float64),
    "scale": np.int32,
}


def _row(whole: Histogram) -> dict[str, Any]:
    """The columns of a histogram that was added."""
    exponential = whole.scale is not None
    return {
        "count": whole.count,
        "sum": whole.sum,
        _SUM_ERROR: whole.sum_error,
        "min": whole.min,
        "max": whole.max,
        "bounds": whole.bounds if whole.bounds is not None and len(whole.bounds) else None,
        "bucket_counts": whole.counts,
        "scale": whole.scale,
        "zero_count": whole.zero_count if exponential else None,
        "zero_threshold": whole.zero_threshold if exponential else None,
        "positive": _side_value(whole.positive),
        "negative": _side_value(whole.negative),
    }


def _struct(whole: Histogram | None) -> dict[str, Any] | None:
    if whole is None:
        return None
    values = _row(whole)
    return {field.name: values[field.name] for field in _STRUCT}


def _side_value(side: Side | None) -> dict[str, Any] | None:
    return None if side is None else {"offset": side.offset, "counts": side.counts, "float_counts": None}
