"""A state as a source of samples that is asked thousands of times: matchers are looked up once, times by halving."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from conformance.memory import as_stored, matches, samples_of
from conformance.script import State
from lakerunner.model.labels import Labels
from lakerunner.plan.vectors.expression import Matcher
from lakerunner.plan.vectors.values import Samples


class StateSource:
    """Of all series of a state, or of some."""

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
    samples = as_stored(state.series[labels])
    found = samples_of([labels], [len(samples)], samples)
    histograms = np.full(len(samples), None, object) if found.histograms is None else found.histograms
    starts = np.zeros(len(samples), np.int64) if found.starts is None else found.starts
    return Samples(found.labels, found.offsets, found.times, found.values, histograms, starts)
