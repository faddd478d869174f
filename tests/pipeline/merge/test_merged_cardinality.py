"""How many series were active: a sketch for each metric and window of a rollup segment, from its rows."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.hll import RELATIVE_ERROR, estimate, sketch, union
from lakerunner.model.signal import TIME
from lakerunner.pipeline.segment import series_files as cardinality_sketches
from lakerunner.pipeline.segment.series_files import CardinalitySide

Row = tuple[str, int, int, int | None]  # metric, series, window, count


def built(rows: list[Row], size: int = 10**6, *, coded: bool = False) -> bytes:
    names, series, times, counts = map(list, zip(*sorted(rows, key=lambda row: row[:3]), strict=True))
    batch = pa.record_batch(
        {
            "metric_name": pa.array(names).dictionary_encode() if coded else pa.array(names),
            "series": pa.array(series, pa.int64()),
            "timestamp": pa.array(times, TIME),
            "chq_rollup_count": pa.array(counts, pa.uint64()),
        }
    )
    side = CardinalitySide()
    for at in range(0, batch.num_rows, size):
        side.add(batch.slice(at, size))
    return bytes(side.finish().data)


def told(file: bytes) -> dict[tuple[str, int], bytes]:
    table = pq.read_table(io.BytesIO(file), page_checksum_verification=True)
    assert table.column_names == ["metric_name", "timestamp", "hll"]
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    keys = list(zip(table.column("metric_name").to_pylist(), times, strict=True))
    assert keys == sorted(keys)
    return dict(zip(keys, table.column("hll").to_pylist(), strict=True))


def random_rows(chance: random.Random, count: int) -> list[Row]:
    return [
        (chance.choice(["a", "b", "ä"]), chance.randrange(-300, 300) * 2**50, chance.randrange(70) * 10**10, 1)
        for _ in range(count)
    ]


def expected(rows: list[Row]) -> dict[tuple[str, int], bytes]:
    groups: dict[tuple[str, int], list[int]] = {}
    for name, series, time, _ in rows:
        groups.setdefault((name, time), []).append(series)
    return {key: sketch(series) for key, series in groups.items()}


@pytest.mark.parametrize("size", [1, 13, 10**6])
def test_each_metric_and_window_has_the_sketch_of_its_series(size: int) -> None:
    rows = random_rows(random.Random(size), 4000)
    file = built(rows, size)
    assert told(file) == expected(rows)
    assert built(rows[::-1], 99, coded=True) == file


def test_segments_are_united(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cardinality_sketches, "ROW_GROUP_BUCKETS", 16)
    chance = random.Random(2)
    parts = [random_rows(chance, 500) for _ in range(4)]
    whole = told(built([row for part in parts for row in part]))
    files = [told(built(part)) for part in parts]
    united = {key: union(file[key] for file in files if key in file) for key in whole}
    assert united == whole


def test_windows_without_a_sample_have_no_active_series() -> None:
    rows: list[Row] = [("a", 1, 10, 3), ("a", 2, 10, 0), ("a", 2, 20, 0), ("h", 5, 10, None)]
    assert told(built(rows)) == {("a", 10): sketch([1]), ("h", 10): sketch([5])}
    assert told(built([("a", 1, 10, 0)])) == {}


def test_many_series_are_counted_and_take_little_room() -> None:
    """In most windows the same series are active: their sketches are the same bytes."""
    series: Any = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 3000)
    rows: list[Row] = [("up", int(one), window * 10**10, 1) for one in series for window in range(60)]
    file = built(rows, 50_000)
    assert all(abs(estimate(one) / 3000 - 1) < 3 * RELATIVE_ERROR for one in told(file).values())
    assert len(file) < 6000
