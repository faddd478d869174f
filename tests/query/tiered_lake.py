"""A lake with rollups beside its segments, and an engine that asks it: from windows, and from points alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lakerunner.model.labels import labels_text
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIERS, source_of
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from lakerunner.series.histograms.histogram import Histogram, equal
from lakerunner.series.values import Scalar, Steps, Vector
from query.metric_lake import NS, MetricLake, metric
from query.rollup_oracle import RollupLake, points_of, rolled_up
from query.sample_lake import OWN
from suites.queries import metric_queries

T0 = 1_704_067_200_000  # a multiple of every tier
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NUMBERS: list[tuple[int, float | None]] = [(T0 + n * 10_000, float(n % 50)) for n in range(120)]
STEPS = Steps(T0 + 10 * MINUTE, T0 + 20 * MINUTE, 5 * MINUTE)


@dataclass
class Tiered:
    index: RollupLake
    engine: MetricQueries


def tiered(lake: MetricLake, **how: Any) -> Tiered:
    index = RollupLake(lake)
    sandboxes = Sandboxes(Limits("500MB", 60.0, 1000), threads=1, spill_directory=lake.directory / "spill")
    worker = QueryWorker(SegmentCache(lake.store, lake.directory / "cache-tiers", 1 << 30), sandboxes)
    return Tiered(index, metric_queries(index, OneWorker(worker), **how))


def series(name: str, points: list[tuple[int, float | None]], counter: bool, **labels: str) -> Any:
    def fill(one: Any) -> None:
        if counter:
            one.sum.is_monotonic = True
            one.sum.aggregation_temporality = 2
        for time, value in points:
            where = one.sum if counter else one.gauge
            point = where.data_points.add(time_unix_nano=time * NS, as_double=value or 0.0, flags=int(value is None))
            for key, text in labels.items():
                point.attributes.add(key=key).value.string_value = text

    return metric(name, fill)


def roll_up(index: RollupLake, draw: np.random.Generator) -> None:
    """In two rounds: what the first one leaves comes late, and some of it never."""
    for share in (0.8, 0.9):
        for tier in TIERS:
            roll_tier(index, tier, _taking(share, draw))


def _taking(share: float, draw: np.random.Generator) -> Callable[[Segment], bool]:
    return lambda _: draw.random() < share


def roll_tier(index: RollupLake, tier: int, taken: Callable[[Segment], bool] = lambda _: True) -> None:
    """By the pipeline's own code, what is not rolled up yet."""
    address = StoreAddress((index.lake.directory / "store").as_uri())
    sources = [one for one in index.all if one.frequency_ms == source_of(tier)]
    touched = [one for one in sources if not one.rolled and taken(one)]
    if not touched:
        return
    sources.sort(key=lambda one: one.ingested)
    work = RollupWork(OWN, "default", source_of(tier), tier, tuple(touched), tuple(sources))
    outcome = rollup_work(work, address, CompactLimits(64 << 20, 1 << 30))
    assert not outcome.error
    index.all += [replace(one, ingested=len(index.all) + n + 1) for n, one in enumerate(outcome.segments)]
    index.roll(one.id for one in touched)


def ask(made: Tiered, text: str, steps: Steps, raw: bool, **how: Any) -> tuple[dict[str, list[Any]], Any]:
    instant = len(steps) == 1
    answer = made.engine.promql(OWN, PromqlQuestion(text, steps, instant, T0 * NS, raw=raw, **how))
    found: dict[str, list[Any]] = {}
    for group in answer:
        value = group.value
        if isinstance(value, Scalar):
            value = Vector([()], value.values[None, :], np.ones((1, len(group.steps)), bool))
        assert isinstance(value, Vector)
        for row, labels in enumerate(value.labels):
            for step in np.flatnonzero(value.present[row]).tolist():
                at = group.steps.start + step * group.steps.step
                sample = value.values[row, step] if value.histograms is None else value.histograms[row, step]
                found.setdefault(labels_text(labels), []).append((at, sample))
    return found, answer


def same(one: dict[str, list[Any]], other: dict[str, list[Any]], exact: bool) -> None:
    assert sorted(one) == sorted(other)
    for labels, points in one.items():
        times, values = zip(*points, strict=True)
        other_times, other_values = zip(*other[labels], strict=True)
        assert times == other_times, labels
        if any(isinstance(one, Histogram) for one in (*values, *other_values)):
            same_histograms(values, other_values)
        elif exact:
            np.testing.assert_array_equal(values, other_values, labels)
        else:
            np.testing.assert_allclose(values, other_values, rtol=1e-12, atol=1e-9, err_msg=labels)


def same_histograms(some: Sequence[Histogram], others: Sequence[Histogram]) -> None:
    """Every count to the bit; sums as near as rounding lets them be."""
    for one, other in zip(some, others, strict=True):
        assert equal(replace(one, sum=0.0), replace(other, sum=0.0)), (one, other)
        assert one.reset_hint == other.reset_hint
        np.testing.assert_allclose(one.sum, other.sum, rtol=1e-12, atol=1e-9)


def small(
    directory: Path, *fills: Any, tiers: tuple[int, ...] = TIERS[:3], collectors: tuple[str, ...] = ("default",)
) -> Tiered:
    """All of it is rolled up."""
    lake = MetricLake(directory)
    for collector in collectors:
        lake.add(*fills, collector=collector)
    made = tiered(lake)
    points = points_of(lake, lake.segments)
    made.index.roll(one.id for one in lake.segments)
    for tier in tiers:
        segments = made.index.add(tier, points, rolled_up(points, tier, lambda *_: True))
        if tier != tiers[-1]:
            made.index.roll(one.id for one in segments)
    return made


def delta(name: str) -> Any:
    def fill(one: Any) -> None:
        one.sum.aggregation_temporality = 1
        for time, value in NUMBERS:
            one.sum.data_points.add(
                time_unix_nano=time * NS, start_time_unix_nano=(time - 10_000) * NS, as_double=value or 0
            )

    return metric(name, fill)
