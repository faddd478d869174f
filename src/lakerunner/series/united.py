"""The series of two vectors as one vector; and series that came to have the same labels as one series, if they are
never there at the same step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Objects
from lakerunner.series.values import Steps, Vector

SAME_LABELS = "vector cannot contain metrics with the same labelset"


def joined(first: Vector, other: Vector) -> Vector:
    """The rows of both."""
    histograms: Objects | None = None
    if first.histograms is not None or other.histograms is not None:
        histograms = np.concatenate([_histograms(first), _histograms(other)])
    return Vector(
        [*first.labels, *other.labels],
        np.concatenate([first.values, other.values]),
        np.concatenate([first.present, other.present]),
        histograms,
        np.concatenate([first.drop_name, other.drop_name]),
    )


def _histograms(vector: Vector) -> Objects:
    if vector.histograms is None:
        return np.full(vector.present.shape, None, object)
    return vector.histograms


def united(vector: Vector, steps: Steps, is_steady: Callable[[], bool]) -> Vector:
    """As `merged`, but an instant, and what is the same at every step, stays as it is: whether its series are distinct
    is checked at the end of the evaluation."""
    return vector if steps.start == steps.end or is_steady() else merged(vector)


def merged(vector: Vector) -> Vector:
    """UserError if two series of the same labels are there at the same step. Whether a name goes is what the first
    sample says."""
    if len(set(vector.labels)) == len(vector):
        return vector
    vector = vector.occupied()
    rows: dict[Labels, int] = {}
    places = [rows.setdefault(labels, len(rows)) for labels in vector.labels]
    shape = (len(rows), vector.present.shape[1])
    values, present = np.zeros(shape), np.zeros(shape, bool)
    histograms: Objects | None = None if vector.histograms is None else np.full(shape, None, object)
    drop_name = np.zeros(len(rows), bool)
    for row in np.argsort(np.argmax(vector.present, axis=1), kind="stable").tolist():
        place, there = places[row], vector.present[row]
        if (present[place] & there).any():
            raise UserError(SAME_LABELS)
        if not present[place].any():
            drop_name[place] = vector.drop_name[row]
        present[place] |= there
        values[place, there] = vector.values[row, there]
        if histograms is not None and vector.histograms is not None:
            histograms[place, there] = vector.histograms[row, there]
    return Vector(list(rows), values, present, histograms, drop_name)
