"""The samples that a selector gives: the latest one at each step, those of a range, and what modifiers add to them."""

from __future__ import annotations

import numpy as np

from lakerunner.promql.selection.smoothing import smoothed_instant
from lakerunner.promql.selection.staleness import latest, latest_index, without_stale_markers
from lakerunner.promql.selection.totals import totals_only
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.expression import Selector
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Vector


def reach(selector: Selector, lookback: int) -> tuple[int, int]:
    """How far it looks before the beginning of its range and behind its end."""
    return lookback if selector.extended else 0, lookback if selector.extended == "smoothed" else 0


def instant(selector: Selector, samples: Samples, ends: Ints, lookback: int, notes: Notes) -> Vector:
    samples = totals_only(samples) if selector.totals_only else samples
    if selector.extended == "smoothed":
        return smoothed_instant(samples, ends, lookback, notes, selector.span)
    if samples.histograms is None:
        values, present = latest(samples, ends, lookback)
        return Vector(samples.labels, values, present)
    return _picked(samples, latest_index(samples, ends, lookback))


def ranged(selector: Selector, samples: Samples) -> Samples:
    return without_stale_markers(totals_only(samples) if selector.totals_only else samples)


def _picked(samples: Samples, index: Ints) -> Vector:
    """The samples of these places; -1 is none."""
    present: Bools = index >= 0
    if len(samples.times) == 0 or samples.histograms is None:
        return Vector(samples.labels, np.zeros(index.shape), np.zeros(index.shape, bool))
    histograms = samples.histograms[index]
    histograms[~present] = None
    return Vector(samples.labels, np.where(present, samples.values[index], 0.0), present, histograms)
