"""Pieces of many workers put together. The series of one are not those of another.

What always holds: series stand in the order of their labels, whoever worked them out and in whatever order the pieces
came. What is added up, taken first or told in an error depends on that order alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.series.arrays import Ints, Objects
from lakerunner.series.evaluation.evaluate import in_order
from lakerunner.series.values import NO_SAMPLES, Samples, Vector


def joined_vectors(vectors: Sequence[Vector], steps: int) -> Vector:
    if len(vectors) == 1:
        return in_order(vectors[0])
    if not vectors:
        return Vector((), np.zeros((0, steps)), np.zeros((0, steps), bool))
    whole = Vector(
        [labels for vector in vectors for labels in vector.labels],
        np.concatenate([vector.values for vector in vectors]),
        np.concatenate([vector.present for vector in vectors]),
        _histograms([(vector.histograms, vector.values.shape) for vector in vectors]),
        np.concatenate([vector.drop_name for vector in vectors]),
    )
    return in_order(whole)


def joined_samples(parts: Sequence[Samples]) -> Samples:
    if len(parts) == 1:
        return _in_order(parts[0])
    if not parts:
        return NO_SAMPLES
    starts = [np.zeros(len(part.times), np.int64) if part.starts is None else part.starts for part in parts]
    whole = Samples(
        [labels for part in parts for labels in part.labels],
        _offsets(parts),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
        _histograms([(part.histograms, part.values.shape) for part in parts]),
        np.concatenate(starts) if any(part.starts is not None for part in parts) else None,
        np.concatenate([part.drop_name for part in parts]),
    )
    return _in_order(whole)


def distinct_samples(parts: Sequence[Samples]) -> Samples:
    """The series of all parts, each from the first that has it."""
    seen: set[Labels] = set()
    rows: list[Samples] = []
    for part in parts:
        if seen.isdisjoint(part.labels):
            rows.append(part)
        else:
            rows += [part.between(n, n + 1) for n, labels in enumerate(part.labels) if labels not in seen]
        seen.update(part.labels)
    return joined_samples(rows)


def _in_order(samples: Samples) -> Samples:
    order = np.array(sorted(range(len(samples)), key=samples.labels.__getitem__), np.int64)
    if np.array_equal(order, np.arange(len(order))):
        return samples
    counts = np.diff(samples.offsets)[order]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    places = np.arange(len(samples.times)) + np.repeat(samples.offsets[order] - offsets[:-1], counts)
    return Samples(
        [samples.labels[n] for n in order.tolist()],
        offsets,
        samples.times[places],
        samples.values[places],
        None if samples.histograms is None else samples.histograms[places],
        None if samples.starts is None else samples.starts[places],
        samples.drop_name[order],
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
