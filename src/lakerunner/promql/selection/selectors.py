"""The samples that a selector gives: the latest one at each step, or those of a range, after modifiers; without buckets
of native histograms if only counts and sums are needed, as in `histogram_count(rate(h[5m]))`.

Only buckets show whether a counter was reset, so resets are detected before the buckets are dropped, and recorded in
the reset hint of each sample but the first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakerunner.promql.selection.smoothing import smoothed_instant
from lakerunner.promql.selection.staleness import latest, latest_index, stale_markers, without_stale_markers
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.expression import Binary, Call, Expression, Range, Selector, Subquery, with_parts
from lakerunner.series.histograms.algebra import detect_reset
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Vector

_NEED_TOTALS = frozenset({"histogram_count", "histogram_sum", "histogram_avg"})
_NEED_BUCKETS = frozenset(
    {"histogram_quantile", "histogram_quantiles", "histogram_fraction", "histogram_stddev", "histogram_stdvar"}
)


def mark_totals_only(expression: Expression, totals: bool = False) -> Expression:
    """Mark the selectors of which a surrounding function needs only totals, and none needs buckets. A subquery needs
    buckets: its samples are not consecutive, so that resets must be detected again among them."""
    match expression:
        case Call(function) if function in _NEED_BUCKETS:
            return expression
        case Subquery() | Binary("</" | ">/"):
            return expression
        case Range(selector):
            return replace(expression, selector=replace(selector, totals_only=totals))
        case Selector():
            return replace(expression, totals_only=totals)
    inside = totals or (isinstance(expression, Call) and expression.function in _NEED_TOTALS)
    return with_parts(expression, lambda one: mark_totals_only(one, inside))


def totals_only(samples: Samples) -> Samples:
    """Drop the buckets, and record resets in the hints."""
    if samples.histograms is None:
        return samples
    found, stale = samples.histograms.copy(), stale_markers(samples)
    for first, last in zip(samples.offsets[:-1].tolist(), samples.offsets[1:].tolist(), strict=True):
        before: Histogram | None = None
        for place in range(first, last):
            here = samples.histograms[place]
            if here is None or stale[place]:
                continue
            hint = here.reset_hint
            if hint == ResetHint.UNKNOWN and before is not None:
                hint = ResetHint.RESET if detect_reset(here, before) else ResetHint.NOT_RESET
            before = here
            found[place] = Histogram(here.schema, here.count, here.sum, reset_hint=hint)
    return replace(samples, histograms=found)


def reach(selector: Selector, lookback: int) -> tuple[int, int]:
    """Return how far a selector looks before the beginning of its range and after its end."""
    return lookback if selector.extended else 0, lookback if selector.extended == "smoothed" else 0


def instant(selector: Selector, samples: Samples, ends: Ints, lookback: int, notes: Notes) -> Vector:
    """Return the value of an instant selector at each step."""
    samples = totals_only(samples) if selector.totals_only else samples
    if selector.extended == "smoothed":
        return smoothed_instant(samples, ends, lookback, notes, selector.span)
    if samples.histograms is None:
        values, present = latest(samples, ends, lookback)
        return Vector(samples.labels, values, present)
    return _pick_samples(samples, latest_index(samples, ends, lookback))


def ranged(selector: Selector, samples: Samples) -> Samples:
    """Return the samples that count in ranges."""
    return without_stale_markers(totals_only(samples) if selector.totals_only else samples)


def _pick_samples(samples: Samples, index: Ints) -> Vector:
    """Return the samples at these indexes; -1 stands for no sample."""
    present: Bools = index >= 0
    if len(samples.times) == 0 or samples.histograms is None:
        return Vector(samples.labels, np.zeros(index.shape), np.zeros(index.shape, bool))
    histograms = samples.histograms[index]
    histograms[~present] = None
    return Vector(samples.labels, np.where(present, samples.values[index], 0.0), present, histograms)
