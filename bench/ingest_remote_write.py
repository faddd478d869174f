"""Ingest of Prometheus remote-write 1.0 and 2.0 through Spark, the same code without Spark, and a upb loop (the frame
is _ingest.py); and what a sample of regular counters takes in storage.

The input is shaped like Prometheus': requests of 2,000 samples, one of each series, ten labels, the same series again
in every scrape; a third of them counters, a third gauges, a third histogram buckets. Speed is told beside the upb loop
over logs as well, which is the measure that cores are compared by.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import ingest_logs
from _ingest import OPENING_NS, Bench, Columns, main, timed, until
from ingest_metrics import COUNTERS, EXPORT_NS, EXPORTS_PER_HOUR, PODS
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.protobuf import DELIMITED, FIXED64, VARINT, delimited, tag, varint
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner_demo.shop import Batch, Shop

SERIES, PER_REQUEST, REQUESTS_PER_FILE = 4_000, 2_000, 10
LOGS = 20_000
# 400k samples/s where the upb loop over logs does 84k records/s.
LEAST_BESIDE_LOGS, MOST_BYTES = 400 / 84, 2.5
_FIELDS = {
    "prw1": {
        "Label": "name:string=1 value:string=2",
        "Sample": "value:double=1 timestamp:int64=2",
        "TimeSeries": "labels:[Label]=1 samples:[Sample]=2",
        "Request": "timeseries:[TimeSeries]=1",
    },
    "prw2": {
        "Sample": "value:double=1 timestamp:int64=2",
        "Metadata": "type:uint32=1",
        "TimeSeries": "labels_refs:[uint32]=1 samples:[Sample]=2 metadata:Metadata=5",
        "Request": "symbols:[string]=4 timeseries:[TimeSeries]=5",
    },
}

ONE, TWO, SYMBOL, FIVE = (tag(number, DELIMITED) for number in (1, 2, 4, 5))
VALUE, TIME = tag(1, FIXED64), tag(2, VARINT)
Labels = list[tuple[str, str]]
Series = tuple[Labels, int]  # with its type of 2.0


def fleet(series: int) -> Iterator[Series]:
    for number in range(series):
        pod, kind = number // 120, number % 3
        yield (
            [
                ("__name__", f"{('http_requests_total', 'queue_depth', 'request_seconds_bucket')[kind]}_{number % 40}"),
                ("cluster", "eu-west-1"),
                ("container", f"app-{pod % 12}"),
                ("instance", f"10.1.{pod // 200}.{pod % 200}:9100"),
                ("job", f"service-{pod % 12}"),
                ("le", str(0.005 * 2 ** (number % 11))) if kind == 2 else ("method", "GET"),
                ("namespace", f"team-{pod % 5}"),
                ("node", f"node-{pod % 20}"),
                ("pod", f"app-{pod % 12}-7d9f8b6c5-{pod:05}"),
                ("route", f"/api/v1/resource/{number % 120}"),
            ],
            kind + 1,
        )


def writer(form: str, series: Sequence[Series]) -> Callable[[int, Sequence[float]], bytes]:
    """Build framed requests with one sample of each series, from a time in ms and values."""
    symbols = {"": 0}
    parts = []
    for labels, kind in series:
        if form == "prw1":
            pairs = (delimited(ONE, name.encode()) + delimited(TWO, value.encode()) for name, value in labels)
            parts.append((b"".join(delimited(ONE, pair) for pair in pairs), b""))
        else:
            numbers = (symbols.setdefault(text, len(symbols)) for label in labels for text in label)
            metadata = delimited(FIVE, tag(1, VARINT) + varint(kind))
            parts.append((delimited(ONE, b"".join(map(varint, numbers))), metadata))
    outer = ONE if form == "prw1" else FIVE
    head = b"".join(delimited(SYMBOL, text.encode()) for text in symbols) if form == "prw2" else b""

    def request(time_ms: int, values: Sequence[float]) -> bytes:
        time = TIME + varint(time_ms)
        samples = (delimited(TWO, VALUE + struct.pack("<d", value) + time) for value in values)
        written = zip(parts, samples, strict=True)
        body = head + b"".join(delimited(outer, before + sample + after) for (before, after), sample in written)
        return varint(len(body)) + body

    return request


def scrapes(form: str) -> Iterator[bytes]:
    """Yield requests. Counters and buckets grow by whole numbers, gauges move in steps of a hundredth."""
    chance, everyone = random.Random(7), list(fleet(SERIES))
    rates = [chance.randrange(1, 50) for _ in everyone]
    parts = [slice(start, start + PER_REQUEST) for start in range(0, SERIES, PER_REQUEST)]
    writers = [writer(form, everyone[part]) for part in parts]
    for scrape in count():
        for write, part in zip(writers, parts, strict=True):
            values = [
                round(rate + chance.randrange(-300, 300) / 100, 2)
                if kind == 2
                else float(rate * scrape + chance.randrange(rate))
                for (_, kind), rate in zip(everyone[part], rates[part], strict=True)
            ]
            yield write((OPENING_NS + scrape * EXPORT_NS) // 1_000_000, values)


def batches(form: str) -> Callable[[Shop, int], Iterator[Batch]]:
    def every() -> Iterator[Batch]:
        requests = scrapes(form)
        for number in count():
            data = b"".join(next(requests) for _ in range(REQUESTS_PER_FILE))
            start_ns = OPENING_NS + number * EXPORT_NS
            yield Batch("metrics", start_ns, start_ns + 1, PER_REQUEST * REQUESTS_PER_FILE, data)

    return lambda _shop, records: until(every(), records)


class Frames:
    """Decode the requests of a file by protobuf."""

    def __init__(self, form: str) -> None:
        file = descriptor_pb2.FileDescriptorProto(name=f"{form}.proto", package=form, syntax="proto3")
        for name, fields in _FIELDS[form].items():
            message = file.message_type.add(name=name)
            for text in fields.split():
                field_name, kind, number = text.replace("=", ":").split(":")
                field = message.field.add(name=field_name, number=int(number), label=3 if "[" in kind else 1)
                kind = kind.strip("[]")
                if kind[0].isupper():
                    field.type, field.type_name = field.TYPE_MESSAGE, f".{form}.{kind}"
                else:
                    field.type = getattr(field, f"TYPE_{kind.upper()}")
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self._type = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{form}.Request"))

    def FromString(self, data: bytes) -> list[Any]:  # noqa: N802 - as protobuf calls it
        requests, at = [], 0
        while at < len(data):
            size = shift = 0
            while True:
                byte = data[at]
                at += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            requests.append(self._type.FromString(data[at : at + size]))
            at += size
        return requests


def columns_of_1_0(requests: list[Any]) -> Columns:
    """Append each field of each sample to the list of its column."""
    columns: Columns = defaultdict(list)
    for request in requests:
        for series in request.timeseries:
            labels = {label.name: label.value for label in series.labels}
            for sample in series.samples:
                columns["attributes"].append(labels)
                columns["timestamp"].append(sample.timestamp)
                columns["value"].append(sample.value)
    return columns


def columns_of_2_0(requests: list[Any]) -> Columns:
    columns: Columns = defaultdict(list)
    for request in requests:
        symbols = list(request.symbols)
        for series in request.timeseries:
            texts = [symbols[number] for number in series.labels_refs]
            labels = dict(zip(texts[::2], texts[1::2], strict=True))
            kind = series.metadata.type
            for sample in series.samples:
                columns["attributes"].append(labels)
                columns["metric_type"].append(kind)
                columns["timestamp"].append(sample.timestamp)
                columns["value"].append(sample.value)
    return columns


def storage() -> None:
    """Build counters that Prometheus scrapes every 15 s for an hour, as in ingest_metrics.py."""
    chance, everyone = random.Random(7), [one for one in fleet(3 * PODS * COUNTERS) if one[1] == 1]
    write, totals, raws = writer("prw1", everyone), [0] * len(everyone), []
    for number in range(EXPORTS_PER_HOUR):
        totals = [total + chance.randrange(40) for total in totals]
        data = write((OPENING_NS + number * EXPORT_NS) // 1_000_000, totals)
        raws.append(Raw(SourceObject("bench", f"{number:05}", "etag", len(data), 0), memoryview(data), "prw1"))
    made = make_segments(METRICS, DEFAULT_ORGANIZATION.id, "bench", raws, lambda _path, _data: None)
    rows = sum(segment.rows for segment in made.segments)
    beside = sum(size for segment in made.segments for size in segment.statistics["side_bytes"].values())
    stored = sum(segment.bytes for segment in made.segments) + beside
    print(
        f"regular counters: {stored / rows:.2f} B per sample, {beside / rows:.2f} of them the table of series "
        f"(target <= {MOST_BYTES} B)"
    )


def logs_per_second() -> float:
    """Return the speed of the upb loop over logs on this core."""
    requests = [batch.data for batch in Shop(seed=7, start_ns=OPENING_NS, rate=500).bulk_logs(LOGS, per_file=LOGS)]
    best, _ = min(
        timed(lambda: [ingest_logs.columns_of(ExportLogsServiceRequest.FromString(one)) for one in requests])
        for _ in range(3)
    )
    return LOGS / best


def bench(form: str, columns_of: Callable[[list[Any]], Columns]) -> None:
    print(f"== {form}")
    before = logs_per_second()
    speeds = main(Bench("metrics", Frames(form), batches(form), columns_of, (2.5, 1.25), f".{form}.zst"))
    logs = max(before, logs_per_second())
    print(
        f"spark / upb loop over logs ({logs:.0f}/s): {speeds['spark'] / logs:.2f}x "
        f"(target >= {LEAST_BESIDE_LOGS:.2f}x: 400k where that loop does 84k)"
    )


if __name__ == "__main__":
    storage()
    bench("prw1", columns_of_1_0)
    bench("prw2", columns_of_2_0)
