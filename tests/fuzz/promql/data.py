"""The series for random queries: the same for the same seed.

What always holds: all samples lie within one two-hour block of Prometheus' storage, in which reset hints are those of
conformance/memory.py; series are sorted by labels, which is then the order of their creation in Prometheus, so that it
adds up in the same order as we do. Both sides of a native histogram are filled from its first sample on, or never:
Prometheus' chunks give buckets to the samples before, and quantiles in the zero bucket depend on that. There are no
start times, which Prometheus' remote write ignores.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from conformance.script import Sample, State
from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.promql.selection.staleness import STALE
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint

START = 1_709_287_200_000  # 2024-03-01 10:00, an even hour
LENGTH = 110 * 60_000
END = START + LENGTH

_ODD = (0.0, -0.0, 5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan, 0.1, 1e-7, 123456789.123)
_BOUNDS = ((0.1, 0.5, 1.0, 5.0), (0.5, 1.0, 2.0), (0.1, 0.5, 1.0, 5.0, 10.0))

Values = Iterator[float | Histogram]


def state(seed: int, *, delayed_names: bool) -> State:
    chance = random.Random(seed)
    series: dict[Labels, tuple[Sample, ...]] = {}
    for labels, make in _all(chance):
        times = _times(chance)
        values = make(chance)
        found = [Sample(time, value) for time, value in zip(times, values, strict=False) if value is not None]
        series[labels_of(labels)] = tuple(found)
    return State(Path(__file__), seed, dict(sorted(series.items())), delayed_names)


def _all(chance: random.Random) -> Iterator[tuple[Mapping[str, str], Callable[[random.Random], Values]]]:
    for job in "ab":
        for instance in ("x:1", "y:2", "z:3"):
            both = {"job": job, "instance": instance}
            for code in ("200", "404", "500"):
                yield {NAME: "requests_total", **both, "code": code}, _counter
            yield {NAME: "load", **both}, _few
            yield {NAME: "other", **both}, _few
            yield {NAME: "temperature", **both, "room": chance.choice("pqr")}, _odd_gauge
            yield {NAME: "started_total", **both}, _counter
            yield {NAME: "size", **both}, _exponential
            yield {NAME: "custom", **both}, _custom
            yield {NAME: "mixed", **both}, chance.choice((_mixed, _few, _exponential))
            yield {NAME: "target_info", **both, "version": chance.choice(("1.0", "2.0")), "region": "eu"}, _ones
            yield {NAME: "target_info", **both, "version": "3.0"}, _late_ones
            yield {NAME: "build_info", **both, "build": chance.choice(("red", "blue"))}, _ones
        yield {NAME: "load", "job": job}, _gauge
        yield {NAME: "job:load:mean", "job": job}, _gauge
        yield {NAME: "gauge_size", "job": job}, _gauge_histogram
        yield {NAME: "dotted.name", "job": job, "label.dotted": "é"}, _gauge
    yield from _classic()


def _classic() -> Iterator[tuple[Mapping[str, str], Callable[[random.Random], Values]]]:
    """Write bounds in several ways, some twice, some invalid; one histogram has no +Inf."""
    written = {
        ("a", "x:1"): ("0.1", "0.5", "1", "5", "+Inf"),
        ("a", "y:2"): ("0.10", "5e-1", "1.0", "1", "Inf"),
        ("b", "x:1"): ("0.1", "0.5", "1"),
        ("b", "y:2"): ("-1", "0", "1e3", "wrong", "+Inf"),
    }
    for (job, instance), bounds in written.items():
        for number, le in enumerate(bounds):
            labels = {NAME: "latency_bucket", "job": job, "instance": instance, "le": le}
            yield labels, partial(_counter, share=number + 1)
        yield {NAME: "latency_count", "job": job, "instance": instance}, _counter
        yield {NAME: "latency_sum", "job": job, "instance": instance}, _counter


def _times(chance: random.Random) -> list[int]:
    """Return irregular times with gaps; some series begin late or end early."""
    first = START + (chance.randrange(LENGTH // 2) if chance.random() < 0.2 else chance.randrange(60_000))
    last = END - (chance.randrange(LENGTH // 3) if chance.random() < 0.2 else 0)
    interval = chance.choice((60_000, 60_000, 61_000, 75_500))
    jitter = chance.choice((0, 3, 9000))
    times, time = [], first
    while time < last:
        times.append(time)
        time += interval + (chance.randint(-jitter, jitter) if jitter else 0)
        time += chance.choice((0,) * 30 + (240_000, 420_000))
    return times


# ---- numbers


def _counter(chance: random.Random, share: int = 1) -> Values:
    total, whole = float(chance.choice((0, 0, 1000))), chance.random() < 0.5
    while True:
        total += share * (chance.randrange(20) if whole else chance.random() * 3)
        if chance.random() < 0.02:
            total = chance.choice((0.0, 1.0, total / 3))
        yield STALE if chance.random() < 0.01 else total


def _gauge(chance: random.Random) -> Values:
    while True:
        yield chance.gauss(20, 10)


def _few(chance: random.Random) -> Values:
    """Return integers that often repeat."""
    while True:
        yield STALE if chance.random() < 0.02 else float(chance.randrange(5))


def _odd_gauge(chance: random.Random) -> Values:
    often = chance.choice((0.02, 0.3))
    while True:
        yield (
            STALE if chance.random() < 0.03 else chance.choice(_ODD) if chance.random() < often else chance.gauss(0, 5)
        )


def _ones(chance: random.Random) -> Values:
    while True:
        yield STALE if chance.random() < 0.01 else 1.0


def _late_ones(chance: random.Random) -> Values:
    for _ in range(70):
        yield None  # type: ignore[misc]
    yield from _ones(chance)


# ---- histograms


def _mixed(chance: random.Random) -> Values:
    numbers, histograms = _counter(chance), _exponential(chance)
    now = numbers
    while True:
        if chance.random() < 0.05:
            now = histograms if now is numbers else numbers
        yield next(now)


def _exponential(chance: random.Random) -> Values:
    """Return a counter with resets; now and then its schema or zero bucket changes."""
    schema, threshold = chance.choice((-2, -1, 0, 0, 1, 3)), chance.choice((0.0, 0.001, 0.5))
    whole, signed = chance.random() < 0.6, chance.random() < 0.4
    counts: dict[int, float] = {}
    below: dict[int, float] = {}
    zero, total = 0.0, 0.0
    while True:
        if chance.random() < 0.04:
            counts, below, zero, total = {}, {}, 0.0, 0.0
        if chance.random() < 0.02:
            counts, below, zero = {}, {}, 0.0
            schema, threshold = chance.choice((-1, 0, 1, 2)), chance.choice((0.0, 0.001, 2.0))
        if chance.random() < 0.01:
            counts, below, zero, total = {}, {}, 0.0, 0.0  # a new chunk may hold the same with other buckets
            yield STALE
        fresh = [1, -1][: 1 + signed] if not counts else []
        for sign in [*fresh, *([0] * chance.randrange(5))]:
            weight = float(chance.randrange(1, 4)) if whole else chance.random() * 2
            value = chance.lognormvariate(0, 2) * (sign or (-1 if signed and chance.random() < 0.4 else 1))
            value += 10 * sign  # out of the zero bucket
            total += value * weight
            if abs(value) <= threshold:
                zero += weight
            else:
                side = counts if value > 0 else below
                index = math.ceil(math.log2(abs(value)) * 2.0**schema)
                side[index] = side.get(index, 0.0) + weight
        count = math.fsum([*counts.values(), *below.values(), zero])
        yield Histogram(schema, count, total, threshold, zero, _buckets(counts), _buckets(below))


def _custom(chance: random.Random) -> Values:
    bounds, total = chance.choice(_BOUNDS), 0.0
    counts = [0.0] * (len(bounds) + 1)
    while True:
        if chance.random() < 0.04:
            counts, total = [0.0] * (len(bounds) + 1), 0.0
        if chance.random() < 0.02:
            bounds = chance.choice(_BOUNDS)
            counts = [0.0] * (len(bounds) + 1)
        for _ in range(chance.randrange(4)):
            counts[chance.randrange(len(counts))] += 1.0
            total += chance.random()
        buckets = _buckets({index: count for index, count in enumerate(counts) if count})
        yield Histogram(CUSTOM_BUCKETS, sum(counts), total, positive=buckets, custom_values=bounds)


def _gauge_histogram(chance: random.Random) -> Values:
    while True:
        counts = {index: chance.random() * 5 for index in range(-2, 4) if index == 0 or chance.random() < 0.7}
        below = {index: float(chance.randrange(1, 5)) for index in range(2) if index == 0 or chance.random() < 0.3}
        zero = float(chance.randrange(3))
        count = math.fsum([*counts.values(), *below.values(), zero])
        both = _buckets(counts), _buckets(below)
        yield Histogram(1, count, chance.gauss(0, 9), 0.01, zero, *both, reset_hint=ResetHint.GAUGE)


def _buckets(counts: Mapping[int, float]) -> BucketCounts:
    indexes = sorted(counts)
    return BucketCounts(np.array(indexes, np.int32), np.array([counts[index] for index in indexes], np.float64))
