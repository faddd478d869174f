"""Compaction: MB of segments per CPU second, and peak memory, three ways over the same segments in one run.

    lakerunner  compact_work: merged in windows, rows that came twice once, attributes unified, side files made
    pyarrow     all tables read and concatenated, sorted, written; no side files
    duckdb      COPY (SELECT ... ORDER BY ...) TO, of one thread and with the same memory; no side files

Each way runs in a process of its own, on one core, and takes turns with the others; the best turn counts. MB are those
of the segments that come in. Exit code 1 if rows are missing.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

import ingest_metrics
import ingest_traces
from _ingest import LIMITS as INGEST
from _ingest import OPENING_NS
from lakerunner.bus.topics import IngestBox
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.ingest import ingest_group
from lakerunner_demo.shop import Shop

PER_FILE = 8192
BATCHES: dict[str, Callable[[Shop, int], Any]] = {
    "logs": lambda shop, rows: shop.bulk_logs(rows, per_file=PER_FILE),
    "metrics": ingest_metrics.batches,
    "traces": ingest_traces.batches,
}


def write_input(signal: str, rows: int, count: int, address: StoreAddress) -> CompactWork:
    """Write the rows as about `count` segments, each of consecutive rows."""
    store = shared_store(address)
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=500)
    sources = []
    for number, batch in enumerate(BATCHES[signal](shop, rows)):
        key = f"otel-raw/default/bench/{signal}_{number:05}.binpb.gz"
        store.put(key, igzip.compress(batch.data))
        meta = store.head(key)
        sources.append(SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
    each = -(-len(sources) // count)
    left, segments = iter(sources), []
    while some := tuple(islice(left, each)):
        segments += ingest_group(IngestBox(DEFAULT_ORGANIZATION.id, "bench", signal, some), address, INGEST).segments
    ordered = tuple(replace(segment, ingested=number + 1) for number, segment in enumerate(segments))
    return CompactWork(DEFAULT_ORGANIZATION.id, "bench", signal, 0, 1, ordered)


def by_lakerunner(work: CompactWork, address: StoreAddress, _: Path, memory: int) -> tuple[int, int]:
    outcome = compact_work(work, address, CompactLimits(memory, 1 << 30))
    if outcome.error:
        sys.exit(outcome.error)
    return sum(made.rows for made in outcome.segments), sum(made.bytes for made in outcome.segments)


def by_pyarrow(work: CompactWork, address: StoreAddress, out: Path, _: int) -> tuple[int, int]:
    spec = SIGNALS[work.signal]
    store = shared_store(address)
    tables = [pq.read_table(store.local_path(segment.path), use_threads=False) for segment in work.segments]
    table = pa.concat_tables(tables, promote_options="default")
    table = table.sort_by([(name, "ascending") for name in spec.sort_by])
    pq.write_table(table, out, compression="zstd", row_group_size=spec.row_group_rows)
    return table.num_rows, out.stat().st_size


def by_duckdb(work: CompactWork, address: StoreAddress, out: Path, memory: int) -> tuple[int, int]:
    spec = SIGNALS[work.signal]
    store = shared_store(address)
    files = [str(store.local_path(segment.path)) for segment in work.segments]
    with duckdb.connect(
        config={"threads": 1, "memory_limit": f"{memory >> 20}MiB", "temp_directory": f"{out}.tmp"}
    ) as one:
        one.execute(
            f"COPY (SELECT * FROM read_parquet({files!r}, union_by_name = true) ORDER BY {', '.join(spec.sort_by)}) "
            f"TO '{out}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {spec.row_group_rows})"
        )
    return pq.read_metadata(out).num_rows, out.stat().st_size


WAYS = {"lakerunner": by_lakerunner, "pyarrow": by_pyarrow, "duckdb": by_duckdb}


def memory_of(name: str) -> int:
    """Return a memory figure of this process in bytes: VmRSS is now, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def turn(way: str, given: Path, memory: int) -> None:
    """Run one way in this process and print what it took as JSON."""
    pa.set_cpu_count(1)
    work, address = pickle.loads(given.read_bytes())
    small = replace(work, segments=work.segments[:2])  # code is loaded and compiled before the clock runs
    WAYS[way](small, address, given.with_suffix(".out"), memory)
    before, started, clock = memory_of("VmRSS"), time.process_time(), time.perf_counter()
    rows, size = WAYS[way](work, address, given.with_suffix(".out"), memory)
    cpu, wall = time.process_time() - started, time.perf_counter() - clock
    print(json.dumps({"rows": rows, "bytes": size, "cpu": cpu, "wall": wall, "memory": memory_of("VmHWM") - before}))


def run(signal: str, options: argparse.Namespace, directory: Path) -> None:
    (directory / "store").mkdir()
    address = StoreAddress((directory / "store").as_uri())
    work = write_input(signal, options.rows, options.segments, address)
    given = directory / "work.pickle"
    given.write_bytes(pickle.dumps((work, address)))
    rows, size = (sum(getattr(one, name) for one in work.segments) for name in ("rows", "bytes"))
    print(f"{signal}: {rows} rows in {len(work.segments)} segments of {size / 1e6:.1f} MB; memory {options.memory} MB")
    best: dict[str, dict[str, Any]] = {}
    for _ in range(options.repeat):
        for way in WAYS:
            command = [sys.executable, __file__, "--turn", way, "--given", str(given), "--memory", str(options.memory)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            if found["rows"] != rows:
                sys.exit(f"{way} gave {found['rows']} rows of {rows}")
            if way not in best or found["cpu"] < best[way]["cpu"]:
                best[way] = found
    for way, found in best.items():
        print(
            f"{way:10} {found['cpu']:7.2f} CPU s {size / found['cpu'] / 1e6:7.1f} MB/s "
            f"{rows / found['cpu']:9.0f} rows/s {found['memory'] / 1e6:6.0f} MB peak, "
            f"{found['bytes'] / 1e6:.1f} MB out, "
            f"{found['wall']:.2f} s"
        )
    for other in ("pyarrow", "duckdb"):
        speed = best[other]["cpu"] / best["lakerunner"]["cpu"]
        memory = best["lakerunner"]["memory"] / best[other]["memory"]
        print(f"lakerunner / {other}: {speed:.2f}x the speed, {memory:.2f}x the memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", default="logs,metrics,traces")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--segments", type=int, default=16)
    parser.add_argument("--memory", type=int, default=256, help="MB")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    parser.add_argument("--given", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        turn(options.turn, options.given, options.memory << 20)
        return
    for signal in options.signals.split(","):
        with TemporaryDirectory(prefix="lakerunner-bench-") as directory:
            run(signal, options, Path(directory))


if __name__ == "__main__":
    main()
