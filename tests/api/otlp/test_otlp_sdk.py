"""OpenTelemetry's own SDK and exporters against our ports: what they send is what we hold."""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from suites.doors import Doors
from suites.pushed import lines_of, pushed_objects

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)
HEADERS = {"authorization": "Bearer lrk_acme"}


def some_logs() -> Any:
    kept = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    for line in ("first", "second"):
        provider.get_logger("shop").emit(LogRecord(timestamp=1, body=line, severity_number=SeverityNumber.WARN))
    return kept.get_finished_logs()


def some_metrics() -> Any:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("shop")
    meter.create_counter("orders").add(3, {"country": "NZ"})
    meter.create_histogram("seconds").record(0.25)
    return reader.get_metrics_data()


def some_spans() -> Any:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("shop")
    with tracer.start_as_current_span("checkout"), tracer.start_as_current_span("pay"):
        pass
    return kept.get_finished_spans()


def metric_names(data: bytes) -> list[str]:
    request = ExportMetricsServiceRequest.FromString(data)
    return [item.name for one in request.resource_metrics for scope in one.scope_metrics for item in scope.metrics]


def span_names(data: bytes) -> list[str]:
    request = ExportTraceServiceRequest.FromString(data)
    return [span.name for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]


class Sdk(NamedTuple):
    """How the SDK makes a signal's records, sends them, and what of them we look for."""

    make: Callable[[], Any]
    http: Any
    grpc: Any
    names: Callable[[bytes], list[str]]
    expected: list[str]


SDK = {
    "logs": Sdk(some_logs, HttpLogs, GrpcLogs, lines_of, ["first", "second"]),
    "metrics": Sdk(some_metrics, HttpMetrics, GrpcMetrics, metric_names, ["orders", "seconds"]),
    "traces": Sdk(some_spans, HttpSpans, GrpcSpans, span_names, ["pay", "checkout"]),
}


@pytest.mark.parametrize("packing", [Compression.NoCompression, Compression.Gzip])
@pytest.mark.parametrize("door", ["http", "grpc"])
@pytest.mark.parametrize("signal", sorted(SDK))
def test_what_the_sdk_exports_is_stored_when_it_hears_success(
    doors: Doors, signal: str, door: str, packing: Compression
) -> None:
    sdk = SDK[signal]
    if door == "http":
        exporter = sdk.http(f"{doors.url}/v1/{signal}", headers=HEADERS, compression=packing, timeout=30)
    else:
        named = {Compression.NoCompression: grpc.Compression.NoCompression, Compression.Gzip: grpc.Compression.Gzip}
        exporter = sdk.grpc(doors.grpc_address, insecure=True, headers=HEADERS, compression=named[packing], timeout=30)
    result = exporter.export(sdk.make())
    exporter.shutdown()
    assert result.name == "SUCCESS"
    (data,) = pushed_objects(doors.store).values()
    assert sdk.names(data) == sdk.expected


def test_the_sdk_sends_again_what_there_was_no_room_for(doors: Doors) -> None:
    doors.hold()
    waiting = [doors.offer(line) for line in ("a", "b")]
    exporter = HttpLogs(f"{doors.url}/v1/logs", headers=HEADERS, timeout=30)
    release = Timer(1.5, doors.release)
    release.start()
    assert exporter.export(some_logs()).name == "SUCCESS"
    exporter.shutdown()  # type: ignore[no-untyped-call]
    release.join()
    for answer in waiting:
        answer.result(30)
    held = [line for data in pushed_objects(doors.store).values() for line in lines_of(data)]
    assert sorted(held) == ["a", "b", "first", "second"]
