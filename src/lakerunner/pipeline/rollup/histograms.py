"""Roll up histograms: join those of each bucket, as columns.

Comes in: a batch of points or of buckets of a finer tier, and the rows that are the histograms of each bucket. Goes
out: the columns that such a bucket fills. What always holds: a bucket of one row has that row's columns unchanged;
deltas are added; of cumulative histograms the last is in the columns, the first and the sum of those before resets
beside it; of others (summaries, gauges, floats) the last alone.

Adding histograms is exact and does not depend on the order, except for the rounding of `sum`, whose error is kept.
Histogram buckets that do not match (other bounds, another zero threshold, classic and exponential) are dropped: the
result has only count and sum. Exponential histograms are added at the coarser scale of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.signal import FIRST_HISTOGRAM, RESET_HISTOGRAM, ROLLUPS
from lakerunner.model.sketch import BucketColumn, ListColumn, bucket_column, list_column
from lakerunner.pipeline.steps.arrow_columns import find_column, numbers, texts_are, valid, valid_of, values_of
from lakerunner.series.grouping import add_compensated

CUSTOM_BUCKETS = -53  # Prometheus' scale of histograms that have bounds
_COUNTS = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class HistogramSide:
    """Buckets number `offset` and following of an exponential histogram."""

    offset: int
    counts: Any

    def coarser(self, by: int) -> HistogramSide:
        """Join 2^by neighbours each."""
        if not by:
            return self
        places = (np.arange(len(self.counts)) + self.offset) >> by
        counts = np.zeros(int(places[-1] - places[0]) + 1, np.uint64)
        np.add.at(counts, places - places[0], self.counts)
        return HistogramSide(int(places[0]), counts)

    def over(self, low: int, high: int) -> Any:
        """Return the counts of the buckets `low` to before `high`."""
        counts = np.zeros(high - low, np.uint64)
        counts[self.offset - low : self.offset - low + len(self.counts)] = self.counts
        return counts


def _span(one: HistogramSide, other: HistogramSide) -> tuple[int, int]:
    return min(one.offset, other.offset), max(one.offset + len(one.counts), other.offset + len(other.counts))


@dataclass(frozen=True, eq=False)
class Histogram:
    """A classic or exponential histogram. `counts` None: no classic buckets; `scale` None: no exponential ones. A side
    is None if it has no buckets. `min`, `max` and `sum` are None if unknown."""

    count: int
    sum: float | None = None
    sum_error: float = 0.0
    min: float | None = None
    max: float | None = None
    bounds: Any = None
    counts: Any = None
    scale: int | None = None
    zero_count: int = 0
    zero_threshold: float = 0.0
    positive: HistogramSide | None = None
    negative: HistogramSide | None = None

    def plus(self, other: Histogram) -> Histogram:
        total, lost = None, 0.0
        if self.sum is not None and other.sum is not None:
            total, lost = add_compensated(other.sum, self.sum, self.sum_error)
            lost = 0.0 if np.isinf(total) else lost + other.sum_error
        least = None if self.min is None or other.min is None else _least(self.min, other.min)
        most = None if self.max is None or other.max is None else -_least(-self.max, -other.max)
        whole = Histogram((self.count + other.count) & _COUNTS, total, float(lost), least, most)
        if self.scale is not None and other.scale is not None and self.zero_threshold == other.zero_threshold:
            return replace(whole, **self._exponential_sum(self.scale, other, other.scale))
        if self._same_bounds(other):
            return replace(whole, bounds=self.bounds, counts=self.counts + other.counts)
        return whole

    def _same_bounds(self, other: Histogram) -> bool:
        if self.counts is None or other.counts is None or len(self.counts) != len(other.counts):
            return False
        return bool(np.array_equal(self.bounds, other.bounds))

    def _exponential_sum(self, scale: int, other: Histogram, others: int) -> dict[str, Any]:
        coarse = min(scale, others)
        sides: dict[str, HistogramSide | None] = {}
        for name in ("positive", "negative"):
            one, two = getattr(self, name), getattr(other, name)
            one = one and one.coarser(scale - coarse)
            two = two and two.coarser(others - coarse)
            sides[name] = _side_sum(one, two) if one and two else one or two
        zeros = (self.zero_count + other.zero_count) & _COUNTS
        return {"scale": coarse, "zero_count": zeros, "zero_threshold": self.zero_threshold, **sides}

    def falls_to(self, later: Histogram) -> bool:
        """Return whether a cumulative histogram was reset between this one and `later`: one of its counts has
        decreased. Histogram buckets that do not match are not compared."""
        if later.count < self.count:
            return True
        if self._same_bounds(later):
            return bool((later.counts < self.counts).any())
        if self.scale is None or later.scale is None or self.zero_threshold != later.zero_threshold:
            return False
        if later.zero_count < self.zero_count:
            return True
        coarse = min(self.scale, later.scale)
        for name in ("positive", "negative"):
            one, two = getattr(self, name), getattr(later, name)
            if one is None:
                continue
            one = one.coarser(self.scale - coarse)
            two = two.coarser(later.scale - coarse) if two else HistogramSide(one.offset, one.counts[:0])
            span = _span(one, two)
            if (two.over(*span) < one.over(*span)).any():
                return True
        return False


def _least(one: float, other: float) -> float:
    return other if other < one or np.isnan(one) else one


def _side_sum(one: HistogramSide, other: HistogramSide) -> HistogramSide:
    low, high = _span(one, other)
    return HistogramSide(low, one.over(low, high) + other.over(low, high))


_SUM_ERROR, _RESETS = "chq_rollup_sum_error", "chq_rollup_resets"
_PLAIN = ("count", "sum", "min", "max", "bounds", "bucket_counts", "scale", "zero_count", "zero_threshold")
# The columns in which deltas are added.
_ADDED = (*_PLAIN, "positive", "negative", _SUM_ERROR)
OWN = (
    *_ADDED,
    *("float_count", "float_bucket_counts", "float_zero_count", "quantiles", "quantile_values"),
    *(_RESETS, FIRST_HISTOGRAM, RESET_HISTOGRAM),
)
_SCHEMA = ROLLUPS.schema
_STRUCT = _SCHEMA.field(FIRST_HISTOGRAM).type


@dataclass(frozen=True)
class _JoinedHistogram:
    """What a bucket of several rows holds beside its last row."""

    whole: Histogram | None = None  # the sum of deltas
    resets: int | None = None  # for cumulative ones
    reset: Histogram | None = None


def histogram_columns(batch: pa.RecordBatch, rows: Sequence[Any], raw: bool) -> dict[str, pa.Array]:
    """Return the columns of the buckets; `rows` are the row numbers of each, at least one each."""
    source = _HistogramBatch(batch, raw)
    count = batch.num_rows
    last = np.array([some[-1] for some in rows], np.int64)
    first = np.array([some[0] for some in rows], np.int64)
    several = [number for number, some in enumerate(rows) if len(some) > 1]
    results = {number: source.joined(rows[number]) for number in several}
    columns = {
        name: _column(batch, name).take(pa.array(last)) for name in OWN if name not in (_RESETS, FIRST_HISTOGRAM)
    }
    deltas = [number for number, result in results.items() if result.whole is not None]
    if deltas:
        index = last.copy()
        index[deltas] = count + np.arange(len(deltas))
        values = [_column_values(whole) for number in deltas if (whole := results[number].whole)]
        for name in _ADDED:
            given = _column(batch, name)
            more = pa.array([value[name] for value in values], given.type)
            columns[name] = pa.concat_arrays([given, more]).take(pa.array(index))
    resets, known = source.resets[last], source.cumulative[last]
    for number, result in results.items():
        resets[number], known[number] = result.resets or 0, result.resets is not None
    columns[_RESETS] = pa.array(resets, pa.uint64(), mask=~known)
    alone = np.array([len(some) == 1 for some in rows])
    columns[FIRST_HISTOGRAM] = source.firsts(first, known, alone)
    if several:
        index = last.copy()
        index[several] = count + np.arange(len(several))
        more = pa.array([_struct_value(results[number].reset) for number in several], _STRUCT)
        columns[RESET_HISTOGRAM] = pa.concat_arrays([_column(batch, RESET_HISTOGRAM), more]).take(pa.array(index))
    return columns


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    found = find_column(batch, name)
    return pa.nulls(batch.num_rows, _SCHEMA.field(name).type) if found is None else found


class _HistogramBatch:
    """The histograms of a batch."""

    def __init__(self, batch: pa.RecordBatch, raw: bool) -> None:
        self._batch = batch
        self._last = _HistogramColumns(batch.num_rows, {name: find_column(batch, name) for name in _ADDED})
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

    def _parts(self, name: str, there: Any) -> _HistogramColumns:
        if not there.any():
            return self._last
        found = self._batch.column(name)
        return _HistogramColumns(
            len(found), dict(zip((field.name for field in found.type), found.flatten(), strict=True))
        )

    def joined(self, rows: Any) -> _JoinedHistogram:
        if self.delta[rows].all():
            whole = self._last.at(rows[0])
            for row in rows[1:].tolist():
                whole = whole.plus(self._last.at(row))
            return _JoinedHistogram(whole)
        if not self.cumulative[rows].all():
            return _JoinedHistogram()
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
        return _JoinedHistogram(None, resets, reset)

    def _first_of(self, row: int) -> Histogram:
        return (self._first if self._has_first[row] else self._last).at(row)

    def firsts(self, rows: Any, known: Any, alone: Any) -> pa.Array:
        """Return the first histogram of each bucket, null if the bucket has no other or is not cumulative."""
        batch = self._batch
        count = batch.num_rows
        has = self._has_first[rows]
        arrays = {field.name: _column(batch, field.name) for field in _STRUCT}
        own = pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))
        index = np.where(has, count + rows, rows)
        there = known & (has | ~alone)
        both = pa.concat_arrays([own.cast(_STRUCT), _column(batch, FIRST_HISTOGRAM).cast(_STRUCT)])
        return both.take(pa.array(index, mask=~there))


class _HistogramColumns:
    """Histograms in columns."""

    def __init__(self, rows: int, arrays: Mapping[str, pa.Array | None]) -> None:
        self._numbers = {
            name: (values_of(arrays.get(name), rows, kind), valid_of(arrays.get(name), rows))
            for name, kind in _SINGLE.items()
        }
        self._bounds = list_column(arrays.get("bounds"), rows, np.float64)
        self._counts: ListColumn = list_column(arrays.get("bucket_counts"), rows, np.uint64)
        self._sides: dict[str, BucketColumn] = {
            name: bucket_column(arrays.get(name), rows) for name in ("positive", "negative")
        }

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

    def _side(self, name: str, row: int) -> HistogramSide | None:
        side = self._sides[name]
        counts = side.counts[row]
        return HistogramSide(int(side.offset[row]), counts) if len(counts) else None


_SINGLE = {
    **dict.fromkeys(("count", "zero_count"), np.uint64),
    **dict.fromkeys(("sum", "min", "max", "zero_threshold", _SUM_ERROR), np.float64),
    "scale": np.int32,
}


def _column_values(whole: Histogram) -> dict[str, Any]:
    """Return the columns of a histogram that is a sum."""
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


def _struct_value(whole: Histogram | None) -> dict[str, Any] | None:
    if whole is None:
        return None
    values = _column_values(whole)
    return {field.name: values[field.name] for field in _STRUCT}


def _side_value(side: HistogramSide | None) -> dict[str, Any] | None:
    return None if side is None else {"offset": side.offset, "counts": side.counts, "float_counts": None}
