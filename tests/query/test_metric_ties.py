"""Several points of one series in one ms: the last by stored series, nanosecond, collector, ingest and row counts, in
whatever segments they are. So segments can be merged and no answer changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.list_series import exemplars_of, metadata_of, series_of
from lakerunner.query.metrics.metric_segments import Blocks
from query.metric_lake import ALL, EVERY, NS, T0, MetricLake, label, metric, named, plain, prom
from query.sample_lake import OWN

Points = Sequence[tuple[int, float]]  # ns since T0, value


@pytest.fixture
def lake(tmp_path: Path) -> MetricLake:
    return MetricLake(tmp_path)


def gauge(name: str, points: Points, **labels: str) -> Callable[[Any], None]:
    def fill(one: Any) -> None:
        for time, value in points:
            label(one.gauge.data_points.add(time_unix_nano=T0 * NS + time, as_double=value), labels)

    return metric(name, fill)


def values(lake: MetricLake, name: str) -> list[float]:
    ((_, samples),) = lake.samples(named(name)).items()
    return [value for _, value in samples]


def test_the_later_nanosecond_counts_whatever_was_ingested_later(lake: MetricLake) -> None:
    lake.add(gauge("up", [(500, 1.0), (NS + 1, 2.0)]))
    lake.add(gauge("up", [(400, 3.0), (NS + 2, 4.0)]))
    assert values(lake, "up") == [1.0, 4.0]


def test_the_collector_does_not_count_where_the_nanosecond_does(lake: MetricLake) -> None:
    lake.add(gauge("up", [(500, 1.0), (NS, 2.0)]), collector="a")
    lake.add(gauge("up", [(400, 3.0), (NS, 4.0)]), collector="b")
    assert values(lake, "up") == [1.0, 4.0]


def test_of_points_that_are_equal_but_for_one_between_them_the_last_counts(lake: MetricLake) -> None:
    """That the neighbours of both segments say the same does not tell which of the others is the last."""
    lake.add(gauge("up", [(900, 1.0)]))
    lake.add(gauge("up", [(100, 1.0), (200, 2.0)]))
    assert values(lake, "up") == [1.0]


def test_a_later_stored_series_counts_before_a_later_nanosecond(lake: MetricLake) -> None:
    lake.add(gauge("a_b", [(100, 1.0)]), gauge("a.b", [(900, 2.0)]))
    lake.add(gauge("a_b", [(50, 3.0)]))
    assert values(lake, "a_b") == [1.0]
    lake.add(gauge("a_b", [(150, 4.0)]))
    assert values(lake, "a_b") == [4.0]


def test_only_what_is_in_range_counts(lake: MetricLake) -> None:
    lake.add(gauge("up", [(n * NS + 5, float(n)) for n in range(6)]))
    lake.add(gauge("up", [(n * NS + 4, -1.0) for n in range(6)]))
    assert lake.samples(named("up"), (T0 + 1, T0 + 4)) == {prom("up"): [(T0 + n, float(n)) for n in (2, 3, 4)]}


def test_deltas_keep_the_start_of_the_point_that_counts(lake: MetricLake) -> None:
    def delta(extra: int, start: int, value: int) -> Callable[[Any], None]:
        def fill(one: Any) -> None:
            one.sum.aggregation_temporality, one.sum.is_monotonic = 1, True
            one.sum.data_points.add(
                time_unix_nano=T0 * NS + extra, start_time_unix_nano=(T0 - start) * NS, as_int=value
            )

        return metric("d", fill)

    lake.add(delta(9, 10, 7))
    lake.add(delta(8, 20, 7))  # the same number since another time
    (found,) = lake.blocks(named("d_total"))
    assert found.starts is not None
    assert (found.starts.tolist(), found.values.tolist()) == ([T0 - 10], [7.0])


# Merging


class Merging:
    """A lake that remembers what its segments were made of."""

    def __init__(self, lake: MetricLake) -> None:
        self.lake = lake
        self.data: list[bytes] = []

    def add(self, fills: Sequence[Callable[[Any], None]], collector: str) -> None:
        request = ExportMetricsServiceRequest()
        for fill in fills:
            fill(request)
        self.data.append(request.SerializeToString())
        assert len(self.lake.add_data(self.data[-1], collector=collector)) == 1

    def merged(self, places: Sequence[int]) -> list[Segment]:
        """With one segment instead of these, which holds their rows in the segment's order, equal ones in theirs."""
        segments = self.lake.segments
        raws = [
            Raw(SourceObject("b", f"{n:04}.otlp", "etag", len(self.data[n]), T0 * NS), memoryview(self.data[n]), "otlp")
            for n in places
        ]
        (made,) = make_segments(METRICS, OWN, segments[places[0]].collector, raws, self.lake.store.put).segments
        assert made.rows == sum(segments[n].rows for n in places)
        made = replace(made, ingested=max(segments[n].ingested for n in places))
        return [*(one for n, one in enumerate(segments) if n not in places), made]


