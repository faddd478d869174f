"""Of each group: how many samples there are, that there are any, how many have each value (count, group,
count_values); and min, max, stddev, stdvar and quantile of its floats, for which histograms are ignored.

Floats and histograms count alike. Split of count and group: the counts of the parts add up. count_values puts each
value as text into a label. min and max return NaN only if there is nothing else. Their split: the extremes of the
parts' extremes. (0 and -0 are equal, so either may come out.) The others need all series at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import NAME, labels_of
from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    Split,
    checked_quantile,
    count_dropped_names,
    float_samples,
    group_partials,
    groups_of,
    histograms_in,
    names_dropped,
    present_arrays,
)
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.grouping import Groups, counts, extremes, group_series, variances
from lakerunner.series.histograms.histogram import histogram_text
from lakerunner.series.notes import Notes
from lakerunner.series.numerals import scalar_text
from lakerunner.series.values import Partial, String, Vector


def _count_partial(node: Aggregate, vector: Vector, _notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    count = counts(vector.present, groups.indexes, len(groups))
    return Partial(
        groups.labels, present_arrays(count=count, dropped=count_dropped_names(vector, vector.present, groups))
    )


def _count_vector(node: Aggregate, partial: Partial) -> Vector:
    count = partial.arrays["count"]
    present = count > 0
    values = np.ones(count.shape) if node.op == "group" else count
    return Vector(partial.labels, values, present, drop_name=names_dropped(partial.arrays.get("dropped"), present))


def _count(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    return _count_vector(node, _count_partial(node, vector, notes))


def _fold_counts(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = group_partials(partials)
    return _count_vector(
        node, Partial(all_.labels, present_arrays(count=all_.sum("count"), dropped=all_.sum("dropped")))
    )


COUNT = Aggregation("count", _count, Split(_count_partial, _fold_counts))
GROUP = Aggregation("group", _count, Split(_count_partial, _fold_counts))


MAX_POINTS = 50_000_000  # every distinct value becomes a series, at all steps
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, which a string of the query may contain


def _count_values(node: Aggregate, vector: Vector, parameter: Parameter, _notes: Notes) -> Vector:
    if not isinstance(parameter, String):
        raise TypeError(f"the label of count_values is {parameter}")
    label = parameter.value
    if not label or _STRAY.search(label):
        shown = _STRAY.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", json.dumps(label, ensure_ascii=False))
        raise UserError(f"invalid label name {shown}")
    if node.without:
        groups = group_series(vector.labels, (*node.grouping, label), True)
    else:
        groups = group_series(vector.labels, tuple(name for name in node.grouping if name != label), False)
    hidden = node.without and label in (*node.grouping, NAME)  # `without` drops the new label again
    rows, steps = np.nonzero(vector.present)
    texts, of_text = _texts(vector)
    if hidden:
        texts, of_text = [""], np.zeros(len(rows), np.int64)
    pairs, series = np.unique(groups.indexes[rows] * len(texts) + of_text, return_inverse=True)
    labels = [
        labels_of([*groups.labels[pair // len(texts)], (label, texts[pair % len(texts)])]) for pair in pairs.tolist()
    ]
    shape = (len(pairs), vector.values.shape[1])
    counted = np.bincount(series * shape[1] + steps, minlength=shape[0] * shape[1]).reshape(shape)
    return Vector(labels, counted.astype(np.float64), counted > 0)


def _texts(vector: Vector) -> tuple[list[str], Ints]:
    """Return the distinct texts of values, and the index of each present sample's text."""
    values = vector.values[vector.present]
    bits, of = np.unique(values.view(np.uint64), return_inverse=True)
    if len(bits) * vector.values.shape[1] > MAX_POINTS:
        raise TooLarge(
            f"count_values of {len(bits):,} values returns more than {MAX_POINTS:,} points: round them first"
        )
    found: dict[str, int] = {}
    place = np.array([found.setdefault(scalar_text(value), len(found)) for value in bits.view(np.float64).tolist()])
    of_text = place.astype(np.int64)[of]
    histograms = histograms_in(vector)
    if histograms is not None and vector.histograms is not None:
        for number in np.flatnonzero(histograms[vector.present]).tolist():
            text = histogram_text(vector.histograms[vector.present][number])
            of_text[number] = found.setdefault(text, len(found))
    return list(found), of_text


