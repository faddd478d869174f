"""Samples that were read are kept decoded: they are read once, stay within the bound, and are the same as read anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.metric_segments import Blocks, MetricSegments
from lakerunner.query.metrics.segment_file import SegmentFile
from lakerunner.query.segment_cache.cache import SegmentCache
from query.metric_lake import ALL, T0, MetricLake, gauge, named, plain
from query.sample_lake import removed


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every row group that is read of a file."""
    seen: list[int] = []
    table = SegmentFile.table

    def counted(self: SegmentFile, group: int, columns: tuple[str, ...]) -> object:
        seen.append(group)
        return table(self, group, columns)

    monkeypatch.setattr(SegmentFile, "table", counted)
    return seen


def _lake(directory: Path) -> MetricLake:
    lake = MetricLake(directory)
    for n in range(4):
        points = [(T0 + 1000 * n + k, n if k % 3 else float(k)) for k in range(100)]
        lake.add(gauge("up", points, zone="a"), gauge("up", points[::2], zone="b"))
    return lake


def test_a_second_question_reads_nothing_and_finds_the_same(tmp_path: Path, reads: list[int]) -> None:
    lake = _lake(tmp_path)
    first = lake.samples(named("up"))
    assert len(reads) == 4
    assert lake.samples(named("up")) == first
    part = (T0 + 500, T0 + 2050)
    assert lake.samples(named("up"), part) == {
        labels: [(at, value) for at, value in points if part[0] < at <= part[1]] for labels, points in first.items()
    }
    assert len(reads) == 4


@pytest.mark.parametrize(("keep_bytes", "read_again"), [(0, 4), (1 << 20, 0)])
def test_no_more_is_kept_than_may_be(tmp_path: Path, reads: list[int], keep_bytes: int, read_again: int) -> None:
    lake = _lake(tmp_path)
    cache = SegmentCache(lake.store, tmp_path / "bounded", 1 << 30)
    metrics = MetricSegments(cache, keep_bytes=keep_bytes)
    found = [[plain(one) for one in Blocks(metrics, lake.segments, Selection(named("up"), *ALL))] for _ in range(2)]
    assert found[0] == found[1]
    assert len(reads) == 4 + read_again


def test_samples_are_read_again_when_someone_removes_the_cache(tmp_path: Path) -> None:
    lake = _lake(tmp_path)
    metrics = MetricSegments(SegmentCache(lake.store, tmp_path / "removed", 1 << 30), keep_bytes=0)
    found = []
    for _ in range(3):
        found.append([plain(one) for one in Blocks(metrics, lake.segments, Selection(named("up"), *ALL))])
        removed(tmp_path / "removed")
    assert found[0] == found[1] == found[2] != []
