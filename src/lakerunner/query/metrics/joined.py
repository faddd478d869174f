"""Pieces of many workers put together. The series of one are not those of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.plan.vectors.arrays import Ints, Objects
from lakerunner.plan.vectors.values import NO_SAMPLES, Samples, Vector


def joined_vectors(vectors: Sequence[Vector], steps: int) -> Vector:
    """In the order they come."""
    if len(vectors) == 1:
        return vectors[0]
    if not vectors:
        return Vector((), np.zeros((0, steps)), np.zeros((0, steps), bool))
    return Vector(
        [labels for vector in vectors for labels in vector.labels],
        np.concatenate([vector.values for vector in vectors]),
        np.concatenate([vector.present for vector in vectors]),
        _histograms([(vector.histograms, vector.values.shape) for vector in vectors]),
        np.concatenate([vector.drop_name for vector in vectors]),
    )


def joined_samples(parts: Sequence[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_SAMPLES
    starts = [np.zeros(len(part.times), np.int64) if part.starts is None else part.starts for part in parts]
    return Samples(
        [labels for part in parts for labels in part.labels],
        _offsets(parts),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
        _histograms([(part.histograms, part.values.shape) for part in parts]),
        np.concatenate(starts) if any(part.starts is not None for part in parts) else None,
        np.concatenate([part.drop_name for part in parts]),
    )


def _offsets(parts: Sequence[Samples]) -> Ints:
    found: Ints = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    return np.cumsum(found)


def _histograms(parts: Sequence[tuple[Objects | None, tuple[int, ...]]]) -> Objects | None:
    if all(histograms is None for histograms, _ in parts):
        return None
    whole = [np.full(shape, None, object) if found is None else found for found, shape in parts]
    joined: Objects = np.concatenate(whole)
    return joined
