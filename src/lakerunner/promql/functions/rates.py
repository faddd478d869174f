"""How fast a series rises: rate, increase, delta; irate and idelta of the last two samples; resets and changes.

Counters fall only when they begin anew. A sample's start time, where there is one, says so too, which is how a series
of deltas is read as a counter: each of its samples begins where the one before ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from lakerunner.promql.functions.counters import check_counters, range_seconds
from lakerunner.promql.functions.from_windows import FROM_WINDOWS
from lakerunner.promql.functions.histogram_rates import (
    Rating,
    extended_histogram_rates,
    histogram_rates,
    last_two_histograms,
)
from lakerunner.promql.functions.range_vectors import RangeVector, are_histograms, places, range_vector
from lakerunner.promql.functions.rate_kernels import between_ends, extrapolated
from lakerunner.promql.selection.sample_notes import mixed_samples, starts_overlap
from lakerunner.promql.selection.smoothing import outer_windows, outermost
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.expression import Kind
from lakerunner.series.function import Called, Function
from lakerunner.series.histograms.arithmetic import detect_reset
from lakerunner.series.histograms.histogram import equal
from lakerunner.series.values import Samples, Vector, Windows
from lakerunner.series.window_kernels import table_of


def _rate(called: Called, *, counter: bool, per_second: bool) -> Vector:
    given = range_vector(called)
    seconds = range_seconds(given.whole.range) if per_second else 0.0
    rating = Rating(counter, seconds)
    values, present, histograms = (_extended if given.extended else _extrapolated)(given, rating)
    if counter:
        floats = present if histograms is None else present & ~are_histograms(histograms)
        check_counters(given.whole.samples.labels, floats, given.notes, given.span)
    return given.vector(values, present, histograms)


def _extrapolated(given: RangeVector, rating: Rating) -> tuple[Floats, Bools, Objects | None]:
    values, present = given.empty()
    rows = given.rows()
    overlapping = np.zeros(present.shape if len(rows.starts) else (0, 0), bool)
    extrapolated(rows, rating.counter, rating.seconds, values, present, overlapping)
    if overlapping.any():
        for name in given.names(overlapping & ~given.mixed):
            starts_overlap(given.notes, name, given.span)
    if given.histograms is None:
        return values, present, None
    for name in given.names(given.mixed):
        mixed_samples(given.notes, name, given.span)
    present &= ~given.mixed
    histograms = histogram_rates(given, given.has_histograms & ~given.mixed, rating)
    present |= are_histograms(histograms)
    return values, present, histograms


def _extended(given: RangeVector, rating: Rating) -> tuple[Floats, Bools, Objects | None]:
    values, present = given.empty()
    left, right, there = outermost(given.floats)
    table = table_of(given.floats)._replace(first=left, last=np.where(there, right + 1, left))
    smoothed = given.extended == "smoothed"
    between_ends(table, given.whole.range, smoothed, rating.counter, rating.seconds, values, present)
    if given.histograms is None:
        return values, present, None
    mixed = _has_samples(given.floats) & _has_samples(given.histograms)
    for name in given.names(mixed):
        mixed_samples(given.notes, name, given.span)
    present &= ~mixed
    histograms = extended_histogram_rates(given, ~mixed, rating)
    present |= are_histograms(histograms)
    return values, present, histograms


def _has_samples(windows: Windows) -> Bools:
    low, high = outer_windows(windows)
    found: Bools = high > low
    return found


def _of_last_two(called: Called, *, counter: bool) -> Vector:
    """The last two samples of each window, whatever they are."""
    given = range_vector(called)
    whole, samples = given.whole, given.whole.samples
    present: Bools = whole.last - whole.first >= 2
    if not present.any():
        return given.vector(*given.empty())
    late = np.where(present, whole.last - 1, 1)
    early = late - 1
    with np.errstate(all="ignore"):
        values = samples.values[late] - samples.values[early]
        if counter:
            anew = samples.values[late] < samples.values[early]
            if samples.starts is not None:
                anew |= _anew(samples, samples.starts, early, late)
            seconds = (samples.times[late] - samples.times[early]) / 1000
            values = np.where(anew, samples.values[late], values) / seconds
    values = np.where(present, values, 0.0)
    if samples.histograms is None:
        return given.vector(values, present)
    is_histogram = are_histograms(samples.histograms)
    mixed = present & (is_histogram[late] != is_histogram[early])
    for name in given.names(mixed):
        mixed_samples(given.notes, name, given.span)
    histograms = np.full(present.shape, None, object)
    for row, step in places(present & is_histogram[late] & is_histogram[early]):
        histograms[row, step] = last_two_histograms(given, row, step, counter)
    present &= ~is_histogram[late] & ~mixed | are_histograms(histograms)
    return given.vector(values, present, histograms)


def _anew(samples: Samples, starts: Ints, early: Ints, late: Ints) -> Bools:
    """Whether the late sample's start time says that it does not count on from the early one. The rules are those of
    rate_kernels.starts_anew."""
    before, time_before, start, time = starts[early], samples.times[early], starts[late], samples.times[late]
    known = (start != before) & (start != 0) & (start < time)
    delta = (start == time_before) & (before != 0) & (before < time_before)
    anew: Bools = known & ((start > time_before) | delta)
    return anew


def _count(called: Called, differs: Callable[[Samples], Bools]) -> Vector:
    """How many samples of the window differ from the one before them; an anchored one begins with the sample before
    it. Counts of whole numbers may be subtracted: nothing is rounded."""
    given = range_vector(called)
    whole = given.whole
    present: Bools = whole.last > whole.first
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(differs(whole.samples), dtype=np.int64)])
    first = np.maximum(outer_windows(whole)[0], whole.first - 1) if given.extended else whole.first
    values = np.where(present, before[whole.last] - before[np.minimum(first + 1, len(before) - 1)], 0)
    return given.vector(values.astype(float), present)


def _resets(samples: Samples) -> Bools:
    """Of the first sample of all: no. What is said of a series' first compares with another series: no window asks."""
    differs = np.zeros(len(samples.times), bool)
    if len(differs) > 1:
        late = np.arange(1, len(differs))
        differs[1:] = samples.values[1:] < samples.values[:-1]
        if samples.starts is not None:
            differs[1:] |= _anew(samples, samples.starts, late - 1, late)
        _compare_histograms(samples, differs, detect_reset, already=samples.starts)
    return differs


