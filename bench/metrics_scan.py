"""Segments of metrics to samples, beside a plain DuckDB scan and an Arrow scan of the same columns.

    python bench/metrics_scan.py [DIRECTORY] [SEGMENTS]

All three read the files of one machine, warm; each figure is the best of several. Times are wall and CPU ms: on a
machine that does other work the second one says more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from _metrics_lake import MetricsLake, metrics_lake
from lakerunner.model.labels.matcher import Matcher
from lakerunner.promql.operators import Selection
from lakerunner.query.metrics.metric_segments import Blocks, MetricSegments
from lakerunner.query.segment_cache.cache import SegmentCache

COLUMNS = ["timestamp", "value", "int_value"]
RUNS = 7
POINTS = (Matcher("job", "=~", ".+"), Matcher("__name__", "!=", "target_info"))
COUNTER = (Matcher("__name__", "=", "http_server_requests_total"),)
INFO = (Matcher("__name__", "=", "target_info"),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("/tmp/lakerunner-metrics-bench"))
    parser.add_argument("segments", nargs="?", type=int, default=119)
    directory, segments = vars(parser.parse_args()).values()
    lake = metrics_lake(directory, segments)
    print(f"{lake.rows} samples in {len(lake.segments)} segments, {sum(s.bytes for s in lake.segments)} bytes")
    duck = _best("DuckDB, SELECT timestamp, value", _duckdb(lake))
    arrow = _best("Arrow, the same columns", _arrow(lake))
    with tempfile.TemporaryDirectory(dir=directory) as cache:
        metrics = MetricSegments(SegmentCache(lake.store, Path(cache) / "cache", 1 << 34))
        began = time.perf_counter()
        _ask(metrics, lake, POINTS, 0)()
        print(f"{'the first time, with tables and compilation':48} {1000 * (time.perf_counter() - began):8.1f} ms")
        whole = _best("samples of all", _ask(metrics, lake, POINTS, 0))
        _best("samples of one counter", _ask(metrics, lake, COUNTER, 0))
        for name, hours in (("1 h", 1.0), ("5 min", 5 / 60)):
            _best(f"samples of the last {name}", _ask(metrics, lake, POINTS, hours))
        _best("target_info of the last 1 h", _ask(metrics, lake, INFO, 1.0))
    for name, other in (("DuckDB", duck), ("Arrow", arrow)):
        print(f"all samples / {name}: {whole[0] / other[0]:.2f} of the time, {whole[1] / other[1]:.2f} of the CPU")


def _best(name: str, work: Callable[[], Any]) -> tuple[float, float]:
    times = []
    for _ in range(RUNS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (1000 * min(column) for column in zip(*times, strict=True))
    print(f"{name:48} {wall:8.1f} ms {cpu:8.1f} ms CPU")
    return wall, cpu


def _ask(metrics: MetricSegments, lake: MetricsLake, matchers: tuple[Matcher, ...], hours: float) -> Callable[[], Any]:
    end = max(segment.time.end_ns for segment in lake.segments) // 10**6
    start = int(end - hours * 3_600_000) if hours else 0
    segments = [segment for segment in lake.segments if segment.time.end_ns // 10**6 > start]
    return lambda: [len(block.times) for block in Blocks(metrics, segments, Selection(matchers, start, end))]


def _duckdb(lake: MetricsLake) -> Callable[[], Any]:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    sql = f"SELECT timestamp, coalesce(value, int_value) AS value FROM read_parquet({lake.files})"
    return lambda: connection.sql(sql).to_arrow_table()


def _arrow(lake: MetricsLake) -> Callable[[], Any]:
    footers = [pq.read_metadata(file) for file in lake.files]
    pool = ThreadPoolExecutor()

    def read(number: int) -> Any:
        file = pq.ParquetFile(lake.files[number], metadata=footers[number], memory_map=True)
        return file.read(COLUMNS, use_threads=False)

    return lambda: list(pool.map(read, range(len(footers))))


if __name__ == "__main__":
    main()
