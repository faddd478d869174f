"""Selectors that look beyond their range: `anchored` includes the last sample before it, `smoothed` interpolates
between samples, also to the next one after it.

Comes in: samples, and the times that steps look at. Goes out: values at times that need not have a sample. What always
holds: no sample counts that is further from the range than the lookback.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, value_of
from lakerunner.promql.selection.notes import MIXED_SAMPLES, MIXED_SCHEMAS, note_metric
from lakerunner.promql.selection.staleness import without_stale_markers
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.expression import NOWHERE, Span
from lakerunner.series.histograms.algebra import (
    IncompatibleHistograms,
    add_histograms,
    detect_reset,
    scale_histogram,
    subtract_histograms,
)
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Samples, Vector, Windows, window_bounds


@njit(cache=True, nogil=True, error_model="numpy")
def on_line(y1: Any, t1: Any, y2: Any, t2: Any, time: Any, counter: Any) -> Any:
    """Interpolate between two samples at `time`. A counter that decreased started from zero."""
    if counter and y2 < y1:
        y1 = 0.0
    return y1 + (y2 - y1) * float(time - t1) / float(t2 - t1)


def histogram_on_line(
    before: tuple[int, Histogram], after: tuple[int, Histogram], time: int, counter: bool, notes: Notes, span: Span
) -> Histogram:
    """Interpolate between two histograms. Raise IncompatibleHistograms if they do not fit."""
    (t1, first), (t2, second) = before, after
    if time in (t1, t2):
        return first if time == t1 else second
    fraction = float(time - t1) / float(t2 - t1)
    if counter and detect_reset(second, first):
        return scale_histogram(second, fraction)
    difference = subtract_histograms(second, first)
    if difference.bounds_reconciled:
        notes.report(Misfit.BOUNDS_RECONCILED, span, operation="subtraction")
    total = add_histograms(scale_histogram(difference.histogram, fraction), first)
    if total.bounds_reconciled:
        notes.report(Misfit.BOUNDS_RECONCILED, span, operation="addition")
    return total.histogram


def outer_windows(given: Windows) -> tuple[Ints, Ints]:
    """Return the bounds of windows that include the samples before and after the range that it may use."""
    after = given.lookback if given.extended == "smoothed" else 0
    samples = given.samples
    return window_bounds(samples.offsets, samples.times, given.ends + after, given.range + given.lookback + after)


def outermost(given: Windows) -> tuple[Ints, Ints, Bools]:
    """Return for each window of an extended range the sample of its left end, the one of its right end, and whether
    there is anything in between."""
    low, high = outer_windows(given)
    left = np.maximum(low, np.minimum(given.first, high - 1) - 1)
    if given.extended == "anchored":
        return left, given.last - 1, given.last > given.first
    times = np.append(given.samples.times, 0)
    at_end = (given.last > given.first) & (times[given.last - 1] == given.ends)
    right = np.minimum(np.where(at_end, given.last - 1, given.last), high - 1)
    there = (high > low) & (times[right] > given.ends - given.range) & (times[left] <= given.ends)
    return left, right, there


def smoothed_instant(
    given: Samples, times: Ints, lookback: int, notes: Notes | None = None, span: Span = NOWHERE
) -> Vector:
    """Evaluate an instant selector with `smoothed` at these times (ascending): the sample at the time, or the point
    between its neighbours; after the last sample its value, before the first nothing."""
    samples = without_stale_markers(given)
    low, high = window_bounds(samples.offsets, samples.times, times + lookback, 2 * lookback)
    _, after = window_bounds(samples.offsets, samples.times, times - 1, lookback)
    present: Bools = (high > low) & ((after > low) | (_take(samples.times, after) == times) & (after < high))
    values = _smoothed_floats(samples, times, after, high)
    if samples.histograms is None:
        return Vector(samples.labels, np.where(present, values, 0.0), present, None, samples.drop_name)
    counted = np.concatenate([np.zeros(1, np.int64), np.cumsum([one is not None for one in samples.histograms])])
    found = counted[high] - counted[low]
    report = notes or Notes({})
    mixed = (found > 0) & (found < high - low)
    for row in np.flatnonzero(mixed.any(axis=1)).tolist():
        note_metric(report, MIXED_SAMPLES, value_of(samples.labels[row], NAME), span)
    present &= ~mixed
    histograms = _smoothed_histograms(samples, times, (after, high), present & (found > 0), (report, span))
    present &= (found == 0) | (histograms != None)  # noqa: E711 elementwise
    return Vector(samples.labels, np.where(present, values, 0.0), present, histograms, samples.drop_name)


def _take(of: Any, index: Ints) -> Any:
    """Take entries by index. Indexes out of bounds give arbitrary entries, which the caller masks."""
    return np.append(of, of.dtype.type(0))[np.clip(index, 0, len(of))]


def _smoothed_floats(samples: Samples, times: Ints, after: Ints, high: Ints) -> Floats:
    t1, t2 = _take(samples.times, after - 1), _take(samples.times, after)
    y1, y2 = _take(samples.values, after - 1), _take(samples.values, after)
    with np.errstate(all="ignore"):
        between = y1 + (y2 - y1) * (times - t1).astype(float) / (t2 - t1).astype(float)
    values: Floats = np.where(after >= high, y1, np.where(t2 == times, y2, between))
    return values


def _smoothed_histograms(
    samples: Samples, times: Ints, place: tuple[Ints, Ints], where: Bools, report: tuple[Notes, Span]
) -> Objects:
    after, high = place
    histograms = np.full(where.shape, None, object)
    for row, step in np.argwhere(where).tolist():
        at, time = int(after[row, step]), int(times[step])
        name = value_of(samples.labels[row], NAME)
        histograms[row, step] = _smoothed_histogram(samples, at, time, at < high[row, step], (name, *report))
    return histograms


def _smoothed_histogram(
    samples: Samples, at: int, time: int, has_next: bool, report: tuple[str, Notes, Span]
) -> Histogram | None:
    if samples.histograms is None:
        return None
    if has_next and samples.times[at] == time:
        found: Histogram = samples.histograms[at]
        return found
    before: Histogram = samples.histograms[at - 1]
    if not has_next:
        return replace(before, reset_hint=ResetHint.UNKNOWN)
    after: Histogram = samples.histograms[at]
    counter = before.reset_hint != ResetHint.GAUGE or after.reset_hint != ResetHint.GAUGE
    ends = (int(samples.times[at - 1]), before), (int(samples.times[at]), after)
    name, notes, span = report
    try:
        if before.is_custom != after.is_custom:
            raise IncompatibleHistograms
        return histogram_on_line(*ends, time, counter, notes, span)
    except IncompatibleHistograms:
        note_metric(notes, MIXED_SCHEMAS, name, span)
        return None


def extended_samples(given: Windows) -> Samples:
    """Return the samples of an extended range whose one step is the answer itself: the samples inside, and one at each
    of its ends."""
    low, high = (array[:, 0] for array in outer_windows(given))
    if given.samples.histograms is not None:
        found = np.array([one is not None for one in given.samples.histograms], bool)
        if any(found[a:b].any() for a, b in zip(low, high, strict=True)):
            raise UserError(f"{given.extended} modifier is not supported with histograms")
    start, end = int(given.ends[0]) - given.range, int(given.ends[0])
    left, right, _ = (array[:, 0] for array in outermost(given))
    times, values, offsets = given.samples.times, given.samples.values, [0]
    new_times: list[Ints] = []
    new_values: list[Floats] = []
    smoothed = given.extended == "smoothed"
    for row in range(len(given.samples)):
        a, b = int(left[row]), int(right[row])
        if high[row] > low[row] and times[b] > start:
            y1, y2 = values[a], values[b]
            if smoothed and times[a] < start:
                y1 = on_line(values[a], times[a], values[a + 1], times[a + 1], start, False)
            if smoothed and b > low[row] and times[b] > end:
                y2 = on_line(values[b - 1], times[b - 1], values[b], times[b], end, False)
            inside = slice(a + (times[a] <= start), b + 1 - (times[b] >= end))
            new_times.append(np.array([start, *times[inside], end], np.int64))
            new_values.append(np.array([y1, *values[inside], y2]))
            offsets.append(offsets[-1] + len(new_times[-1]))
        else:
            offsets.append(offsets[-1])
    return Samples(
        given.samples.labels,
        np.array(offsets, np.int64),
        np.concatenate([*new_times, np.zeros(0, np.int64)]),
        np.concatenate([*new_values, np.zeros(0)]),
        drop_name=given.samples.drop_name,
    )
