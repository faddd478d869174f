"""count, group and count_values: how many samples there are, that there are any, how many have each value.

Floats and histograms count alike. Split of count and group: the counts of the parts add up. count_values puts each
value as text into a label, and needs all series at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    Split,
    count_dropped_names,
    group_partials,
    groups_of,
    histograms_in,
    names_dropped,
    present_arrays,
)
from lakerunner.series.arrays import Ints
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.grouping import counts, group_series
from lakerunner.series.histograms.text import histogram_text
from lakerunner.series.notes import Notes
from lakerunner.series.numerals import scalar_text
from lakerunner.series.values import Partial, String, Vector


def _partial(node: Aggregate, vector: Vector, _notes: Notes) -> Partial:
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
    return _count_vector(node, _partial(node, vector, notes))


def _fold(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = group_partials(partials)
    return _count_vector(
        node, Partial(all_.labels, present_arrays(count=all_.sum("count"), dropped=all_.sum("dropped")))
    )


COUNT = Aggregation("count", _count, Split(_partial, _fold))
GROUP = Aggregation("group", _count, Split(_partial, _fold))


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
    labels = [_add_label(groups.labels[pair // len(texts)], label, texts[pair % len(texts)]) for pair in pairs.tolist()]
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


def _add_label(labels: Labels, name: str, text: str) -> Labels:
    return labels_of([*labels, (name, text)])


COUNT_VALUES = Aggregation("count_values", _count_values, parameter=Kind.STRING)
