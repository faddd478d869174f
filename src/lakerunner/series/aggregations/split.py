"""How an aggregation is done in parts: what each part of the series gives, and what comes of all of them.

What always holds: a fold over the partials of any parts is what the aggregation gives over all series, in value (but
for the last bit of a mean or of a histogram's counts) and in notes, or it raises NotSplit. The groups of a fold stand
in the order of their labels, as parts know no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.expression import Aggregate
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Vector

ORDERED = "ordered"  # the array that says where a group's value hangs on the order of its series


class NotSplit(Exception):
    """What these parts hold cannot be folded: the aggregation must see all series at once. Raised by folds alone."""


@dataclass(frozen=True)
class Split:
    """`partial` is given one part of the series, `fold` what came of all parts, at least one."""

    partial: Callable[[Aggregate, Vector, Notes], Partial]
    fold: Callable[[Aggregate, Sequence[Partial], Notes], Vector]


@dataclass(frozen=True)
class Together:
    """The groups of some partials, as one list in the order of labels; `places` says where each partial's are."""

    partials: Sequence[Partial]
    labels: list[Labels]
    places: list[Ints]
    steps: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.labels), self.steps

    def sum(self, name: str) -> Floats | None:
        """Of whole numbers; None: no partial has that array."""
        if not any(name in one.arrays for one in self.partials):
            return None
        total = np.zeros(self.shape)
        for one, places in zip(self.partials, self.places, strict=True):
            if name in one.arrays:
                total[places] += one.arrays[name]
        return total


def together(partials: Sequence[Partial]) -> Together:
    """NotSplit where a part has said so."""
    if any(np.any(one.arrays[ORDERED]) for one in partials if ORDERED in one.arrays):
        raise NotSplit("what comes of the aggregation depends on the order of its series")
    labels = sorted({own for one in partials for own in one.labels})
    numbers = {own: number for number, own in enumerate(labels)}
    places = [np.array([numbers[own] for own in one.labels], np.int64) for one in partials]
    return Together(partials, labels, places, next(iter(partials[0].arrays.values())).shape[1])


def arrays_of(**arrays: Floats | None) -> Mapping[str, Floats]:
    return {name: array for name, array in arrays.items() if array is not None}
