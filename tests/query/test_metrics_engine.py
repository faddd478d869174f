"""PromQL over segments: one worker, three, and parts of the series give the same bits as the evaluation of all samples
at once; what is lost, damaged, too large or cancelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from lakerunner.model.errors import Busy, Corrupt, Lost, TooLarge, Unavailable, UserError
from lakerunner.model.labels import labels_text, value_of
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment, SegmentPick, TierPick
from lakerunner.model.tier import RAW
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import fingerprint_groups, may_hold
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import Limits as MetricsLimits
from lakerunner.promql.operators import Selection
from lakerunner.promql.parse import parse, parse_selector
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.promql.resolve import resolve
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.metrics.metric_segments import Blocks
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.series_answer import StepGroup
from lakerunner.query.worker import QueryWorker
from lakerunner.series.evaluation import blocks
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.evaluation.pieces import join_samples
from lakerunner.series.values import Samples, Scalar, Steps, Vector, sort_by_labels
from query.metric_lake import NS, T0, MetricLake, gauge, metric
from query.sample_lake import OWN
from suites.no_points import NoPoints
from suites.queries import metric_queries

MINUTE = 60_000
HOURS = Steps(T0 + 10 * MINUTE, T0 + 130 * MINUTE, 7 * MINUTE)
QUERIES = [
    "requests_total",
    "sum by (zone) (rate(requests_total[5m]))",
    "avg(requests_total)",
    "topk(3, increase(requests_total[20m]))",
    "quantile(0.9, requests_total)",
    "stddev by (zone) (delta(temperature[10m]))",
    "max_over_time(sum(rate(requests_total[5m]))[30m:3m])",
    "sum(rate(requests_total[5m])) / on() count(requests_total)",
    "requests_total - on (host) temperature",
    "histogram_quantile(0.9, sum by (le) (rate(latency_bucket[10m])))",
    "histogram_quantile(0.5, latency)",
    "sum(latency)",
    'count by (__name__) ({__name__=~".+"})',
    "absent(nothing_here)",
    "absent(requests_total)",
    'label_replace(requests_total, "h", "$1", "host", "(.).*") > 100',
    "requests_total @ 1704070800 offset 5m",
    "scalar(sum(requests_total)) + time()",
    "-sum by (host) (requests_total) or temperature",
    "sort_desc(sum by (host) (requests_total))",
    "count_values('v', round(temperature))",
    "min(temperature) < bool 20",
    "count by (__name__, host) (rate(requests_total[5m]))",
]
COLLIDING = [
    'sum(rate({__name__=~"requests_total|temperature"}[5m]))',
    'abs({__name__=~"requests_total|temperature"}) > 1e9',
    'max_over_time((2 * {__name__=~"requests_total|temperature"})[10m:5m])',
]


@dataclass
class Index(NoPoints):
    """A list of segments."""

    all: Sequence[Segment]

    @property
    def segments(self) -> Index:
        return self

    def pick(self, organization: UUID, signal: str, time: Any, *, conditions: Any = ()) -> SegmentPick:
        own = [s for s in self.all if (s.organization, s.signal) == (organization, signal) and s.time.overlaps(time)]
        groups = fingerprint_groups(signal, conditions)
        return SegmentPick(tuple(s for s in own if may_hold(s.fingerprints, groups)), len(own))

    def pick_tiers(self, organization: UUID, reach: Any, tier: int, *, conditions: Any = ()) -> TierPick:
        """Nothing is rolled up."""
        time = TimeRange((reach[0] + 1) * NS, (reach[1] + 1) * NS)
        picked = self.pick(organization, "metrics", time, conditions=conditions)
        return TierPick({RAW: (reach,)}, picked.segments, picked.considered)


class Named:
    """A worker with a name; `trouble` is raised in the place of its next answers."""

    def __init__(self, name: str, worker: QueryWorker) -> None:
        self.name = name
        self.asked = 0
        self.trouble: list[Exception] = []
        self._worker = worker

    def run(self, unit: Any) -> Any:
        self.asked += 1
        if self.trouble:
            raise self.trouble.pop()
        return self._worker.run(unit)


class Several:
    def __init__(self, workers: Sequence[Named]) -> None:
        self.workers = workers

    def here(self) -> Sequence[Any]:
        return self.workers


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> MetricLake:
    made = MetricLake(tmp_path_factory.mktemp("metrics"))
    draw = np.random.default_rng(7)
    for hour in range(3):
        times = [T0 + hour * 60 * MINUTE + n * MINUTE for n in range(60)]
        fills = []
        for host in range(11):
            where = {"host": f"h{host}", "zone": "ab"[host % 2]}
            counts = np.cumsum(draw.integers(0, 50, 60)) + (0 if host == 3 else hour * 1000)
            fills.append(_counter("requests", zip(times, counts.tolist(), strict=True), where))
            fills.append(
                gauge("temperature", list(zip(times, (15 + draw.random(60) * 10).tolist(), strict=True)), **where)
            )
        fills.append(metric("latency", partial(_histogram, times=times)))
        made.add(*fills)
    made.add(gauge("temperature", [(T0 + MINUTE, 1.0)], host="h0"), organization=uuid4())
    return made


def _counter(name: str, points: Any, labels: dict[str, str]) -> Any:
    def fill(one: Any) -> None:
        one.sum.is_monotonic = True
        one.sum.aggregation_temporality = 2
        for time, value in points:
            point = one.sum.data_points.add(time_unix_nano=time * NS, as_double=float(value))
            for key, text in labels.items():
                point.attributes.add(key=key).value.string_value = text

    return metric(name, fill)


def _histogram(one: Any, times: list[int]) -> None:
    one.histogram.aggregation_temporality = 2
    for n, time in enumerate(times):
        counts = [n, 2 * n, 3 * n]
        one.histogram.data_points.add(
            time_unix_nano=time * NS, count=sum(counts), sum=n * 1.5, explicit_bounds=[0.1, 1.0], bucket_counts=counts
        )


@pytest.fixture(scope="module")
def workers(lake: MetricLake) -> list[Named]:
    return [Named(name, _worker(lake, name)) for name in ("one", "two", "three")]


def _worker(lake: MetricLake, name: str) -> QueryWorker:
    limits = Limits("500MB", 30.0, 1000)
    sandboxes = Sandboxes(limits, threads=1, spill_directory=lake.directory / "spill")
    return QueryWorker(SegmentCache(lake.store, lake.directory / f"cache-{name}", 1 << 30), sandboxes)


def engine_of(lake: MetricLake, workers: Sequence[Named], **how: Any) -> MetricQueries:
    limits = MetricsLimits(**how.pop("limits", {}))
    return metric_queries(Index(how.pop("index", lake.segments)), Several(workers), limits, **how)


def asked(engine: MetricQueries, text: str, steps: Steps = HOURS, **how: Any) -> list[StepGroup]:
    instant = how.pop("instant", False)
    return list(engine.promql(how.pop("organization", OWN), PromqlQuestion(text, steps, instant, T0 * NS, **how)))


def shown(groups: Sequence[StepGroup]) -> dict[str, list[Any]]:
    """By labels: times and values, each with its bits."""
    found: dict[str, list[Any]] = {}
    for group in groups:
        value = group.value
        if isinstance(value, Scalar):
            value = Vector([()], value.values[None, :], np.ones((1, len(group.steps)), bool))
        assert isinstance(value, Vector)
        for row, labels in enumerate(value.labels):
            points = found.setdefault(labels_text(labels), [])
            for step in np.flatnonzero(value.present[row]).tolist():
                histogram = None if value.histograms is None else value.histograms[row, step]
                number = value.values[row, step : step + 1].tobytes() if histogram is None else repr(histogram)
                points.append((group.steps.start + step * group.steps.step, number))
    return found


class AllSamples:
    """Every sample at once, as the lake has them."""

    def __init__(self, lake: MetricLake) -> None:
        self._lake = lake

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        segments = [one for one in self._lake.segments if one.organization == OWN]
        return join_samples(list(Blocks(self._lake.metrics, segments, Selection(matchers, start, end))))


@pytest.mark.parametrize("text", QUERIES)
def test_one_worker_three_workers_and_parts_give_the_same_as_all_samples_at_once(
    text: str, lake: MetricLake, workers: list[Named]
) -> None:
    value, notes = evaluate(resolve(parse(text), HOURS, False), HOURS, AllSamples(lake), PROMQL)
    assert isinstance(value, Vector | Scalar)
    whole = shown([StepGroup(HOURS, sort_by_labels(value) if isinstance(value, Vector) else value)])
    alone = engine_of(lake, workers[:1])
    assert shown(asked(alone, text)) == whole
    few_rows = {"shard_rows": 400}
    in_parts = shown(asked(engine_of(lake, workers[:1], **few_rows), text))
    assert in_parts == shown(asked(engine_of(lake, workers, **few_rows), text))
    assert _close(in_parts, whole)
    answer = alone.promql(OWN, PromqlQuestion(text, HOURS, False, T0 * NS))
    list(answer)
    assert sorted(note.message for note in answer.notes) == sorted(note.message for note in notes.all())


@pytest.mark.parametrize("text", COLLIDING)
def test_series_that_are_the_same_without_their_names_are_found_whoever_has_them(
    text: str, lake: MetricLake, workers: list[Named]
) -> None:
    """By default; the names of delayed names are there until the aggregation or comparison is done."""
    for some, rows in ((workers[:1], 10**9), (workers, 400)):
        with pytest.raises(UserError, match="vector cannot contain metrics with the same labelset"):
            asked(engine_of(lake, some, shard_rows=rows), text)
        delayed = engine_of(lake, some, shard_rows=rows, delayed_names=True)
        if text.startswith("max"):
            with pytest.raises(UserError, match="vector cannot contain metrics with the same labelset"):
                asked(delayed, text)
        else:
            assert list(shown(asked(delayed, text))) == (["{}"] if text.startswith("sum") else [])


def test_stored_samples_of_several_selectors_have_each_series_once(lake: MetricLake, workers: list[Named]) -> None:
    name, host = Matcher("__name__", "=", "temperature"), Matcher("host", "=~", "h[12]")
    selectors, time = [(name, host), (name, Matcher("host", "=", "h1"))], (T0 + MINUTE, T0 + 4 * MINUTE)
    found = engine_of(lake, workers, shard_rows=400).samples(OWN, selectors, *time, T0 * NS)
    assert [value_of(labels, "host") for labels in found.samples.labels] == ["h1", "h2"]
    assert found.samples.times.tolist() == [T0 + n * MINUTE for n in range(1, 5)] * 2
    assert (found.notes, found.account.missing) == ((), ())
    few = engine_of(lake, workers, limits={"max_samples": 11})
    with pytest.raises(TooLarge, match="metrics_max_samples"):
        few.samples(OWN, selectors, *time, T0 * NS)


def _close(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    """The same but for the last bits of sums, which are made part by part."""
    return list(one) == list(other) and all(
        time == whole_time and (value == whole or np.isclose(np.frombuffer(value), np.frombuffer(whole), rtol=1e-15)[0])
        for labels in one
        for (time, value), (whole_time, whole) in zip(one[labels], other[labels], strict=True)
    )


@pytest.mark.parametrize("text", QUERIES)
def test_groups_of_time_put_together_are_the_whole_range(text: str, lake: MetricLake, workers: list[Named]) -> None:
    engine = engine_of(lake, workers)
    groups = asked(engine, text, streamed=True)
    assert len(groups) > 5
    assert [time for group in groups for time in group.steps.times.tolist()] == HOURS.times.tolist()
    assert dict(sorted(shown(groups).items())) == dict(sorted(shown(asked(engine, text)).items()))


def test_an_instant_may_be_a_range_of_samples(lake: MetricLake, workers: list[Named]) -> None:
    engine = engine_of(lake, workers)
    (group,) = asked(engine, 'temperature{host="h4"}[3m]', Steps(T0 + 10 * MINUTE, T0 + 10 * MINUTE), instant=True)
    assert isinstance(group.value, Samples)
    assert group.value.times.tolist() == [T0 + n * MINUTE for n in (8, 9, 10)]
    with pytest.raises(UserError, match='invalid expression type "range vector" for range query'):
        asked(engine, "temperature[3m]")


def test_a_subquery_between_two_of_its_steps_has_no_samples(lake: MetricLake, workers: list[Named]) -> None:
    between = Steps(T0 + 90_000, T0 + 90_000)
    assert shown(asked(engine_of(lake, workers), "max_over_time(temperature[10s:1m])", between)) == {}
    assert shown(asked(engine_of(lake, workers), "sum(max_over_time(temperature[10s:1m]))", between)) == {}


@pytest.mark.parametrize(
    ("text", "series"),
    [
        ("temperature @ 1e15", 0),
        ("temperature offset -290y", 0),
        ("temperature offset 290y", 0),
        ("rate(temperature[290y])", 11),
    ],
)
def test_times_far_away_are_times_without_samples(
    text: str, series: int, lake: MetricLake, workers: list[Named]
) -> None:
    assert len(shown(asked(engine_of(lake, workers), text))) == series


@pytest.mark.parametrize("text", [QUERIES[1], QUERIES[6], "temperature", "max_over_time(temperature[1h:1s])"])
def test_few_series_at_once_give_the_same(
    text: str, lake: MetricLake, workers: list[Named], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shown(asked(engine_of(lake, workers), text))
    monkeypatch.setattr(blocks, "POINTS_AT_ONCE", 40)
    assert _close(shown(asked(engine_of(lake, workers), text)), whole)


def test_another_organization_has_its_own_metrics_alone(lake: MetricLake, workers: list[Named]) -> None:
    engine = engine_of(lake, workers)
    other = lake.segments[-1].organization
    now = Steps(T0 + 2 * MINUTE, T0 + 2 * MINUTE)
    (group,) = asked(engine, '{__name__=~".+"}', now, instant=True, organization=other)
    assert isinstance(group.value, Vector)
    assert {labels_text(labels) for labels in group.value.labels} == {'temperature{host="h0"}'}
    assert shown(asked(engine, "temperature", now, organization=uuid4())) == {}


# What goes wrong


@pytest.fixture
def troubled(workers: list[Named]) -> Iterator[list[Named]]:
    yield workers
    for worker in workers:
        worker.trouble.clear()


def test_what_a_lost_or_busy_worker_should_have_done_others_do(lake: MetricLake, troubled: list[Named]) -> None:
    text = QUERIES[1]
    whole = shown(asked(engine_of(lake, troubled, shard_rows=400), text))
    troubled[0].trouble = [Lost("gone")]
    troubled[1].trouble = [Busy("full")]
    assert shown(asked(engine_of(lake, troubled, shard_rows=400), text)) == whole


def test_when_all_workers_are_lost_each_is_named(lake: MetricLake, troubled: list[Named]) -> None:
    for worker in troubled:
        worker.trouble = [Lost(f"{worker.name} is gone")] * 30
    with pytest.raises(Unavailable, match=r"no query worker is reachable: .*gone"):
        asked(engine_of(lake, troubled), QUERIES[1])


def test_a_damaged_segment_is_an_error_or_named_as_missing(lake: MetricLake, tmp_path: Path) -> None:
    whole = lake.segments[0]
    damaged = replace(whole, id=uuid4(), ingested=99)
    lake.store.put(damaged.path, b"PAR1 no such thing" * 100)
    segments = [*(one for one in lake.segments if one.organization == OWN), replace(damaged, bytes=1800)]
    worker = Named("alone", _worker(lake, str(tmp_path.name)))
    engine = engine_of(lake, [worker], index=segments)
    with pytest.raises(Corrupt, match=str(damaged.id)):
        asked(engine, "requests_total")
    answer = engine.promql(OWN, PromqlQuestion("requests_total", HOURS, False, T0 * NS, partial=True))
    assert shown(list(answer)) == shown(asked(engine_of(lake, [worker]), "requests_total"))
    (missing,) = answer.account.missing
    assert (missing.segments, str(damaged.id) in missing.reason) == (1, True)


def test_past_a_limit_the_query_is_refused_by_its_name(lake: MetricLake, workers: list[Named]) -> None:
    assert len(shown(asked(engine_of(lake, workers, limits={"max_series": 11}), "temperature"))) == 11
    with pytest.raises(TooLarge, match=r"more than 10 series \(metrics_max_series\)"):
        asked(engine_of(lake, workers, limits={"max_series": 10}), "temperature")
    points = 11 * len(HOURS)
    asked(engine_of(lake, workers, limits={"max_samples": points}), "temperature")
    with pytest.raises(TooLarge, match=rf"more than {points - 1} samples at once \(metrics_max_samples\)"):
        asked(engine_of(lake, workers, limits={"max_samples": points - 1}), "temperature")
    assert shown(asked(engine_of(lake, workers, limits={"max_series": 1}), "sum(temperature)"))
    with pytest.raises(TooLarge, match=r"more than 50,000,000 samples at once"):
        asked(engine_of(lake, workers), "max_over_time(temperature[100y:1ms])", Steps(T0, T0))


def test_what_is_past_any_limit_or_beyond_all_time(lake: MetricLake, workers: list[Named]) -> None:
    engine = engine_of(lake, workers)
    for text in ("max_over_time(sum(temperature)[10d:1ms])", "sum_over_time(sum_over_time(vector(1)[90y:1s])[90y:1s])"):
        with pytest.raises(TooLarge, match="metrics_max_samples"):
            asked(engine, text)
    for beyond in ("temperature offset -290y", "temperature @ 9e15", "temperature offset 290y"):
        assert shown(asked(engine, beyond)) == {}


def test_samples_of_all_parts_together_are_counted(lake: MetricLake, workers: list[Named]) -> None:
    """Each part alone is within the limit."""
    points = len(HOURS) * len(shown(asked(engine_of(lake, workers), "temperature")))
    in_parts = {"shard_rows": 400, "limits": {"max_samples": points - 1}}
    with pytest.raises(TooLarge, match="metrics_max_samples"):
        asked(engine_of(lake, workers, **in_parts), "temperature")


def test_a_query_that_takes_too_long_or_is_cancelled_ends(lake: MetricLake, workers: list[Named]) -> None:
    question = PromqlQuestion("sum(temperature)", HOURS, False, T0 * NS)
    late = engine_of(lake, workers, seconds=0.0).promql(OWN, question)
    with pytest.raises(UserError, match="stopped after 0 s: limit query_seconds"):
        list(late)
    answer = engine_of(lake, workers).promql(OWN, question)
    answer.close()
    with pytest.raises(UserError, match="cancelled"):
        list(answer)


# Lists


def test_lists_of_what_there_is(lake: MetricLake, workers: list[Named]) -> None:
    engine = engine_of(lake, workers)
    between = (T0, T0 + 200 * MINUTE)
    hosts = engine.label_values(OWN, "host", (), *between, limit=0, now_ns=0)
    assert (hosts.rows, hosts.truncated) == (sorted(f"h{n}" for n in range(11)), False)
    cut = engine.label_values(OWN, "host", (), *between, limit=2, now_ns=0)
    assert (cut.rows, cut.truncated) == (["h0", "h1"], True)
    zone = parse_selector('temperature{zone="a"}')
    assert engine.label_values(OWN, "host", [zone], *between, limit=0, now_ns=0).rows == [
        "h0",
        "h10",
        "h2",
        "h4",
        "h6",
        "h8",
    ]
    names = engine.label_names(OWN, (), *between, limit=0, now_ns=0).rows
    assert names == ["__name__", "host", "le", "zone"]
    series = engine.series(OWN, [parse_selector('requests_total{host="h1"}')], *between, limit=0, now_ns=0)
    assert [labels_text(labels) for labels in series.rows] == ['requests_total{host="h1", zone="b"}']
    told = engine.metadata(OWN, metric=None, limit=0, limit_per_metric=0, now_ns=(T0 + 100 * MINUTE) * NS).rows
    assert [(name, type_) for name, type_, _, _ in told][:2] == [
        ("latency", "histogram"),
        ("requests_total", "counter"),
    ]
