"""Requests ingested one by one and all at once: the segments that a merge is given, and the one that it should make."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.make_segments import Raw, make_segments

ORGANIZATION = UUID(int=7)
START = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS


@dataclass(frozen=True)
class Ingested:
    """`parts` are of one request each, `whole` of all of them."""

    parts: tuple[Segment, ...]
    whole: Segment
    files: Mapping[str, bytes]

    def read_side(self, segment: Segment, name: str) -> memoryview | None:
        data = self.files.get(segment.side_path(name))
        return None if data is None else memoryview(data)

    def side(self, name: str) -> bytes:
        return self.files[self.whole.side_path(name)]

    def row_groups(self) -> Iterator[pa.RecordBatch]:
        """Of the whole."""
        file = pq.ParquetFile(io.BytesIO(self.files[self.whole.path]))
        for number in range(file.num_row_groups):
            yield file.read_row_group(number).combine_chunks().to_batches()[0]


def ingested(spec: SignalSpec, *requests: bytes, form: str = "otlp") -> Ingested:
    """Requests whose rows are of one hour."""
    files: dict[str, bytes] = {}

    def put(path: str, data: memoryview) -> None:
        files[path] = bytes(data)

    raws = [
        Raw(SourceObject("bucket", f"{number:04}", "etag", len(data), START), memoryview(data), form)
        for number, data in enumerate(requests)
    ]
    made = [make_segments(spec, ORGANIZATION, "c", chosen, put) for chosen in ([raw] for raw in raws)]
    parts = [segment for one in made for segment in one.segments]
    (whole,) = make_segments(spec, ORGANIZATION, "c", raws, put).segments
    assert len(parts) == len(requests)
    return Ingested(tuple(parts), whole, files)


def random_metrics(chance: random.Random, points: int = 60) -> bytes:
    request = ExportMetricsServiceRequest()
    for _ in range(chance.randint(1, 3)):
        scope = _resource(request.resource_metrics.add(), chance).scope_metrics.add()
        for _ in range(chance.randint(1, 4)):
            # Few series, so that requests share many.
            metric = scope.metrics.add(name=chance.choice(["a.b", "up", "http_requests", "ä"]))
            metric.unit, metric.description = "By" if metric.name == "ä" else "", chance.choice(["", "one", "other"])
            if metric.name == "http_requests":
                target = metric.sum
                target.aggregation_temporality, target.is_monotonic = chance.choice([1, 2]), chance.random() < 0.5
            else:
                target = metric.gauge
            for _ in range(points // 10):
                point = target.data_points.add(time_unix_nano=_time(chance), as_double=chance.random())
                if chance.random() < 0.3:
                    _attributes(point.attributes, chance)
    return bytes(request.SerializeToString())


def random_logs(chance: random.Random, messages: Sequence[str]) -> bytes:
    request = ExportLogsServiceRequest()
    for message in messages:
        scope = _resource(request.resource_logs.add(), chance).scope_logs.add()
        record = scope.log_records.add(time_unix_nano=_time(chance))
        record.body.string_value = message
        _attributes(record.attributes, chance)
    return bytes(request.SerializeToString())


def random_spans(chance: random.Random, spans: int = 60, traces: int = 8) -> bytes:
    request = ExportTraceServiceRequest()
    for _ in range(spans):
        scope = _resource(request.resource_spans.add(), chance).scope_spans.add()
        span = scope.spans.add(trace_id=bytes([chance.randrange(traces)]) * 16, span_id=chance.randbytes(8))
        span.name = chance.choice(["GET /", "SELECT", "x"])
        span.start_time_unix_nano = _time(chance)
        span.end_time_unix_nano = chance.choice([0, span.start_time_unix_nano + chance.randrange(10**9)])
        span.parent_span_id = chance.choice([b"", chance.randbytes(8), chance.randbytes(8)])
        span.status.code = chance.randrange(3)
        _attributes(span.attributes, chance)
    return bytes(request.SerializeToString())


def _time(chance: random.Random) -> int:
    return START + chance.randrange(50) * 10**9


def _resource(holder: Any, chance: random.Random) -> Any:
    attributes = holder.resource.attributes
    attributes.add(key="service.name").value.string_value = chance.choice(["cart", "shop", "pay"])
    if chance.random() < 0.5:
        attributes.add(key="service.instance.id").value.string_value = chance.choice(["1", "2"])
    return holder


def _attributes(attributes: Any, chance: random.Random) -> None:
    """Some twice, which leaves strings for the map, as do strings of a key whose values are mostly numbers."""
    for key in chance.choices(["k", "le", "job", "id", "count"], k=chance.randrange(4)):
        value = attributes.add(key=key).value
        match chance.randrange(6) if key != "count" else chance.choice([0, 0, 0, 0, 0, 2]):
            case 0:
                value.int_value = chance.randrange(3)
            case 1:
                value.array_value.values.add().string_value = f"inside-an-array-{chance.randrange(4)}-long"
            case 2:
                value.string_value = f'a"b\\c\nd\tupper{chance.choice("AB")}-0123456789abcdef\x01after-that-0123456789'
            case 3:
                value.bytes_value = b"0123456789abcdef0123456789abcdef"
            case _:
                value.string_value = chance.choice(["", "x", "ein-langer-Name-ohne-Ende", "0123456789abcdef" * 2])
