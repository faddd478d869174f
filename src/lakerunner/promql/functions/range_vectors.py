"""A range vector as its functions take it: floats and native histograms apart, arrays ready for the kernels.

Comes in: a call whose one MATRIX argument is a `Windows`. Goes out: that argument in parts, and a `Vector` of what the
parts gave. What always holds: parts have the rows and columns of the whole; a window may be empty in either part, and
one that is empty in neither is mixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lakerunner.model.labels import NAME, value_of
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.expression import Range, Span, Subquery, bare
from lakerunner.series.function import Called
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Vector, Windows
from lakerunner.series.window_kernels import NO_STARTS, Table, table_of

_NONE = np.array(None, object)
_BEGINNING = Span(0, 1)


class Rows(NamedTuple):
    """Samples as kernels take them that find the windows themselves."""

    offsets: Ints
    times: Ints
    values: Floats
    starts: Ints
    ends: Ints
    range: int


@dataclass(frozen=True)
class RangeVector:
    """`histograms` is None where no sample of any series is one: `floats` is then the whole."""

    whole: Windows
    floats: Windows
    histograms: Windows | None
    span: Span
    notes: Notes

    @cached_property
    def has_floats(self) -> Bools:
        found: Bools = self.floats.last > self.floats.first
        return found

    @cached_property
    def has_histograms(self) -> Bools:
        if self.histograms is None:
            return np.zeros(self.whole.shape, bool)
        found: Bools = self.histograms.last > self.histograms.first
        return found

    @cached_property
    def mixed(self) -> Bools:
        return self.has_floats & self.has_histograms

    @property
    def extended(self) -> str:
        expression = self.whole.expression
        return expression.selector.extended if isinstance(expression, Range) else ""

    def name(self, row: int) -> str:
        return value_of(self.whole.samples.labels[row], NAME)

    def names(self, where: Bools) -> Iterator[str]:
        """Of the series with such a window, each name once."""
        yield from dict.fromkeys(self.name(row) for row in np.flatnonzero(where.any(axis=1)).tolist())

    def table(self) -> Table:
        """Of the floats."""
        return table_of(self.floats)

    def rows(self) -> Rows:
        """Of the floats."""
        samples = self.floats.samples
        starts = NO_STARTS if samples.starts is None else samples.starts
        return Rows(samples.offsets, samples.times, samples.values, starts, self.floats.ends, self.floats.range)

    def empty(self) -> tuple[Floats, Bools]:
        """Values and present, to be written."""
        return np.zeros(self.whole.shape), np.zeros(self.whole.shape, bool)

    def vector(self, values: Floats, present: Bools, histograms: Objects | None = None) -> Vector:
        samples = self.whole.samples
        return Vector(samples.labels, values, present, histograms, samples.drop_name)


def range_vector(called: Called) -> RangeVector:
    """The argument that is one. Notes are about the place of the first argument, whichever that is; of a subquery
    Prometheus knows no place but the beginning of the text."""
    windows = next(value for value in called.arguments if isinstance(value, Windows))
    floats, histograms = _apart(windows)
    first = bare(called.call.arguments[0])
    span = _BEGINNING if isinstance(first, Subquery) else first.span
    return RangeVector(windows, floats, histograms, span, called.notes)


def histograms_of(windows: Windows, row: int, step: int) -> list[Histogram]:
    """Of a window of histograms alone."""
    if windows.samples.histograms is None:
        return []
    return list(windows.samples.histograms[windows.first[row, step] : windows.last[row, step]])


def are_histograms(samples: Objects) -> Bools:
    found: Bools = np.not_equal(samples, _NONE)
    return found


def places(where: Bools) -> Iterator[tuple[int, int]]:
    """Row and step of each window that is meant, series by series."""
    yield from zip(*(axis.tolist() for axis in np.nonzero(where)), strict=True)


def _apart(windows: Windows) -> tuple[Windows, Windows | None]:
    if windows.samples.histograms is None:
        return windows, None
    is_histogram = are_histograms(windows.samples.histograms)
    if not is_histogram.any():
        return replace(windows, samples=replace(windows.samples, histograms=None)), None
    floats = _kept(windows, ~is_histogram)
    return replace(floats, samples=replace(floats.samples, histograms=None)), _kept(windows, is_histogram)


def _kept(windows: Windows, kept: Bools) -> Windows:
    samples = windows.samples
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
    some = Samples(
        samples.labels,
        before[samples.offsets],
        samples.times[kept],
        samples.values[kept],
        None if samples.histograms is None else samples.histograms[kept],
        None if samples.starts is None else samples.starts[kept],
        samples.drop_name,
    )
    return replace(windows, samples=some)
