"""Rollup work over whole segments: which windows are made, late data through all tiers, doing it twice, damage."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import RAW, TIERS, source_of
from lakerunner.model.time import HOUR_NS
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.rollup_job import RollupWork, recompute_buckets, rollup_work
from pipeline.metrics_oracle import request_type
from pipeline.windows_oracle import PREFIX, Row, bits, rows_of

ORG = UUID(int=7)
START = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS
LIMITS = CompactLimits(64 << 20, 1 << 30)
Point = tuple[str, float, float]  # series, seconds since START, value


class Lake:
    """Live segments by their tier, as the index would have them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.address = StoreAddress(directory.as_uri())
        self.store = shared_store(self.address)
        self.tiers: dict[int, list[Segment]] = {tier: [] for tier in (RAW, *TIERS)}
        self.ingested = 0

    def take_in(self, tier: int, segments: tuple[Segment, ...]) -> list[Segment]:
        taken = []
        for segment in segments:
            self.ingested += 1
            taken.append(replace(segment, ingested=self.ingested))
        self.tiers[tier] += taken
        return taken

    def ingest(self, points: list[Point]) -> list[Segment]:
        data = otlp(points)
        raw = Raw(SourceObject("b", f"k{self.ingested}", "e", len(data), 0), memoryview(data))
        made = make_segments(METRICS, ORG, "c", [raw], self.store.put)
        assert not made.failed
        return self.take_in(RAW, made.segments)

    def work(self, tier: int, touched: list[Segment]) -> RollupWork:
        source = source_of(tier)
        work = RollupWork(ORG, "c", source, tier, tuple(touched), ())
        return replace(work, sources=tuple(one for one in self.tiers[source] if one.time.overlaps(work.span)))

    def roll(self, touched: list[Segment], tiers: tuple[int, ...] = TIERS) -> None:
        for tier in tiers:
            outcome = rollup_work(self.work(tier, touched), self.address, LIMITS)
            assert outcome.error == ""
            touched = self.take_in(tier, outcome.segments)

    def table(self, segment: Segment) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.store.get(segment.path, max_bytes=segment.bytes)))

    def rows(self, tier: int) -> list[Row]:
        """What the tier says: of one window the row of the segment that came last."""
        last: dict[tuple[int, int], Row] = {}
        for segment in self.tiers[tier]:
            for row in rows_of(self.table(segment)):
                last[row["series"], row["timestamp"]] = row
        return [last[key] for key in sorted(last)]


def otlp(points: list[Point]) -> bytes:
    request = request_type()()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key=b"service.name").value.string_value = b"shop"
    sums = resource.scope_metrics.add().metrics.add(name=b"requests").sum
    sums.aggregation_temporality, sums.is_monotonic = 2, True
    for series, seconds, value in points:
        point = sums.data_points.add(time_unix_nano=START + int(seconds * 10**9), as_double=value)
        point.attributes.add(key=b"pod").value.string_value = series.encode()
    return bytes(request.SerializeToString())


def some_points(seed: int, count: int, hours: float = 2.5) -> list[Point]:
    chance = random.Random(seed)
    times = sorted(
        chance.choice([chance.uniform(0, hours * 3600), chance.randrange(0, 1000) * 10.0]) for _ in range(count)
    )
    return [(chance.choice("abc"), time, float(chance.randrange(100))) for time in times]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def filled(rows: list[Row], *names: str) -> list[Row]:
    return [
        {name: bits(value) for name, value in row.items() if name not in names and value is not None} for row in rows
    ]


def test_a_segment_of_windows_is_one_of_its_hour(lake: Lake) -> None:
    lake.ingest([("a", 5, 1.0), ("a", 3600, 2.0), ("a", 3600.0005, 4.0), ("a", 3601, 8.0), ("b", 3700, 16.0)])
    lake.roll(lake.tiers[RAW], TIERS[:1])
    first, second = sorted(lake.tiers[TIERS[0]], key=lambda segment: segment.time)
    # The window that ends with the hour is of the hour: both points of its last ms are in it, the later counts.
    assert [row[PREFIX + "sum"] for row in rows_of(lake.table(first))] == [1.0, 4.0]
    assert sorted(row[PREFIX + "sum"] for row in rows_of(lake.table(second))) == [8.0, 16.0]
    assert (first.frequency_ms, first.level, first.rolled, first.rows) == (TIERS[0], 0, False, 2)
    assert first.time.start_ns == START + 10 * 10**9
    assert [column.name for column in first.columns] == lake.table(first).schema.names
    assert ("attributes.pod", "string") in [(column.name, column.type) for column in first.columns]
    series = pq.read_table(pa.BufferReader(lake.store.get(first.side_path(SERIES_TABLE), max_bytes=1 << 20)))
    assert series.column("rows").to_pylist() == [2]
    assert series.column("prometheus_name").to_pylist() == ["requests_total"]


