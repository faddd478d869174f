"""Points that become windows, per second of CPU time of one core: rollups against plain ways, in one run.

    fold        pipeline/rollup/fold.py: all values of a window, its sketch, and the columns that describe it
    duckdb      GROUP BY series and window: count, sum, min, max, first, last; on one thread
    pyarrow     group_by of the same without first and last, which it has not for this
    numpy       reduceat over the sorted rows: count, sum, min, max, first, last
    work        a whole piece of work: segments read, merged, rolled up, written with what stands beside them

Points are those of bench/_metrics_lake.py: 3,500 series every 15 s, so that nearly every window of 10 s has one point;
`dense` is the same points every second. 10s -> 1m takes the windows that raw -> 10s gave. The plain ways get series,
time and number alone, as doubles without a gap, and make no sketch and no other column. The best of three turns.

    python bench/rollup.py [--segments 10] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from _metrics_lake import OPENING_NS, MetricsLake, metrics_lake
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS, ROLLUPS
from lakerunner.model.tier import RAW, TIERS
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.merge.inputs import open_segments
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work

TURNS = 3
MEMORY = 256 << 20
EXPORT_S = 15
SQL = """SELECT series, -(-time // {tier}) AS w, count(*), sum(value), min(value), max(value), first(value), last(value)
FROM points GROUP BY ALL"""
Batches = Sequence[pa.RecordBatch]


class Step(NamedTuple):
    """A rollup from this tier to the next, with its input rows."""

    name: str
    source: int
    target: int
    batches: Batches

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


def best(work: Callable[[], object]) -> float:
    """Return CPU seconds of the process without the first turn, which may compile."""
    work()
    taken = []
    for _ in range(TURNS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def folded(step: Step) -> Batches:
    fold = Fold(step.source, step.target, step.batches[0].schema, lambda series: np.zeros(len(series), np.bool_))
    return list(fold.buckets(step.batches))


def next_step(step: Step, name: str) -> Step:
    """Return the buckets of this rollup in batches, as a merge would give them."""
    table = pa.Table.from_batches(folded(step)).unify_dictionaries().combine_chunks()
    coarser = next(tier for tier in TIERS if tier > step.target)
    return Step(name, step.target, coarser, table.to_batches(max_chunksize=ROLLUPS.row_group_rows))


def dense(batches: Batches) -> Batches:
    """Return the same points, one second apart."""
    found = []
    for batch in batches:
        place = batch.schema.get_field_index("timestamp")
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        closer = pa.array(OPENING_NS + (times - OPENING_NS) // EXPORT_S).cast(pa.timestamp("ns"))
        found.append(batch.set_column(place, batch.schema.field(place), closer))
    return found


def plain(step: Step) -> pa.Table:
    """Return series, time in ms and value; of buckets the sum."""
    table = pa.Table.from_batches(step.batches)
    if step.source == RAW:
        numbers = (table[name].cast(pa.float64()) for name in ("value", "int_value") if name in table.column_names)
        value = pc.coalesce(*numbers)
    else:
        value = table["chq_rollup_sum"]
    times = pc.divide(table["timestamp"].cast(pa.int64()), 1_000_000)
    return pa.table({"series": table["series"], "time": times, "value": value}).combine_chunks()


def by_duckdb(points: pa.Table, tier: int) -> object:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("points", points)
        return connection.sql(SQL.format(tier=tier)).to_arrow_table()


def by_pyarrow(points: pa.Table, tier: int) -> object:
    window = pc.divide(pc.add(points["time"], tier - 1), tier)
    grouped = points.append_column("w", window).group_by(["series", "w"], use_threads=False)
    return grouped.aggregate([("value", name) for name in ("count", "sum", "min", "max")])


def by_numpy(points: pa.Table, tier: int) -> object:
    series, times, values = (points[name].to_numpy() for name in ("series", "time", "value"))
    window = -(-times // tier)
    starts = np.flatnonzero(np.append(True, (series[1:] != series[:-1]) | (window[1:] != window[:-1])))
    ends = np.append(starts[1:], len(series))
    extremes = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return ends - starts, np.add.reduceat(values, starts), *extremes, values[starts], values[ends - 1]


PLAIN: dict[str, Callable[[pa.Table, int], Any]] = {"duckdb": by_duckdb, "pyarrow": by_pyarrow, "numpy": by_numpy}


def report(step: Step) -> None:
    ours = step.rows / best(lambda: folded(step))
    windows = sum(batch.num_rows for batch in folded(step))
    print(f"{step.name}: {step.rows:,} rows to {windows:,} windows")
    print(f"  {'fold':8} {ours / 1e6:7.2f} M rows/s")
    points = plain(step)
    for name, way in PLAIN.items():
        theirs = step.rows / best(lambda way=way: way(points, step.target))  # type: ignore[misc]
        print(f"  {name:8} {theirs / 1e6:7.2f} M rows/s   fold is {ours / theirs:.2f}x")


def whole(lake: MetricsLake, source: int, sources: tuple[Segment, ...]) -> tuple[Segment, ...]:
    target = next(tier for tier in TIERS if tier > source)
    work = RollupWork(lake.segments[0].organization, lake.segments[0].collector, source, target, sources, sources)
    address = StoreAddress((lake.directory / "store").as_uri())
    made: list[Segment] = []

    def turn() -> None:
        outcome = rollup_work(work, address, CompactLimits(MEMORY, 1 << 30))
        if outcome.error:
            raise SystemExit(outcome.error)
        made[:] = outcome.segments

    seconds = best(turn)
    rows = sum(segment.rows for segment in sources)
    size = sum(segment.bytes for segment in made)
    print(f"work {source or 'raw'} -> {target} ms: {rows / seconds / 1e6:.2f} M rows/s, {size:,} bytes")
    return tuple(replace(segment, ingested=n + 1) for n, segment in enumerate(made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--segments", type=int, default=10, help="of six minutes, 84,000 points each")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as temporary:
        lake = metrics_lake(given.directory or Path(temporary), given.segments)
        opened = open_segments(lake.store, lake.segments, Path(temporary))
        raw = list(MergedRows(METRICS, opened, MEMORY))
        first = Step("raw -> 10s", RAW, TIERS[0], raw)
        report(first)
        report(next_step(first, "10s -> 1m"))
        close = Step("dense raw -> 10s", RAW, TIERS[0], dense(raw))
        report(close)
        report(next_step(close, "dense 10s -> 1m"))
        segments = tuple(replace(segment, ingested=n + 1) for n, segment in enumerate(lake.segments))
        whole(lake, TIERS[0], whole(lake, RAW, segments))


if __name__ == "__main__":
    main()
