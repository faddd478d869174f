"""Parts add up: however they are spread over segments and collectors, merged and rolled up, PromQL sees what a plain
model makes of the rows that stay."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.model.sketch import bucket_of
from lakerunner.model.tier import RAW, TIERS
from lakerunner.pipeline.compact import CompactLimits, CompactWork, merge_segments
from lakerunner.pipeline.rollup import buckets
from lakerunner.pipeline.rollup.parts import add_rows
from lakerunner.pipeline.rollup_job import RollupWork, write_buckets
from lakerunner.series.histograms.histogram import Histogram
from pipeline.windows_oracle import PREFIX, Row, rows_of
from query.metric_lake import T0, MetricLake, gauge, label, metric, named
from query.sample_lake import OWN
from suites.rule_parts import COLLECTOR, Key, PartRow, write_parts

LIMITS = CompactLimits(64 << 20, 1 << 30)
WHOLE = st.integers(0, 10**6).map(float)
ANY = st.one_of(WHOLE, st.floats(0, 1e6), st.sampled_from([0.0, 0.1, 1e-300, 1e12 + 0.3]))


@pytest.fixture
def lake(tmp_path: Path) -> PartLake:
    return PartLake(tmp_path / "lake")


class PartLake(MetricLake):
    """A lake of parts, whose segments are merged and rolled up."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.rolled: set[UUID] = set()
        self.buckets: list[pa.Table] = []

    def write(self, rows: Sequence[PartRow], **how: Any) -> list[Segment]:
        made = write_parts(self.store, self.directory, rows, organization=OWN, ingested=len(self.segments) + 1, **how)
        self.segments += made
        return made

    def merge(self, some: Sequence[Segment], limits: CompactLimits = LIMITS) -> None:
        ordered = tuple(sorted(some, key=lambda one: one.ingested))
        work = CompactWork(OWN, ordered[0].collector, "metrics", RAW, max(one.level for one in ordered) + 1, ordered)
        made = tuple(merge_segments(work, Putting(self.store), limits, self.directory))
        self.segments = [one for one in self.segments if one not in ordered] + list(made)

    def mergeable(self) -> list[Segment]:
        """Segments of one collector that has several."""
        for collector in sorted({one.collector for one in self.segments}):
            own = [one for one in self.segments if one.collector == collector]
            if len(own) > 1:
                return own
        return []

    def tables(self) -> list[pa.Table]:
        return [self.table(one) for one in self.segments]

    def table(self, segment: Segment) -> pa.Table:
        return pq.read_table(self.directory / "store" / segment.path)

    def stored(self) -> list[tuple[Any, ...]]:
        """Rows, sum, least and most of each part that is stored."""
        names = ("chq_rollup_count", "chq_rollup_sum", "chq_rollup_min", "chq_rollup_max")
        return [tuple(row.values()) for one in self.tables() for row in one.select(names).to_pylist()]

    def facts(self) -> dict[Key, tuple[int, float, float]]:
        """Rows, least and most of all parts of each point."""
        found: dict[Key, tuple[int, float, float]] = {}
        for key, row in keyed(self.tables()):
            count, least, most = found.get(key, (0, math.inf, -math.inf))
            if row["chq_rollup_min"] is not None:
                least, most = min(least, row["chq_rollup_min"]), max(most, row["chq_rollup_max"])
            found[key] = count + row["chq_rollup_count"], least, most
        return found

    def roll(self, tier: int = TIERS[0]) -> dict[Key, Row]:
        """Roll up what is new, and return the buckets of the tier."""
        source, touched = RAW, tuple(one for one in self.segments if one.id not in self.rolled)
        sources = tuple(self.segments)
        self.rolled |= {one.id for one in touched}
        for target in TIERS[: TIERS.index(tier) + 1]:
            made: tuple[Segment, ...] = ()
            if touched:
                work = RollupWork(OWN, COLLECTOR, source, target, touched, sources)
                made = tuple(write_buckets(work, Putting(self.store), self.directory, LIMITS))
            source, touched, sources = target, made, made
        self.buckets += [self.table(one) for one in made]
        return dict(keyed(self.buckets))