def random_fills(chance: random.Random) -> list[Callable[[Any], None]]:
    """Of every kind, in a few ms, so that many points meet."""

    def times() -> list[int]:
        return [chance.randrange(8) * NS + chance.choice([0, 1, 2, 999_999]) for _ in range(chance.randrange(1, 7))]

    def number() -> float:
        return chance.choice([0.0, -0.0, 1.0, 2.0, 2.5, float(chance.randrange(100)), float("nan")])

    def fill_gauge(one: Any) -> None:
        for time in times():
            point = one.gauge.data_points.add(time_unix_nano=T0 * NS + time, flags=int(chance.random() < 0.1))
            if chance.random() < 0.5:
                point.as_int = chance.randrange(3) * 2**53 + 1
            else:
                point.as_double = number()
            label(point, {"zone": chance.choice("ab")})

    def fill_sum(one: Any) -> None:
        one.sum.aggregation_temporality, one.sum.is_monotonic = chance.choice([(1, True), (2, True)])
        for time in times():
            start = T0 * NS + time - chance.randrange(5) * NS
            one.sum.data_points.add(time_unix_nano=T0 * NS + time, start_time_unix_nano=start, as_double=number())

    def fill_histogram(one: Any) -> None:
        one.histogram.aggregation_temporality = 2
        for time in times():
            counts = [chance.randrange(9) for _ in range(3)]
            point = one.histogram.data_points.add(
                time_unix_nano=T0 * NS + time, count=sum(counts), bucket_counts=counts
            )
            point.explicit_bounds.extend(chance.choice([[1.0, 2.0], [1.0, 5.0], [2.0, float("inf")]]))
            if chance.random() < 0.7:
                point.sum = number()
            exemplar = point.exemplars.add(time_unix_nano=T0 * NS + chance.randrange(2) * NS, as_double=chance.random())
            exemplar.span_id = chance.randbytes(8)

    def fill_summary(one: Any) -> None:
        for time in times():
            point = one.summary.data_points.add(time_unix_nano=T0 * NS + time, count=chance.randrange(9), sum=number())
            for quantile in (0.5, chance.choice([0.9, 0.99])):
                point.quantile_values.add(quantile=quantile, value=number())

    named_fills = [("a.b", fill_gauge), ("a_b", fill_gauge), ("c.d", fill_sum), ("h", fill_histogram)]
    named_fills += [("s", fill_summary), ("s", fill_gauge), ("h_bucket", fill_gauge)]
    resource = {"service.name": "x", "host": chance.choice("12")}
    some = chance.sample(named_fills, chance.randrange(2, len(named_fills) + 1))
    return [
        metric(name, fill, resource if chance.random() < 0.8 else (), chance.choice(["", "s"])) for name, fill in some
    ]


def random_merging(lake: MetricLake, chance: random.Random) -> Merging:
    made = Merging(lake)
    for _ in range(chance.randrange(3, 9)):
        made.add(random_fills(chance), chance.choice(["east", "west"]))
    return made


def listed(lake: MetricLake, segments: Sequence[Segment]) -> Any:
    metrics = lake.fresh()
    classic = (Matcher("__name__", "=~", "h|h_.*|c.*"),)
    exemplars = dict(exemplars_of(metrics, segments, classic, T0 - 100, T0 + 100))
    metadata = {family for segment in segments for family in metadata_of(metrics, [segment])}
    series = set(series_of(metrics, segments, EVERY, *ALL))
    return exemplars, metadata, series


_MANY = [pytest.param(n, marks=pytest.mark.slow) for n in range(8, 100) if n != 40]


@pytest.mark.parametrize("seed", [*range(8), 40, *_MANY])
def test_merged_segments_give_the_same_samples_to_the_last_bit(lake: MetricLake, seed: int) -> None:
    chance = random.Random(seed)
    made = random_merging(lake, chance)
    own = [n for n, one in enumerate(lake.segments) if one.collector == lake.segments[0].collector]
    first = chance.randrange(len(own))
    segments = made.merged(own[first : first + chance.randrange(1, len(own) + 1)])
    chance.shuffle(segments)
    for between in (ALL, (T0 + 1, T0 + 5)):
        whole, merged = (
            list(Blocks(lake.fresh(), some, Selection(EVERY, *between))) for some in (lake.segments, segments)
        )
        assert [repr(plain(one)) for one in merged] == [repr(plain(one)) for one in whole]
        assert [one.starts is None for one in merged] == [one.starts is None for one in whole]
        for one, other in zip(whole, merged, strict=True):
            assert one.starts is None or (other.starts is not None and np.array_equal(one.starts, other.starts))
    assert listed(lake, segments) == listed(lake, lake.segments)


@pytest.mark.parametrize("seed", range(10))
def test_numbers_are_those_of_the_last_row_by_the_rule(lake: MetricLake, seed: int) -> None:
    """As the rows of the segments say, sorted."""
    chance = random.Random(seed)
    for _ in range(6):
        fills = [
            gauge(name, [(chance.randrange(5 * NS), chance.random()) for _ in range(9)], zone=chance.choice("ab"))
            for name in ("a.b", "a_b")
        ]
        lake.add(*fills, collector=chance.choice(["east", "west"]))
    rows = []
    for segment in lake.segments:
        table = pq.read_table(lake.directory / "store" / segment.path)
        columns = [table["timestamp"].cast(pa.int64()), *(table[name] for name in ("attributes.zone", "value"))]
        keys = zip(*(table[name].to_pylist() for name in ("metric_name", "series")), strict=True)
        points = zip(*(column.to_pylist() for column in columns), strict=True)
        for n, ((name, series), (time, zone, value)) in enumerate(zip(keys, points, strict=True)):
            rows.append((name, series, time, segment.collector, segment.ingested, n, zone, value))
    wanted: dict[Any, dict[int, float]] = {}
    for _, _, time, _, _, _, zone, value in sorted(rows):
        wanted.setdefault(prom("a_b", zone=zone), {})[time // NS] = value
    assert lake.samples(named("a_b")) == {labels: sorted(samples.items()) for labels, samples in wanted.items()}
