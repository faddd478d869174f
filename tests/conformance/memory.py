"""A state as a source of samples in memory.

Reset hints are those that Prometheus' storage returns: a histogram that continues the one before it is `not_reset`, any
other counter is `unknown` (a `reset` that was sent has to be found again by comparing values), gauges stay gauges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.script import Sample, State
from lakerunner.model.labels import Labels, value_of
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.regex import compile_regex
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint
from lakerunner.series.values import Samples


class MemorySource:
    def __init__(self, state: State) -> None:
        self._series = [(labels, as_stored(state.series[labels])) for labels in sorted(state.series)]

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        labels: list[Labels] = []
        counts: list[int] = []
        found: list[Sample] = []
        for one, samples in self._series:
            if all(matches(matcher, one) for matcher in matchers):
                within = [sample for sample in samples if start < sample.time <= end]
                labels.append(one)
                counts.append(len(within))
                found += within
        return samples_of(labels, counts, found)


def samples_of(labels: Sequence[Labels], counts: Sequence[int], found: Sequence[Sample]) -> Samples:
    histograms = np.full(len(found), None, object)
    for place, sample in enumerate(found):
        histograms[place] = sample.value if isinstance(sample.value, Histogram) else None
    return Samples(
        labels,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))]),
        np.array([sample.time for sample in found], np.int64),
        np.array([0.0 if isinstance(sample.value, Histogram) else sample.value for sample in found], np.float64),
        histograms if any(isinstance(sample.value, Histogram) for sample in found) else None,
        np.array([sample.start for sample in found], np.int64) if any(sample.start for sample in found) else None,
    )


def matches(matcher: Matcher, labels: Labels) -> bool:
    value = value_of(labels, matcher.name)
    if matcher.op in ("=", "!="):
        return (value == matcher.value) == (matcher.op == "=")
    return compile_regex(matcher.value).matches(value) == (matcher.op == "=~")


def as_stored(samples: Sequence[Sample]) -> list[Sample]:
    """Set the reset hints that storage returns."""
    stored: list[Sample] = []
    before: float | Histogram | None = None
    for sample in samples:
        value = sample.value
        if isinstance(value, Histogram) and value.reset_hint != ResetHint.GAUGE:
            goes_on = isinstance(before, Histogram) and _goes_on(value, before)
            hint = ResetHint.NOT_RESET if goes_on else ResetHint.UNKNOWN
            stored.append(replace(sample, value=replace(value, reset_hint=hint)))
        else:
            stored.append(sample)
        before = value
    return stored


def _goes_on(value: Histogram, before: Histogram) -> bool:
    return (
        before.reset_hint != ResetHint.GAUGE
        and value.reset_hint != ResetHint.RESET
        and value.count >= before.count
        and (value.schema, value.zero_threshold, value.custom_values)
        == (before.schema, before.zero_threshold, before.custom_values)
        and value.zero_count >= before.zero_count
        and _none_fell(value.positive, before.positive)
        and _none_fell(value.negative, before.negative)
    )


def _none_fell(value: BucketCounts, before: BucketCounts) -> bool:
    now = dict(zip(value.indexes.tolist(), value.counts.tolist(), strict=True))
    then = zip(before.indexes.tolist(), before.counts.tolist(), strict=True)
    return all(now.get(index, 0.0) >= count for index, count in then)
