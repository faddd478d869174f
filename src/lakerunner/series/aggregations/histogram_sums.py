"""Sums and means of the histograms of each group, and all that is to be said of them.

Comes in: a vector that has histograms. Goes out: for each group and step what its histograms came to. What always
holds: samples are taken in the order of the rows; after an incompatible one a group takes no more
at that step, nor does it take histograms after a float: what then comes of it is nothing anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lakerunner.model.labels import NAME, value_of
from lakerunner.series.arrays import Bools, Objects
from lakerunner.series.expression import Aggregate, bare
from lakerunner.series.grouping import Groups
from lakerunner.series.histograms.arithmetic import (
    AveragedHistogram,
    CompensatedHistogram,
    IncompatibleHistograms,
    compacted,
)
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Vector

FLAGS = ("seen", "floats", "reset", "not_reset", "reconciled", "incompatible", "uneven")
Total = CompensatedHistogram | AveragedHistogram


@dataclass(frozen=True)
class HistogramTotals:
    """Arrays are [groups, steps]; `totals` has None where nothing was added. `mismatched` are the names of metrics
    whose buckets were of another kind."""

    totals: Objects
    seen: Bools  # a histogram was there, added or not
    floats: Bools  # a float was there
    reset: Bools
    not_reset: Bools
    reconciled: Bools
    incompatible: Bools
    uneven: Bools  # zero buckets of different widths were made one: what that gives may depend on the order
    mismatched: set[str] = field(default_factory=set)

    @classmethod
    def empty(cls, shape: tuple[int, int], flags: Mapping[str, Bools] | None = None) -> HistogramTotals:
        """With these of its flags already set."""
        given = {name: np.zeros(shape, bool) for name in FLAGS} | dict(flags or {})
        return cls(
            np.full(shape, None, object),
            given["seen"],
            given["floats"],
            given["reset"],
            given["not_reset"],
            given["reconciled"],
            given["incompatible"],
            given["uneven"],
        )

    @property
    def mixed(self) -> Bools:
        return self.seen & self.floats


def histogram_totals(
    vector: Vector, where: Bools, groups: Groups, kind: type[CompensatedHistogram] | type[AveragedHistogram]
) -> HistogramTotals:
    """`where`: which samples are histograms."""
    shape = (len(groups), where.shape[1])
    found = HistogramTotals.empty(shape)
    floats = vector.present & ~where
    for row, group in enumerate(groups.of.tolist()):
        for step in np.flatnonzero(where[row]).tolist():
            if vector.histograms is not None:
                _add(found, (group, step), vector.histograms[row, step], kind, value_of(vector.labels[row], NAME))
        found.floats[group] |= floats[row] & ~found.incompatible[group]
    return found


def _add(
    found: HistogramTotals,
    at: tuple[int, int],
    histogram: Histogram,
    kind: type[CompensatedHistogram] | type[AveragedHistogram],
    name: str,
) -> None:
    if found.incompatible[at]:
        return
    found.seen[at] = True
    total: Total | None = found.totals[at]
    if total is None and found.floats[at]:
        return
    found.reset[at] |= histogram.reset_hint == ResetHint.RESET
    found.not_reset[at] |= histogram.reset_hint == ResetHint.NOT_RESET
    if total is None:
        found.totals[at] = kind(histogram)
        return
    found.uneven[at] |= total.zero_threshold != histogram.zero_threshold
    try:
        found.reconciled[at] |= total.add(histogram).bounds_reconciled
    except IncompatibleHistograms:
        found.incompatible[at] = True
        found.mismatched.add(name)


def finished(node: Aggregate, found: HistogramTotals, notes: Notes) -> Objects:
    """The histograms that come out, and notes of what did not go well."""
    span = bare(node.inner).span
    for name in sorted(found.mismatched):
        notes.report(Misfit.SCHEMAS_MIXED, span, name=name)
    if found.reconciled.any():
        notes.report(Misfit.BOUNDS_RECONCILED, span, operation="aggregation")
    if found.mixed.any():
        notes.report(Misfit.SAMPLES_MIXED, span)
    there = found.seen & ~found.mixed & ~found.incompatible
    if (there & found.reset & found.not_reset).any():
        notes.report(Misfit.RESETS_COLLIDE, span, operation="aggregation")
    results = np.full(there.shape, None, object)
    for group, step in np.argwhere(there).tolist():
        results[group, step] = compacted(found.totals[group, step].value())
    return results
