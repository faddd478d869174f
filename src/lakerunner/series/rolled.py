"""Series as windows of samples instead of samples: what rollups hold, and what functions make of it.

Comes in: windows of each series, in the order of time, that do not overlap; they may be of several widths, and a sample
that no rollup has is a window of its own. Goes out: samples, for instant selectors; the windows in a range, for
functions. What always holds: a step looks only at windows that are inside its range whole (series/evaluation/tiers.py
sees to that), so that what it sees are its samples, summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import Span
from lakerunner.series.notes import Notes
from lakerunner.series.sketches import NO_SKETCHES, Sketches
from lakerunner.series.values import Vector
from lakerunner.series.window_bounds import window_bounds

# What there is to know of a window. Counts and times are whole numbers; times are 0 where there is no sample. A mark
# is what a language has among samples that is no sample. Of the sketch it is which of `sketches` is the window's.
COUNT, SUM, SUM_ERROR, MIN, MAX = "count", "sum", "sum_error", "min", "max"
FIRST, FIRST_TIME, LAST, LAST_TIME = "first", "first_time", "last", "last_time"
RESET_SUM, RESETS, CHANGES, MARK_TIME, SKETCH = "reset_sum", "resets", "changes", "mark_time", "sketch"
WHOLE_NUMBERS = frozenset({COUNT, FIRST_TIME, LAST_TIME, RESETS, CHANGES, MARK_TIME, SKETCH})
INSTANT = (COUNT, LAST, LAST_TIME, MARK_TIME)  # of which an instant selector is made


class NotTiered(Exception):
    """What is asked cannot be made of windows, as was found on the way: it takes the samples themselves."""


@dataclass(frozen=True)
class Rolled:
    """The windows of series n are `offsets[n]:offsets[n + 1]`. `facts` are those of each window that
    were asked for, and `count`."""

    labels: Sequence[Labels]
    offsets: Ints  # [series + 1]
    ends: Ints
    facts: Mapping[str, Any]
    sketches: Sketches = NO_SKETCHES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def between(self, first: int, behind: int) -> Rolled:
        """The series from this one to before that one."""
        start, end = int(self.offsets[first]), int(self.offsets[behind])
        facts = {name: array[start:end] for name, array in self.facts.items()}
        return replace(
            self,
            labels=self.labels[first:behind],
            offsets=self.offsets[first : behind + 1] - start,
            ends=self.ends[start:end],
            facts=facts,
        )

    def of_samples(self) -> Rolled:
        """Without windows that hold marks and no sample."""
        there = self[COUNT] > 0
        if there.all():
            return self
        before = np.append(0, np.cumsum(there))
        facts = {name: array[there] for name, array in self.facts.items()}
        return replace(self, offsets=before[self.offsets], ends=self.ends[there], facts=facts)


@dataclass(frozen=True)
class RolledRange:
    """A range vector at every step: the windows of (ends[s] - range, ends[s]], each with a sample at least. What comes
    of it may hold what `limit` says."""

    rolled: Rolled
    ends: Ints  # [steps]
    range: int
    span: Span
    notes: Notes
    limit: Bounds = Bounds()  # noqa: RUF009 a frozen value

    @cached_property
    def bounds(self) -> tuple[Ints, Ints]:
        """First and behind the last of the windows, [series, steps]."""
        return window_bounds(self.rolled.offsets, self.rolled.ends, self.ends, self.range)

    @property
    def present(self) -> Bools:
        first, last = self.bounds
        found: Bools = last > first
        return found

    def vector(self, values: Any, present: Bools) -> Vector:
        return Vector(self.rolled.labels, values, present)


@dataclass(frozen=True)
class FromWindows:
    """How a function of a range is made of windows: of which facts of them, and by what. NotTiered where they hold what
    cannot be added up."""

    facts: tuple[str, ...]
    evaluate: Callable[[RolledRange], Vector]
