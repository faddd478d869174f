"""A range vector as its functions take it: floats and native histograms separated, arrays ready for the kernels.

Comes in: a call whose one MATRIX argument is a `Windows`. Goes out: that argument in two parts, and a `Vector` of their
results. What always holds: both parts have the rows and columns of the whole; a window may be empty in either part, and
one that is empty in neither is mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lakerunner.model.labels import NAME, TYPE, Labels, value_of
from lakerunner.promql.selection.notes import IGNORED_HISTOGRAMS, note_metric, note_possible_non_counter
from lakerunner.series.arrays import Bools, Floats, Ints, Objects, filled
from lakerunner.series.expression import Span, Subquery, bare
from lakerunner.series.function import Invocation
from lakerunner.series.grouping import group_series
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector, Windows
from lakerunner.series.window_kernels import NO_STARTS, Table, table_of

_BEGINNING = Span(0, 1)


class SampleRows(NamedTuple):
    """Samples for kernels that find the windows themselves."""

    offsets: Ints
    times: Ints
    values: Floats
    starts: Ints
    ends: Ints
    range: int


@dataclass(frozen=True)
class RangeVector:
    """A range vector in two parts. `histograms` is None if no sample of any series is one: `floats` is then the
    whole."""

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

    def name(self, row: int) -> str:
        return value_of(self.whole.samples.labels[row], NAME)

    def names(self, where: Bools) -> Iterator[str]:
        """Return the names of the series that have such a window, each once."""
        yield from dict.fromkeys(self.name(row) for row in np.flatnonzero(where.any(axis=1)).tolist())

    def table(self) -> Table:
        """Return the windows of floats for kernels."""
        return table_of(self.floats)

    def rows(self) -> SampleRows:
        """Return the samples of floats for kernels."""
        samples = self.floats.samples
        starts = NO_STARTS if samples.starts is None else samples.starts
        return SampleRows(samples.offsets, samples.times, samples.values, starts, self.floats.ends, self.floats.range)

    def empty(self) -> tuple[Floats, Bools]:
        """Return arrays of values and presence, to be filled."""
        return np.zeros(self.whole.shape), np.zeros(self.whole.shape, bool)

    def vector(self, values: Floats, present: Bools, histograms: Objects | None = None) -> Vector:
        samples = self.whole.samples
        return Vector(samples.labels, values, present, histograms, samples.drop_name)


def range_vector(invocation: Invocation) -> RangeVector:
    """Return the MATRIX argument. As in Prometheus, notes have the position of the first argument, whichever it is, and
    for a subquery the beginning of the text."""
    windows = next(value for value in invocation.arguments if isinstance(value, Windows))
    floats, histograms = _separate(windows)
    first = bare(invocation.call.arguments[0])
    span = _BEGINNING if isinstance(first, Subquery) else first.span
    return RangeVector(windows, floats, histograms, span, invocation.notes)


def note_ignored_histograms(given: RangeVector) -> None:
    """Note the metrics of which only floats counted."""
    for name in given.names(given.mixed) if given.histograms is not None else ():
        note_metric(given.notes, IGNORED_HISTOGRAMS, name, given.span)


def histograms_of(windows: Windows, row: int, step: int) -> list[Histogram]:
    """Return the histograms of a window that has only histograms."""
    if windows.samples.histograms is None:
        return []
    return list(windows.samples.histograms[windows.first[row, step] : windows.last[row, step]])


def places(where: Bools) -> Iterator[tuple[int, int]]:
    """Return row and step of each marked window, series by series."""
    yield from zip(*(axis.tolist() for axis in np.nonzero(where)), strict=True)


def _separate(windows: Windows) -> tuple[Windows, Windows | None]:
    if windows.samples.histograms is None:
        return windows, None
    is_histogram = filled(windows.samples.histograms)
    if not is_histogram.any():
        return replace(windows, samples=replace(windows.samples, histograms=None)), None
    floats = replace(windows.samples, histograms=None).where(~is_histogram)
    return replace(windows, samples=floats), replace(windows, samples=windows.samples.where(is_histogram))


def range_seconds(range_: int) -> float:
    """Convert ms to seconds: whole seconds and the rest are added separately, as Prometheus does, for the same bits."""
    return float(range_ // 1000) + range_ % 1000 * 1_000_000 / 1e9


def check_counters(labels: Sequence[Labels], floats: Bools, notes: Notes, span: Span) -> None:
    """Note the series with floats that might not be counters. Series of one name and type are judged together."""
    groups = group_series(labels, (NAME, TYPE), without=False)
    for group in np.unique(groups.indexes[floats.any(axis=1)]).tolist():
        note_possible_non_counter(notes, groups.labels[group], span)
