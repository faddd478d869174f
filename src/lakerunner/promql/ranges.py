"""A range vector that is asked for itself: the samples of its windows at one moment."""

from __future__ import annotations

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, without_name
from lakerunner.promql.selection.smoothing import extended_samples, extension
from lakerunner.series.arrays import Ints
from lakerunner.series.values import Samples, Windows


def windowed(value: Windows) -> Samples:
    """Of the first step, with final labels. A series without a sample there is not there; the others are sorted by
    labels."""
    if extension(value):
        return _sorted(_named(extended_samples(value)))
    samples = value.samples
    counts = value.last[:, 0] - value.first[:, 0]
    inside = np.repeat(value.first[:, 0] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    found = Samples(
        samples.labels,
        offsets,
        samples.times[inside],
        samples.values[inside],
        None if samples.histograms is None else samples.histograms[inside],
        drop_name=samples.drop_name,
    )
    return _sorted(_named(found))


def _named(samples: Samples) -> Samples:
    """Without the names that operations took away; series that are then the same become one. UserError if they have
    samples of the same time."""
    if not samples.drop_name.any():
        return samples
    rows: dict[Labels, list[int]] = {}
    for row, (labels, drop) in enumerate(zip(samples.labels, samples.drop_name.tolist(), strict=True)):
        if samples.offsets[row] < samples.offsets[row + 1]:
            rows.setdefault(without_name(labels) if drop else labels, []).append(row)
    places = [np.concatenate([_places(samples, row) for row in same]) for same in rows.values()]
    for number, own in enumerate(places):
        times = samples.times[own]
        if len(np.unique(times)) < len(times):
            raise UserError("vector cannot contain metrics with the same labelset")
        places[number] = own[np.argsort(times, kind="stable")]
    inside = np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int64)
    return Samples(
        list(rows),
        np.concatenate([np.zeros(1, np.int64), np.cumsum([len(own) for own in places], dtype=np.int64)]),
        samples.times[inside],
        samples.values[inside],
        None if samples.histograms is None else samples.histograms[inside],
    )


def _places(samples: Samples, row: int) -> Ints:
    return np.arange(samples.offsets[row], samples.offsets[row + 1])


def _sorted(samples: Samples) -> Samples:
    counts = np.diff(samples.offsets)
    order = sorted(np.flatnonzero(counts).tolist(), key=samples.labels.__getitem__)
    places = [_places(samples, row) for row in order]
    inside = np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int64)
    return Samples(
        [samples.labels[row] for row in order],
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[order], dtype=np.int64)]),
        samples.times[inside],
        samples.values[inside],
        None if samples.histograms is None else samples.histograms[inside],
        drop_name=samples.drop_name[order],
    )
