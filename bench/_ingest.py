"""Ingest of one signal: records and MB per second and core, three ways over the same packed files in one run.

    spark   ingest_box in a session with one slot, from raw objects to segments in a local store
    arrow   the same code in this process, without Spark
    upb     a plain loop over protobuf's messages into Python lists: decoding only, nothing written

The ways take turns, and the best turn of each counts, because other work on the machine can only slow a turn down.
Exit code 1 if rows are wrong or the segments of the first two differ. A benchmark is a `Bench` given to `main`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from isal import igzip

from lakerunner.bus.topics import IngestBox
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box, ingest_group
from lakerunner.pipeline.job import start_workers
from lakerunner.pipeline.jvm import java_home
from lakerunner.pipeline.session import SparkSettings, close_session, open_session
from lakerunner.pipeline.unpack import unpack
from lakerunner.pipeline.warm import warm_ingest
from lakerunner_demo.shop import Batch, Shop

LIMITS = IngestLimits(object_max_bytes=256 << 20, task_max_bytes=64 << 20)
ZSTD = pa.Codec("zstd", 1)  # as push doors pack
OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Bench:
    """`batches` makes raw files until they hold the requested number of records. `columns_of` is what one writes
    first: each field of each record of a request appended to the list of its column, `timestamp` among them.
    `targets` are the least speed against upb and the most time against Arrow. `ending` is that of the raw files."""

    signal: str
    request_type: Any
    batches: Callable[[Shop, int], Iterator[Batch]]
    columns_of: Callable[[Any], Columns]
    targets: tuple[float, float]
    ending: str = ".binpb.gz"


@dataclass(frozen=True)
class Input:
    """Return the box of raw files, the number of their records and their size unpacked."""

    box: IngestBox
    address: StoreAddress
    records: int
    raw_bytes: int


def until(batches: Iterator[Batch], records: int) -> Iterator[Batch]:
    """Yield batches until they hold this many records."""
    for batch in batches:
        yield batch
        records -= batch.records
        if records <= 0:
            return


def write_input(bench: Bench, address: StoreAddress, records: int) -> Input:
    store = shared_store(address)
    sources, found, raw_bytes = [], 0, 0
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=500)
    for number, batch in enumerate(bench.batches(shop, records)):
        key = f"otel-raw/default/bench/{bench.signal}_{number:05}{bench.ending}"
        data = igzip.compress(batch.data) if key.endswith(".gz") else ZSTD.compress(batch.data, asbytes=True)
        store.put(key, data)
        meta = store.head(key)
        sources.append(SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
        found, raw_bytes = found + batch.records, raw_bytes + len(batch.data)
    box = IngestBox(DEFAULT_ORGANIZATION.id, "bench", bench.signal, tuple(sources))
    return Input(box, address, found, raw_bytes)


def upb_loop(bench: Bench, given: Input) -> int:
    """Decode file by file as a first version would; return the number of records."""
    store = shared_store(given.address)
    count = 0
    for source in given.box.sources:
        _, data = unpack(source.key, store.get(source.key, max_bytes=source.size), LIMITS.object_max_bytes)
        count += len(bench.columns_of(bench.request_type.FromString(bytes(data)))["timestamp"])
    return count


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: value(pair.value) for pair in pairs}


def value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    return getattr(any_value, kind) if kind else None


def rows_of(result: BoxResult) -> int:
    for source, reason in result.failed:
        sys.exit(f"{source.key} was set aside: {reason}")
    return sum(segment.rows for segment in result.segments)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = work()
    return time.perf_counter() - started, answer


def run(bench: Bench, records: int, repeat: int, directory: Path) -> dict[str, float]:
    """Return the records per second of each way."""
    (directory / "store").mkdir()
    given = write_input(bench, StoreAddress((directory / "store").as_uri()), records)
    box, address = given.box, given.address
    packed = sum(source.size for source in box.sources)
    print(
        f"{given.records} {bench.signal} in {len(box.sources)} files: {given.raw_bytes / 1e6:.0f} MB, "
        f"{packed / 1e6:.0f} MB packed, {given.raw_bytes / given.records:.0f} B per record; best of {repeat}"
    )
    home = java_home(os.environ, directory / "java")
    spark = open_session(SparkSettings("local[1]", (), "1g", home, directory / "spark"), "bench")
    try:
        start_workers(spark)
        warm_ingest()
        best, stored = measure(
            {
                "spark": lambda: ingest_box(spark, box, address, LIMITS),
                "arrow": lambda: ingest_group(box, address, LIMITS),
                "upb": lambda: upb_loop(bench, given),
            },
            given.records,
            repeat,
        )
    finally:
        close_session(spark)
    for way, seconds in best.items():
        speed, throughput = given.records / seconds, given.raw_bytes / seconds / 1e6
        print(f"{way:6} {seconds:7.2f} s {speed:9.0f} records/s {throughput:7.1f} MB/s")
    least, most = bench.targets
    print(f"spark / upb: {best['upb'] / best['spark']:.2f}x (target >= {least}x)")
    print(f"spark time / arrow time: {best['spark'] / best['arrow']:.2f}x (target <= {most}x)")
    segment, beside = (stored[name] / given.records for name in ("segments", "beside"))
    share = (segment + beside) * given.records / given.raw_bytes
    print(f"stored: {segment:.1f} B per record, {beside:.1f} B beside it: 1/{1 / share:.1f} of the raw bytes")
    return {way: given.records / seconds for way, seconds in best.items()}


def stored_by(result: BoxResult) -> dict[str, int]:
    """Return the bytes of the segments and of their side files."""
    beside = sum(size for segment in result.segments for size in segment.statistics["side_bytes"].values())
    return {"segments": sum(segment.bytes for segment in result.segments), "beside": beside}


def measure(ways: dict[str, Callable[[], Any]], records: int, repeat: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the best time of each way and what it stored; check every result."""
    best: dict[str, float] = {}
    stored: dict[str, int] = {}
    made = set()
    for _ in range(repeat):
        for way, work in ways.items():
            seconds, answer = timed(work)
            if isinstance(answer, BoxResult):
                made.add(tuple(sorted(segment.id for segment in answer.segments)))
                stored = stored_by(answer)
                answer = rows_of(answer)
            if answer != records:
                sys.exit(f"{way} gave {answer} rows for {records} records")
            best[way] = min(seconds, best.get(way, seconds))
    if len(made) != 1:
        sys.exit("the same box gave different segments")
    return best, stored


def main(bench: Bench) -> dict[str, float]:
    """Return the records per second of each way."""
    pa.set_cpu_count(1)  # as in a Spark task: figures are per core
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="lakerunner-bench-") as directory:
        return run(bench, options.records, options.repeat, Path(directory))
