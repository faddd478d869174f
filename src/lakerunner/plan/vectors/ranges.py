"""A range vector that is asked for itself: the samples of its windows at one moment."""

from __future__ import annotations

import numpy as np

from lakerunner.plan.vectors.smoothing import extended_samples, extension
from lakerunner.plan.vectors.values import Samples, Windows


def windowed(value: Windows) -> Samples:
    """Of the first step. A series without a sample there is not there; the others are sorted by labels."""
    if extension(value):
        return _sorted(extended_samples(value))
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
    return _sorted(found)


def _sorted(samples: Samples) -> Samples:
    counts = np.diff(samples.offsets)
    order = sorted(np.flatnonzero(counts).tolist(), key=samples.labels.__getitem__)
    places = [np.arange(samples.offsets[row], samples.offsets[row + 1]) for row in order]
    inside = np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int64)
    return Samples(
        [samples.labels[row] for row in order],
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[order], dtype=np.int64)]),
        samples.times[inside],
        samples.values[inside],
        None if samples.histograms is None else samples.histograms[inside],
        drop_name=samples.drop_name[order],
    )
