"""OTLP/JSON becomes the same request as protobuf."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.errors import UserError
from lakerunner.pipeline.transcode.otlp_json import request_from_json

REQUEST = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]},
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": "1766577984449000001",
                            "severityNumber": 9,
                            "body": {"stringValue": "hello"},
                            "traceId": "AAfe664bb5e1ed70e1a88b567356dd57",
                            "spanId": "cf14d481b826c905",
                            "attributes": [
                                {"key": "traceId", "value": {"intValue": "9007199254740993"}},
                                {"key": "raw", "value": {"bytesValue": "AAE="}},
                            ],
                            "fieldOfTheFuture": 1,
                        }
                    ]
                }
            ],
        }
    ]
}


def test_ids_are_hex_and_numbers_stay_exact() -> None:
    request = ExportLogsServiceRequest.FromString(request_from_json("logs", json.dumps(REQUEST).encode()))
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    assert record.trace_id.hex() == "aafe664bb5e1ed70e1a88b567356dd57"
    assert record.span_id.hex() == "cf14d481b826c905"
    assert record.time_unix_nano == 1766577984449000001
    assert record.attributes[0].key == "traceId"
    assert record.attributes[0].value.int_value == 9007199254740993
    assert record.attributes[1].value.bytes_value == b"\x00\x01"
    assert record.body.string_value == "hello"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "an OTLP/JSON request is an object"),
        (b'{"resourceLogs": 5}', "the body is not an OTLP logs request"),
        (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xyz"}]}]}]}',
            "traceId 'xyz' is not hex",
        ),
    ],
)
def test_what_is_wrong_is_named(body: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        request_from_json("logs", body)


def test_a_signal_that_is_not_ingested_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="metrics are not ingested by this version"):
        request_from_json("metrics", b"{}")
