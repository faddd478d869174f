"""sum and avg of floats or of histograms; a group that mixes both gets no value.

Sums are compensated (Neumaier). A mean is the sum divided by the count unless the sum overflows: then a running mean is
carried from sample to sample.

Split: a part gives its sum, the rounding error and the number of samples, for histograms as well. These add up. If a
sum overflows, if histograms have different kinds of buckets, or if they meet floats and differing custom bounds, the
order of the series decides the result and its notes: NotSplit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import NAME, value_of
from lakerunner.series.aggregations.aggregation import (
    ORDERED,
    Aggregation,
    GroupedPartials,
    NotSplit,
    Parameter,
    Split,
    count_dropped_names,
    group_partials,
    groups_of,
    histograms_in,
    names_dropped,
    present_arrays,
)
from lakerunner.series.arrays import Bools, Floats, Objects, filled
from lakerunner.series.expression import Aggregate, bare
from lakerunner.series.grouping import Groups, counts, means, sums
from lakerunner.series.histograms.algebra import (
    AveragedHistogram,
    CompensatedHistogram,
    IncompatibleHistograms,
    compact_histogram,
    has_overflow,
)
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Partial, Vector

FLAGS = ("seen", "floats", "reset", "not_reset", "reconciled", "incompatible", "uneven")
Total = CompensatedHistogram | AveragedHistogram


@dataclass(frozen=True)
class HistogramTotals:
    """The sums of histograms. Arrays are [groups, steps]; `totals` has None where nothing was added. `mismatched` are
    the names of metrics whose buckets are of another kind."""

    totals: Objects
    seen: Bools  # a histogram is present, added or not
    floats: Bools  # a float is present
    reset: Bools
    not_reset: Bools
    reconciled: Bools
    incompatible: Bools
    uneven: Bools  # zero buckets of different widths were unified: the result may depend on the order
    mismatched: set[str]

    @classmethod
    def empty(cls, shape: tuple[int, int], flags: Mapping[str, Bools] | None = None) -> HistogramTotals:
        """Return empty totals with these flags already set."""
        given = {name: np.zeros(shape, bool) for name in FLAGS} | dict(flags or {})
        return cls(np.full(shape, None, object), **given, mismatched=set())

    @property
    def mixed(self) -> Bools:
        return self.seen & self.floats


def histogram_totals(
    vector: Vector, where: Bools, groups: Groups, kind: type[CompensatedHistogram] | type[AveragedHistogram]
) -> HistogramTotals:
    """Add up the histograms of each group. `where`: which samples are histograms."""
    shape = (len(groups), where.shape[1])
    found = HistogramTotals.empty(shape)
    floats = vector.present & ~where
    for row, group in enumerate(groups.indexes.tolist()):
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


def finish_histograms(node: Aggregate, found: HistogramTotals, notes: Notes) -> Objects:
    """Return the resulting histograms, and note what could not be added."""
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
        results[group, step] = compact_histogram(found.totals[group, step].value())
    return results


def _evaluate(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    groups = groups_of(node, vector)
    where = histograms_in(vector)
    floats = vector.present if where is None else vector.present & ~where
    values, present = _of_floats(node, vector, floats, groups)
    histograms = None
    if where is not None:
        kind = AveragedHistogram if node.op == "avg" else CompensatedHistogram
        found = histogram_totals(vector, where, groups, kind)
        histograms = finish_histograms(node, found, notes)
        present = (present & ~found.seen) | filled(histograms)
    dropped = names_dropped(count_dropped_names(vector, vector.present, groups), present)
    return Vector(groups.labels, values, present, histograms, dropped)


def _of_floats(node: Aggregate, vector: Vector, floats: Bools, groups: Groups) -> tuple[Floats, Bools]:
    total, lost, count = sums(vector.values, floats, groups.indexes, len(groups))
    if node.op == "avg" and not np.isfinite(total).all():
        return means(vector.values, floats, groups.indexes, len(groups)), count > 0
    return _value(node, total, lost, count), count > 0


def _value(node: Aggregate, total: Floats, lost: Floats, count: Floats) -> Floats:
    if node.op == "sum":
        return total + lost
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = total / count + lost / count
    return mean


# ---- the parts


def _partial(node: Aggregate, vector: Vector, _notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    where = histograms_in(vector)
    floats = vector.present if where is None else vector.present & ~where
    total, lost, count = sums(vector.values, floats, groups.indexes, len(groups))
    arrays = dict(
        present_arrays(total=total, lost=lost, count=count, dropped=count_dropped_names(vector, vector.present, groups))
    )
    if not np.isfinite(total).all():
        odd = counts(floats & ~np.isfinite(vector.values), groups.indexes, len(groups))
        arrays[ORDERED] = (~np.isfinite(total) & (odd == 0)).astype(float)
    if where is None:
        return Partial(groups.labels, arrays)
    # As if no float preceded a histogram: only the fold over all parts knows which came first.
    alone = Vector(vector.labels, vector.values, where, vector.histograms)
    found = histogram_totals(alone, where, groups, CompensatedHistogram)
    found.floats[:] = count > 0
    arrays.update({name: getattr(found, name).astype(float) for name in FLAGS})
    arrays["many"] = counts(where, groups.indexes, len(groups))
    pairs = {"total": np.full(total.shape, None, object), "lost": np.full(total.shape, None, object)}
    for at in map(tuple, np.argwhere(found.seen)):
        pairs["total"][at], pairs["lost"][at] = found.totals[at].sum, found.totals[at].compensation
    return Partial(groups.labels, arrays, pairs)


# ---- all of them


def _fold(node: Aggregate, partials: Sequence[Partial], notes: Notes) -> Vector:
    all_ = group_partials(partials)
    total, lost, count = _add_partials(all_)
    values, present = _value(node, total, lost, count), count > 0
    histograms = None
    if any(one.histograms for one in partials):
        found = _add_histogram_partials(node, all_, present)
        histograms = finish_histograms(node, found, notes)
        present = (present & ~found.seen) | filled(histograms)
    dropped = names_dropped(all_.sum("dropped"), present)
    return Vector(all_.labels, values, present, histograms, dropped)


def _add_partials(all_: GroupedPartials) -> tuple[Floats, Floats, Floats]:
    total, lost, count, size = (np.zeros(all_.shape) for _ in range(4))
    with np.errstate(invalid="ignore", over="ignore"):
        for one, places in zip(all_.partials, all_.places, strict=True):
            before, part = total[places], one.arrays["total"]
            after = before + part
            before_is_larger = np.abs(before) >= np.abs(part)
            error = np.where(before_is_larger, (before - after) + part, (part - after) + before)
            total[places] = after
            lost[places] = np.where(np.isinf(after), 0.0, (lost[places] + one.arrays["lost"]) + error)
            count[places] += one.arrays["count"]
            size[places] += np.where(np.isfinite(part), np.abs(part), 0.0)
    if np.isinf(size).any():
        raise NotSplit("whether a sum overflows depends on the order of its series")
    return total, lost, count


def _add_histogram_partials(node: Aggregate, all_: GroupedPartials, floats: Bools) -> HistogramTotals:
    flags = {name: array != 0 for name in FLAGS if (array := all_.sum(name)) is not None}
    found = HistogramTotals.empty(all_.shape, flags)
    found.floats[:] = floats
    for one, places in zip(all_.partials, all_.places, strict=True):
        if one.histograms:
            _add_part(found, one, places.tolist())
    if (found.incompatible | (found.mixed & found.reconciled)).any():
        raise NotSplit("the sum of incompatible histograms depends on the order of their series")
    if found.uneven.any():
        raise NotSplit("the sum of zero buckets of different widths depends on the order of their series")
    many = all_.sum("many")
    for at in map(tuple, np.argwhere(found.seen)):
        if has_overflow(found.totals[at].sum):
            raise NotSplit("a sum of histograms overflows")
        if node.op == "avg" and many is not None:
            found.totals[at].divide(float(many[at]))
    return found


def _add_part(found: HistogramTotals, part: Partial, places: Sequence[int]) -> None:
    totals, lost = part.histograms["total"], part.histograms["lost"]
    for own, step in np.argwhere(filled(totals)).tolist():
        at = (places[own], step)
        if found.totals[at] is None:
            found.totals[at] = CompensatedHistogram(totals[own, step], lost[own, step])
            continue
        found.uneven[at] |= found.totals[at].zero_threshold != totals[own, step].zero_threshold
        try:
            found.reconciled[at] |= found.totals[at].add(totals[own, step]).bounds_reconciled
            if lost[own, step] is not None:
                found.totals[at].add(lost[own, step])
        except IncompatibleHistograms:
            found.incompatible[at] = True


SUM = Aggregation("sum", _evaluate, Split(_partial, _fold))
AVG = Aggregation("avg", _evaluate, Split(_partial, _fold))
