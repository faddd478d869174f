"""The sketches of windows (docs/formats/rollups.md), many together: what native histograms of a range are made of.

Comes in: sketches as rollups hold them, or numbers, each of which is a window of its own. Goes out: those of some
windows, in any order. What always holds: buckets are those of model/sketch.py, so that what is added up of windows is
what the samples themselves would give, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.sketch import NONE, ZERO, Parts, indexes
from lakerunner.series.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Sketches:
    """In the sketch of window n are `found[n]` numbers, `zeros[n]` of them zero, the others in the buckets of `sides`:
    positive and negative ones."""

    found: Ints
    zeros: Ints
    sides: tuple[Parts, Parts]

    def __len__(self) -> int:
        return len(self.found)

    @property
    def buckets(self) -> int:
        """That it holds, empty ones too."""
        return sum(len(side.counts) for side in self.sides)

    def buckets_of(self, windows: Ints) -> int:
        return sum(int(side.sizes[windows].sum()) for side in self.sides)

    @property
    def bytes(self) -> int:
        arrays = [self.found, self.zeros, *(array for side in self.sides for array in side)]
        return sum(int(array.nbytes) for array in arrays)

    def at(self, windows: Ints) -> Sketches:
        """Those of these windows; the buckets stay where they are."""
        positive, negative = (
            Parts(side.offsets[windows], side.begins[windows], side.sizes[windows], side.counts) for side in self.sides
        )
        return Sketches(self.found[windows], self.zeros[windows], (positive, negative))

    def alone(self, windows: Ints) -> Sketches:
        """Likewise, but with a copy of their buckets and no other: the rest can be forgotten."""
        some = self.at(windows)
        positive, negative = map(_packed, some.sides)
        return Sketches(some.found, some.zeros, (positive, negative))

    def sound(self) -> bool:
        """Whether each sketch has as many numbers as it says."""
        counted = self.zeros.copy()
        for side in self.sides:
            before = np.append(0, np.cumsum(side.counts.astype(np.int64)))
            counted += before[side.begins + side.sizes] - before[side.begins]
        return bool((counted == self.found).all())


def _packed(side: Parts) -> Parts:
    ends = np.cumsum(side.sizes)
    begins = ends - side.sizes
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(side.begins - begins, side.sizes)
    return Parts(side.offsets, begins, side.sizes, side.counts[places])


def sketches_of(numbers: Floats) -> Sketches:
    """One of each number. NaN and infinities are in none."""
    bits, index = numbers.view(np.int64), np.empty(len(numbers), np.int32)
    indexes(np.ones(len(numbers), bool), bits, index)
    one = np.ones(1, np.uint64)  # the bucket of every number
    positive, negative = (
        Parts(index, np.zeros(len(index), np.int64), ((index < NONE) & sign).astype(np.int64), one)
        for sign in (bits >= 0, bits < 0)
    )
    return Sketches((index != NONE).astype(np.int64), (index == ZERO).astype(np.int64), (positive, negative))


def joined(parts: Sequence[Sketches]) -> Sketches:
    """One behind the other."""
    if len(parts) == 1:
        return parts[0]
    sides = []
    for sign in (0, 1):
        own = [one.sides[sign] for one in parts]
        before = np.cumsum([0, *(len(side.counts) for side in own)])
        begins = [side.begins + shift for side, shift in zip(own, before.tolist(), strict=False)]
        sides.append(
            Parts(
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
NO_SKETCHES = joined(())