def keyed(tables: Sequence[pa.Table]) -> list[tuple[Key, Row]]:
    rows = [row for table in tables for row in rows_of(table)]
    return [((str(row["attributes.level"]), row["timestamp"] // 10**6), row) for row in rows]


class Putting:
    """A store that also takes files."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_file(self, key: str, path: Path) -> None:
        self._store.put(key, path.read_bytes())


@st.composite
def files(draw: st.DrawFn, values: st.SearchStrategy[float]) -> list[list[PartRow]]:
    """The rows of some files, and later those that merges of sources took back: copies of rows that stay."""
    times = st.integers(0, 60).map(lambda n: T0 + 1000 * n)
    row = st.builds(PartRow, st.sampled_from(["error", "warn"]), times, values)
    found = draw(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=5))
    rows = [one for some in found for one in some]
    again = draw(st.lists(st.sampled_from(rows), max_size=6))
    if again:
        copies = draw(st.permutations(again))
        found += [list(copies), [replace(one, takes_back=True) for one in again]]
    return draw(st.permutations(found))


def model(files: Sequence[Sequence[PartRow]]) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = defaultdict(list)
    for row in (one for some in files for one in some if not one.takes_back):
        found[row.key].append(row.value)
    for row in (one for some in files for one in some if one.takes_back):
        found[row.key].remove(row.value)
    return found


def seen(lake: PartLake) -> dict[Key, Any]:
    name = "errors" if any("scale" in {c.name for c in one.columns} for one in lake.segments) else "errors_total"
    found = lake.samples(named(name))
    return {(dict(labels)["level"], time): value for labels, some in found.items() for time, value in some}


def assert_close(found: float, values: Sequence[float], written: int) -> None:
    """Equal if all are whole; else within a rounding of the sum, and what adding all that was written may lose."""
    exact = math.fsum(values)
    if all(value.is_integer() and value < 2**40 for value in values):
        assert found == exact
    lost = written**2 * 2.0**-100 * max(values, default=0.0)
    assert found == pytest.approx(exact, rel=0, abs=2.0**-52 * exact + lost)


def assert_points(lake: PartLake, written: list[list[PartRow]]) -> None:
    wanted, rows = model(written), sum(len(some) for some in written)
    found, facts = seen(lake), lake.facts()
    assert found.keys() == wanted.keys() == facts.keys()
    for key, values in wanted.items():
        assert facts[key] == (len(values), min(values), max(values))
        if isinstance(found[key], Histogram):
            assert_histogram(found[key], values)
            assert_close(found[key].sum, values, rows)
        else:
            assert_close(found[key], values, rows)


def assert_histogram(found: Histogram, values: Sequence[float]) -> None:
    cells = Counter(int(bucket_of(np.float64(value).view(np.int64))) + 1 for value in values if value)
    assert (found.schema, found.count, found.zero_count) == (6, len(values), values.count(0.0))
    assert dict(zip(found.positive.indexes.tolist(), found.positive.counts.tolist(), strict=True)) == cells
    assert not len(found.negative.counts)


@pytest.mark.parametrize("histogram", [False, True])
@pytest.mark.parametrize("values", [WHOLE, ANY])
def test_points_are_those_of_the_rows_that_stay_whatever_is_merged(
    values: st.SearchStrategy[float], histogram: bool
) -> None:
    @settings(max_examples=12, deadline=None)
    @given(files(values), st.randoms(use_true_random=False))
    def adds_up(written: list[list[PartRow]], chance: random.Random) -> None:
        with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            lake = PartLake(Path(directory) / "lake")
            for rows in written:
                lake.write(rows, histogram=histogram, collector=chance.choice(("_errors.1", "_errors.1", "_errors.2")))
            assert_points(lake, written)
            while some := lake.mergeable():
                lake.merge(chance.sample(some, min(len(some), chance.randint(2, 4))))
                assert_points(lake, written)

    adds_up()


@settings(max_examples=12, deadline=None)
@given(files(ANY), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_buckets_are_those_of_the_points(
    written: list[list[PartRow]], histogram: bool, late: bool, chance: random.Random
) -> None:
    """A bucket of 10 s has one point, whatever it is made of, and is made again when parts of it come late."""
    wanted, rows = model(written), sum(len(some) for some in written)
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        lake = PartLake(Path(directory) / "lake")
        for some in written:
            lake.write(some, histogram=histogram)
            if late:
                lake.roll()
        if len(lake.segments) > 2:
            lake.merge(chance.sample(lake.segments, 2))
        rolled = lake.roll()
    assert rolled.keys() == wanted.keys()
    for key, values in wanted.items():
        if histogram:
            assert rolled[key]["count"] == len(values)
            assert_close(rolled[key]["sum"], values, rows)
            assert (rolled[key]["min"], rolled[key]["max"]) == (min(values), max(values))
        else:
            assert rolled[key][PREFIX + "count"] == 1
            assert_close(rolled[key][PREFIX + "sum"], values, rows)


def test_buckets_of_coarser_tiers_add_up_points(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1000 * n, 2.0) for n in range(1, 61)])
    lake.write([PartRow("error", T0 + 1000 * n, 3.0) for n in range(1, 31)])
    ((key, bucket),) = lake.roll(TIERS[1]).items()
    assert key == ("error", T0 + 60_000)
    assert (bucket[PREFIX + "count"], bucket[PREFIX + "sum"], bucket[PREFIX + "max"]) == (6, 210.0, 50.0)


def test_equal_parts_all_count(lake: PartLake) -> None:
    for _ in range(3):
        lake.write([PartRow("error", T0 + 1, 5.0)])
    lake.merge(lake.segments)
    assert seen(lake) == {("error", T0 + 10_000): 15.0}
    assert lake.stored() == [(3, 15.0, 5.0, 5.0)]


def test_a_part_that_takes_back_leaves_extrema(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1, 5.0), PartRow("error", T0 + 2, 9.0)])
    lake.write([PartRow("error", T0 + 1, 5.0)])
    lake.write([PartRow("error", T0 + 1, 5.0, takes_back=True)])
    lake.merge(lake.segments[1:])
    assert lake.stored() == [(2, 14.0, 5.0, 9.0), (0, 0.0, 5.0, 5.0)]
    assert seen(lake) == {("error", T0 + 10_000): 14.0}
    lake.merge(lake.segments)
    assert lake.stored() == [(2, 14.0, 5.0, 9.0)]
    assert seen(lake) == {("error", T0 + 10_000): 14.0}


def test_as_many_rows_as_were_taken_back_may_be_other_rows(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1, 3.0)])
    lake.write([PartRow("error", T0 + 2, 2.0)])
    lake.write([PartRow("error", T0 + 1, 3.0)])
    lake.write([PartRow("error", T0 + 1, 3.0, takes_back=True)])
    lake.merge([lake.segments[1], lake.segments[3]])
    assert lake.stored()[-1] == (0, -1.0, 2.0, 2.0)
    assert seen(lake) == {("error", T0 + 10_000): 5.0}


def test_a_point_of_no_rows_is_no_sample(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1, 0.1), PartRow("error", T0 + 10_001, 1.0)])
    lake.write([PartRow("error", T0 + 2, 0.1, takes_back=True)])
    assert seen(lake) == {("error", T0 + 20_000): 1.0}
    lake.merge(lake.segments)
    assert seen(lake) == {("error", T0 + 20_000): 1.0}


@pytest.mark.parametrize("histogram", [False, True])
@pytest.mark.parametrize("tier", TIERS[:2])
def test_the_bucket_of_a_point_of_no_rows_replaces_what_it_held(lake: PartLake, tier: int, histogram: bool) -> None:
    lake.write([PartRow("error", T0 + 1, 0.1)], histogram=histogram)
    (bucket,) = lake.roll(tier).values()
    assert bucket["count"] == 1
    lake.write([PartRow("error", T0 + 2, 0.1, takes_back=True)], histogram=histogram)
    (bucket,) = lake.roll(tier).values()
    assert (bucket[PREFIX + "count"], bucket[PREFIX + "sum"], bucket["count"]) == (0, None, None)


def test_parts_add_up_across_collectors_and_stored_series(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1, 1.0)])
    lake.write([PartRow("error", T0 + 1, 2.0)], collector="_errors.2")
    lake.write([PartRow("error", T0 + 1, 4.0)], unit="1")
    assert seen(lake) == {("error", T0 + 10_000): 7.0}


def test_parts_have_the_start_of_their_bucket(lake: PartLake) -> None:
    lake.write([PartRow("error", T0 + 1, 1.0)])
    (found,) = lake.blocks(named("errors_total"))
    assert found.starts is not None
    assert found.starts.tolist() == [T0]


def test_another_point_of_the_series_counts_before_parts(lake: PartLake) -> None:
    def sent(request: Any) -> None:
        request.sum.aggregation_temporality, request.sum.is_monotonic = 1, True
        label(request.sum.data_points.add(time_unix_nano=(T0 + 20_000) * 10**6, as_int=100), {"level": "error"})

    lake.add(metric("errors", sent), gauge("other", [(T0, 1.0)]))
    lake.write([PartRow("error", T0 + 1, 1.0), PartRow("error", T0 + 10_001, 2.0)])
    assert seen(lake) == {("error", T0 + 10_000): 1.0, ("error", T0 + 20_000): 100.0}
    assert len(lake.samples(named("other"))) == 1


@pytest.mark.parametrize("histogram", [False, True])
def test_a_long_run_of_one_key_is_added_in_little_memory(lake: PartLake, histogram: bool) -> None:
    for value in (1.0, 2.0):
        lake.write([PartRow("error", T0 + 1, value), PartRow("warn", T0 + 1, 1.0)], histogram=histogram, times=3000)
    lake.merge(lake.segments, replace(LIMITS, memory=1 << 16))
    assert sorted(lake.stored()) == [(6000, 6000.0, 1.0, 1.0), (6000, 9000.0, 1.0, 2.0)]
    if not histogram:
        assert seen(lake) == {("error", T0 + 10_000): 9000.0, ("warn", T0 + 10_000): 6000.0}


def test_a_long_run_keeps_what_its_sum_lost(lake: PartLake) -> None:
    for value in (0.1, 1e9):
        lake.write([PartRow("error", T0 + 1, value)], times=3000)
    lake.merge(lake.segments, replace(LIMITS, memory=1 << 16))
    assert seen(lake) == {("error", T0 + 10_000): math.fsum([0.1, 1e9] * 3000)}


def test_many_histograms_are_added_some_at_a_time(lake: PartLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MOST_CELLS", 100)
    written = [[PartRow("error", T0 + 1000 * n, 1.1**n) for n in range(120)] for _ in range(2)]
    for rows in written:
        lake.write(rows, histogram=True)
    lake.merge(lake.segments)
    assert_points(lake, written)


def test_integers_are_added_exactly(lake: PartLake) -> None:
    for _ in range(2):
        lake.write([PartRow("error", T0 + 1, 2.0**60), PartRow("warn", T0 + 1, 2.0**62)])
    lake.merge(lake.segments)
    (table,) = lake.tables()
    numbers = {row["attributes.level"]: (row["int_value"], row["value"]) for row in table.to_pylist()}
    assert numbers == {"error": (2**61, None), "warn": (None, 2.0**63)}


def test_histograms_of_another_scale_are_refused(lake: PartLake) -> None:
    part = pa.record_batch({"scale": pa.array([6, 5], pa.int32()), "chq_rollup_count": pa.array([1, 1])})
    with pytest.raises(Corrupt, match="another scale than 6"):
        list(add_rows(part, np.array([0, 2])))
