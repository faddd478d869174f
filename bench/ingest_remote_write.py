"""Ingest of Prometheus remote-write: samples per second and core, three ways over the same gzipped files in one run.

    spark   ingest_box in a session with one slot, from raw objects to segments in a local store
    arrow   the same code in this process, without Spark
    upb     a loop over protobuf's messages into Python lists: decoding only, nothing written

The input is shaped like Prometheus': requests of 2,000 samples, one of each series, ten labels, the same series again
in every scrape; a third of them counters, a third gauges, a third histogram buckets. The ways take turns, and the best
turn of each counts. Also printed: bytes per stored sample, with side files. `--version 2` sends the same as 2.0.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from isal import igzip

from _ingest import LIMITS, OPENING_NS, measure
from lakerunner.bus.topics import IngestBox
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline import segments
from lakerunner.pipeline.ingest import ingest_box, ingest_group, warm
from lakerunner.pipeline.java import java_home
from lakerunner.pipeline.read.wire import varint
from lakerunner.pipeline.session import SparkSettings, close_session, open_session

PER_REQUEST = 2000
REQUESTS_PER_FILE = 50
SCRAPE_MS = 15_000
_TARGET, _TARGET_BYTES = 400_000, 2.5
_FIELDS = {
    1: {
        "Label": [("name", "STRING", 1), ("value", "STRING", 2)],
        "Sample": [("value", "DOUBLE", 1), ("timestamp", "INT64", 2)],
        "TimeSeries": [("labels", "Label", 1), ("samples", "Sample", 2)],
        "Request": [("timeseries", "TimeSeries", 1)],
    },
    2: {
        "Sample": [("value", "DOUBLE", 1), ("timestamp", "INT64", 2)],
        "Metadata": [("type", "UINT32", 1)],
        "TimeSeries": [("labels_refs", "[UINT32", 1), ("samples", "Sample", 2), ("metadata", "=Metadata", 5)],
        "Request": [("symbols", "[STRING", 4), ("timeseries", "TimeSeries", 5)],
    },
}


@cache
def request_type(version: int) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    for name, fields in _FIELDS[version].items():
        message = file.message_type.add(name=name)
        for field_name, kind, number in fields:
            field = message.field.add(name=field_name, number=number, label=1)
            scalar = getattr(field, f"TYPE_{kind.lstrip('[')}", None)
            if kind.startswith("[") or (scalar is None and not kind.startswith("=")):
                field.label = 3
            if scalar is None:
                field.type, field.type_name = field.TYPE_MESSAGE, f".bench.{kind.lstrip('=')}"
            else:
                field.type = scalar
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Request"))


def make_series(count: int, dice: random.Random) -> list[tuple[list[tuple[str, str]], int, Any]]:
    """(labels, type of 2.0, how the value goes on) of each."""
    found = []
    for number in range(count):
        pod, kind = number // 120, number % 3
        labels = [
            ("__name__", f"{('http_requests_total', 'queue_depth', 'request_seconds_bucket')[kind]}_{number % 40}"),
            ("cluster", "eu-west-1"),
            ("container", f"app-{pod % 12}"),
            ("instance", f"10.1.{pod // 200}.{pod % 200}:9100"),
            ("job", f"service-{pod % 12}"),
            ("le" if kind == 2 else "method", str(0.005 * 2 ** (number % 11)) if kind == 2 else "GET"),
            ("namespace", f"team-{pod % 5}"),
            ("node", f"node-{pod % 20}"),
            ("pod", f"app-{pod % 12}-7d9f8b6c5-{pod:05}"),
            ("route", f"/api/v1/resource/{number % 120}"),
        ]
        rate = dice.randrange(1, 50)
        found.append((labels, (1, 2, 3)[kind], (kind, rate, dice.random() * 100)))
    return found


def value_at(way: tuple[int, int, float], scrape: int, dice: random.Random) -> float:
    """Counters and buckets grow by whole numbers, gauges wander in steps of a hundredth."""
    kind, rate, base = way
    if kind == 1:
        return round(base + dice.randrange(-300, 300) / 100, 2)
    return float(rate * scrape + dice.randrange(rate))


def make_request(version: int, chosen: list[Any], scrape: int, dice: random.Random) -> bytes:
    request, time_ms = request_type(version)(), OPENING_NS // 1_000_000 + scrape * SCRAPE_MS
    symbols: dict[str, int] = {"": 0}
    for labels, kind, way in chosen:
        series = request.timeseries.add()
        if version == 1:
            for name, value in labels:
                series.labels.add(name=name, value=value)
        else:
            series.labels_refs.extend(symbols.setdefault(text, len(symbols)) for label in labels for text in label)
            series.metadata.type = kind
        series.samples.add(value=value_at(way, scrape, dice), timestamp=time_ms + len(labels) % 3)
    if version == 2:
        request.symbols.extend(symbols)
    data: bytes = request.SerializeToString()
    return data


def write_box(address: StoreAddress, version: int, samples: int, series: int) -> tuple[IngestBox, int, int]:
    """(the box, its samples, its size unpacked)."""
    store, dice = shared_store(address), random.Random(7)
    everyone = make_series(series, dice)
    starts = range(0, series, PER_REQUEST)
    requests, count, scrape = [], 0, 0
    while count < samples:
        for start in starts:
            chosen = everyone[start : start + PER_REQUEST]
            requests.append(make_request(version, chosen, scrape, dice))
            count += len(chosen)
        scrape += 1
    sources = []
    for number, start in enumerate(range(0, len(requests), REQUESTS_PER_FILE)):
        data = b"".join(varint(len(one)) + one for one in requests[start : start + REQUESTS_PER_FILE])
        key = f"otel-raw/default/bench/metrics_{number:05}.prw{version}.gz"
        store.put(key, igzip.compress(data, compresslevel=1))
        meta = store.head(key)
        sources.append(SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
    box = IngestBox(DEFAULT_ORGANIZATION.id, "bench", "metrics", tuple(sources))
    return box, count, sum(map(len, requests))


def upb_loop(box: IngestBox, address: StoreAddress, version: int) -> int:
    store, count = shared_store(address), 0
    for source in box.sources:
        data, at = igzip.decompress(store.get(source.key, max_bytes=source.size)), 0
        while at < len(data):
            size = shift = 0
            while True:
                byte = data[at]
                at += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            count += len(columns_of(request_type(version).FromString(data[at : at + size]), version)[0])
            at += size
    return count


def columns_of(request: Any, version: int) -> tuple[list[int], list[float], list[dict[str, str]]]:
    times, values, labels = [], [], []
    symbols = list(request.symbols) if version == 2 else []
    for series in request.timeseries:
        if version == 1:
            found = {label.name: label.value for label in series.labels}
        else:
            texts = [symbols[number] for number in series.labels_refs]
            found = dict(zip(texts[::2], texts[1::2], strict=True))
        for sample in series.samples:
            times.append(sample.timestamp)
            values.append(sample.value)
            labels.append(found)
    return times, values, labels


def run(options: argparse.Namespace, directory: Path) -> None:
    (directory / "store").mkdir()
    address = StoreAddress((directory / "store").as_uri())
    box, samples, raw_bytes = write_box(address, options.version, options.samples, options.series)
    print(
        f"{samples} samples of {options.series} series in {len(box.sources)} files: {raw_bytes / 1e6:.0f} MB, "
        f"{raw_bytes / samples:.0f} B per sample on the wire; best of {options.repeat}"
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
                "upb": lambda: upb_loop(box, address, options.version),
            },
            samples,
            options.repeat,
        )
        made = ingest_group(box, address, LIMITS).segments
    finally:
        close_session(spark)
    for way, seconds in best.items():
        print(f"{way:6} {seconds:7.2f} s {samples / seconds:9.0f} samples/s {raw_bytes / seconds / 1e6:7.1f} MB/s")
    print(f"spark: {samples / best['spark']:.0f} samples/s per core (target >= {_TARGET})")
    print(f"spark / upb: {best['upb'] / best['spark']:.2f}x")
    files = sum(segment.bytes for segment in made)
    sides = sum(sum(segment.statistics["side_bytes"].values()) for segment in made)
    print(f"{(files + sides) / samples:.2f} B per sample (target <= {_TARGET_BYTES}), {sides / samples:.2f} beside it")


def main() -> None:
    pa.set_cpu_count(1)  # as in a Spark task: figures are per core
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=4_000)
    parser.add_argument("--version", type=int, default=1, choices=(1, 2))
    parser.add_argument("--repeat", type=int, default=3)
    with TemporaryDirectory(prefix="lakerunner-bench-") as directory:
        run(parser.parse_args(), Path(directory))


if __name__ == "__main__":
    sys.exit(main())
