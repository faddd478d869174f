"""Of tables of series only what is not known yet is read, and what describes metrics only where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.model.labels import labels_of
from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.list_series import metadata_of
from lakerunner.query.metrics.metric_segments import Blocks, MetricSegments
from lakerunner.query.metrics.segment_file import ParquetTable
from lakerunner.query.segment_cache.cache import SegmentCache
from query.metric_lake import ALL, T0, MetricLake, gauge, named, plain


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of every read of a table."""
    seen: list[tuple[str, ...]] = []
    read = ParquetTable.read

    def noted(self: ParquetTable, columns: tuple[str, ...]) -> object:
        seen.append(columns)
        return read(self, columns)

    monkeypatch.setattr(ParquetTable, "read", noted)
    return seen


def test_labels_are_read_where_a_series_is_new(tmp_path: Path, reads: list[tuple[str, ...]]) -> None:
    lake = MetricLake(tmp_path)
    zones = [("a",), ("a",), ("a", "b"), ("b",)]
    for n, some in enumerate(zones):
        lake.add(*(gauge("up", [(T0 + 1000 * n, float(n))], zone=zone) for zone in some))
    metrics = MetricSegments(SegmentCache(lake.store, tmp_path / "own", 1 << 30), threads=1)
    blocks = [plain(one) for one in Blocks(metrics, lake.segments, Selection(named("up"), *ALL))]
    assert {labels: points for block in blocks for labels, points in block.items()} == {
        labels_of({"__name__": "up", "zone": "a"}): [(T0, 0.0), (T0 + 1000, 1.0), (T0 + 2000, 2.0)],
        labels_of({"__name__": "up", "zone": "b"}): [(T0 + 2000, 2.0), (T0 + 3000, 3.0)],
    }
    assert ["labels" in columns for columns in reads] == [False, True, False, False, True, False]
    assert not any("description" in columns for columns in reads)
    reads.clear()
    assert [family.name for family in metadata_of(metrics, lake.segments)] == ["up", "target_info"]
    assert ["description" in columns for columns in reads] == [True] * len(zones)
    metrics.close()
