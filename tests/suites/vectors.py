"""Vectors as rows that can be read, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lakerunner.model.labels import Labels, labels_of
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.values import Vector

Sample = float | Histogram | None
Rows = Sequence[tuple[Labels, Sequence[Sample]]]


def named(name: str = "", **labels: str) -> Labels:
    return labels_of({"__name__": name, **labels})


def vector(rows: Rows, drop_name: Sequence[bool] = (), steps: int = 1) -> Vector:
    """None is no sample."""
    steps = len(rows[0][1]) if rows else steps
    shape = (len(rows), steps)
    values, present, histograms = np.full(shape, -77.0), np.zeros(shape, bool), np.full(shape, None, object)
    for row, (_, samples) in enumerate(rows):
        for step, sample in enumerate(samples):
            present[row, step] = sample is not None
            if isinstance(sample, Histogram):
                histograms[row, step] = sample
            elif sample is not None:
                values[row, step] = sample
    some = any(one is not None for one in histograms.flat)
    return Vector(
        [labels for labels, _ in rows],
        values,
        present,
        histograms if some else None,
        np.array(drop_name, bool) if drop_name else np.zeros(len(rows), bool),
    )


def rows(given: Vector) -> list[tuple[Labels, list[Sample]]]:
    """Without those that are never there."""
    found: list[tuple[Labels, list[Sample]]] = []
    for row, labels in enumerate(given.labels):
        samples: list[Sample] = []
        for step in range(given.values.shape[1]):
            histogram = None if given.histograms is None else given.histograms[row, step]
            there = bool(given.present[row, step])
            samples.append((float(given.values[row, step]) if histogram is None else histogram) if there else None)
        if any(one is not None for one in samples):
            found.append((labels, samples))
    return found


def floats(given: Vector) -> Mapping[Labels, list[float | None]]:
    """NaN as the text "NaN", so that it is equal to itself."""
    return {labels: [_comparable(one) for one in samples] for labels, samples in rows(given)}


def _comparable(sample: Sample) -> float | None:
    if isinstance(sample, Histogram):
        raise AssertionError("a histogram among floats")
    return "NaN" if sample is not None and math.isnan(sample) else sample  # type: ignore[return-value]
