"""Samples as Prometheus sees them: which point counts, in which order, under which labels."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.plan.plan import Shard
from lakerunner.promql.operators import Selection
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.metrics.metric_segments import Blocks
from query.metric_lake import ALL, EVERY, NS, T0, MetricLake, bits, gauge, metric, named, plain, prom, written
from query.sample_lake import OTHER


@pytest.fixture
def lake(tmp_path: Path) -> MetricLake:
    return MetricLake(tmp_path)


def test_points_of_one_series_in_many_segments_are_one_series(lake: MetricLake) -> None:
    for n in range(5):
        lake.add(gauge("up", [(T0 + 100 * n + k, float(n)) for k in range(0, 100, 25)], zone="a"))
    (found,) = lake.blocks(named("up"))
    assert list(found.labels) == [prom("up", zone="a")]
    assert found.times.tolist() == list(range(T0, T0 + 500, 25))
    assert found.values.tolist() == [float(n) for n in range(5) for _ in range(4)]
    assert found.starts is None
    assert found.histograms is None


def test_only_times_behind_the_start_up_to_the_end_are_there(lake: MetricLake) -> None:
    lake.add(gauge("up", [(T0 + n, n) for n in range(10)]))
    assert lake.samples(named("up"), (T0 + 3, T0 + 6)) == {prom("up"): [(T0 + n, float(n)) for n in (4, 5, 6)]}
    assert lake.samples(named("up"), (T0 + 10, T0 + 20)) == {}


@pytest.mark.parametrize(("first_is_later", "other"), [(False, "default"), (True, "default"), (True, "other")])
def test_of_two_values_of_one_time_the_one_ingested_later_counts(
    lake: MetricLake, first_is_later: bool, other: str
) -> None:
    """Of one collector; of two the one of the collector whose name is the later one."""
    lake.add(gauge("up", [(T0, 1.0), (T0 + 10, 2.0), (T0 + 20, 3.0)]))
    lake.add(gauge("up", [(T0 + 5, 7.0), (T0 + 10, 8.0), (T0 + 20, 3.0), (T0 + 30, 9.0)]), collector=other)
    if first_is_later:
        lake.segments[0] = replace(lake.segments[0], ingested=99)
    at_10 = 2.0 if first_is_later and other == "default" else 8.0
    expected = [(T0, 1.0), (T0 + 5, 7.0), (T0 + 10, at_10), (T0 + 20, 3.0), (T0 + 30, 9.0)]
    assert lake.samples(named("up")) == {prom("up"): expected}


def test_nanoseconds_are_cut_to_milliseconds_and_the_later_row_counts(lake: MetricLake) -> None:
    def fill(one: Any) -> None:
        for extra, value in ((0, 1.0), (999_999, 2.0), (1_000_000, 3.0)):
            one.gauge.data_points.add(time_unix_nano=T0 * NS + extra, as_double=value)

    lake.add(metric("up", fill))
    assert lake.samples(named("up")) == {prom("up"): [(T0, 2.0), (T0 + 1, 3.0)]}


def test_two_otlp_series_of_the_same_prometheus_labels_are_one(lake: MetricLake) -> None:
    """Of one ms the point of the later one in the order of segments counts, whenever it was ingested."""
    lake.add(gauge("a.b", [(T0, 1.0), (T0 + 20, 3.0)]), gauge("a_b", [(T0 + 10, 2.0), (T0 + 20, 3.0)]))
    lake.add(gauge("a.b", [(T0 + 10, 5.0), (T0 + 30, 6.0)]))
    own = [(T0, 1.0), (T0 + 10, 2.0), (T0 + 20, 3.0), (T0 + 30, 6.0)]
    assert lake.samples(named("a_b")) == {prom("a_b"): own}
    assert lake.samples(named("a.b")) == {prom("a.b"): [(T0, 1.0), (T0 + 10, 5.0), (T0 + 20, 3.0), (T0 + 30, 6.0)]}


def test_integers_past_53_bits_points_without_a_value_and_stale_markers(lake: MetricLake) -> None:
    def fill(one: Any) -> None:
        points = one.gauge.data_points
        points.add(time_unix_nano=T0 * NS, as_int=2**53 + 1)
        points.add(time_unix_nano=(T0 + 1) * NS, as_double=0.5)
        points.add(time_unix_nano=(T0 + 2) * NS)
        points.add(time_unix_nano=(T0 + 3) * NS, as_double=4.0, flags=1)

    lake.add(metric("odd", fill))
    expected = [(T0, float(2**53)), (T0 + 1, 0.5), (T0 + 2, 0.0), (T0 + 3, bits(float(STALE)))]
    assert lake.samples(named("odd")) == {prom("odd"): expected}


def test_what_prometheus_sent_is_seen_as_it_was_sent(lake: MetricLake) -> None:
    stale = float(STALE)
    lake.add_written(
        written({"__name__": "a.b", "job": "x", "_l": "1"}, [(T0, 1.5), (T0 + 1, stale)]),
        written({"__name__": "plain", "job": "x"}, [(T0, 2.0)]),
    )
    lake.add(gauge("c.d", [(T0, 1.0)], _l="1"))
    sent = {prom("a.b", job="x", _l="1"): [(T0, 1.5), (T0 + 1, bits(stale))]}
    assert lake.samples((Matcher("_l", "=", "1"),)) == sent
    assert lake.samples((Matcher("key_l", "=", "1"),)) == {prom("c_d", key_l="1"): [(T0, 1.0)]}
    assert lake.samples(named("a.b")) == sent
    assert lake.samples(named("a_b")) == {}
    assert lake.samples((Matcher("job", "=~", "x|y"), Matcher("__name__", "!~", "a.*"))) == {
        prom("plain", job="x"): [(T0, 2.0)]
    }


def test_delta_points_have_their_start_and_others_none(lake: MetricLake) -> None:
    def delta(one: Any) -> None:
        one.sum.aggregation_temporality, one.sum.is_monotonic = 1, True
        for n in range(3):
            one.sum.data_points.add(
                time_unix_nano=(T0 + 10 * n + 10) * NS, start_time_unix_nano=(T0 + 10 * n) * NS + 7, as_int=n
            )

    def total(one: Any) -> None:
        one.sum.aggregation_temporality, one.sum.is_monotonic = 2, True
        one.sum.data_points.add(time_unix_nano=T0 * NS, start_time_unix_nano=(T0 - 5) * NS, as_int=4)

    lake.add(metric("d", delta), metric("t", total))
    (found,) = lake.blocks((Matcher("__name__", "=~", "d_total|t_total"),))
    assert [dict(labels)["__name__"] for labels in found.labels] == ["d_total", "t_total"]
    assert found.starts is not None
    assert found.starts.tolist() == [T0, T0 + 10, T0 + 20, 0]
    (alone,) = lake.blocks(named("t_total"))
    assert alone.starts is None


def reference(points: list[tuple[int, Labels, int, float]]) -> dict[Labels, list[tuple[int, Any]]]:
    """The last of (order, labels, time, value) for each time."""
    found: dict[Labels, dict[int, float]] = {}
    for _, labels, time, value in sorted(points, key=lambda one: one[0]):
        found.setdefault(labels, {})[time] = value
    return {labels: sorted(samples.items()) for labels, samples in found.items()}


def random_lake(lake: MetricLake, seed: int) -> list[tuple[int, Labels, int, float]]:
    """Segments that overlap in time, series that come and go, values as integers and not."""
    chance = random.Random(seed)
    points = []
    for n in range(12):
        fills = []
        for series in range(20):
            if chance.random() < 0.3:
                continue
            name, zone = f"m.{series % 3}", str(series)
            begin = T0 + 50 * n - chance.choice([0, 0, 0, 80])
            times = sorted({begin + chance.randrange(60) for _ in range(chance.randrange(1, 15))})
            own = [(at, chance.choice([float(at - T0), chance.random()])) for at in times]
            fills.append(gauge(name, own, zone=zone))
            points += [(n, prom(name.replace(".", "_"), zone=zone), at, value) for at, value in own]
        lake.add(*fills)
    return points


def test_blocks_and_shards_together_are_the_whole(lake: MetricLake) -> None:
    points = random_lake(lake, 7)
    whole = reference(points)
    assert lake.samples(EVERY) == whole
    for most in (1, 40, 300):
        blocks = [plain(one) for one in lake.blocks(EVERY, most=most)]
        assert len(blocks) > 1
        assert {labels: samples for block in blocks for labels, samples in block.items()} == whole
        assert sum(map(len, blocks)) == len(whole)
    shards = [[plain(one) for one in lake.blocks(EVERY, shard=Shard(n, 3))] for n in range(3)]
    assert all(shards)
    listed = [labels for blocks in shards for block in blocks for labels in block]
    assert sorted(listed) == sorted(whole)
    fresh = lake.fresh()
    again = Blocks(fresh, lake.segments[::-1], Selection(EVERY, *ALL, Shard(1, 3)))
    assert [list(one.labels) for one in again] == [list(one.labels) for one in lake.blocks(EVERY, shard=Shard(1, 3))]


def test_every_range_of_time_gives_what_is_in_it(lake: MetricLake) -> None:
    whole = reference(random_lake(lake, 8))
    for start, end in ((T0, T0 + 100), (T0 + 123, T0 + 124), (T0 - 100, T0 + 333)):
        inside = {labels: [one for one in s if start < one[0] <= end] for labels, s in whole.items()}
        assert lake.samples(EVERY, (start, end)) == {labels: samples for labels, samples in inside.items() if samples}


def test_a_repeated_query_finds_its_layout(lake: MetricLake) -> None:
    lake.add(gauge("up", [(T0, 1.0)]))
    (first,), (second,) = lake.blocks(named("up")), lake.blocks(named("up"))
    assert first.labels is second.labels


def test_series_are_spread_over_row_groups(lake: MetricLake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakerunner.pipeline.steps import order

    monkeypatch.setattr(order, "ROW_GROUP_BYTES", 2000)
    points = [(T0 + n, float(n) + 0.5) for n in range(3000)]
    lake.add(gauge("a", points), gauge("b", points), gauge("c", points))
    assert lake.samples(named("b")) == {prom("b"): points}
    assert lake.samples(named("c"), (T0 + 1000, T0 + 1003)) == {prom("c"): points[1001:1004]}


def test_only_the_given_segments_are_read_and_organizations_are_apart(lake: MetricLake) -> None:
    lake.add(gauge("up", [(T0, 1.0)]))
    lake.add(gauge("up", [(T0, 2.0)]), organization=OTHER)
    own = Blocks(lake.metrics, lake.segments[:1], Selection(named("up"), *ALL))
    other = Blocks(lake.metrics, lake.segments[1:], Selection(named("up"), *ALL))
    assert [one.values.tolist() for one in own] == [[1.0]]
    assert [one.values.tolist() for one in other] == [[2.0]]
    with pytest.raises(ValueError, match="several organizations"):
        list(Blocks(lake.metrics, lake.segments, Selection(named("up"), *ALL)))


@pytest.mark.parametrize("name", ["parquet", "series.parquet"])
def test_a_damaged_file_is_named(lake: MetricLake, name: str) -> None:
    lake.add(gauge("up", [(T0 + n, n + 0.5) for n in range(500)]))
    (bad,) = lake.add(gauge("up", [(T0 + 1000 + n, n + 0.5) for n in range(500)]))
    path = lake.directory / "store" / bad.side_path(name)
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4)
    path.write_bytes(data)
    with pytest.raises(Corrupt, match=str(bad.id)) as caught:
        lake.blocks(named("up"))
    assert caught.value.segment == bad.id
    good = Blocks(lake.metrics, lake.segments[:1], Selection(named("up"), *ALL))
    assert [len(one.times) for one in good] == [500]


def test_the_account_says_what_was_read(lake: MetricLake) -> None:
    for n in range(3):
        lake.add(gauge("up", [(T0 + n, 1.0)]))
    lake.add(gauge("down", [(T0, 1.0)]))
    blocks = Blocks(lake.metrics, lake.segments, Selection(named("up"), T0, T0 + 2))
    assert [len(one.times) for one in blocks] == [2]
    assert blocks.account.read == 2
    assert blocks.account.pruned == {"series": 1, "statistics": 1}
    assert blocks.account.rows == 2
    assert np.isfinite(sum(blocks.account.seconds.values()))
