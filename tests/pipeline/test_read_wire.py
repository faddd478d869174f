"""What is no OTLP logs request is refused with its place and a reason; what protobuf takes, we take or say why not."""

from __future__ import annotations

import struct

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.pipeline.read import otlp, pieces, repair
from lakerunner.pipeline.read.wire import MAX_FIELD, varint
from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of, request_type


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def request_of(record: bytes) -> bytes:
    return field(1, field(2, field(2, record)))


def refusal(data: bytes) -> str:
    made, files = make(raw_of(data))
    assert files == {}
    assert made.segments == made.done == ()
    ((_, reason),) = made.failed
    return reason


NOT = "not an OTLP logs request: "


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"\x0a", NOT + "byte 0: ExportLogsServiceRequest ends in the middle of a field"),
        (
            b"\x0a\x05\x12",
            NOT + "byte 0: ExportLogsServiceRequest has a field that is longer than the rest of it",
        ),
        (b"\x00\x00", NOT + "byte 0: ExportLogsServiceRequest has an invalid field number"),
        (b"\x0a\x01\x13", NOT + "byte 2: ResourceLogs.scope_logs has wire type 3, not 2"),
        (b"\x0a\x01\x7b", NOT + "byte 2: ResourceLogs has a field of a wire type that OTLP does not use"),
        (request_of(b"\x10" + b"\xff" * 10), NOT + "byte 6: LogRecord has a number of more than 64 bits"),
        (request_of(b"\x10" + b"\xff" * 9 + b"\x02"), NOT + "byte 6: LogRecord has a number of more than 64 bits"),
        (request_of(b"\x10\xff"), NOT + "byte 6: LogRecord ends in the middle of a field"),
        (request_of(b"\x09\x01\x02"), NOT + "byte 6: LogRecord ends in the middle of a field"),
        (request_of(b"\x08\x01"), NOT + "byte 6: LogRecord.time_unix_nano has wire type 0, not 1"),
        (request_of(b"\xff\xff\xff\xff\xff\x01\x00"), NOT + "byte 6: LogRecord has an invalid field number"),
        (field(3, b"other"), NOT + "it has no ResourceLogs"),
        (b'{"resourceLogs":[]}', "; this looks like JSON"),
        (b"\x1f\x8b\x08\x00\x00\x00", "; this looks like gzip"),
        (b"PK\x03\x04\x14\x00", "; this looks like zip"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: bytes, reason: str) -> None:
    assert refusal(data).endswith(reason)


def test_metrics_and_traces_are_called_by_name() -> None:
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="requests", unit="1")
    metric.sum.data_points.add(as_int=5)
    assert refusal(metrics.SerializeToString()).endswith("; this looks like an OTLP metrics request")
    traces = ExportTraceServiceRequest()
    span = traces.resource_spans.add().scope_spans.add().spans.add(trace_id=bytes(16), span_id=bytes(8), name="get")
    span.start_time_unix_nano, span.end_time_unix_nano = 1, 2
    assert refusal(traces.SerializeToString()).endswith("; this looks like an OTLP traces request")


@pytest.mark.parametrize("depth", [0, 1, 20, 46, 47, 48, 49, 50, 60])
def test_nesting_is_taken_as_deep_as_protobuf_takes_it(depth: int) -> None:
    request = request_type()()
    value = request.resource_logs.add().scope_logs.add().log_records.add().body
    for _ in range(depth):
        value = value.array_value.values.add()
    value.int_value = 7
    data = request.SerializeToString()
    made, files = make(raw_of(data))
    if decoded(data) is None:
        assert "LogRecord" not in made.failed[0][1]
        assert made.failed[0][1].endswith("is nested deeper than 100 messages")
    else:
        assert actual(made.segments, files)[0]["body"] == "[" * depth + "7" + "]" * depth


def test_unknown_fields_are_passed_over() -> None:
    unknown = field(99, b"from the future") + b"\xf8\x06\x05" + b"\x79" + bytes(8) + b"\x7d" + bytes(4)
    record = unknown + b"\x09" + struct.pack("<Q", 5) + field(5, unknown + field(1, b"text") + unknown) + unknown
    data = unknown + field(1, unknown + field(2, field(2, record)))
    made, files = make(raw_of(data))
    (row,) = actual(made.segments, files)
    assert (row["timestamp"], row["message"]) == (5, "text")


def test_a_request_without_records_is_done_and_makes_no_segment() -> None:
    raw = raw_of(field(1, field(1, b"")))
    made, files = make(raw)
    assert (made.done, made.failed, made.segments, files) == ((raw.source,), (), (), {})


def test_numbers_of_32_bits_are_cut_as_protobuf_cuts_them() -> None:
    data = request_of(b"\x38" + b"\xff" * 9 + b"\x01" + b"\x10" + b"\xff" * 9 + b"\x01")
    made, files = make(raw_of(data))
    assert_same(actual(made.segments, files), expected([decoded(data)]))
    (row,) = actual(made.segments, files)
    assert (row["dropped_attributes_count"], row["severity_number"]) == (2**32 - 1, -1)


def test_more_than_can_be_read_at_once_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [request_of(b"\x09" + struct.pack("<Q", number + 1)) for number in range(5)]
    monkeypatch.setattr(otlp, "MAX_BYTES", 2 * len(files[0]))
    made, written = make(*(raw_of(data, f"{number}") for number, data in enumerate(files)))
    assert [segment.rows for segment in made.segments] == [2, 2, 1]
    assert len({segment.id for segment in made.segments}) == 3
    assert [row["timestamp"] for row in actual(made.segments, written)] == [1, 2, 3, 4, 5]
    assert [source.key for source in made.done] == ["0", "1", "2", "3", "4"]


def test_a_file_that_can_never_be_read_at_once_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = request_of(b""), request_of(field(3, b"x" * 500))
    for module in (otlp, pieces):
        monkeypatch.setattr(module, "MAX_BYTES", 400)
    made, _ = make(raw_of(large, "large"), raw_of(small, "small"))
    assert [source.key for source in made.done] == ["small"]
    assert made.failed[0][1].startswith("a LogRecord of 503 bytes needs 0 MB of memory for ")


@pytest.mark.parametrize(
    "data",
    [
        request_of(field(6, b"") * 30_000_000),
        request_of(field(5, field(5, field(1, field(1, b"\0" * (30 << 20)))))),
        request_of(field(5, field(5, field(1, b"") * 15_000_000))),
    ],
    ids=["tiny attributes", "control characters", "tiny nested values"],
)
def test_a_file_made_to_take_much_memory_is_set_aside(data: bytes) -> None:
    assert "the limit is 64 MB of input and 384 MB of memory: send smaller ones" in refusal(data)


def test_a_single_huge_text_is_refused() -> None:
    reason = refusal(request_of(field(3, bytes(MAX_FIELD + 1))))
    assert reason.endswith("ScopeLogs has a field of more than 64 MB")
    assert refusal(field(1, field(3, bytes(MAX_FIELD + 1)))).endswith("ResourceLogs has a field of more than 64 MB")


def test_a_record_too_large_to_mend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_PARTS", 3)
    pair = field(6, field(1, b"k") + field(2, field(1, b"\xff")))
    mended, _ = make(raw_of(request_of(pair)))
    assert len(mended.done) == 1
    assert refusal(request_of(pair * 2)).startswith("a LogRecord of 4 parts has text that is not UTF-8")
