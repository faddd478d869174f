"""Functions of a range, made of the windows of rollups instead of samples.

Comes in: the windows of each range. Goes out: what the function gives over their samples. What always holds: the value
has the same bits, but where numbers are added up that are not whole (sums, means, and rates over several resets): there
it is within the error of the compensated sum. Windows are gone through in the order of time, and what lies between two
of them (a reset, a change) is seen from the last sample of one and the first of the next.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from lakerunner.promql.functions.counters import check_counters, range_seconds
from lakerunner.promql.functions.rate_kernels import extrapolation
from lakerunner.promql.functions.sketches import histograms_of, ranges_of_windows
from lakerunner.series import rolled
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.rolled import FromWindows, NotTiered, RolledRange
from lakerunner.series.values import Vector
from lakerunner.series.window_kernels import NO_STARTS, Table, extremes, plus

_OVERFLOWS = 1e300  # sums past this may be infinite in another order

# ---- picked, counted


def _picked(given: RolledRange, name: str, *, last: bool) -> Vector:
    first, behind = given.bounds
    numbers = np.append(given.rolled[name], 0.0)
    place = behind - 1 if last else first
    return given.vector(np.where(given.present, numbers[np.where(given.present, place, -1)], 0.0), given.present)


def _counted(given: RolledRange) -> Vector:
    first, behind = given.bounds
    before = np.append(0, np.cumsum(given.rolled[rolled.COUNT]))
    return given.vector((before[behind] - before[first]).astype(float), given.present)


def _present(given: RolledRange) -> Vector:
    return given.vector(np.ones(given.present.shape), given.present)


def _differing(given: RolledRange, name: str) -> Vector:
    """Samples that differ from the one before: those inside windows, and the first ones of windows."""
    first, behind = given.bounds
    inside = np.append(0, np.cumsum(given.rolled[name]))
    between = np.append(0, np.cumsum(_borders(given.rolled, name)))
    second = np.minimum(first + 1, len(between) - 1)
    found = inside[behind] - inside[first] + between[behind] - between[second]
    return given.vector(np.where(given.present, found, 0).astype(float), given.present)


def _borders(windows: rolled.Rolled, name: str) -> Bools:
    """Whether a window's first sample differs from the last of the window before. What is said of a series' first
    window compares with another series: no range asks."""
    differs = np.zeros(len(windows.ends), bool)
    late, early = windows[rolled.FIRST][1:], windows[rolled.LAST][:-1]
    if name == rolled.RESETS:
        differs[1:] = late < early
    else:
        differs[1:] = (late != early) & ~(np.isnan(late) & np.isnan(early))
    return differs


# ---- of all numbers


def _extreme(given: RolledRange, name: str, sign: float) -> Vector:
    values = np.zeros(given.present.shape)
    extremes(
        Table(given.rolled.ends, given.rolled[name], NO_STARTS, *given.bounds, given.ends), sign, False, False, values
    )
    return given.vector(values, given.present)


def _total(given: RolledRange, *, mean: bool) -> Vector:
    infinite = np.isinf(given.rolled[rolled.MIN]) | np.isinf(given.rolled[rolled.MAX])
    return given.vector(_summed(given, ~infinite, mean=mean), given.present)


def _summed(given: RolledRange, finite: Bools, *, mean: bool = False) -> Floats:
    """NotTiered where a sum of numbers that are not infinite is so large that it may be in another order."""
    windows = given.rolled
    sums = windows[rolled.SUM]
    if np.any((np.abs(sums) > _OVERFLOWS / max(1, len(sums))) & finite):
        raise NotTiered("the sum may overflow in another order of its samples")
    values = np.zeros(given.present.shape)
    _totals(sums, windows[rolled.SUM_ERROR], windows[rolled.COUNT], given.bounds, mean, values)
    return values


def _sketch(given: RolledRange) -> Vector:
    """NotTiered where there is NaN or an infinity among the samples: these are in no sketch, but in the sum."""
    sketches = given.rolled.sketches.at(given.rolled[rolled.SKETCH])
    whole = sketches.found == given.rolled[rolled.COUNT]
    if not whole.all():
        raise NotTiered("some samples are NaN or infinite, and rollups do not have the sum of the others")
    sums = _summed(given, whole)
    histograms = histograms_of(ranges_of_windows(sketches, given.bounds), sums, given.present, given.limit)
    return replace(given.vector(sums, given.present), histograms=histograms)


@njit(cache=True, nogil=True, error_model="numpy")
def _totals(sums: Any, errors: Any, counts: Any, bounds: Any, mean: Any, values: Any) -> None:
    first, behind = bounds
    for series in range(first.shape[0]):
        for step in range(first.shape[1]):
            total = lost = 0.0
            count = 0
            for at in range(first[series, step], behind[series, step]):
                total, lost = plus(sums[at], total, lost)
                if np.isfinite(total):
                    lost += errors[at]
                count += counts[at]
            if count == 0:
                continue
            if mean:
                values[series, step] = total / count + lost / count
            else:
                values[series, step] = total if np.isinf(total) else total + lost


# ---- rates


def _rate(given: RolledRange, *, counter: bool, per_second: bool) -> Vector:
    windows = given.rolled
    places, added = _resets(windows) if counter else (np.zeros(0, np.int64), np.zeros(0))
    values, present = np.zeros((len(windows), len(given.ends))), np.zeros((len(windows), len(given.ends)), bool)
    facts = (np.append(0, np.cumsum(windows[rolled.COUNT])), *(windows[name] for name in _ENDS))
    seconds = range_seconds(given.range) if per_second else 0.0
    _rates(facts, (places, added), (given.ends, given.range), given.bounds, (counter, seconds), (values, present))
    if counter:
        check_counters(windows.labels, present, given.notes, given.span)
    return given.vector(values, present)


def _resets(windows: rolled.Rolled) -> tuple[Ints, Any]:
    """Where the counter began anew, and what it had come to: of window n at 2n between it and the one before, at 2n + 1
    inside it. So those of windows a to b are from 2a + 1 on."""
    between, inside = _borders(windows, rolled.RESETS), windows[rolled.RESETS] > 0
    at = np.stack([between, inside], axis=1).reshape(-1)
    before = np.concatenate([np.zeros(min(1, len(between))), windows[rolled.LAST][:-1]])
    values = np.stack([before, windows[rolled.RESET_SUM]], axis=1).reshape(-1)
    return np.flatnonzero(at), values[at]


@njit(cache=True, nogil=True, error_model="numpy")
def _rates(facts: Any, resets: Any, ranged: Any, bounds: Any, rating: Any, out: Any) -> None:
    before, firsts, first_times, lasts, last_times = facts
    places, added = resets
    ends, range_ = ranged
    lows, highs = bounds
    counter, seconds = rating
    values, present = out
    for series in range(lows.shape[0]):
        head = np.searchsorted(places, 2 * lows[series, 0] + 1) if lows.shape[1] else 0
        for step in range(lows.shape[1]):
            a, b = lows[series, step], highs[series, step]
            count = before[b] - before[a]
            if count < 2:
                continue
            increase = lasts[b - 1] - firsts[a]
            to_zero = np.inf
            if counter:
                while head < len(places) and places[head] <= 2 * a:
                    head += 1
                place = head
                while place < len(places) and places[place] < 2 * b:
                    increase += added[place]
                    place += 1
                if increase > 0 and firsts[a] >= 0:
                    to_zero = firsts[a] / increase
            factor = extrapolation(
                ends[step] - range_, ends[step], first_times[a], last_times[b - 1], count - 1, 0, to_zero
            )
            if seconds != 0:
                factor /= seconds
            values[series, step] = increase * factor
            present[series, step] = True


_ENDS = (rolled.FIRST, rolled.FIRST_TIME, rolled.LAST, rolled.LAST_TIME)
_SUMS = (rolled.SUM, rolled.SUM_ERROR, rolled.MIN, rolled.MAX)
_COUNTER = (*_ENDS, rolled.RESETS, rolled.RESET_SUM)

# The functions that windows serve, by name. One more is one more row.
FROM_WINDOWS: dict[str, FromWindows] = {
    "rate": FromWindows(_COUNTER, partial(_rate, counter=True, per_second=True)),
    "increase": FromWindows(_COUNTER, partial(_rate, counter=True, per_second=False)),
    "delta": FromWindows(_ENDS, partial(_rate, counter=False, per_second=False)),
    "resets": FromWindows((rolled.FIRST, rolled.LAST, rolled.RESETS), partial(_differing, name=rolled.RESETS)),
    "changes": FromWindows((rolled.FIRST, rolled.LAST, rolled.CHANGES), partial(_differing, name=rolled.CHANGES)),
    "sum_over_time": FromWindows(_SUMS, partial(_total, mean=False)),
    "avg_over_time": FromWindows(_SUMS, partial(_total, mean=True)),
    "min_over_time": FromWindows((rolled.MIN,), partial(_extreme, name=rolled.MIN, sign=-1.0)),
    "max_over_time": FromWindows((rolled.MAX,), partial(_extreme, name=rolled.MAX, sign=1.0)),
    "count_over_time": FromWindows((), _counted),
    "present_over_time": FromWindows((), _present),
    "sketch_over_time": FromWindows((rolled.SKETCH, rolled.SUM, rolled.SUM_ERROR), _sketch),
    "first_over_time": FromWindows((rolled.FIRST,), partial(_picked, name=rolled.FIRST, last=False)),
    "last_over_time": FromWindows((rolled.LAST,), partial(_picked, name=rolled.LAST, last=True)),
}
