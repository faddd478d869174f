"""Pieces put together: by labels, whatever the order in which they came."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import labels_of
from lakerunner.series.evaluation.pieces import join_samples, join_vectors
from lakerunner.series.values import Samples, Vector

A, B, C = (labels_of({"x": x}) for x in "abc")


def vector(*rows: tuple[object, float]) -> Vector:
    values = np.array([[value] for _, value in rows])
    return Vector([labels for labels, _ in rows], values, np.ones(values.shape, bool))  # type: ignore[misc]


def test_vectors() -> None:
    joined = join_vectors([vector((B, 2.0)), vector((A, 1.0), (C, 3.0))], 1)
    assert list(joined.labels) == [A, B, C]
    assert joined.values[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert list(join_vectors([vector((C, 3.0), (A, 1.0))], 1).labels) == [A, C]


def test_samples() -> None:
    one = Samples([C, A], np.array([0, 2, 3]), np.array([1, 2, 7]), np.array([10.0, 20.0, 70.0]))
    other = Samples([B], np.array([0, 1]), np.array([5]), np.array([50.0]), starts=np.array([4]))
    joined = join_samples([one, other])
    assert list(joined.labels) == [A, B, C]
    assert joined.offsets.tolist() == [0, 1, 2, 4]
    assert joined.times.tolist() == [7, 5, 1, 2]
    assert joined.values.tolist() == [70.0, 50.0, 10.0, 20.0]
    assert joined.starts is not None
    assert joined.starts.tolist() == [0, 4, 0, 0]
