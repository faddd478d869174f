"""count_values: how many series have a value, for each value. It stands in a label as text."""

from __future__ import annotations

import json
import re

import numpy as np

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.series.aggregations.aggregation import Aggregation, Parameter, histograms_in
from lakerunner.series.aggregations.parameters import plain_text
from lakerunner.series.arrays import Ints
from lakerunner.series.expression import Aggregate, Kind
from lakerunner.series.grouping import grouped
from lakerunner.series.histograms.text import histogram_text
from lakerunner.series.notes import Notes
from lakerunner.series.values import String, Vector

MAX_POINTS = 50_000_000  # of all values at all steps: a series of its own for each value
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are no characters, as a string of the query may have them


def _evaluate(node: Aggregate, vector: Vector, parameter: Parameter, _notes: Notes) -> Vector:
    if not isinstance(parameter, String):
        raise TypeError(f"the label of count_values is {parameter}")
    label = parameter.value
    if not label or _STRAY.search(label):
        shown = _STRAY.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", json.dumps(label, ensure_ascii=False))
        raise UserError(f"invalid label name {shown}")
    if node.without:
        groups = grouped(vector.labels, (*node.grouping, label), True)
    else:
        groups = grouped(vector.labels, tuple(name for name in node.grouping if name != label), False)
    hidden = node.without and label in (*node.grouping, NAME)  # the label itself is among those that go
    rows, steps = np.nonzero(vector.present)
    texts, of_text = _texts(vector)
    if hidden:
        texts, of_text = [""], np.zeros(len(rows), np.int64)
    pairs, series = np.unique(groups.of[rows] * len(texts) + of_text, return_inverse=True)
    labels = [_labelled(groups.labels[pair // len(texts)], label, texts[pair % len(texts)]) for pair in pairs.tolist()]
    shape = (len(pairs), vector.values.shape[1])
    counted = np.bincount(series * shape[1] + steps, minlength=shape[0] * shape[1]).reshape(shape)
    return Vector(labels, counted.astype(np.float64), counted > 0)


def _texts(vector: Vector) -> tuple[list[str], Ints]:
    """The values' texts, and which of them each present sample has."""
    values = vector.values[vector.present]
    bits, of = np.unique(values.view(np.uint64), return_inverse=True)
    if len(bits) * vector.values.shape[1] > MAX_POINTS:
        raise TooLarge(
            f"count_values of {len(bits):,} values returns more than {MAX_POINTS:,} points: round them first"
        )
    found: dict[str, int] = {}
    place = np.array([found.setdefault(plain_text(value), len(found)) for value in bits.view(np.float64).tolist()])
    of_text = place.astype(np.int64)[of]
    histograms = histograms_in(vector)
    if histograms is not None and vector.histograms is not None:
        for number in np.flatnonzero(histograms[vector.present]).tolist():
            text = histogram_text(vector.histograms[vector.present][number])
            of_text[number] = found.setdefault(text, len(found))
    return list(found), of_text


def _labelled(labels: Labels, name: str, text: str) -> Labels:
    return labels_of([*labels, (name, text)])


COUNT_VALUES = Aggregation("count_values", _evaluate, parameter=Kind.STRING)
