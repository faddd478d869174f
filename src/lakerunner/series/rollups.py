"""Series as buckets of rollups instead of samples, and the sketches of buckets (docs/formats/rollups.md).

Comes in: buckets of each series, ascending in time and not overlapping; they may be of several widths, and a sample
that no rollup holds is a bucket of its own. Goes out: samples, for instant selectors; the buckets in a range, for
functions. What always holds: a step sees only buckets that lie completely inside its range (series/evaluation/tiers.py
ensures it), so that together they stand for its samples. The buckets of sketches are those of model/sketch.py, so that
sketches add up to what the samples would give, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.model.sketch import NONE, ZERO, BucketRows, find_buckets
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import Span
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector, window_bounds


@dataclass(frozen=True, eq=False)
class Sketches:
    """The sketches of many buckets. Sketch n counts `found[n]` numbers, `zeros[n]` of them zero, the others in the
    histogram buckets of `sides`: the positive and the negative ones."""

    found: Ints
    zeros: Ints
    sides: tuple[BucketRows, BucketRows]

    def __len__(self) -> int:
        return len(self.found)

    @property
    def buckets(self) -> int:
        """Return how many histogram buckets it holds, empty ones included."""
        return sum(len(side.counts) for side in self.sides)

    def buckets_of(self, windows: Ints) -> int:
        return sum(int(side.sizes[windows].sum()) for side in self.sides)

    @property
    def bytes(self) -> int:
        arrays = [self.found, self.zeros, *(array for side in self.sides for array in side)]
        return sum(int(array.nbytes) for array in arrays)

    def at(self, windows: Ints) -> Sketches:
        """Return the sketches at these places. They share the histogram buckets of this value."""
        positive, negative = (
            BucketRows(side.offsets[windows], side.begins[windows], side.sizes[windows], side.counts)
            for side in self.sides
        )
        return Sketches(self.found[windows], self.zeros[windows], (positive, negative))

    def alone(self, windows: Ints) -> Sketches:
        """Return the sketches at these places with a copy of only their histogram buckets, so that the rest can be
        freed."""
        some = self.at(windows)
        positive, negative = map(_pack, some.sides)
        return Sketches(some.found, some.zeros, (positive, negative))

    def sound(self) -> bool:
        """Return whether each sketch counts as many numbers as it states."""
        counted = self.zeros.copy()
        for side in self.sides:
            before = np.append(0, np.cumsum(side.counts.astype(np.int64)))
            counted += before[side.begins + side.sizes] - before[side.begins]
        return bool((counted == self.found).all())


def _pack(side: BucketRows) -> BucketRows:
    ends = np.cumsum(side.sizes)
    begins = ends - side.sizes
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(side.begins - begins, side.sizes)
    return BucketRows(side.offsets, begins, side.sizes, side.counts[places])


def sketch_numbers(numbers: Floats) -> Sketches:
    """Return one sketch per number. NaN and infinities are in no sketch."""
    bits, index = numbers.view(np.int64), np.empty(len(numbers), np.int32)
    find_buckets(np.ones(len(numbers), bool), bits, index)
    one = np.ones(1, np.uint64)  # one count, shared by all numbers
    positive, negative = (
        BucketRows(index, np.zeros(len(index), np.int64), ((index < NONE) & sign).astype(np.int64), one)
        for sign in (bits >= 0, bits < 0)
    )
    return Sketches((index != NONE).astype(np.int64), (index == ZERO).astype(np.int64), (positive, negative))


def concatenate_sketches(parts: Sequence[Sketches]) -> Sketches:
    """Concatenate sketches."""
    if len(parts) == 1:
        return parts[0]
    sides = []
    for sign in (0, 1):
        own = [one.sides[sign] for one in parts]
        before = np.cumsum([0, *(len(side.counts) for side in own)])
        begins = [side.begins + shift for side, shift in zip(own, before.tolist(), strict=False)]
        sides.append(
            BucketRows(
                np.concatenate([_NO_INDEX, *(side.offsets for side in own)]),
                np.concatenate([_NOTHING, *begins]),
                np.concatenate([_NOTHING, *(side.sizes for side in own)]),
                np.concatenate([_NO_COUNT, *(side.counts for side in own)]),
            )
        )
    found = np.concatenate([_NOTHING, *(one.found for one in parts)])
    zeros = np.concatenate([_NOTHING, *(one.zeros for one in parts)])
    return Sketches(found, zeros, (sides[0], sides[1]))


_NOTHING: Ints = np.zeros(0, np.int64)
_NO_INDEX = np.zeros(0, np.int32)
_NO_COUNT = np.zeros(0, np.uint64)
NO_SKETCHES = concatenate_sketches(())


# The facts of a bucket. Counts and times are integers; times are 0 where the bucket has no sample. A mark is an entry
# among the samples that the language does not count as one. SKETCH is the place of the bucket's sketch in `sketches`.
COUNT, SUM, SUM_ERROR, MIN, MAX = "count", "sum", "sum_error", "min", "max"
FIRST, FIRST_TIME, LAST, LAST_TIME = "first", "first_time", "last", "last_time"
RESET_SUM, RESETS, CHANGES, MARK_TIME, SKETCH = "reset_sum", "resets", "changes", "mark_time", "sketch"
WHOLE_NUMBERS = frozenset({COUNT, FIRST_TIME, LAST_TIME, RESETS, CHANGES, MARK_TIME, SKETCH})
INSTANT = (COUNT, LAST, LAST_TIME, MARK_TIME)  # what an instant selector needs


class NotTiered(Exception):
    """Raised when rollups turn out not to give the exact answer: the samples themselves must be read."""


@dataclass(frozen=True)
class RollupSeries:
    """The buckets of series n are `offsets[n]:offsets[n + 1]`. `facts` are the requested facts of each bucket, and
    `count`."""

    labels: Sequence[Labels]
    offsets: Ints  # [series + 1]
    ends: Ints
    facts: Mapping[str, Any]
    sketches: Sketches = NO_SKETCHES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def between(self, first: int, behind: int) -> RollupSeries:
        """Return the series from `first` up to, not including, `behind`."""
        start, end = int(self.offsets[first]), int(self.offsets[behind])
        facts = {name: array[start:end] for name, array in self.facts.items()}
        return replace(
            self,
            labels=self.labels[first:behind],
            offsets=self.offsets[first : behind + 1] - start,
            ends=self.ends[start:end],
            facts=facts,
        )

    def of_samples(self) -> RollupSeries:
        """Drop the buckets that hold marks but no sample."""
        there = self[COUNT] > 0
        if there.all():
            return self
        before = np.append(0, np.cumsum(there))
        facts = {name: array[there] for name, array in self.facts.items()}
        return replace(self, offsets=before[self.offsets], ends=self.ends[there], facts=facts)


@dataclass(frozen=True)
class RollupRange:
    """A range vector at every step: the buckets of (ends[s] - range, ends[s]], each with at least one sample. Results
    may hold what `limit` allows."""

    rolled: RollupSeries
    ends: Ints  # [steps]
    range: int
    span: Span
    notes: Notes
    limit: Bounds = Bounds()  # noqa: RUF009 a frozen value

    @cached_property
    def bounds(self) -> tuple[Ints, Ints]:
        """Return the index of the first bucket and the one after the last, [series, steps]."""
        return window_bounds(self.rolled.offsets, self.rolled.ends, self.ends, self.range)

    @property
    def present(self) -> Bools:
        first, last = self.bounds
        found: Bools = last > first
        return found

    def vector(self, values: Any, present: Bools) -> Vector:
        return Vector(self.rolled.labels, values, present)


@dataclass(frozen=True)
class FromBuckets:
    """How a function of a range is computed from buckets: from which of their facts, and by what. `evaluate` raises
    NotTiered if the buckets hold something that does not add up."""

    facts: tuple[str, ...]
    evaluate: Callable[[RollupRange], Vector]
