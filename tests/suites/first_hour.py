"""What programs send in the first hour, as files that curl can post: OTLP, remote write and Loki's push in protobuf.

All of it is of 2024-05-01, 12:00 UTC: what a script shows of it is the same on every day.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint
from pipeline.remote_write_oracle import message_type

NOON = 1_714_564_800
_S = 10**9
_TRACE = bytes(range(16))

GRPC = """\
#!{python}
\"\"\"otlp-grpc ADDRESS logs|metrics|trace FILE: export the request in the file, as an SDK does.\"\"\"
import sys
from pathlib import Path
import grpc
address, signal, path = sys.argv[1:]
method = f"/opentelemetry.proto.collector.{{signal}}.v1.{{signal.capitalize()}}Service/Export"
with grpc.insecure_channel(address) as channel:
    channel.unary_unary(method)(Path(path).read_bytes(), timeout=60, wait_for_ready=True)
print("accepted")
"""


def write_requests(directory: Path, python: str) -> None:
    """Write every request and the program `otlp-grpc` into the directory."""
    for name, data in (
        ("logs.binpb", _logs()),
        ("more_logs.binpb", _logs("checkout", "paid by invoice")),
        ("metrics.binpb", _metrics()),
        ("trace.binpb", _spans()),
        ("samples.snappy", _snappy(_samples())),
        ("loki.snappy", _snappy(_loki())),
    ):
        (directory / name).write_bytes(data)
    program = directory / "otlp-grpc"
    program.write_text(GRPC.format(python=python))
    program.chmod(0o755)


def _logs(service: str = "checkout", *messages: str) -> bytes:
    request = ExportLogsServiceRequest()
    scope = _named(request.resource_logs.add(), service).scope_logs.add()
    for number, message in enumerate(messages or ("order 1 placed", "order 2 placed", "payment timed out")):
        severity = ("ERROR", 17) if "timed out" in message else ("INFO", 9)
        record = scope.log_records.add(
            time_unix_nano=(NOON + number) * _S, severity_text=severity[0], severity_number=severity[1]
        )
        record.body.string_value = message
        record.attributes.add(key="http.route").value.string_value = "/pay"
    return request.SerializeToString()


def _metrics() -> bytes:
    """A gauge: the length of a queue, at three moments."""
    request = ExportMetricsServiceRequest()
    metric = _named(request.resource_metrics.add(), "checkout").scope_metrics.add().metrics.add(name="queue.length")
    for number, value in enumerate((3, 5, 4)):
        metric.gauge.data_points.add(time_unix_nano=(NOON + 60 * number) * _S, as_int=value)
    return request.SerializeToString()


def _spans() -> bytes:
    request = ExportTraceServiceRequest()
    scope = _named(request.resource_spans.add(), "checkout").scope_spans.add()
    for number, (name, ms) in enumerate((("POST /pay", 250), ("charge card", 200))):
        scope.spans.add(
            name=name,
            trace_id=_TRACE,
            span_id=bytes([number + 1] * 8),
            parent_span_id=bytes([1] * 8) if number else b"",
            start_time_unix_nano=NOON * _S,
            end_time_unix_nano=NOON * _S + ms * 10**6,
        )
    return request.SerializeToString()


def _samples() -> bytes:
    """Two counters over ten minutes, scraped every 15 s: 2 and 0.2 requests a second."""
    request = message_type("prw1")()
    for code, rate in (("200", 30), ("500", 3)):
        series = request.timeseries.add()
        labels = {"__name__": "http_requests_total", "code": code, "instance": "web:80", "job": "web"}
        for name, value in labels.items():
            series.labels.add(name=name, value=value)
        for number in range(41):
            series.samples.add(value=rate * number, timestamp=(NOON + 15 * number) * 1000)
    return bytes(request.SerializeToString())


def _loki() -> bytes:
    """logproto.PushRequest, as promtail sends it."""
    one, two = tag(1, DELIMITED), tag(2, DELIMITED)
    stamp = delimited(one, tag(1, VARINT) + varint(NOON))
    entry = delimited(two, stamp + delimited(two, b"promtail was here"))
    return delimited(one, delimited(one, b'{job="varlogs", level="warn"}') + entry)


def _snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, "snappy", asbytes=True))


def _named(holder: Any, service: str) -> Any:
    holder.resource.attributes.add(key="service.name").value.string_value = service
    return holder
