"""Rates of native histograms, one window at a time.

What always holds: a result is a gauge with compact buckets; a window whose histograms cannot be combined has a note
instead of a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from lakerunner.promql.functions.range_vectors import RangeVector, places
from lakerunner.promql.selection.notes import (
    MIXED_SCHEMAS,
    NOT_A_COUNTER,
    NOT_A_GAUGE,
    OVERLAPPING_STARTS,
    note_metric,
)
from lakerunner.promql.selection.smoothing import histogram_on_line, outermost
from lakerunner.series.arrays import Bools, Objects
from lakerunner.series.extrapolation import extrapolation, starts_new_counter
from lakerunner.series.histograms.algebra import (
    IncompatibleHistograms,
    Sum,
    add_histograms,
    compact_histogram,
    detect_reset,
    divide_histogram,
    reduce_schema,
    scale_histogram,
    subtract_histograms,
)
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Misfit
from lakerunner.series.values import Windows


@dataclass(frozen=True)
class Rating:
    """What kind of rate is computed. `seconds`: the length of the range if the result is per second; otherwise 0."""

    counter: bool
    seconds: float


@dataclass(frozen=True)
class HistogramWindow:
    """The histograms of one window. `starts` is empty if no start time is known."""

    times: list[int]
    histograms: list[Histogram]
    starts: list[int]
    name: str
    given: RangeVector

    def __len__(self) -> int:
        return len(self.times)

    def is_reset(self, at: int, before: Histogram) -> bool:
        """Return whether a sample, which is not the first, is a counter reset."""
        return self.starts_new_counter(at) or detect_reset(self.histograms[at], before)

    def starts_new_counter(self, at: int) -> bool:
        return bool(self.starts) and bool(
            starts_new_counter(self.starts[at - 1], self.times[at - 1], self.starts[at], self.times[at])
        )

    def plus(self, first: Histogram, other: Histogram) -> Histogram:
        return self._noted(add_histograms(first, other), "addition")

    def minus(self, first: Histogram, other: Histogram) -> Histogram:
        return self._noted(subtract_histograms(first, other), "subtraction")

    def _noted(self, total: Sum, operation: str) -> Histogram:
        if total.bounds_reconciled:
            self.given.notes.report(Misfit.BOUNDS_RECONCILED, self.given.span, operation=operation)
        return total.histogram

    def note_gauges(self, histograms: Iterable[Histogram]) -> None:
        """Warn about gauges where counters are expected."""
        if any(one.reset_hint == ResetHint.GAUGE for one in histograms):
            note_metric(self.given.notes, NOT_A_COUNTER, self.name, self.given.span)

    def note_counters(self, *histograms: Histogram) -> None:
        """Warn about counters where gauges are expected."""
        if any(one.reset_hint != ResetHint.GAUGE for one in histograms):
            note_metric(self.given.notes, NOT_A_GAUGE, self.name, self.given.span)


def histogram_rates(given: RangeVector, where: Bools, rating: Rating) -> Objects:
    """Compute the rates of the windows that have only histograms."""
    found = np.full(where.shape, None, object)
    if (windows := given.histograms) is None:
        return found
    first, last, compute = windows.first, windows.last, _extrapolate
    if windows.extended:
        first, right, there = outermost(windows)
        last, where, compute = right + 1, where & there, _between_ends
    for row, step in places(where):
        points = _points(given, windows, row, int(first[row, step]), int(last[row, step]))
        end = int(windows.ends[step])
        try:
            found[row, step] = compute(points, end - windows.range, end, rating)
        except IncompatibleHistograms:
            note_metric(given.notes, MIXED_SCHEMAS, points.name, given.span)
    return found


def last_two_histograms(given: RangeVector, row: int, step: int, counter: bool) -> Histogram | None:
    """Compute irate or idelta of a window that ends with two histograms."""
    last = int(given.whole.last[row, step])
    points = _points(given, given.whole, row, last - 2, last)
    before, result = points.histograms
    if counter:
        points.note_gauges(points.histograms)
    else:
        points.note_counters(before, result)
    try:
        if not counter or not points.is_reset(1, before):
            result = points.minus(result, before)
    except IncompatibleHistograms:
        note_metric(given.notes, MIXED_SCHEMAS, points.name, given.span)
        return None
    result = compact_histogram(replace(result, reset_hint=ResetHint.GAUGE))
    return divide_histogram(result, (points.times[1] - points.times[0]) / 1000) if counter else result


def _points(given: RangeVector, windows: Windows, row: int, first: int, last: int) -> HistogramWindow:
    samples = windows.samples
    histograms = [] if samples.histograms is None else list(samples.histograms[first:last])
    starts = [] if samples.starts is None else samples.starts[first:last].tolist()
    return HistogramWindow(samples.times[first:last].tolist(), histograms, starts, given.name(row), given)


def _extrapolate(points: HistogramWindow, range_start: int, range_end: int, rating: Rating) -> Histogram | None:
    first, begun, to_zero = points.histograms[0], 0, np.inf
    result = _increase(points, rating.counter) if len(points) > 1 else None
    if rating.counter:
        start = points.starts[0] if points.starts else 0
        if start != 0 and range_start < start < points.times[0]:
            begun = start
            result = first if result is None else points.plus(result, first)
        elif result is not None and result.count > 0 and first.count >= 0:
            to_zero = first.count / result.count
    if result is None:
        return None
    times = points.times
    factor = float(extrapolation(range_start, range_end, times[0], times[-1], len(points) - 1, begun, to_zero))
    return scale_histogram(result, factor / rating.seconds if rating.seconds else factor)


def _increase(points: HistogramWindow, counter: bool) -> Histogram:
    """Return the difference between the first and the last sample. If the second starts a new counter the first does
    not matter, whatever its buckets are."""
    histograms = points.histograms
    before, last = histograms[0], histograms[-1]
    if counter and points.is_reset(1, before):
        second = histograms[1]
        before = Histogram(second.schema, 0.0, 0.0, custom_values=second.custom_values)
    relevant = [before, *(histograms[1:-1] if counter else ()), last]
    if any(one.is_custom != before.is_custom for one in relevant):
        if counter and last.is_custom != before.is_custom:
            points.note_gauges((histograms[0], last))
        raise IncompatibleHistograms
    schema = min(one.schema for one in relevant)
    result = points.minus(reduce_schema(last, schema), before)
    if counter:
        points.note_gauges(histograms)
        result = _with_resets(points, result, before)
    else:
        points.note_counters(histograms[0], last)
    return compact_histogram(replace(result, reset_hint=ResetHint.GAUGE))


def _with_resets(points: HistogramWindow, result: Histogram, before: Histogram) -> Histogram:
    for at in range(1, len(points)):
        if points.starts:
            start, start_before, time_before = points.starts[at], points.starts[at - 1], points.times[at - 1]
            if start != 0 and start < time_before and start != start_before:
                note_metric(points.given.notes, OVERLAPPING_STARTS, points.name, points.given.span)
        if points.is_reset(at, before):
            result = points.plus(result, before)
        before = points.histograms[at]
    return result


def _between_ends(points: HistogramWindow, range_start: int, range_end: int, rating: Rating) -> Histogram | None:
    smoothed = points.given.whole.extended == "smoothed"
    counter, notes, span = rating.counter, points.given.notes, points.given.span
    _check_range(points, counter)
    pairs = list(zip(points.times, points.histograms, strict=True))
    left, right = points.histograms[0], points.histograms[-1]
    if smoothed and points.times[0] < range_start:
        left = histogram_on_line(pairs[0], pairs[1], range_start, counter, notes, span)
    if smoothed and points.times[-1] > range_end:
        right = histogram_on_line(pairs[-2], pairs[-1], range_end, counter, notes, span)
    if not counter:
        points.note_counters(left, right)
    result = points.minus(right, left)
    if counter:
        correction = _correction(points, left, right, smoothed and points.times[0] < range_start)
        result = result if correction is None else points.plus(result, correction)
    if rating.seconds:
        result = divide_histogram(result, rating.seconds)
    return compact_histogram(replace(result, reset_hint=ResetHint.GAUGE))


def _check_range(points: HistogramWindow, counter: bool) -> None:
    """Raise IncompatibleHistograms if the histograms do not fit. Notes about those before the first misfit are kept, as
    in Prometheus."""
    custom = points.histograms[0].is_custom
    fitting = list(takewhile(lambda one: one.is_custom == custom, points.histograms))
    if counter:
        points.note_gauges(fitting)
    if len(fitting) < len(points):
        raise IncompatibleHistograms


def _correction(points: HistogramWindow, left: Histogram, right: Histogram, drawn: bool) -> Histogram | None:
    """Return what the resets between the ends took away. `drawn`: the left end is on the line to the second sample,
    which accounts for a reset there. The last sample is the right end, whose own hint is not examined again."""
    histograms = points.histograms
    before, at = left, 1
    if drawn and detect_reset(histograms[1], histograms[0]):
        before, at = histograms[1], 2
    if at > len(points) - 1:
        return None
    correction: Histogram | None = None
    for now in (*histograms[at:-1], right):
        if detect_reset(now, before):
            correction = before if correction is None else points.plus(correction, before)
        before = now
    return correction
