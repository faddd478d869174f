"""Native histograms of the numbers of a range: sketch_over_time, from samples and from the windows of rollups.

Comes in: samples, or the sketches of windows, and which of them each range has. Goes out: for each range a histogram of
schema 6. What always holds: buckets are those of model/sketch.py, whoever counts into them, so that both ways give the
same bits; as many buckets are counted in at once as _AT_ONCE, however far apart a range's numbers are, and no more is
made than the bounds allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.model import sketch
from lakerunner.model.sketch import Placed, nothing_placed
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.bounds import Bounds
from lakerunner.series.histograms.histogram import HISTOGRAM_POINTS, Buckets, Histogram, ResetHint
from lakerunner.series.sketches import Sketches

_AT_ONCE = 1 << 20  # buckets, of 8 bytes; a range has at most 270,000


@dataclass(frozen=True)
class Ranges:
    """What is in each range, and how it is counted: `count` adds those of some ranges to `counts`, where each range's
    buckets begin at `begin` with bucket `low`, [sign, range]."""

    placed: Placed
    count: Callable[[slice, Ints, Ints, tuple[Any, Any]], None]


def ranges_of_samples(numbers: Floats, bounds: tuple[Ints, Ints]) -> Ranges:
    first, behind = (one.reshape(-1) for one in bounds)
    bits, index = numbers.view(np.int64), np.empty(len(numbers), np.int32)
    sketch.indexes(np.ones(len(numbers), bool), bits, index)
    placed = nothing_placed(len(first))
    sketch.place(first, behind, bits, index, placed)

    def count(some: slice, low: Ints, begin: Ints, counts: tuple[Any, Any]) -> None:
        sketch.fill(first[some], behind[some], bits, index, low, begin, counts)

    return Ranges(placed, count)


def ranges_of_windows(windows: Sketches, bounds: tuple[Ints, Ints]) -> Ranges:
    first, behind = (one.reshape(-1) for one in bounds)
    zeros, found = (
        before[behind] - before[first]
        for before in (np.append(0, np.cumsum(one)) for one in (windows.zeros, windows.found))
    )
    placed = nothing_placed(len(first))._replace(zeros=zeros, found=found)
    for sign, side in enumerate(windows.sides):
        sketch.spans(first, behind, side, placed.low[sign], placed.high[sign])

    def count(some: slice, low: Ints, begin: Ints, counts: tuple[Any, Any]) -> None:
        for sign, side in enumerate(windows.sides):
            sketch.add(first[some], behind[some], side, low[sign], begin[sign], counts[sign])

    return Ranges(placed, count)


def histograms_of(ranges: Ranges, sums: Floats, present: Bools, limit: Bounds) -> Objects:
    """Of every range that is present, with these sums. A gauge: the next range may have less in it."""
    made: Objects = np.full(present.size, None, object)
    there, totals = present.reshape(-1), sums.reshape(-1)
    held = 0
    for some in _batches(ranges.placed):
        positive, negative = _counted(ranges, some)
        cells = np.flatnonzero(there[some])
        held += HISTOGRAM_POINTS * len(cells) + len(positive.counts) + len(negative.counts)
        limit.hold_points(held)
        for cell in cells.tolist():
            at = some.start + cell
            made[at] = Histogram(
                sketch.SCALE,
                float(ranges.placed.found[at]),
                float(totals[at]),
                zero_count=float(ranges.placed.zeros[at]),
                positive=positive.of(cell),
                negative=negative.of(cell),
                reset_hint=ResetHint.GAUGE,
            )
    return made.reshape(present.shape)


@dataclass(frozen=True)
class _Filled:
    """The buckets of some ranges that are not empty: those of range n are `ends[n]:ends[n + 1]`."""

    indexes: Any
    counts: Floats
    ends: Ints

    def of(self, range_: int) -> Buckets:
        begin, end = self.ends[range_], self.ends[range_ + 1]
        return Buckets(self.indexes[begin:end], self.counts[begin:end])


def _counted(ranges: Ranges, some: slice) -> tuple[_Filled, _Filled]:
    low = np.ascontiguousarray(ranges.placed.low[:, some])
    sizes = ranges.placed.high[:, some] - low
    begin = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(sizes, axis=1)], axis=1)
    counts = np.zeros(begin[0, -1], np.uint64), np.zeros(begin[1, -1], np.uint64)
    ranges.count(some, low, begin, counts)
    positive, negative = (_filled(counts[sign], low[sign], begin[sign]) for sign in (0, 1))
    return positive, negative


def _filled(counts: Any, low: Ints, begin: Ints) -> _Filled:
    """Bucket n of OTLP is Prometheus' n + 1."""
    places = np.flatnonzero(counts)
    ends = np.searchsorted(places, begin)
    indexes = places + np.repeat(low - begin[:-1] + 1, np.diff(ends))
    return _Filled(indexes.astype(np.int32), counts[places].astype(np.float64), ends)


def _batches(placed: Placed) -> Iterator[slice]:
    """Ranges whose buckets are counted together."""
    ends = np.cumsum((placed.high - placed.low).sum(axis=0))
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        behind = max(int(np.searchsorted(ends, before + _AT_ONCE, side="right")), first + 1)
        yield slice(first, behind)
        first = behind
