"""Ingest of OTLP logs: records and megabytes per second and core, three ways over the same gzipped files in one run.

    spark   ingest_box in a session with one slot, from raw objects to segments in a local store
    arrow   the same code in this process, without Spark
    upb     a plain loop over opentelemetry-proto's messages into Python lists: decoding only, nothing written

The ways take turns, and the best turn of each counts, because other work on the machine can only slow a turn down.
Exit code 1 if rows are wrong or the segments of the first two differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from isal import igzip
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.bus.topics import IngestBox
from lakerunner.demo.shop import Shop
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline import segments
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box, ingest_group, warm
from lakerunner.pipeline.java import java_home
from lakerunner.pipeline.session import SparkSettings, close_session, open_session

LIMITS = IngestLimits(object_max_bytes=256 << 20, task_max_bytes=128 << 20)
OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
PER_FILE = 8192


def write_box(address: StoreAddress, records: int) -> tuple[IngestBox, int]:
    """The box of raw files, and their size unpacked."""
    store = shared_store(address)
    sources, raw_bytes = [], 0
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=500)
    for number, batch in enumerate(shop.bulk_logs(records, per_file=PER_FILE)):
        key = f"otel-raw/default/bench/logs_{number:05}.binpb.gz"
        data = igzip.compress(batch.data)
        store.put(key, data)
        meta = store.head(key)
        sources.append(SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
        raw_bytes += len(batch.data)
    return IngestBox(DEFAULT_ORGANIZATION.id, "bench", "logs", tuple(sources)), raw_bytes


def upb_loop(box: IngestBox, address: StoreAddress) -> int:
    """What one writes first, file by file; the number of records."""
    store = shared_store(address)
    count = 0
    for source in box.sources:
        data = igzip.decompress(store.get(source.key, max_bytes=source.size))
        count += len(columns_of(ExportLogsServiceRequest.FromString(data))["timestamp"])
    return count


def columns_of(request: Any) -> dict[str, list[Any]]:
    """Each field of each record appended to the list of its column."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for resource_logs in request.resource_logs:
        resource = attributes(resource_logs.resource.attributes)
        service = resource.get("service.name", "")
        for scope_logs in resource_logs.scope_logs:
            scope = scope_logs.scope
            for record in scope_logs.log_records:
                columns["service_name"].append(service)
                columns["resource_attributes"].append(resource)
                columns["scope_name"].append(scope.name)
                columns["scope_version"].append(scope.version)
                columns["timestamp"].append(record.time_unix_nano)
                columns["observed_timestamp"].append(record.observed_time_unix_nano)
                columns["severity_number"].append(record.severity_number)
                columns["severity_text"].append(record.severity_text)
                columns["message"].append(value(record.body))
                columns["attributes"].append(attributes(record.attributes))
                columns["trace_id"].append(record.trace_id)
                columns["span_id"].append(record.span_id)
                columns["flags"].append(record.flags)
                columns["event_name"].append(record.event_name)
    return columns


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


def run(records: int, repeat: int, directory: Path) -> None:
    address = StoreAddress((directory / "store").as_uri())
    box, raw_bytes = write_box(address, records)
    packed = sum(source.size for source in box.sources)
    print(
        f"{records} records in {len(box.sources)} files: {raw_bytes / 1e6:.0f} MB, {packed / 1e6:.0f} MB gzipped, "
        f"{raw_bytes / records:.0f} B per record; best of {repeat}"
    )
    home = java_home(os.environ, directory / "java")
    spark = open_session(SparkSettings("local[1]", (), "1g", home, directory / "spark"), "bench")
    try:
        warm(spark)
        segments.warm()
        best = measure(
            {
                "spark": lambda: ingest_box(spark, box, address, LIMITS),
                "arrow": lambda: ingest_group(box, address, LIMITS),
                "upb": lambda: upb_loop(box, address),
            },
            records,
            repeat,
        )
    finally:
        close_session(spark)
    for way, seconds in best.items():
        print(f"{way:6} {seconds:7.2f} s {records / seconds:9.0f} records/s {raw_bytes / seconds / 1e6:7.1f} MB/s")
    print(f"spark / upb: {best['upb'] / best['spark']:.2f}x (target >= 1.5x)")
    print(f"spark time / arrow time: {best['spark'] / best['arrow']:.2f}x (target <= 1.4x)")


def measure(ways: dict[str, Callable[[], Any]], records: int, repeat: int) -> dict[str, float]:
    """The best time of each way; every answer is checked."""
    best: dict[str, float] = {}
    made = set()
    for _ in range(repeat):
        for way, work in ways.items():
            seconds, answer = timed(work)
            if isinstance(answer, BoxResult):
                made.add(tuple(sorted(segment.id for segment in answer.segments)))
                answer = rows_of(answer)
            if answer != records:
                sys.exit(f"{way} gave {answer} rows for {records} records")
            best[way] = min(seconds, best.get(way, seconds))
    if len(made) != 1:
        sys.exit("the same box gave different segments")
    return best


def main() -> None:
    pa.set_cpu_count(1)  # as in a Spark task: figures are per core
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="lakerunner-bench-") as directory:
        run(options.records, options.repeat, Path(directory))


if __name__ == "__main__":
    main()
