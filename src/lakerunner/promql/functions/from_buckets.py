"""Functions of ranges computed from the buckets of rollups, and sketch_over_time from samples or rollups.

Comes in: samples, or buckets and their sketches, and which of them each range has. Goes out: a value for each range;
for sketch_over_time a histogram of schema 6. What always holds: values equal those from samples, or NotTiered is
raised. The histogram buckets of sketches are those of model/sketch.py for both sources, so that both give the same
bits; at most _AT_ONCE of them are counted at once, however far apart the numbers of a range are, and no more is
allocated than the bounds allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model import sketch
from lakerunner.model.sketch import BucketSpans, empty_spans
from lakerunner.promql.functions.range_vectors import check_counters, range_seconds
from lakerunner.series import rollups
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.bounds import Bounds
from lakerunner.series.extrapolation import extrapolation
from lakerunner.series.histograms.histogram import HISTOGRAM_POINTS, BucketCounts, Histogram, ResetHint
from lakerunner.series.rollups import FromBuckets, NotTiered, RollupRange, Sketches
from lakerunner.series.values import Vector
from lakerunner.series.window_kernels import NO_STARTS, Table, extremes, plus

_AT_ONCE = 1 << 20  # histogram buckets of 8 bytes counted at once; a range has at most 270,000


@dataclass(frozen=True)
class Ranges:
    """What is in each range, and how to count it: `count` adds the numbers of some ranges to `counts`, in which the
    buckets of each range start at `begin` with bucket `low`, [sign, range]."""

    placed: BucketSpans
    count: Callable[[slice, Ints, Ints, tuple[Any, Any]], None]


def ranges_of_samples(numbers: Floats, bounds: tuple[Ints, Ints]) -> Ranges:
    first, behind = (one.reshape(-1) for one in bounds)
    bits, index = numbers.view(np.int64), np.empty(len(numbers), np.int32)
    sketch.find_buckets(np.ones(len(numbers), bool), bits, index)
    placed = empty_spans(len(first))
    sketch.find_spans(first, behind, bits, index, placed)

    def count(some: slice, low: Ints, begin: Ints, counts: tuple[Any, Any]) -> None:
        sketch.count_values(first[some], behind[some], bits, index, low, begin, counts)

    return Ranges(placed, count)


def ranges_of_buckets(windows: Sketches, bounds: tuple[Ints, Ints]) -> Ranges:
    first, behind = (one.reshape(-1) for one in bounds)
    zeros, found = (
        before[behind] - before[first]
        for before in (np.append(0, np.cumsum(one)) for one in (windows.zeros, windows.found))
    )
    placed = empty_spans(len(first))._replace(zeros=zeros, found=found)
    for sign, side in enumerate(windows.sides):
        sketch.find_row_spans(first, behind, side, placed.low[sign], placed.high[sign])

    def count(some: slice, low: Ints, begin: Ints, counts: tuple[Any, Any]) -> None:
        for sign, side in enumerate(windows.sides):
            sketch.add_rows(first[some], behind[some], side, low[sign], begin[sign], counts[sign])

    return Ranges(placed, count)


def histograms_of(ranges: Ranges, sums: Floats, present: Bools, limit: Bounds, zero_threshold: float = 0.0) -> Objects:
    """Build the histogram of every present range, with these sums. It is a gauge: the next range may have less."""
    made: Objects = np.full(present.size, None, object)
    there, totals = present.reshape(-1), sums.reshape(-1)
    held = 0
    for some in _batches(ranges.placed):
        positive, negative = _count_buckets(ranges, some)
        cells = np.flatnonzero(there[some])
        held += HISTOGRAM_POINTS * len(cells) + len(positive.counts) + len(negative.counts)
        limit.hold_points(held)
        for cell in cells.tolist():
            at = some.start + cell
            made[at] = Histogram(
                sketch.SCALE,
                float(ranges.placed.found[at]),
                float(totals[at]),
                zero_threshold,
                zero_count=float(ranges.placed.zeros[at]),
                positive=positive.bucket_counts(cell),
                negative=negative.bucket_counts(cell),
                reset_hint=ResetHint.GAUGE,
            )
    return made.reshape(present.shape)


@dataclass(frozen=True)
class _FilledBuckets:
    """The non-empty buckets of some ranges: those of range n are `ends[n]:ends[n + 1]`."""

    indexes: Any
    counts: Floats
    ends: Ints

    def bucket_counts(self, range_: int) -> BucketCounts:
        begin, end = self.ends[range_], self.ends[range_ + 1]
        return BucketCounts(self.indexes[begin:end], self.counts[begin:end])


def _count_buckets(ranges: Ranges, some: slice) -> tuple[_FilledBuckets, _FilledBuckets]:
    low = np.ascontiguousarray(ranges.placed.low[:, some])
    sizes = ranges.placed.high[:, some] - low
    begin = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(sizes, axis=1)], axis=1)
    counts = np.zeros(begin[0, -1], np.uint64), np.zeros(begin[1, -1], np.uint64)
    ranges.count(some, low, begin, counts)
    positive, negative = (_find_filled(counts[sign], low[sign], begin[sign]) for sign in (0, 1))
    return positive, negative


def _find_filled(counts: Any, low: Ints, begin: Ints) -> _FilledBuckets:
    """Find the non-empty buckets. Bucket n of OTLP is n + 1 in Prometheus."""
    places = np.flatnonzero(counts)
    ends = np.searchsorted(places, begin)
    indexes = places + np.repeat(low - begin[:-1] + 1, np.diff(ends))
    return _FilledBuckets(indexes.astype(np.int32), counts[places].astype(np.float64), ends)


def _batches(placed: BucketSpans) -> Iterator[slice]:
    """Yield slices of ranges whose buckets are counted together."""
    ends = np.cumsum((placed.high - placed.low).sum(axis=0))
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        behind = max(int(np.searchsorted(ends, before + _AT_ONCE, side="right")), first + 1)
        yield slice(first, behind)
        first = behind


_OVERFLOWS = 1e300  # larger sums might overflow if added in another order

# ---- picked, counted


def _pick(given: RollupRange, name: str, *, last: bool) -> Vector:
    first, behind = given.bounds
    numbers = np.append(given.rolled[name], 0.0)
    place = behind - 1 if last else first
    return given.vector(np.where(given.present, numbers[np.where(given.present, place, -1)], 0.0), given.present)


def _count(given: RollupRange) -> Vector:
    first, behind = given.bounds
    before = np.append(0, np.cumsum(given.rolled[rollups.COUNT]))
    return given.vector((before[behind] - before[first]).astype(float), given.present)


def _present(given: RollupRange) -> Vector:
    return given.vector(np.ones(given.present.shape), given.present)


def _differing(given: RollupRange, name: str) -> Vector:
    """Count samples that differ from the one before: those inside buckets, plus the first ones of buckets."""
    first, behind = given.bounds
    inside = np.append(0, np.cumsum(given.rolled[name]))
    between = np.append(0, np.cumsum(_borders(given.rolled, name)))
    second = np.minimum(first + 1, len(between) - 1)
    found = inside[behind] - inside[first] + between[behind] - between[second]
    return given.vector(np.where(given.present, found, 0).astype(float), given.present)


def _borders(windows: rollups.RollupSeries, name: str) -> Bools:
    """Return where a bucket's first sample differs from the last one of the bucket before. For the first bucket of a
    series this compares with another series, but no range uses it."""
    differs = np.zeros(len(windows.ends), bool)
    late, early = windows[rollups.FIRST][1:], windows[rollups.LAST][:-1]
    if name == rollups.RESETS:
        differs[1:] = late < early
    else:
        differs[1:] = (late != early) & ~(np.isnan(late) & np.isnan(early))
    return differs


# ---- of all numbers


def _extreme(given: RollupRange, name: str, sign: float) -> Vector:
    values = np.zeros(given.present.shape)
    extremes(
        Table(given.rolled.ends, given.rolled[name], NO_STARTS, *given.bounds, given.ends), sign, False, False, values
    )
    return given.vector(values, given.present)


def _total(given: RollupRange, *, mean: bool) -> Vector:
    infinite = np.isinf(given.rolled[rollups.MIN]) | np.isinf(given.rolled[rollups.MAX])
    return given.vector(_add_sums(given, ~infinite, mean=mean), given.present)


def _add_sums(given: RollupRange, finite: Bools, *, mean: bool = False) -> Floats:
    """Return the sums. Raise NotTiered if a sum of finite numbers is so large that another order might overflow."""
    windows = given.rolled
    sums = windows[rollups.SUM]
    if np.any((np.abs(sums) > _OVERFLOWS / max(1, len(sums))) & finite):
        raise NotTiered("the sum may overflow in another order of its samples")
    values = np.zeros(given.present.shape)
    _totals(sums, windows[rollups.SUM_ERROR], windows[rollups.COUNT], given.bounds, mean, values)
    return values


def _sketch(given: RollupRange) -> Vector:
    """Build the histograms. Raise NotTiered if samples include NaN or infinities, which are in the sum but in no
    sketch."""
    sketches = given.rolled.sketches.at(given.rolled[rollups.SKETCH])
    whole = sketches.found == given.rolled[rollups.COUNT]
    if not whole.all():
        raise NotTiered("some samples are NaN or infinite, and rollups do not have the sum of the others")
    sums = _add_sums(given, whole)
    histograms = histograms_of(ranges_of_buckets(sketches, given.bounds), sums, given.present, given.limit)
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


def _rate(given: RollupRange, *, counter: bool, per_second: bool) -> Vector:
    windows = given.rolled
    places, added = _resets(windows) if counter else (np.zeros(0, np.int64), np.zeros(0))
    values, present = np.zeros((len(windows), len(given.ends))), np.zeros((len(windows), len(given.ends)), bool)
    facts = (np.append(0, np.cumsum(windows[rollups.COUNT])), *(windows[name] for name in _ENDS))
    seconds = range_seconds(given.range) if per_second else 0.0
    _rates(facts, (places, added), (given.ends, given.range), given.bounds, (counter, seconds), (values, present))
    if counter:
        check_counters(windows.labels, present, given.notes, given.span)
    return given.vector(values, present)


def _resets(windows: rollups.RollupSeries) -> tuple[Ints, Any]:
    """Return where the counter was reset, and the value before: for bucket n at 2n between it and the one before, at 2n
    + 1 inside it. So the resets of buckets a to b start at 2a + 1."""
    between, inside = _borders(windows, rollups.RESETS), windows[rollups.RESETS] > 0
    at = np.stack([between, inside], axis=1).reshape(-1)
    before = np.concatenate([np.zeros(min(1, len(between))), windows[rollups.LAST][:-1]])
    values = np.stack([before, windows[rollups.RESET_SUM]], axis=1).reshape(-1)
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


_ENDS = (rollups.FIRST, rollups.FIRST_TIME, rollups.LAST, rollups.LAST_TIME)
_SUMS = (rollups.SUM, rollups.SUM_ERROR, rollups.MIN, rollups.MAX)
_COUNTER = (*_ENDS, rollups.RESETS, rollups.RESET_SUM)

# The functions that rollups serve, by name. To add one, add a row.
FROM_BUCKETS: dict[str, FromBuckets] = {
    "rate": FromBuckets(_COUNTER, partial(_rate, counter=True, per_second=True)),
    "increase": FromBuckets(_COUNTER, partial(_rate, counter=True, per_second=False)),
    "delta": FromBuckets(_ENDS, partial(_rate, counter=False, per_second=False)),
    "resets": FromBuckets((rollups.FIRST, rollups.LAST, rollups.RESETS), partial(_differing, name=rollups.RESETS)),
    "changes": FromBuckets((rollups.FIRST, rollups.LAST, rollups.CHANGES), partial(_differing, name=rollups.CHANGES)),
    "sum_over_time": FromBuckets(_SUMS, partial(_total, mean=False)),
    "avg_over_time": FromBuckets(_SUMS, partial(_total, mean=True)),
    "min_over_time": FromBuckets((rollups.MIN,), partial(_extreme, name=rollups.MIN, sign=-1.0)),
    "max_over_time": FromBuckets((rollups.MAX,), partial(_extreme, name=rollups.MAX, sign=1.0)),
    "count_over_time": FromBuckets((), _count),
    "present_over_time": FromBuckets((), _present),
    "sketch_over_time": FromBuckets((rollups.SKETCH, rollups.SUM, rollups.SUM_ERROR), _sketch),
    "first_over_time": FromBuckets((rollups.FIRST,), partial(_pick, name=rollups.FIRST, last=False)),
    "last_over_time": FromBuckets((rollups.LAST,), partial(_pick, name=rollups.LAST, last=True)),
}
