"""The values of expressions: at every step, for every series.

What always holds: rows are series, columns are steps; a series without a sample at a step is not present there,
whatever stands in `values`. NaN is a value like any other. Arrays are not written to once they are in a value: they may
be shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.expression import Range, Subquery
from lakerunner.series.window_bounds import window_bounds


@dataclass(frozen=True)
class Steps:
    """The times, in ticks of the language, at which an expression is evaluated: start, start + step, ..., up to `end`
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
        """The last time that is a step."""
        return self.start + (len(self) - 1) * self.step


@dataclass(frozen=True)
class Vector:
    """An instant vector at every step. Where `histograms` has an entry the sample is a native histogram and the number
    in `values` says nothing; None: no sample is one. `drop_name`: this series' name goes when the evaluation ends."""

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
        """Of these series alone, in this order."""
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
        """Without the series that have no sample at any step."""
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
    """Series as they are stored: those of series n are `offsets[n]:offsets[n + 1]`, in the order of their times. A time
    may come several times where the language allows it, as that of log lines does: such samples stand in the order in
    which the language takes them. Where a language has marks among its samples, they are values like any others. A
    sample that is a native histogram has an entry in `histograms`, its number says nothing. `starts` are start times, 0
    where unknown; None: of no sample."""

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

    def between(self, first: int, behind: int) -> Samples:
        """The series from this one to before that one."""
        start, end = int(self.offsets[first]), int(self.offsets[behind])
        return Samples(
            self.labels[first:behind],
            self.offsets[first : behind + 1] - start,
            self.times[start:end],
            self.values[start:end],
            None if self.histograms is None else self.histograms[start:end],
            None if self.starts is None else self.starts[start:end],
            self.drop_name[first:behind],
        )


NO_SAMPLES = Samples((), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Windows:
    """A range vector at every step: the samples of series n at step s are those of (ends[s] - range, ends[s]],
    `first[n, s]:last[n, s]` of `samples`, several of one time among them. Where the selector of `expression` has a
    modifier `samples` may reach beyond the range, by `lookback`; `first` and `last` are those of the range itself
    nevertheless."""

    samples: Samples
    ends: Ints  # [steps]
    range: int
    lookback: int
    expression: Range | Subquery

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.samples), len(self.ends)

    @property
    def first(self) -> Ints:  # [series, steps]
        return self._bounds[0]

    @property
    def last(self) -> Ints:  # [series, steps]
        return self._bounds[1]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        """Only where they are asked for: they may be larger than the samples."""
        return window_bounds(self.samples.offsets, self.samples.times, self.ends, self.range)


Value = Vector | Scalar | String | Windows


@dataclass(frozen=True)
class Partial:
    """What one part of the series gives to an aggregation: named arrays [groups, steps] for each group, and named
    arrays of histograms. The aggregation that made it folds it (series/aggregations)."""

    labels: Sequence[Labels]
    arrays: Mapping[str, Floats]
    histograms: Mapping[str, Objects] = field(default_factory=dict)
