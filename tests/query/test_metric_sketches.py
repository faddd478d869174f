"""sketch_over_time: the sketches of rollups as native histograms, the same as those of points, within their limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Corrupt, TooLarge
from lakerunner.model.tier import RAW, TIERS
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import Limits as MetricsLimits
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.query.metrics.rollup_rows import stored_columns
from lakerunner.series.evaluation.tiers import choose_tier
from lakerunner.series.histograms.histogram import HISTOGRAM_POINTS, Histogram, ResetHint
from lakerunner.series.values import Steps
from query.metric_lake import MetricLake
from query.rollup_oracle import points_of, rolled_up
from query.tiered_lake import MINUTE, T0, Tiered, ask, roll_tier, same_histograms, series, tiered
from suites.sketch_oracle import bucket

Points = list[tuple[int, float | None]]
STEPS = Steps(T0 + 2 * MINUTE, T0 + 12 * MINUTE, MINUTE)
WIDTH = 2 ** (1 / 64) - 1  # of a bucket, by its lower end: 1.09 %
LEAST = 5e-324
ODD = [0.0, -0.0, LEAST, -LEAST, 2.2e-308, 1.0, -2.0, 1.7e308, -1.7e308, math.nan, math.inf, -math.inf]
QUANTILES = ("0", "0.25", "0.5", "0.9", "0.99", "1")
TAME = st.floats(-1e250, 1e250) | st.floats(0.001, 100).map(lambda value: round(value, 3)) | st.sampled_from(ODD[:7])
WILD = st.floats() | st.sampled_from(ODD)


def points(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[int, float, bool]]]:
    """Times in ms since T0, values, and whether they come late."""
    some = st.tuples(st.integers(1, 12 * MINUTE), values, st.booleans())
    return st.lists(some, min_size=1, max_size=40, unique_by=lambda one: one[0])


@settings(max_examples=6, phases=[Phase.generate])  # to shrink one takes minutes
@given(tame=points(TAME), wild=points(WILD))
def test_windows_give_the_sketch_of_the_points(
    tame: list[tuple[int, float, bool]], wild: list[tuple[int, float, bool]]
) -> None:
    every = {"tame": [(T0 + at, value) for at, value, _ in tame], "wild": [(T0 + at, value) for at, value, _ in wild]}
    with TemporaryDirectory() as directory:
        lake = MetricLake(Path(directory) / "lake")
        made = tiered(lake)
        for late in (False, True):  # what comes late makes windows anew
            shares = {
                name: [(T0 + at, value) for at, value, is_late in own if is_late == late]
                for name, own in (("tame", tame), ("wild", wild))
            }
            if any(shares.values()):
                made.index.all += lake.add(*(series(name, sorted(own), False) for name, own in shares.items() if own))
            for tier in TIERS[:2]:
                roll_tier(made.index, tier)
        for name, own in every.items():
            _check(made, name, sorted(own), may_be_raw=name == "wild")


def _check(made: Tiered, name: str, own: Sequence[tuple[int, float]], *, may_be_raw: bool) -> None:
    text = f"sketch_over_time({name}[2m])"
    found, answer = ask(made, text, STEPS, raw=False)
    from_points, _ = ask(made, text, STEPS, raw=True)
    assert sorted(found) == sorted(from_points)
    assert may_be_raw or {read.tier for read in answer.reads} == {MINUTE}
    inside = {at: [v for t, v in own if at - 2 * MINUTE < t <= at] for at in STEPS.times.tolist()}
    samples = {at: values for at, values in inside.items() if values}
    assert [at for of in found.values() for at, _ in of] == list(samples)
    for labels, of in found.items():
        same_histograms([one for _, one in of], [one for _, one in from_points[labels]])
        for at, histogram in of:
            _is_sketch(histogram, samples[at])
    quantiles, _ = ask(made, f'histogram_quantiles({text}, "q", {", ".join(QUANTILES)})', STEPS, raw=False)
    assert len(quantiles) == len(QUANTILES) * len(found)
    for labels, of in quantiles.items():
        q = float(labels.split('"')[1])
        for at, quantile in of:
            _is_quantile(quantile, q, sorted(value for value in samples[at] if math.isfinite(value)))


def _is_sketch(histogram: Histogram, values: Sequence[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    assert (histogram.schema, histogram.count, histogram.zero_threshold) == (6, len(finite), 0)
    assert histogram.zero_count == finite.count(0.0)
    assert histogram.reset_hint == ResetHint.GAUGE
    for side, own in (
        (histogram.positive, [value for value in finite if value > 0]),
        (histogram.negative, [value for value in finite if value < 0]),
    ):
        expected = Counter(bucket(value) + 1 for value in own)
        assert dict(zip(side.indexes.tolist(), side.counts.tolist(), strict=True)) == expected
    magnitude = sum(map(abs, finite))
    if math.isfinite(magnitude):
        assert histogram.sum == pytest.approx(math.fsum(finite), rel=1e-12, abs=1e-14 * magnitude)


def _is_quantile(found: float, q: float, ordered: Sequence[float]) -> None:
    """Within a bucket of a sample of that rank, or of the next where the rank lies between two."""
    if not ordered:
        assert math.isnan(found)
        return
    rank = q * len(ordered)
    places = {math.ceil(rank - 1e-9) - 1, math.floor(rank + 1e-9)}
    near = [ordered[min(max(place, 0), len(ordered) - 1)] for place in places]
    if math.isinf(found):  # of the last bucket Prometheus' arithmetic goes past the greatest double
        assert max(map(abs, near)) > 1.77e308
        return
    assert any(abs(found - one) <= 1.001 * WIDTH * abs(one) + 2 * LEAST for one in near), (found, q, near)


# What is read


def test_only_this_function_reads_sketches() -> None:
    steps = Steps(T0, T0 + 10 * MINUTE, 5 * MINUTE)
    read = {}
    for function in FUNCTIONS.values():
        if function.from_buckets is not None:
            candidate = choose_tier(resolve(parse(f"{function.name}(up[5m])"), steps, False), steps, PROMQL).candidate
            assert candidate is not None
            read[function.name] = {"count", "zero_count", "positive", "negative"} & set(stored_columns(candidate.facts))
    assert read.pop("sketch_over_time") == {"count", "zero_count", "positive", "negative"}
    assert len(read) == 13
    assert not any(read.values())


def oracle_lake(directory: Path, own: Points, limit: int = 50_000_000, **wrong: Any) -> Tiered:
    """All of it in windows of 10 s to 5 min; `wrong` stands in each of the widest."""
    lake = MetricLake(directory)
    lake.add(series("up", own, False))
    made = tiered(lake, limits=MetricsLimits(max_samples=limit))
    found = points_of(lake, lake.segments)
    made.index.roll(one.id for one in lake.segments)
    for tier in TIERS[:3]:
        rows = rolled_up(found, tier, lambda *_: True)
        last = tier == TIERS[2]
        segments = made.index.add(tier, found, {key: row | wrong if last else row for key, row in rows.items()})
        if not last:
            made.index.roll(one.id for one in segments)
    return made


FIVE = Steps(T0 + 5 * MINUTE, T0 + 20 * MINUTE, 5 * MINUTE)


def test_nan_among_the_samples_is_told_and_made_of_points(tmp_path: Path) -> None:
    """They are in no bucket, but in the sum of a window: that of the others must come from points."""
    own: Points = [(T0 + n * 10_000, math.nan if n == 40 else float(n)) for n in range(1, 120)]
    made = oracle_lake(tmp_path / "lake", own)
    _, answer = ask(made, "sketch_over_time(up[5m])", Steps(FIVE.start, FIVE.start), raw=False)
    assert answer.reads[0].tier == 5 * MINUTE  # no such sample there
    found, answer = ask(made, "sketch_over_time(up[5m])", FIVE, raw=False)
    ((_, histograms),) = ((labels, [one for _, one in of]) for labels, of in found.items())
    assert [one.count for one in histograms] == [30, 29, 30, 29]
    assert [one.sum for one in histograms] == [465, 1365 - 40, 2265, sum(range(91, 120))]
    (read,) = answer.reads
    assert (read.tier, read.reason) == (
        RAW,
        "some samples are NaN or infinite, and rollups do not have the sum of the others",
    )


def test_the_number_of_buckets_that_are_read_is_limited(tmp_path: Path) -> None:
    """Two numbers far apart: what comes of them is small, what a window holds of them is not."""
    own: Points = [(T0 + 60_000, 1e-100), (T0 + 70_000, 1e100)]
    instant = Steps(T0 + 5 * MINUTE, T0 + 5 * MINUTE)
    buckets = bucket(1e100) - bucket(1e-100) + 1
    made = oracle_lake(tmp_path / "enough", own, buckets)
    found, answer = ask(made, "sketch_over_time(up[5m])", instant, raw=False)
    assert [one.count for of in found.values() for _, one in of] == [2]
    assert answer.reads[0].tier == 5 * MINUTE
    for number, limit in enumerate((buckets - 1, 1000)):  # by what is read, and by what the footer says
        made = oracle_lake(tmp_path / f"less-{number}", own, limit)
        with pytest.raises(TooLarge, match=rf"more than {limit:,} samples at once \(metrics_max_samples\)"):
            ask(made, "sketch_over_time(up[5m])", instant, raw=False)
        assert ask(made, "count_over_time(up[5m])", instant, raw=False)[0]


@pytest.mark.parametrize("raw", [False, True])
def test_histograms_count_by_their_size(raw: bool, tmp_path: Path) -> None:
    own: Points = [(T0 + n * 10_000, 1.02**n) for n in range(1, 120)]
    text = "sketch_over_time(up[5m])"
    points = 4 + 4 * HISTOGRAM_POINTS + 119  # four samples, each a histogram, and every number in a bucket of its own
    (histograms,) = ask(oracle_lake(tmp_path / "enough", own, points), text, FIVE, raw=raw)[0].values()
    assert [len(one.positive) for _, one in histograms] == [30, 30, 30, 29]
    with pytest.raises(TooLarge, match=rf"more than {points - 1} samples at once \(metrics_max_samples\)"):
        ask(oracle_lake(tmp_path / "less", own, points - 1), text, FIVE, raw=raw)


def test_a_sketch_that_contradicts_itself_is_corrupt(tmp_path: Path) -> None:
    own: Points = [(T0 + n * 10_000, float(n)) for n in range(1, 120)]
    made = oracle_lake(tmp_path / "lake", own, zero_count=3)
    with pytest.raises(Corrupt, match="the bucket counts of a sketch do not add up to its count"):
        ask(made, "sketch_over_time(up[5m])", FIVE, raw=False)
    assert ask(made, "sum_over_time(up[5m])", FIVE, raw=False)[1].reads[0].tier == 5 * MINUTE