def _changes(samples: Samples) -> Bools:
    differs = np.zeros(len(samples.times), bool)
    if len(differs) > 1:
        values = samples.values
        differs[1:] = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
        _compare_histograms(samples, differs, lambda now, before: not equal(now, before))
    return differs


def _compare_histograms(
    samples: Samples, differs: Bools, compare: Callable[..., bool], already: Ints | None = None
) -> None:
    """Where a histogram is involved: a float differs from every histogram. `already`: start times may have said so."""
    if samples.histograms is None:
        return
    is_histogram = are_histograms(samples.histograms)
    for at in (np.flatnonzero(is_histogram[1:] | is_histogram[:-1]) + 1).tolist():
        now, before = samples.histograms[at], samples.histograms[at - 1]
        if now is None or before is None:
            differs[at] = True
            continue
        early, late = np.array([at - 1]), np.array([at])
        anew = already is not None and bool(_anew(samples, already, early, late)[0])
        differs[at] = anew or compare(now, before)


Extended = Literal["anchored", "smoothed"]


def _function(name: str, evaluate: Callable[[Called], Vector], extended: tuple[Extended, ...] = ()) -> Function:
    windows = FROM_WINDOWS.get(name)
    return Function(name, (Kind.MATRIX,), Kind.VECTOR, evaluate, extended=extended, windows=windows)


RATES: tuple[Function, ...] = (
    _function("rate", partial(_rate, counter=True, per_second=True), ("anchored", "smoothed")),
    _function("increase", partial(_rate, counter=True, per_second=False), ("anchored", "smoothed")),
    _function("delta", partial(_rate, counter=False, per_second=False), ("anchored", "smoothed")),
    _function("irate", partial(_of_last_two, counter=True)),
    _function("idelta", partial(_of_last_two, counter=False)),
    _function("resets", partial(_count, differs=_resets), ("anchored",)),
    _function("changes", partial(_count, differs=_changes), ("anchored",)),
)
