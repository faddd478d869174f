"""rate, increase and delta; irate and idelta of the last two samples; resets and changes.

Counters decrease only when they are reset. A sample's start time, if there is one, reveals resets too, which is how a
series of deltas is read as a counter: each of its samples begins where the one before ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from lakerunner.promql.functions.extended_rates import between_ends
from lakerunner.promql.functions.from_buckets import FROM_BUCKETS
from lakerunner.promql.functions.histogram_rates import Rating, histogram_rates, last_two_histograms
from lakerunner.promql.functions.range_vectors import (
    RangeVector,
    check_counters,
    places,
    range_seconds,
    range_vector,
)
from lakerunner.promql.selection.notes import MIXED_SAMPLES, OVERLAPPING_STARTS, note_metric
from lakerunner.promql.selection.smoothing import outer_windows, outermost
from lakerunner.series.arrays import Bools, Floats, Ints, Objects, filled
from lakerunner.series.expression import Kind
from lakerunner.series.extrapolation import extrapolate
from lakerunner.series.function import Function, Invocation
from lakerunner.series.histograms.algebra import detect_reset
from lakerunner.series.histograms.histogram import equal
from lakerunner.series.values import Samples, Vector, Windows
from lakerunner.series.window_kernels import table_of


def _rate(invocation: Invocation, *, counter: bool, per_second: bool) -> Vector:
    given = range_vector(invocation)
    seconds = range_seconds(given.whole.range) if per_second else 0.0
    rating = Rating(counter, seconds)
    values, present, histograms = (_rate_extended if given.whole.extended else _extrapolate)(given, rating)
    if counter:
        floats = present if histograms is None else present & ~filled(histograms)
        check_counters(given.whole.samples.labels, floats, given.notes, given.span)
    return given.vector(values, present, histograms)


def _extrapolate(given: RangeVector, rating: Rating) -> tuple[Floats, Bools, Objects | None]:
    values, present = given.empty()
    rows = given.rows()
    overlapping = np.zeros(present.shape if len(rows.starts) else (0, 0), bool)
    extrapolate(rows, rating.counter, rating.seconds, values, present, overlapping)
    if overlapping.any():
        for name in given.names(overlapping & ~given.mixed):
            note_metric(given.notes, OVERLAPPING_STARTS, name, given.span)
    if given.histograms is None:
        return values, present, None
    for name in given.names(given.mixed):
        note_metric(given.notes, MIXED_SAMPLES, name, given.span)
    present &= ~given.mixed
    histograms = histogram_rates(given, given.has_histograms & ~given.mixed, rating)
    present |= filled(histograms)
    return values, present, histograms


def _rate_extended(given: RangeVector, rating: Rating) -> tuple[Floats, Bools, Objects | None]:
    values, present = given.empty()
    left, right, there = outermost(given.floats)
    table = table_of(given.floats)._replace(first=left, last=np.where(there, right + 1, left))
    smoothed = given.whole.extended == "smoothed"
    between_ends(table, given.whole.range, smoothed, rating.counter, rating.seconds, values, present)
    if given.histograms is None:
        return values, present, None
    mixed = _has_samples(given.floats) & _has_samples(given.histograms)
    for name in given.names(mixed):
        note_metric(given.notes, MIXED_SAMPLES, name, given.span)
    present &= ~mixed
    histograms = histogram_rates(given, ~mixed, rating)
    present |= filled(histograms)
    return values, present, histograms


def _has_samples(windows: Windows) -> Bools:
    low, high = outer_windows(windows)
    found: Bools = high > low
    return found


def _from_last_two(invocation: Invocation, *, counter: bool) -> Vector:
    """Compute from the last two samples of each window, whatever their types."""
    given = range_vector(invocation)
    whole, samples = given.whole, given.whole.samples
    present: Bools = whole.last - whole.first >= 2
    if not present.any():
        return given.vector(*given.empty())
    late = np.where(present, whole.last - 1, 1)
    early = late - 1
    with np.errstate(all="ignore"):
        values = samples.values[late] - samples.values[early]
        if counter:
            is_new = samples.values[late] < samples.values[early]
            if samples.starts is not None:
                is_new |= _starts_new_counter(samples, samples.starts, early, late)
            seconds = (samples.times[late] - samples.times[early]) / 1000
            values = np.where(is_new, samples.values[late], values) / seconds
    values = np.where(present, values, 0.0)
    if samples.histograms is None:
        return given.vector(values, present)
    is_histogram = filled(samples.histograms)
    mixed = present & (is_histogram[late] != is_histogram[early])
    for name in given.names(mixed):
        note_metric(given.notes, MIXED_SAMPLES, name, given.span)
    histograms = np.full(present.shape, None, object)
    for row, step in places(present & is_histogram[late] & is_histogram[early]):
        histograms[row, step] = last_two_histograms(given, row, step, counter)
    present &= ~is_histogram[late] & ~mixed | filled(histograms)
    return given.vector(values, present, histograms)


def _starts_new_counter(samples: Samples, starts: Ints, early: Ints, late: Ints) -> Bools:
    """Return whether the late sample's start time says that it does not continue the early one. The rules are those of
    extrapolation.starts_new_counter."""
    before, time_before, start, time = starts[early], samples.times[early], starts[late], samples.times[late]
    known = (start != before) & (start != 0) & (start < time)
    delta = (start == time_before) & (before != 0) & (before < time_before)
    is_new: Bools = known & ((start > time_before) | delta)
    return is_new


def _count(invocation: Invocation, differs: Callable[[Samples], Bools]) -> Vector:
    """Count the samples of a window that differ from the one before; an anchored window begins with the sample before
    it. Integer counts may be subtracted from each other, since nothing is rounded."""
    given = range_vector(invocation)
    whole = given.whole
    present: Bools = whole.last > whole.first
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(differs(whole.samples), dtype=np.int64)])
    first = np.maximum(outer_windows(whole)[0], whole.first - 1) if whole.extended else whole.first
    values = np.where(present, before[whole.last] - before[np.minimum(first + 1, len(before) - 1)], 0)
    return given.vector(values.astype(float), present)


def _resets(samples: Samples) -> Bools:
    """Return which samples are resets; never the first of all. The first of each series is compared with another
    series, but no window uses that."""
    differs = np.zeros(len(samples.times), bool)
    if len(differs) > 1:
        late = np.arange(1, len(differs))
        differs[1:] = samples.values[1:] < samples.values[:-1]
        if samples.starts is not None:
            differs[1:] |= _starts_new_counter(samples, samples.starts, late - 1, late)
        _compfilled(samples, differs, detect_reset, already=samples.starts)
    return differs


def _changes(samples: Samples) -> Bools:
    differs = np.zeros(len(samples.times), bool)
    if len(differs) > 1:
        values = samples.values
        differs[1:] = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
        _compfilled(samples, differs, lambda now, before: not equal(now, before))
    return differs


def _compfilled(samples: Samples, differs: Bools, compare: Callable[..., bool], already: Ints | None = None) -> None:
    """Compare pairs that involve a histogram: a float differs from every histogram. `already`: where start times have
    decided."""
    if samples.histograms is None:
        return
    is_histogram = filled(samples.histograms)
    for at in (np.flatnonzero(is_histogram[1:] | is_histogram[:-1]) + 1).tolist():
        now, before = samples.histograms[at], samples.histograms[at - 1]
        if now is None or before is None:
            differs[at] = True
            continue
        early, late = np.array([at - 1]), np.array([at])
        is_new = already is not None and bool(_starts_new_counter(samples, already, early, late)[0])
        differs[at] = is_new or compare(now, before)


Extended = Literal["anchored", "smoothed"]


def _function(name: str, evaluate: Callable[[Invocation], Vector], extended: tuple[Extended, ...] = ()) -> Function:
    windows = FROM_BUCKETS.get(name)
    return Function(name, (Kind.MATRIX,), Kind.VECTOR, evaluate, extended=extended, from_buckets=windows)


RATES: tuple[Function, ...] = (
    _function("rate", partial(_rate, counter=True, per_second=True), ("anchored", "smoothed")),
    _function("increase", partial(_rate, counter=True, per_second=False), ("anchored", "smoothed")),
    _function("delta", partial(_rate, counter=False, per_second=False), ("anchored", "smoothed")),
    _function("irate", partial(_from_last_two, counter=True)),
    _function("idelta", partial(_from_last_two, counter=False)),
    _function("resets", partial(_count, differs=_resets), ("anchored",)),
    _function("changes", partial(_count, differs=_changes), ("anchored",)),
)
