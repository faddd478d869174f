"""The values of expressions: one per series and step.

What always holds: rows are series, columns are steps. A series without a sample at a step is not present there; its
entry in `values` has no meaning. NaN is a value like any other. Arrays are never written to once they are in a value,
since values share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.expression import Range, Subquery


def window_bounds(offsets: Ints, times: Ints, ends: Ints, range_: int) -> tuple[Ints, Ints]:
    """Return the index of the first sample of (end - range, end] and the one after the last, [series, steps]."""
    first = np.empty((len(offsets) - 1, len(ends)), np.int64)
    last = np.empty((len(offsets) - 1, len(ends)), np.int64)
    _find_window_bounds(offsets, times, ends, range_, first, last)
    return first, last


@njit(cache=True, nogil=True)
def _find_window_bounds(offsets: Any, times: Any, ends: Any, range_: Any, first: Any, last: Any) -> None:
    for series in range(len(offsets) - 1):
        low = high = offsets[series]
        stop = offsets[series + 1]
        for step in range(len(ends)):
            end = ends[step]
            while high < stop and times[high] <= end:
                high += 1
            while low < high and times[low] <= end - range_:
                low += 1
            first[series, step] = low
            last[series, step] = high


@dataclass(frozen=True)
class Steps:
    """The times at which an expression is evaluated, in ticks of the language: start, start + step, ..., up to `end`
    inclusive. An instant is one step."""

    start: int
    end: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.step < 1 or self.end < self.start:
            raise ValueError(f"steps of {self.step} from {self.start} to {self.end}")

    def __len__(self) -> int:
        return (self.end - self.start) // self.step + 1

    @cached_property
    def times(self) -> Ints:
        return self.start + self.step * np.arange(len(self), dtype=np.int64)

    @property
    def last(self) -> int:
        """Return the time of the last step, which may be before `end`."""
        return self.start + (len(self) - 1) * self.step


@dataclass(frozen=True)
class Vector:
    """An instant vector at every step. Where `histograms` has an entry the sample is a native histogram and the number
    in `values` has no meaning; None: no sample is a histogram. `drop_name` marks the series whose name is removed when
    the evaluation ends."""

    labels: Sequence[Labels]
    values: Floats  # [series, steps]
    present: Bools  # [series, steps]
    histograms: Objects | None = None  # [series, steps] of Histogram | None
    drop_name: Bools = field(default_factory=lambda: np.zeros(0, bool))  # [series]

    def __post_init__(self) -> None:
        if len(self.drop_name) != len(self.labels):
            object.__setattr__(self, "drop_name", np.zeros(len(self.labels), bool))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, wanted: Ints | Bools | Sequence[int]) -> Vector:
        """Return only these series, in this order."""
        index = np.asarray(wanted)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        return Vector(
            [self.labels[n] for n in index.tolist()],
            self.values[index],
            self.present[index],
            None if self.histograms is None else self.histograms[index],
            self.drop_name[index],
        )

    def occupied(self) -> Vector:
        """Drop the series that have no sample at any step."""
        there: Bools = np.any(self.present, axis=1)
        return self if there.all() else self.rows(there)

    def dropping_name(self) -> Vector:
        return replace(self, drop_name=np.ones(len(self), bool))


@dataclass(frozen=True)
class Scalar:
    """A number at every step."""

    values: Floats  # [steps]


@dataclass(frozen=True)
class String:
    value: str


@dataclass(frozen=True)
class Samples:
    """Series as they are stored: the samples of series n are `offsets[n]:offsets[n + 1]`, ascending in time.

    A time may occur several times if the language allows it, as with log lines: such samples stand in the language's
    order. Marks of a language among its samples are values like any others. A native histogram has an entry in
    `histograms`, and its number has no meaning. `starts` are start times, 0 where unknown; None: unknown for all
    samples."""

    labels: Sequence[Labels]
    offsets: Ints  # [series + 1]
    times: Ints  # ticks
    values: Floats
    histograms: Objects | None = None
    starts: Ints | None = None
    drop_name: Bools = field(default_factory=lambda: np.zeros(0, bool))  # [series]

    def __post_init__(self) -> None:
        if len(self.drop_name) != len(self.labels):
            object.__setattr__(self, "drop_name", np.zeros(len(self.labels), bool))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, order: Ints | Sequence[int]) -> Samples:
        """Return only these series, in this order."""
        index = np.asarray(order, np.int64)
        counts = np.diff(self.offsets)[index]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], counts)
        return self.take([self.labels[n] for n in index.tolist()], offsets, places, self.drop_name[index])

    def between(self, first: int, behind: int) -> Samples:
        """Return the series from `first` up to, not including, `behind`."""
        start, end = int(self.offsets[first]), int(self.offsets[behind])
        offsets, own = self.offsets[first : behind + 1] - start, slice(start, end)
        return self.take(self.labels[first:behind], offsets, own, self.drop_name[first:behind])

    def where(self, kept: Bools) -> Samples:
        """Return only the marked samples. All series stay."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
        return self.take(self.labels, before[self.offsets], kept, self.drop_name)

    def take(self, labels: Sequence[Labels], offsets: Ints, places: Ints | Bools | slice, drop_name: Bools) -> Samples:
        """Return these series of the samples at these places."""
        return Samples(
            labels,
            offsets,
            self.times[places],
            self.values[places],
            None if self.histograms is None else self.histograms[places],
            None if self.starts is None else self.starts[places],
            drop_name,
        )


