"""A state as a source of samples that is queried thousands of times: matchers are looked up once, times by binary
search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from conformance.memory import as_stored, matches, samples_of
from conformance.script import Sample, State
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint
from lakerunner.series.values import Samples


class StateSource:
    """Holds all series of a state, or some."""

    def __init__(self, state: State, wanted: Sequence[Labels] | None = None) -> None:
        self._labels = sorted(state.series) if wanted is None else sorted(wanted)
        self._all = [_one(labels, state) for labels in self._labels]
        self._matching = lru_cache(maxsize=1000)(self._found)

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        rows = self._matching(matchers)
        parts = [self._all[row] for row in rows]
        places = [np.searchsorted(part.times, (start, end), side="right") for part in parts]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([b - a for a, b in places], dtype=np.int64)])
        if not parts:
            return Samples((), offsets, np.zeros(0, np.int64), np.zeros(0))
        cut = [(part, slice(*place)) for part, place in zip(parts, places, strict=True)]
        histograms = np.concatenate([part.histograms[of] for part, of in cut])  # type: ignore[index]
        return Samples(
            [self._labels[row] for row in rows],
            offsets,
            np.concatenate([part.times[of] for part, of in cut]),
            np.concatenate([part.values[of] for part, of in cut]),
            histograms if any(one is not None for one in histograms) else None,
            np.concatenate([part.starts[of] for part, of in cut]),  # type: ignore[index]
        )

    def _found(self, matchers: tuple[Matcher, ...]) -> list[int]:
        return [row for row, one in enumerate(self._labels) if all(matches(matcher, one) for matcher in matchers)]


def _one(labels: Labels, state: State) -> Samples:
    samples = with_buckets_of_chunk(as_stored(state.series[labels]))
    found = samples_of([labels], [len(samples)], samples)
    histograms = np.full(len(samples), None, object) if found.histograms is None else found.histograms
    starts = np.zeros(len(samples), np.int64) if found.starts is None else found.starts
    return Samples(found.labels, found.offsets, found.times, found.values, histograms, starts)


def with_buckets_of_chunk(samples: Sequence[Sample]) -> list[Sample]:
    """Return histograms as Prometheus' storage does: all of a chunk have all its buckets, with count zero where they
    had none. That is visible where such a bucket becomes NaN (`x * NaN`), or is the last bucket."""
    chunks: list[list[Sample]] = []
    for sample in samples:
        if not chunks or not _same_chunk(chunks[-1][-1].value, sample.value):
            chunks.append([])
        chunks[-1].append(sample)
    return [sample for chunk in chunks for sample in _filled_up(chunk)]


def _same_chunk(before: float | Histogram, value: float | Histogram) -> bool:
    if not isinstance(before, Histogram) or not isinstance(value, Histogram):
        return isinstance(before, Histogram) == isinstance(value, Histogram)
    if ResetHint.GAUGE in (before.reset_hint, value.reset_hint):
        return before.reset_hint == value.reset_hint
    return value.reset_hint == ResetHint.NOT_RESET


def _filled_up(chunk: Sequence[Sample]) -> Sequence[Sample]:
    found = [sample.value for sample in chunk if isinstance(sample.value, Histogram)]
    if not found:
        return chunk
    positive, negative = (
        sorted({index for one in found for index in getattr(one, side).indexes.tolist()})
        for side in ("positive", "negative")
    )
    return [
        replace(sample, value=replace(one, positive=_at(positive, one.positive), negative=_at(negative, one.negative)))
        for sample, one in zip(chunk, found, strict=True)
    ]


def _at(indexes: list[int], buckets: BucketCounts) -> BucketCounts:
    counts = dict(zip(buckets.indexes.tolist(), buckets.counts.tolist(), strict=True))
    return BucketCounts(np.array(indexes, np.int32), np.array([counts.get(index, 0.0) for index in indexes]))
