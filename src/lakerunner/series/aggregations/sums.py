"""sum and avg, of floats and of histograms; of both at once nothing comes.

Sums are compensated (Neumaier). A mean is the sum by the number, unless the sum overflows: then the mean itself is
carried from sample to sample.

Split: a part gives its sum, what rounding took from it, and the number of samples; of histograms as well. These add up.
Where a sum overflows, where histograms are of different kinds, or where they meet floats and custom bounds that differ,
the order of the series decides what comes out and what is said: NotSplit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    dropping,
    groups_of,
    histograms_in,
    names_dropped,
)
from lakerunner.series.aggregations.histogram_sums import FLAGS, HistogramTotals, finished, histogram_totals
from lakerunner.series.aggregations.split import ORDERED, NotSplit, Split, Together, arrays_of, together
from lakerunner.series.arrays import Bools, Floats, filled
from lakerunner.series.expression import Aggregate
from lakerunner.series.group_kernels import counts, means, sums
from lakerunner.series.grouping import Groups
from lakerunner.series.histograms.arithmetic import (
    AveragedHistogram,
    CompensatedHistogram,
    IncompatibleHistograms,
    has_overflow,
)
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Vector


def _evaluate(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    groups = groups_of(node, vector)
    where = histograms_in(vector)
    floats = vector.present if where is None else vector.present & ~where
    values, present = _of_floats(node, vector, floats, groups)
    histograms = None
    if where is not None:
        kind = AveragedHistogram if node.op == "avg" else CompensatedHistogram
        found = histogram_totals(vector, where, groups, kind)
        histograms = finished(node, found, notes)
        present = (present & ~found.seen) | filled(histograms)
    dropped = names_dropped(dropping(vector, vector.present, groups), present)
    return Vector(groups.labels, values, present, histograms, dropped)


def _of_floats(node: Aggregate, vector: Vector, floats: Bools, groups: Groups) -> tuple[Floats, Bools]:
    total, lost, count = sums(vector.values, floats, groups.of, len(groups))
    if node.op == "avg" and not np.isfinite(total).all():
        return means(vector.values, floats, groups.of, len(groups)), count > 0
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
    total, lost, count = sums(vector.values, floats, groups.of, len(groups))
    arrays = dict(arrays_of(total=total, lost=lost, count=count, dropped=dropping(vector, vector.present, groups)))
    if not np.isfinite(total).all():
        odd = counts(floats & ~np.isfinite(vector.values), groups.of, len(groups))
        arrays[ORDERED] = (~np.isfinite(total) & (odd == 0)).astype(float)
    if where is None:
        return Partial(groups.labels, arrays)
    # As if no float had come before a histogram: which came first is known of all parts together only.
    alone = Vector(vector.labels, vector.values, where, vector.histograms)
    found = histogram_totals(alone, where, groups, CompensatedHistogram)
    found.floats[:] = count > 0
    arrays.update({name: getattr(found, name).astype(float) for name in FLAGS})
    arrays["many"] = counts(where, groups.of, len(groups))
    pairs = {"total": np.full(total.shape, None, object), "lost": np.full(total.shape, None, object)}
    for at in map(tuple, np.argwhere(found.seen)):
        pairs["total"][at], pairs["lost"][at] = found.totals[at].sum, found.totals[at].compensation
    return Partial(groups.labels, arrays, pairs)


# ---- all of them


def _fold(node: Aggregate, partials: Sequence[Partial], notes: Notes) -> Vector:
    all_ = together(partials)
    total, lost, count = _added_up(all_)
    values, present = _value(node, total, lost, count), count > 0
    histograms = None
    if any(one.histograms for one in partials):
        found = _histograms_added_up(node, all_, present)
        histograms = finished(node, found, notes)
        present = (present & ~found.seen) | filled(histograms)
    dropped = names_dropped(all_.sum("dropped"), present)
    return Vector(all_.labels, values, present, histograms, dropped)


def _added_up(all_: Together) -> tuple[Floats, Floats, Floats]:
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
        raise NotSplit("a sum overflows, or does not: that depends on the order of its series")
    return total, lost, count


def _histograms_added_up(node: Aggregate, all_: Together, floats: Bools) -> HistogramTotals:
    flags = {name: array != 0 for name in FLAGS if (array := all_.sum(name)) is not None}
    found = HistogramTotals.empty(all_.shape, flags)
    found.floats[:] = floats
    for one, places in zip(all_.partials, all_.places, strict=True):
        if one.histograms:
            _add_part(found, one, places.tolist())
    if (found.incompatible | (found.mixed & found.reconciled)).any():
        raise NotSplit("what comes of histograms that do not fit depends on the order of their series")
    if found.uneven.any():
        raise NotSplit("zero buckets of different widths: what comes of them depends on the order of their series")
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