NO_SAMPLES = Samples((), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Windows:
    """A range vector at every step: the samples of series n at step s are those of (ends[s] - range, ends[s]], that is
    `first[n, s]:last[n, s]` of `samples`, several of one time included. If the selector of `expression` has a modifier,
    `samples` may reach beyond the range by `lookback`; `first` and `last` are still those of the range itself."""

    samples: Samples
    ends: Ints  # [steps]
    range: int
    lookback: int
    expression: Range | Subquery

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.samples), len(self.ends)

    @property
    def extended(self) -> str:
        """Return the modifier of the selector, "" if there is none."""
        return self.expression.selector.extended if isinstance(self.expression, Range) else ""

    @property
    def first(self) -> Ints:  # [series, steps]
        return self._bounds[0]

    @property
    def last(self) -> Ints:  # [series, steps]
        return self._bounds[1]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        """Compute the bounds on first use: they may be larger than the samples."""
        return window_bounds(self.samples.offsets, self.samples.times, self.ends, self.range)


Value = Vector | Scalar | String | Windows


@dataclass(frozen=True)
class Partial:
    """What some of the series contribute to an aggregation: named arrays [groups, steps], and named arrays of
    histograms. The aggregation that made it folds it (series/aggregations)."""

    labels: Sequence[Labels]
    arrays: Mapping[str, Floats]
    histograms: Mapping[str, Objects] = field(default_factory=dict)


SAME_LABELS = "vector cannot contain metrics with the same labelset"


def concatenate(vectors: Sequence[Vector]) -> Vector:
    """Concatenate the rows of vectors, of one at least."""
    if len(vectors) == 1:
        return vectors[0]
    return Vector(
        [labels for vector in vectors for labels in vector.labels],
        np.concatenate([vector.values for vector in vectors]),
        np.concatenate([vector.present for vector in vectors]),
        _join_histograms(vectors),
        np.concatenate([vector.drop_name for vector in vectors]),
    )


def concatenate_samples(parts: Sequence[Samples]) -> Samples:
    """Concatenate the series of samples."""
    if len(parts) < 2:
        return parts[0] if parts else NO_SAMPLES
    starts = [np.zeros(len(part.times), np.int64) if part.starts is None else part.starts for part in parts]
    return Samples(
        [labels for part in parts for labels in part.labels],
        np.cumsum(np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
        _join_histograms(parts),
        np.concatenate(starts) if any(part.starts is not None for part in parts) else None,
        np.concatenate([part.drop_name for part in parts]),
    )


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Join samples of numbers, of which several parts may have the same series and time: all of them count."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NO_SAMPLES
    every = concatenate_samples(parts)
    labels = sorted(set(every.labels))
    number = {one: n for n, one in enumerate(labels)}
    of = np.repeat([number[one] for one in every.labels], np.diff(every.offsets))
    order = np.lexsort((every.times, of))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(labels)))]).astype(np.int64)
    return Samples(labels, offsets, every.times[order], every.values[order])


def _join_histograms(parts: Sequence[Vector | Samples]) -> Objects | None:
    if all(part.histograms is None for part in parts):
        return None
    whole = [np.full(part.values.shape, None, object) if part.histograms is None else part.histograms for part in parts]
    joined: Objects = np.concatenate(whole)
    return joined


def merge_in_ranges(vector: Vector, steps: Steps, is_steady: Callable[[], bool]) -> Vector:
    """Apply `merge_same_labels` to the vector of a range. An instant, and what is the same at every step, stays as it
    is: whether its series are distinct is checked at the end of the evaluation."""
    return vector if steps.start == steps.end or is_steady() else merge_same_labels(vector)


def merge_same_labels(vector: Vector) -> Vector:
    """Merge series that have the same labels but never a sample at the same step. Raise UserError if two have one. The
    earliest sample decides whether the name is dropped."""
    if len(set(vector.labels)) == len(vector):
        return vector
    vector = vector.occupied()
    rows: dict[Labels, int] = {}
    places = [rows.setdefault(labels, len(rows)) for labels in vector.labels]
    shape = (len(rows), vector.present.shape[1])
    values, present = np.zeros(shape), np.zeros(shape, bool)
    histograms: Objects | None = None if vector.histograms is None else np.full(shape, None, object)
    drop_name = np.zeros(len(rows), bool)
    for row in np.argsort(np.argmax(vector.present, axis=1), kind="stable").tolist():
        place, there = places[row], vector.present[row]
        if (present[place] & there).any():
            raise UserError(SAME_LABELS)
        if not present[place].any():
            drop_name[place] = vector.drop_name[row]
        present[place] |= there
        values[place, there] = vector.values[row, there]
        if histograms is not None and vector.histograms is not None:
            histograms[place, there] = vector.histograms[row, there]
    return Vector(list(rows), values, present, histograms, drop_name)


def sort_by_labels(value: Vector) -> Vector:
    """Sort the series by labels, the order of a range's answer."""
    order = sorted(range(len(value)), key=value.labels.__getitem__)
    return value if order == list(range(len(value))) else value.rows(order)