COUNT_VALUES = Aggregation("count_values", _count_values, parameter=Kind.STRING)


def _extremes_partial(node: Aggregate, vector: Vector, notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    values, present = extremes(vector.values, floats, groups.indexes, len(groups), largest=node.op == "max")
    dropped = count_dropped_names(vector, floats, groups)
    return Partial(groups.labels, present_arrays(values=values, present=present.astype(float), dropped=dropped))


def _extremes_vector(partial: Partial) -> Vector:
    present = partial.arrays["present"] != 0
    dropped = names_dropped(partial.arrays.get("dropped"), present)
    return Vector(partial.labels, partial.arrays["values"], present, drop_name=dropped)


def _extremes(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    return _extremes_vector(_extremes_partial(node, vector, notes))


def _fold_extremes(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = group_partials(partials)
    values, present = extremes(
        np.concatenate([one.arrays["values"] for one in partials]),
        np.concatenate([one.arrays["present"] for one in partials]) != 0,
        np.concatenate(all_.places),
        len(all_.labels),
        largest=node.op == "max",
    )
    dropped = all_.sum("dropped")
    return _extremes_vector(
        Partial(all_.labels, present_arrays(values=values, present=present.astype(float), dropped=dropped))
    )


MIN = Aggregation("min", _extremes, Split(_extremes_partial, _fold_extremes))
MAX = Aggregation("max", _extremes, Split(_extremes_partial, _fold_extremes))


def _deviation(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    variance, count = variances(vector.values, floats, groups.indexes, len(groups))
    with np.errstate(invalid="ignore"):
        values = np.sqrt(variance) if node.op == "stddev" else variance
    return _group_vector(vector, floats, groups, values, count > 0)


def _quantile(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    quantile = checked_quantile(node, parameter, notes)
    groups = groups_of(node, vector)
    floats = float_samples(node, vector, notes)
    order = np.argsort(groups.indexes, kind="stable")
    members = np.split(order, np.searchsorted(groups.indexes[order], np.arange(1, len(groups))))
    values = np.zeros((len(groups), vector.values.shape[1]))
    for group, rows in enumerate(members if len(groups) else []):
        values[group] = _quantiles(vector.values[rows], floats[rows], quantile)
    return _group_vector(vector, floats, groups, values, counts(floats, groups.indexes, len(groups)) > 0)


def _quantiles(values: Floats, present: Bools, quantile: Floats) -> Floats:
    """Compute the quantile of each column. NaN is smaller than any other value."""
    nans = (present & np.isnan(values)).sum(axis=0)
    many = present.sum(axis=0)
    ascending = np.sort(np.where(present, values, np.nan).T, axis=1)  # NaN and absent samples come last
    rank = np.clip(quantile, 0.0, 1.0) * np.maximum(many - 1.0, 0.0)
    lower = np.floor(np.where(np.isnan(rank), 0.0, rank))
    weight = rank - lower
    below = lower.astype(np.int64)
    above = np.minimum(np.maximum(many - 1, 0), below + 1)
    low, high = (_at(ascending, place - nans) for place in (below, above))
    with np.errstate(invalid="ignore"):
        found = low * (1.0 - weight) + high * weight
    found = np.where(quantile > 1, np.inf, np.where(quantile < 0, -np.inf, found))
    return np.where(np.isnan(quantile), np.nan, found)


def _at(ascending: Floats, place: Ints) -> Floats:
    """Return the value of each row at its place; places before the first stand for NaN."""
    found = ascending[np.arange(len(ascending)), np.maximum(place, 0)]
    return np.where(place < 0, np.nan, found)


def _group_vector(vector: Vector, floats: Bools, groups: Groups, values: Floats, present: Bools) -> Vector:
    dropped = names_dropped(count_dropped_names(vector, floats, groups), present)
    return Vector(groups.labels, values, present, drop_name=dropped)


STDDEV = Aggregation("stddev", _deviation)
STDVAR = Aggregation("stdvar", _deviation)
QUANTILE = Aggregation("quantile", _quantile, parameter=Kind.SCALAR)
