"""Rows of a finer tier, or raw points, to rows of a rollup.

Comes in: batches in the order of the segments' rows (series after series, each by time; of equal times the one that
counts last). Goes out: batches of ROLLUPS in the same order, one row for each window that holds something. What always
holds: a window's row is the same however the rows are cut into batches; memory is that of a batch, one window's rows,
and that of as many buckets as sketches.py allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.bucket_columns import values_of
from lakerunner.model.signal import FIRST_HISTOGRAM, RESET_HISTOGRAM, ROLLUPS
from lakerunner.model.tier import RAW
from lakerunner.pipeline.rollup.columns import (
    NS_PER_MS,
    column,
    filled,
    numbers,
    read_only,
    texts_are,
    times_array,
    valid,
)
from lakerunner.pipeline.rollup.histograms import OWN, histogram_columns
from lakerunner.pipeline.rollup.points import AsSent, kinds_and_values
from lakerunner.pipeline.rollup.sketches import Sketches, sketches_of_points, sketches_of_windows
from lakerunner.pipeline.rollup.windows import (
    HISTOGRAM,
    NEVER,
    NUMBER,
    Windows,
    cut,
    empty_windows,
    of_points,
    of_windows,
    settle,
)

_PREFIX = "chq_rollup_"
# The columns of numbers, each with its name in Windows; times are ms there.
_NUMBERS = {
    _PREFIX + name: name
    for name in ("count", "sum", "sum_error", "min", "max", "first", "last", "reset_sum", "resets", "changes")
}
_TIMES = {_PREFIX + "first_timestamp": "first_time", _PREFIX + "last_timestamp": "last_time"}
_STALE, _INCREASE = _PREFIX + "stale_timestamp", _PREFIX + "increase"
_SKETCH = ("count", "scale", "zero_count", "positive", "negative")
# What the rows of a window do not say themselves.
_COMPUTED = {"timestamp", "start_timestamp", *_NUMBERS, *_TIMES, _STALE, _INCREASE, *_SKETCH, *OWN}
_ALWAYS = {"start_timestamp", *_NUMBERS, *_TIMES, _STALE, _INCREASE, *_SKETCH}
# A tier that has none of these columns has no histograms: those of a sketch alone say nothing.
_OF_HISTOGRAMS = {*OWN, "sum"} - {*_NUMBERS, *_SKETCH}
_LEFT_OUT = {"exemplars"}  # they stay with their points
_SCHEMA = ROLLUPS.schema


@dataclass(frozen=True)
class Fold:
    """From rows of `source` (RAW, or a tier) with this schema to windows of `target`. `as_sent` is of points.py, and
    asked of raw rows only."""

    source: int
    target: int
    given: pa.Schema
    as_sent: AsSent

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the windows: what their points have, and what windows add to it; then the attributes."""
        given = set(self.given.names)
        may = set(_ALWAYS)
        if given & ({"count", "float_count"} if self.source == RAW else _OF_HISTOGRAMS):
            may |= {FIRST_HISTOGRAM, RESET_HISTOGRAM}
        own = [
            field.with_type(self.given.field(field.name).type) if field.name in given else field
            for field in _SCHEMA
            if field.name not in _LEFT_OUT and (field.name in given | may or not field.nullable)
        ]
        return pa.schema([*own, *(field for field in self.given if "." in field.name)])

    def windows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all windows."""
        for whole in _uncut(batches, self.target):
            yield from self._of(whole)

    def _of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times = _times(batch)
        starts, ends = cut(numbers(batch, "series", np.int64), times, self.target)
        folded = self._folded(batch, starts, times)
        if folded.sketches.too_many:
            middle = int(starts[len(ends) // 2])
            yield from self._of(batch.slice(0, middle))
            yield from self._of(batch.slice(middle))
            return
        kept = np.flatnonzero(folded.windows.last_row >= 0)
        if len(kept):
            yield self._rows(batch, folded, ends, kept)

    def _folded(self, batch: pa.RecordBatch, starts: Any, times: Any) -> _Folded:
        out = empty_windows(len(starts) - 1)
        if self.source == RAW:
            kinds, values = kinds_and_values(batch, self.as_sent)
            settle(starts, times, kinds)
            of_points(starts, times, values, kinds, out)
            return _Folded(starts, kinds, out, sketches_of_points(starts, kinds == NUMBER, values))
        kinds = np.where(valid(batch, _PREFIX + "count"), NUMBER, HISTOGRAM)
        settle(starts, times, kinds)
        of_windows(starts, kinds, _windows_of(batch), out)
        return _Folded(starts, kinds, out, sketches_of_windows(batch, starts, kinds == NUMBER))

    def _rows(self, batch: pa.RecordBatch, folded: _Folded, ends: Any, kept: Any) -> pa.RecordBatch:
        windows = folded.windows
        if len(kept) < len(ends):
            windows, ends = Windows(*(values[kept] for values in windows)), ends[kept]
        everyone = len(kept) == batch.num_rows and bool((windows.last_row == np.arange(len(kept))).all())
        last = pa.array(windows.last_row)
        every = np.ones(len(kept), np.bool_)
        arrays: dict[str, pa.Array] = {
            "timestamp": times_array(ends, every, _SCHEMA.field("timestamp").type),
            "start_timestamp": times_array(ends - self.target, every, _SCHEMA.field("start_timestamp").type),
            **_number_columns(windows, texts_are(batch, "temporality", ("delta",))[windows.last_row]),
            **folded.sketches.columns(kept, (windows.histograms == 0) & (windows.count > 0)),
        }
        histograms = np.flatnonzero(windows.histograms)
        if len(histograms):
            own = histogram_columns(batch, folded.histogram_rows(kept[histograms]), self.source == RAW)
            for name, array in own.items():
                arrays[name] = _spread(arrays.get(name), array, histograms, len(kept))
        for field in self.schema:
            if field.name not in arrays:
                found = None if field.name in _COMPUTED else column(batch, field.name)
                if found is None:
                    arrays[field.name] = pa.nulls(len(kept), field.type)
                else:
                    arrays[field.name] = found if everyone else found.take(last)
        return pa.RecordBatch.from_arrays([_typed(arrays[f.name], f.type) for f in self.schema], schema=self.schema)


@dataclass(frozen=True)
class _Folded:
    """Windows of a batch, whose rows start at `starts` and are of these `kinds`."""

    starts: Any
    kinds: Any
    windows: Windows
    sketches: Sketches

    def histogram_rows(self, windows: Any) -> list[Any]:
        """The rows of these windows that are histograms."""
        rows = ((int(self.starts[one]), int(self.starts[one + 1])) for one in windows)
        return [begin + np.flatnonzero(self.kinds[begin:end] == HISTOGRAM) for begin, end in rows]


def _number_columns(windows: Windows, delta: Any) -> dict[str, pa.Array]:
    is_number = windows.histograms == 0
    has_some = is_number & (windows.count > 0)
    arrays = {}
    for name, field in _NUMBERS.items():
        where = is_number if field == "count" else has_some
        arrays[name] = filled(getattr(windows, field), where, _SCHEMA.field(name).type)
    for name, field in _TIMES.items():
        where = has_some | ~is_number
        arrays[name] = times_array(getattr(windows, field), where, _SCHEMA.field(name).type)
    arrays[_STALE] = times_array(windows.stale_time, windows.stale_time != NEVER, _SCHEMA.field(_STALE).type)
    with np.errstate(invalid="ignore", over="ignore"):
        grown = windows.last - windows.first + windows.reset_sum
        total = np.where(np.isinf(windows.sum), windows.sum, windows.sum + windows.sum_error)
    arrays[_INCREASE] = filled(np.where(delta, total, grown), has_some, pa.float64())
    return arrays


def _spread(numbers_: pa.Array | None, histograms: pa.Array, at: Any, count: int) -> pa.Array:
    """The column in which the windows `at` have what is in `histograms`, the others what numbers have there."""
    index = np.arange(count)
    if numbers_ is None:
        where = np.full(count, -1)
        where[at] = np.arange(len(at))
        return histograms.take(pa.array(where, mask=where < 0))
    index[at] = count + np.arange(len(at))
    return pa.concat_arrays([numbers_, histograms.cast(numbers_.type)]).take(pa.array(index))


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _windows_of(batch: pa.RecordBatch) -> Windows:
    found = empty_windows(0)._asdict()
    for name, field in _NUMBERS.items():
        kind = np.uint64 if pa.types.is_integer(_SCHEMA.field(name).type) else np.float64
        values = numbers(batch, name, kind)
        found[field] = values if kind == np.float64 else values.view(np.int64)
    for name, field in (*_TIMES.items(), (_STALE, "stale_time")):
        found[field] = numbers(batch, name, np.int64) // NS_PER_MS
    found["stale_time"] = np.where(valid(batch, _STALE), found["stale_time"], NEVER)
    return Windows(**{name: read_only(values) for name, values in found.items()})


def _times(batch: pa.RecordBatch) -> Any:
    """ms."""
    return values_of(batch.column("timestamp"), np.int64) // NS_PER_MS


def _uncut(batches: Iterable[pa.RecordBatch], tier: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches in which all rows of a window are together."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        starts, _ = cut(numbers(batch, "series", np.int64), _times(batch), tier)
        begin = 0
        if held:
            if _window(held[-1], -1, tier) == _window(batch, 0, tier):
                begin = int(starts[1])
                held.append(batch.slice(0, begin))
                if begin == batch.num_rows:
                    continue
            yield _joined(held)
            held = []
        last = int(starts[-2])
        if last > begin:
            yield batch.slice(begin, last - begin)
        held = [batch.slice(max(last, begin))]
    if held:
        yield _joined(held)


def _window(batch: pa.RecordBatch, row: int, tier: int) -> tuple[int, int]:
    one = batch.slice(batch.num_rows - 1 if row < 0 else row, 1)
    return int(numbers(one, "series", np.int64)[0]), int(-(-_times(one)[0] // tier))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]
