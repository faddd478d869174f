"""Fold rows of a finer tier, or raw points, into rows of a rollup.

Comes in: batches in the order of the segments' rows (series after series, each by time; of equal times the one that
counts last). Goes out: batches of ROLLUPS in the same order, one row for each bucket that holds something. What always
holds: a bucket's row is the same however the rows are cut into batches. Memory is that of a batch, one bucket's rows,
and as many sketch cells as buckets.py allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.signal import FIRST_HISTOGRAM, PART_COLUMNS, PART_COUNT, RESET_HISTOGRAM, ROLLUPS
from lakerunner.model.tier import RAW
from lakerunner.model.time import MS_NS
from lakerunner.pipeline.merge.output import concat_batches
from lakerunner.pipeline.rollup.buckets import (
    HISTOGRAM,
    NEVER,
    NOTHING,
    NUMBER,
    STALE_MARKER,
    TAKEN_BACK,
    BucketValues,
    Sketches,
    drop_overwritten,
    empty_buckets,
    find_buckets,
    fold_buckets,
    fold_points,
    sketches_of_buckets,
    sketches_of_points,
)
from lakerunner.pipeline.rollup.histograms import OWN, histogram_columns
from lakerunner.pipeline.steps.arrow_columns import (
    filled,
    find_column,
    numbers,
    read_only,
    texts_are,
    times_array,
    times_ms,
    valid,
)
from lakerunner.promql.selection.staleness import STALE_BITS

_PREFIX = "chq_rollup_"
# The columns of numbers, each with its field of Buckets; times are ms there.
_NUMBERS = {
    _PREFIX + name: name
    for name in ("count", "sum", "sum_error", "min", "max", "first", "last", "reset_sum", "resets", "changes")
}
_TIMES = {_PREFIX + "first_timestamp": "first_time", _PREFIX + "last_timestamp": "last_time"}
_STALE, _INCREASE = _PREFIX + "stale_timestamp", _PREFIX + "increase"
_SKETCH = ("count", "scale", "zero_count", "positive", "negative")
# Columns that are computed and not taken from the rows of a bucket.
_COMPUTED = {"timestamp", "start_timestamp", *_NUMBERS, *_TIMES, _STALE, _INCREASE, *_SKETCH, *OWN}
_ALWAYS = {"start_timestamp", *_NUMBERS, *_TIMES, _STALE, _INCREASE, *_SKETCH}
# A tier without any of these columns has no histograms; the columns of sketches alone do not show any.
_OF_HISTOGRAMS = {*OWN, "sum"} - {*_NUMBERS, *_SKETCH}
_LEFT_OUT = {"exemplars"}  # only points have them
_SCHEMA = ROLLUPS.schema
_NO_RECORDED_VALUE = 1
_MAY_LACK_A_NUMBER = ("gauge", "sum")  # types of OTLP; every other is known by its columns, or is Prometheus'
# Tells which of these series Prometheus sent itself.
AsSent = Callable[[Any], Any]


@dataclass(frozen=True)
class Fold:
    """Fold rows of `source` (RAW, or a tier) with the schema `given` into buckets of `target`. `as_sent` is used for
    raw rows only."""

    source: int
    target: int
    given: pa.Schema
    as_sent: AsSent

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the buckets: the columns of their points, those that buckets add, then the attributes."""
        given = set(self.given.names) - self._left_out
        may = set(_ALWAYS)
        if given & ({"count", "float_count"} if self.source == RAW else _OF_HISTOGRAMS):
            may |= {FIRST_HISTOGRAM, RESET_HISTOGRAM}
        own = [
            field.with_type(self.given.field(field.name).type) if field.name in given else field
            for field in _SCHEMA
            if field.name not in _LEFT_OUT and (field.name in given | may or not field.nullable)
        ]
        return pa.schema([*own, *(field for field in self.given if "." in field.name)])

    def buckets(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all buckets."""
        for whole in _align_batches(map(self._own, batches), self.target):
            yield from self._of(whole)

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch without the columns of parts, except for the count: what was added up is a point like any
        other."""
        names = [name for name in batch.schema.names if name == PART_COUNT or name not in self._left_out]
        return batch.select(names) if self._left_out else batch

    @cached_property
    def _left_out(self) -> frozenset[str]:
        return frozenset(PART_COLUMNS if self.source == RAW else ()) & {*self.given.names}

    def _of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times = times_ms(batch)
        starts, ends = find_buckets(numbers(batch, "series", np.int64), times, self.target)
        folded = self._folded(batch, starts, times)
        if folded.sketches.too_many:
            middle = int(starts[len(ends) // 2])
            yield from self._of(batch.slice(0, middle))
            yield from self._of(batch.slice(middle))
            return
        kept = np.flatnonzero(folded.buckets.last_row >= 0)
        if len(kept):
            yield self._rows(batch, folded, ends, kept)

    def _folded(self, batch: pa.RecordBatch, starts: Any, times: Any) -> _Folded:
        out = empty_buckets(len(starts) - 1)
        if self.source == RAW:
            kinds, values = _kinds_and_values(batch, self.as_sent)
            drop_overwritten(starts, times, kinds)
            fold_points(starts, times, values, kinds, out)
            return _Folded(starts, kinds, out, sketches_of_points(starts, kinds == NUMBER, values))
        kinds = np.where(valid(batch, _PREFIX + "count"), NUMBER, HISTOGRAM)
        drop_overwritten(starts, times, kinds)
        fold_buckets(starts, kinds, _read_buckets(batch), out)
        return _Folded(starts, kinds, out, sketches_of_buckets(batch, starts, kinds == NUMBER))

    def _rows(self, batch: pa.RecordBatch, folded: _Folded, ends: Any, kept: Any) -> pa.RecordBatch:
        buckets = folded.buckets
        if len(kept) < len(ends):
            buckets, ends = BucketValues(*(values[kept] for values in buckets)), ends[kept]
        everyone = len(kept) == batch.num_rows and bool((buckets.last_row == np.arange(len(kept))).all())
        last = pa.array(buckets.last_row)
        every = np.ones(len(kept), np.bool_)
        arrays: dict[str, pa.Array] = {
            "timestamp": times_array(ends, every, _SCHEMA.field("timestamp").type),
            "start_timestamp": times_array(ends - self.target, every, _SCHEMA.field("start_timestamp").type),
            **_number_columns(buckets, texts_are(batch, "temporality", ("delta",))[buckets.last_row]),
            **folded.sketches.columns(kept, (buckets.histograms == 0) & (buckets.count > 0)),
        }
        histograms = np.flatnonzero(buckets.histograms)
        if len(histograms):
            own = histogram_columns(batch, folded.histogram_rows(kept[histograms]), self.source == RAW)
            for name, array in own.items():
                arrays[name] = _scatter(arrays.get(name), array, histograms, len(kept))
        for field in self.schema:
            if field.name not in arrays:
                found = None if field.name in _COMPUTED else find_column(batch, field.name)
                if found is None:
                    arrays[field.name] = pa.nulls(len(kept), field.type)
                else:
                    arrays[field.name] = found if everyone else found.take(last)
        return pa.RecordBatch.from_arrays(
            [_cast_array(arrays[f.name], f.type) for f in self.schema], schema=self.schema
        )


@dataclass(frozen=True)
class _Folded:
    """The buckets of a batch, whose rows start at `starts` and have these `kinds`."""

    starts: Any
    kinds: Any
    buckets: BucketValues
    sketches: Sketches

    def histogram_rows(self, buckets: Any) -> list[Any]:
        """Return the rows of these buckets that are histograms."""
        rows = ((int(self.starts[one]), int(self.starts[one + 1])) for one in buckets)
        return [begin + np.flatnonzero(self.kinds[begin:end] == HISTOGRAM) for begin, end in rows]


def _kinds_and_values(batch: pa.RecordBatch, as_sent: AsSent) -> tuple[Any, Any]:
    """Return (kinds, values) of raw rows, as PromQL sees points (docs/formats/prometheus.md): a number is in `value` or
    `int_value`; a point of OTLP without one is 0; a row that Prometheus sent with neither number nor histogram is not a
    sample, nor is a metadata entry. `as_sent` is called only for series that a row leaves open."""
    is_double, is_int = valid(batch, "value"), valid(batch, "int_value")
    values = numbers(batch, "value", np.float64)
    if is_int.any():
        values = np.where(is_int, numbers(batch, "int_value", np.int64), values)
    kinds = np.where(is_double | is_int, NUMBER, NOTHING)
    is_histogram = valid(batch, "count") | valid(batch, "float_count")
    kinds[is_histogram] = HISTOGRAM
    _count_bare_as_zero(batch, kinds, as_sent)
    stale = (numbers(batch, "flags", np.uint32) & _NO_RECORDED_VALUE).astype(np.bool_)
    stale |= (kinds == NUMBER) & _is_stale_marker(values)
    if is_histogram.any():
        stale |= is_histogram & _is_stale_marker(numbers(batch, "sum", np.float64))
    kinds[stale] = STALE_MARKER
    kinds[texts_are(batch, "metric_type", (METADATA_ENTRY,))] = NOTHING
    kinds[valid(batch, PART_COUNT) & (numbers(batch, PART_COUNT, np.int64) == 0)] = TAKEN_BACK
    return kinds, read_only(values)


def _is_stale_marker(values: Any) -> Any:
    return values.view(np.uint64) == np.uint64(STALE_BITS)


def _count_bare_as_zero(batch: pa.RecordBatch, kinds: Any, as_sent: AsSent) -> None:
    bare = kinds == NOTHING
    if not bare.any():
        return
    rows = np.flatnonzero(bare & texts_are(batch, "metric_type", _MAY_LACK_A_NUMBER))
    if len(rows):
        kinds[rows[~as_sent(numbers(batch, "series", np.int64)[rows])]] = NUMBER


def _number_columns(buckets: BucketValues, delta: Any) -> dict[str, pa.Array]:
    is_number = buckets.histograms == 0
    has_some = is_number & (buckets.count > 0)
    arrays = {}
    for name, field in _NUMBERS.items():
        where = is_number if field == "count" else has_some
        arrays[name] = filled(getattr(buckets, field), where, _SCHEMA.field(name).type)
    for name, field in _TIMES.items():
        where = has_some | ~is_number
        arrays[name] = times_array(getattr(buckets, field), where, _SCHEMA.field(name).type)
    arrays[_STALE] = times_array(buckets.stale_time, buckets.stale_time != NEVER, _SCHEMA.field(_STALE).type)
    with np.errstate(invalid="ignore", over="ignore"):
        grown = buckets.last - buckets.first + buckets.reset_sum
        total = np.where(np.isinf(buckets.sum), buckets.sum, buckets.sum + buckets.sum_error)
    arrays[_INCREASE] = filled(np.where(delta, total, grown), has_some, pa.float64())
    return arrays


def _scatter(numbers_: pa.Array | None, histograms: pa.Array, at: Any, count: int) -> pa.Array:
    """Return the column in which the buckets `at` have the values of `histograms`, and the others those of numbers."""
    index = np.arange(count)
    if numbers_ is None:
        where = np.full(count, -1)
        where[at] = np.arange(len(at))
        return histograms.take(pa.array(where, mask=where < 0))
    index[at] = count + np.arange(len(at))
    return pa.concat_arrays([numbers_, histograms.cast(numbers_.type)]).take(pa.array(index))


def _cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _read_buckets(batch: pa.RecordBatch) -> BucketValues:
    found = empty_buckets(0)._asdict()
    for name, field in _NUMBERS.items():
        kind = np.uint64 if pa.types.is_integer(_SCHEMA.field(name).type) else np.float64
        values = numbers(batch, name, kind)
        found[field] = values if kind == np.float64 else values.view(np.int64)
    for name, field in (*_TIMES.items(), (_STALE, "stale_time")):
        found[field] = numbers(batch, name, np.int64) // MS_NS
    found["stale_time"] = np.where(valid(batch, _STALE), found["stale_time"], NEVER)
    return BucketValues(**{name: read_only(values) for name, values in found.items()})


def _align_batches(batches: Iterable[pa.RecordBatch], tier: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that have all rows of a bucket together."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        starts, _ = find_buckets(numbers(batch, "series", np.int64), times_ms(batch), tier)
        begin = 0
        if held:
            if _bucket_key(held[-1], -1, tier) == _bucket_key(batch, 0, tier):
                begin = int(starts[1])
                held.append(batch.slice(0, begin))
                if begin == batch.num_rows:
                    continue
            yield concat_batches(held)
            held = []
        last = int(starts[-2])
        if last > begin:
            yield batch.slice(begin, last - begin)
        held = [batch.slice(max(last, begin))]
    if held:
        yield concat_batches(held)


def _bucket_key(batch: pa.RecordBatch, row: int, tier: int) -> tuple[int, int]:
    one = batch.slice(batch.num_rows - 1 if row < 0 else row, 1)
    return int(numbers(one, "series", np.int64)[0]), int(-(-times_ms(one)[0] // tier))