@pytest.mark.parametrize("seed", range(2))
def test_late_data_reopens_exactly_its_windows_through_all_tiers(tmp_path: Path, seed: int) -> None:
    points = some_points(seed, 200, 1.2)
    chance = random.Random(seed)
    late = [point for point in points if chance.random() < 0.1]
    early = [point for point in points if point not in late]
    lake, whole = Lake(tmp_path / "parts"), Lake(tmp_path / "whole")
    half = len(early) // 2
    last = [*late[:3], early[0]]  # this one came before
    for part in (early[:half], [*early[half:], *late[3:]], last):
        new = lake.ingest(part)
        before = len(lake.tiers[TIERS[0]])
        for segment in new:
            lake.roll([segment])
    windows = {(name, -(-int(time * 1000) // TIERS[0])) for name, time, _ in last}
    assert sum(segment.rows for segment in lake.tiers[TIERS[0]][before:]) == len(windows)
    whole.ingest([*early, *late])
    whole.roll(whole.tiers[RAW])
    for tier in TIERS:
        assert filled(lake.rows(tier)) == filled(whole.rows(tier)), tier
        assert lake.rows(tier)


def test_the_same_work_gives_the_same_segments_and_bytes(lake: Lake) -> None:
    lake.ingest(some_points(1, 200))
    work = lake.work(TIERS[0], lake.tiers[RAW])
    first = rollup_work(work, lake.address, LIMITS)
    files = [bytes(lake.store.get(segment.path, max_bytes=segment.bytes)) for segment in first.segments]
    second = rollup_work(work, lake.address, LIMITS)
    assert first == second
    assert len({segment.id for segment in first.segments}) == len(first.segments) == 3
    assert files == [bytes(lake.store.get(segment.path, max_bytes=segment.bytes)) for segment in second.segments]


def test_recomputed_rows_are_those_that_were_written(lake: Lake, tmp_path: Path) -> None:
    lake.ingest(some_points(2, 200))
    lake.roll(lake.tiers[RAW], TIERS[:2])
    for tier in TIERS[:2]:
        source = source_of(tier)
        table = recompute_buckets(lake.work(tier, lake.tiers[source]), lake.store, tmp_path)
        rows = sorted(rows_of(table), key=lambda row: (row["series"], row["timestamp"]))
        assert filled(rows) == filled(lake.rows(tier))


def test_little_memory_changes_nothing(lake: Lake) -> None:
    for seed in range(4):
        lake.ingest(some_points(seed, 300, 0.5))
    work = lake.work(TIERS[0], lake.tiers[RAW])
    whole, small = (rollup_work(work, lake.address, CompactLimits(memory, 1 << 30)) for memory in (64 << 20, 1))
    assert [(s.id, s.rows) for s in whole.segments] == [(s.id, s.rows) for s in small.segments]


def test_a_segment_that_has_become_large_is_followed_by_another(lake: Lake) -> None:
    lake.ingest([(f"{name}", 1 + 10 * n, 1.0) for name in range(150) for n in range(360)])  # two row groups
    work = lake.work(TIERS[0], lake.tiers[RAW])
    (whole,) = rollup_work(work, lake.address, LIMITS).segments
    few = rollup_work(work, lake.address, CompactLimits(64 << 20, 1)).segments
    assert (whole.rows, sum(segment.rows for segment in few)) == (54_000, 54_000)
    assert len({segment.id for segment in few}) == len(few) == 2


def test_a_damaged_source_is_named(lake: Lake) -> None:
    (segment,) = lake.ingest([("a", 5, 1.0)])
    data = bytearray(lake.store.get(segment.path, max_bytes=segment.bytes))
    chunk = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0).column(0)
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 0xFF  # the last byte of its last page
    lake.store.put(segment.path, bytes(data))
    outcome = rollup_work(lake.work(TIERS[0], [segment]), lake.address, LIMITS)
    assert (outcome.segments, outcome.damaged) == ((), segment.id)
    assert str(segment.id) in outcome.error


def test_work_without_new_segments_among_its_sources_is_refused(lake: Lake) -> None:
    one, other = (lake.ingest([("a", 5, value)])[0] for value in (1.0, 2.0))
    with pytest.raises(ValueError, match="among its sources"):
        rollup_work(RollupWork(ORG, "c", RAW, TIERS[0], (one,), (other,)), lake.address, LIMITS)


def test_what_has_lost_rows_to_retention_is_not_made_anew(lake: Lake) -> None:
    gone = lake.ingest([("a", 1.0, 1.0), ("a", 5.0, 3.0)])
    lake.roll(gone, (10_000,))
    lake.tiers[RAW].remove(gone[0])
    late = lake.ingest([("a", 7.0, 4.0), ("b", 8.0, 1.0), ("a", 12.0, 5.0)])
    work = replace(lake.work(10_000, late), whole_from_ns=START + 6 * 10**9, made=tuple(lake.tiers[10_000]))
    outcome = rollup_work(work, lake.address, LIMITS)
    lake.take_in(10_000, outcome.segments)
    found = {(row["attributes.pod"], row["timestamp"] - START): row["chq_rollup_count"] for row in lake.rows(10_000)}
    seconds = 10**9
    assert found == {("a", 10 * seconds): 2, ("b", 10 * seconds): 1, ("a", 20 * seconds): 1}
