"""How many series there are: from the sketches beside rollups, from points where there are none yet, and the values of
labels; over several segments and workers, of one organization."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from lakerunner.model.errors import Corrupt, TooLarge, UserError
from lakerunner.model.hll import CARDINALITY, RELATIVE_ERROR, estimate, sketch
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, TIERS, source_of
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.promql.selection.staleness import STALE_BITS
from lakerunner.query import cardinality
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metric_answers import Cardinality, CardinalityQuestion, LabelCount
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.metrics import active
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker
from query.metric_lake import NS, MetricLake, gauge, label, metric, written
from query.rollup_oracle import RollupLake, points_of
from query.sample_lake import OWN
from suites.queries import metric_queries

T0 = 1_704_067_200_000  # a multiple of every tier
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LIMITS = CompactLimits(64 << 20, 1 << 30)
RESOURCE = {"service.name": "cart", "host.name": "h1"}


class Workers:
    def __init__(self, *workers: QueryWorker) -> None:
        self._workers = workers

    def here(self) -> tuple[QueryWorker, ...]:
        return self._workers


class Remote(QueryWorker):
    """A worker that units and answers travel to and from."""

    def run(self, unit: Any) -> Any:
        return Wire(super().run(Unit.from_bytes(unit.to_bytes())))


class Wire:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[Any]:
        return iter(self._answer)

    @property
    def account(self) -> Account:
        return self._answer.account

    def close(self) -> None:
        self._answer.close()


class Counted:
    """A lake whose raw segments are rolled up when they are told to be; two workers ask it."""

    def __init__(self, directory: Path) -> None:
        self.lake = MetricLake(directory)
        self.directory = directory
        self.index: Any = None

    def add(self, *fills: Callable[[Any], None], **how: Any) -> list[Segment]:
        made = self.lake.add(*fills, **how)
        return self._take(made)

    def write(self, *series: bytes) -> list[Segment]:
        return self._take(self.lake.add_written(*series))

    def _take(self, made: list[Segment]) -> list[Segment]:
        if self.index is None:
            self.index = RollupLake(self.lake)
            return made
        made = [replace(one, ingested=len(self.index.all) + n + 1) for n, one in enumerate(made)]
        self.index.all += made
        return made

    def roll(self, touched: list[Segment], upto: int = TIERS[-1]) -> list[Segment]:
        """Through all tiers up to this one."""
        address = StoreAddress((self.directory / "store").as_uri())
        for tier in (one for one in TIERS if one <= upto):
            first = touched[0]
            work = RollupWork(first.organization, first.collector, source_of(tier), tier, tuple(touched), ())
            sources = tuple(
                one
                for one in self.index.all
                if (one.frequency_ms, one.organization, one.collector)
                == (source_of(tier), first.organization, first.collector)
                and one.time.overlaps(work.span)
            )
            outcome = rollup_work(replace(work, sources=sources), address, LIMITS)
            assert outcome.error == ""
            made = [replace(one, ingested=len(self.index.all) + n + 1) for n, one in enumerate(outcome.segments)]
            self.index.roll(one.id for one in touched)
            self.index.all += made
            touched = made
        return touched

    def engine(self) -> MetricQueries:
        workers = []
        for name in ("one", "two"):
            sandboxes = Sandboxes(Limits("500MB", 60.0, 1000), threads=1, spill_directory=self.directory / name)
            cache = SegmentCache(self.lake.store, self.directory / f"cache-{name}", 1 << 30)
            worker = Remote(cache, sandboxes) if name == "two" else QueryWorker(cache, sandboxes)
            worker.name = name
            workers.append(worker)
        return metric_queries(self.index, Workers(*workers))

    def ask(
        self,
        name: str = "",
        start: int = T0,
        end: int = T0 + HOUR,
        step: int = HOUR,
        organization: UUID = OWN,
        **more: Any,
    ) -> Cardinality:
        question = CardinalityQuestion(name, start, end, step, (T0 + DAY) * NS, **more)
        return self.engine().cardinality(organization, question)


@pytest.fixture
def lake(tmp_path: Path) -> Counted:
    return Counted(tmp_path / "lake")


def pods(names: range | list[int], *minutes: float, metric: str = "http.requests", **more: str) -> list[Any]:
    times = [T0 + round(one * MINUTE) for one in minutes]
    return [gauge(metric, [(time, 1.0) for time in times], RESOURCE, pod=f"p{n}", **more) for n in names]


def by_window(answer: Cardinality) -> dict[str, tuple[int, ...]]:
    return {one.metric: one.by_window for one in answer.metrics}


def test_windows_come_from_the_widest_tier_that_is_whole(lake: Counted) -> None:
    rolled = lake.add(*pods(range(7), 1, 21), *pods(range(3), 31, metric="up"))
    lake.roll(rolled)
    lake.add(*pods(range(5, 9), 45))
    answer = lake.ask(step=10 * MINUTE)
    assert by_window(answer) == {"http.requests": (7, 0, 7, 0, 4, 0), "up": (0, 0, 0, 3, 0, 0)}
    assert [(one.metric, one.series, one.now, one.most) for one in answer.metrics] == [
        ("http.requests", 9, 0, 7),
        ("up", 3, 0, 3),
    ]
    # Of ten minutes five are the widest tier that divides them. Around the late points there are ever finer ones.
    tiers = [tiers for _, tiers in answer.windows]
    assert tiers == [(300_000,)] * 4 + [(300_000, 60_000, 10_000, RAW), (300_000,)]
    assert [end for end, _ in answer.windows] == [T0 + n * 10 * MINUTE for n in range(1, 7)]
    assert not answer.truncated
    hour = lake.ask()
    assert (by_window(hour), hour.windows) == (
        {"http.requests": (9,), "up": (3,)},
        ((T0 + HOUR, (300_000, 60_000, 10_000, RAW)),),
    )
    assert hour.metrics[0].now == 9


def test_now_is_a_window_that_is_over_by_now(lake: Counted) -> None:
    lake.add(*pods(range(7), 1), *pods(range(3), 61))
    question = CardinalityQuestion("", T0, T0 + 3 * HOUR, HOUR, (T0 + 90 * MINUTE) * NS)
    (counted,) = lake.engine().cardinality(OWN, question).metrics
    assert (counted.by_window, counted.now) == ((7, 3, 0), 7)


def test_what_has_expired_is_told_where_points_were_to_be_counted(lake: Counted) -> None:
    rolled = lake.add(*pods(range(7), 1, 21))
    lake.roll(rolled)
    lake.index.expire(RAW, (T0 + HOUR) * NS)
    hourly = lake.ask()
    assert (by_window(hourly), hourly.account.warnings) == ({"http.requests": (7,)}, set())
    lake.add(*pods(range(5, 9), 45))  # late, and so the points of its windows are read
    told = "points up to 2024-01-01 01:00:00 UTC have expired by retention: not all of them are counted"
    assert lake.ask().account.warnings == {told}


def test_tiers_and_points_give_the_same_sketches(lake: Counted) -> None:
    made = lake.add(*pods(range(40), 1, 2.5, 59.9), *pods(range(10, 50), 30, code="500"))
    from_points = lake.ask(step=10_000)
    lake.roll(made)
    from_tier = lake.ask(step=10_000)
    assert from_tier.metrics == from_points.metrics
    assert {from_points.windows[n][1] for n, series in enumerate(from_points.metrics[0].by_window) if series} == {
        (RAW,)
    }
    assert {tiers for _, tiers in from_tier.windows} == {(10_000,)}
    day = lake.ask(end=T0 + DAY, step=DAY)
    assert day.windows == ((T0 + DAY, (DAY,)),)
    assert day.metrics[0].by_window == (from_tier.metrics[0].series,) == (pytest.approx(80, abs=4),)


def test_a_series_of_two_segments_counts_once(lake: Counted) -> None:
    """Also where workers have one each, and where one segment is rolled up and the other is not."""
    lake.roll(lake.add(*pods(range(300), 1)))
    lake.roll(lake.add(*pods(range(100, 400), 2), collector="other"))
    answer = lake.ask("http.requests")
    assert answer.windows == ((T0 + HOUR, (HOUR,)),)
    assert answer.metrics[0].series == pytest.approx(400, rel=3 * RELATIVE_ERROR)
    lake.add(*pods(range(200, 300), 3))
    again = lake.ask("http.requests")
    assert again.windows == ((T0 + HOUR, (300_000, 60_000, 10_000, RAW)),)
    assert again.metrics == answer.metrics


def many(count: int, time: int) -> Callable[[Any], None]:
    def fill(one: Any) -> None:
        for n in range(count):
            point = one.gauge.data_points.add(time_unix_nano=time * NS, as_double=1.0)
            label(point, {"user": f"u{n}", "kind": str(n % 7)})

    return metric("sessions", fill, RESOURCE)


@pytest.mark.slow
def test_fifty_thousand_series(lake: Counted) -> None:
    made = lake.add(many(50_000, T0 + MINUTE))
    raw = lake.ask("sessions", step=MINUTE)
    assert abs(raw.metrics[0].series - 50_000) < 3 * RELATIVE_ERROR * 50_000
    assert raw.metrics[0].series != 50_000  # an estimate it is
    lake.roll(made, 60_000)
    rolled = lake.ask("sessions", step=MINUTE, labels=True)
    assert rolled.metrics == raw.metrics
    assert {tiers for _, tiers in rolled.windows} == {(60_000,)}
    users, *rest = rolled.labels
    assert (users.label, users.exact) == ("user", False)
    assert abs(users.values - 50_000) < 3 * RELATIVE_ERROR * 50_000
    assert LabelCount("series", "kind", 7, True) in rest


def test_values_of_labels_are_those_of_active_series(lake: Counted) -> None:
    rolled = lake.add(*pods(range(5), 1, code="200"), *pods(range(20, 28), 61, code="500"), *pods([1], 2, metric="up"))
    lake.roll(rolled)
    lake.add(*pods(range(3, 6), 4, code="404"), collector="other")
    counted = lake.ask("http.requests", labels=True).labels
    assert counted == (
        LabelCount("series", "pod", 6, True),
        LabelCount("series", "code", 2, True),
        LabelCount("resource", "host_name", 1, True),
        LabelCount("series", "job", 1, True),
        LabelCount("resource", "service_name", 1, True),
    )
    later = lake.ask("http.requests", T0 + HOUR, T0 + 2 * HOUR, labels=True)
    assert [(one.label, one.values) for one in later.labels][:2] == [("pod", 8), ("code", 1)]


def test_many_values_of_several_workers_are_estimated(lake: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "MOST_LISTED", 10)
    for part in range(8):
        lake.add(*pods(range(5 * part, 5 * part + 5 + part), part + 1))
    pod = next(one for one in lake.ask("http.requests", labels=True).labels if one.label == "pod")
    assert (pod.values, pod.exact) == (pytest.approx(47, abs=2), False)


def test_a_metric_goes_by_its_own_name_and_by_those_of_prometheus(lake: Counted) -> None:
    def latency(one: Any) -> None:
        one.histogram.aggregation_temporality = 2
        for route in ("/", "/pay"):
            point = one.histogram.data_points.add(time_unix_nano=(T0 + MINUTE) * NS, count=1, sum=1.0)
            point.explicit_bounds.append(1.0)
            point.bucket_counts.extend([1, 0])
            label(point, {"route": route})

    lake.roll(lake.add(*pods(range(4), 1), metric("lat", latency, RESOURCE, "s")))
    for name in ("http.requests", "http_requests"):
        assert by_window(lake.ask(name)) == {"http.requests": (4,)}
    for name in ("lat", "lat_seconds", "lat_seconds_bucket"):
        assert by_window(lake.ask(name)) == {"lat": (2,)}
    assert lake.ask("lat_bucket").metrics == lake.ask("nothing").metrics == ()


@pytest.mark.parametrize("kind", ["gauge", "sum", "histogram", "exponential_histogram", "summary"])
def test_stale_markers_are_no_samples(lake: Counted, kind: str) -> None:
    def gone(one: Any) -> None:
        points = getattr(one, kind)
        if kind not in ("gauge", "summary"):
            points.aggregation_temporality = 2
        for pod, minute, flags in (("a", 1, 0), ("a", 11, 1), ("b", 1, 1), ("b", 11, 0), ("c", 11, 1)):
            point = points.data_points.add(time_unix_nano=(T0 + minute * MINUTE) * NS, flags=flags)
            label(point, {"pod": pod})

    made = lake.add(metric("temp", gone))
    raw = lake.ask("temp", step=10 * MINUTE, labels=True)
    assert by_window(raw) == {"temp": (1, 1, 0, 0, 0, 0)}
    assert raw.labels == (LabelCount("series", "pod", 2, True),)
    lake.roll(made)
    rolled = lake.ask("temp", step=10 * MINUTE, labels=True)
    assert (rolled.metrics, rolled.labels) == (raw.metrics, raw.labels)
    assert rolled.windows[0][1] == (300_000,)


def test_what_prometheus_sent_counts_too(lake: Counted) -> None:
    """A NaN of one's own is a sample, Prometheus' own is a stale marker."""
    stale = float(np.array([STALE_BITS], np.uint64).view(np.float64)[0])
    values = {"one": 1.0, "nan": math.nan, "stale": stale}
    made = lake.write(*(written({"__name__": "up", "job": job}, [(T0 + MINUTE, v)]) for job, v in values.items()))
    raw = lake.ask("up", labels=True)
    assert (by_window(raw), raw.labels) == ({"up": (2,)}, (LabelCount("series", "job", 2, True),))
    lake.roll(made)
    rolled = lake.ask("up", labels=True)
    assert (rolled.metrics, rolled.labels) == (raw.metrics, raw.labels)
    assert rolled.windows == ((T0 + HOUR, (HOUR,)),)


def test_others_see_nothing(lake: Counted) -> None:
    lake.roll(lake.add(*pods(range(7), 1)))
    other = lake.ask("http.requests", organization=UUID(int=99), labels=True)
    assert (other.metrics, other.labels) == ((), ())
    assert lake.ask(organization=UUID(int=99)).metrics == ()


def test_the_metrics_with_the_most_series_are_listed(lake: Counted) -> None:
    lake.roll(lake.add(*(one for n in range(1, 6) for one in pods(range(n), 1, metric=f"m{n}"))))
    answer = lake.ask(limit=2)
    assert by_window(answer) == {"m5": (5,), "m4": (4,)}
    assert answer.truncated


def test_limits_are_refusals(lake: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add(*pods(range(2), 1, 11, 21))
    monkeypatch.setattr(cardinality, "MOST_CELLS", 2)
    with pytest.raises(TooLarge, match="more than 2 windows of metrics to count: name a metric"):
        lake.ask(step=10 * MINUTE)
    with pytest.raises(TooLarge, match="more than 11,000 windows"):
        lake.ask(end=T0 + 2 * DAY, step=10_000)
    with pytest.raises(UserError, match="windows of 10s: use a multiple"):
        lake.ask(step=15_000)
    with pytest.raises(UserError, match="name one"):
        lake.ask(labels=True)


def test_a_damaged_sketch_is_an_error(lake: Counted) -> None:
    (day,) = lake.roll(lake.add(*pods(range(7), 1)))
    path = lake.directory / "store" / day.side_path(CARDINALITY)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Corrupt, match=str(day.id)):
        lake.ask(end=T0 + DAY, step=DAY)


@pytest.mark.parametrize("seed", range(3))
def test_every_window_has_the_sketch_of_its_series(lake: Counted, seed: int) -> None:
    """Whatever is rolled up, and how far: the estimate is that of the series that had a sample, to the last bit."""
    draw = np.random.default_rng(seed)
    for _ in range(6):
        begin, chosen = int(draw.integers(0, 120)), draw.choice(30, 8, replace=False).tolist()
        fills = [one for n in chosen for one in pods([n], *(begin + draw.random(3) * 60).tolist())]
        made = lake.add(*fills, collector=str(draw.choice(["a", "b"])))
        if draw.random() < 0.7:
            lake.roll(made, int(draw.choice(TIERS)))
    raw = [one for one in lake.index.all if one.frequency_ms == RAW]
    active = [(time, source[1]) for source, of in points_of(lake.lake, raw).of.items() for time in of]
    for step in (MINUTE, 10 * MINUTE, HOUR, 90 * MINUTE):
        start = T0 + int(draw.integers(0, HOUR))
        answer = lake.ask("http_requests", start, start + 2 * HOUR, step)
        series = [{digest for time, digest in active if end - step < time <= end} for end, _ in answer.windows]
        (counted,) = answer.metrics
        assert counted.by_window == tuple(round(estimate(sketch(sorted(one)))) for one in series)
        assert counted.series == round(estimate(sketch(sorted(set().union(*series)))))
        assert answer.windows[0][0] - step <= start < answer.windows[0][0]
