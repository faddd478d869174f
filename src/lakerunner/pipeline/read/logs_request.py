"""OTLP's logs request: its messages for the wire check, and how what is odd in them is mended."""

from __future__ import annotations

from typing import Any

from lakerunner.pipeline.read.otlp import COMMON, KEY_VALUE, Request
from lakerunner.pipeline.read.repair import (
    Repair,
    kept_as,
    mend_pairs,
    mend_resource,
    mend_scope,
    mend_text,
    mend_time,
    mend_value,
    well_formed,
)
from lakerunner.pipeline.read.wire import BYTES, FIXED32, MESSAGE, STRING, TIME, VARINT, Field, Messages

_MESSAGES: Messages = {
    "ExportLogsServiceRequest": {1: Field("resource_logs", MESSAGE, "ResourceLogs", many=1)},
    "ResourceLogs": {
        1: Field("resource", MESSAGE, "Resource"),
        2: Field("scope_logs", MESSAGE, "ScopeLogs", many=1),
        3: Field("schema_url", STRING),
    },
    "ScopeLogs": {
        1: Field("scope", MESSAGE, "Scope"),
        2: Field("log_records", MESSAGE, "LogRecord"),
        3: Field("schema_url", STRING),
    },
    "LogRecord": {
        1: Field("time_unix_nano", TIME),
        2: Field("severity_number", VARINT),
        3: Field("severity_text", STRING),
        5: Field("body", MESSAGE, "AnyValue", once=1),
        6: Field("attributes", MESSAGE, "LogRecord.attributes"),
        7: Field("dropped_attributes_count", VARINT),
        8: Field("flags", FIXED32),
        9: Field("trace_id", BYTES),
        10: Field("span_id", BYTES),
        11: Field("observed_time_unix_nano", TIME),
        12: Field("event_name", STRING),
    },
    "LogRecord.attributes": KEY_VALUE,
    **COMMON,
}


def _mend_record(record: Any) -> None:
    mend_pairs(record.attributes)
    mend_text(record, "severity_text", record.attributes)
    mend_text(record, "event_name", record.attributes)
    if record.body.WhichOneof("value") == "string_value":
        original = record.body.string_value
        text = well_formed(original)
        if text != original:
            record.body.string_value = text
            kept_as(record.attributes, "body").bytes_value = original
    elif record.HasField("body"):
        mend_value(record.body)
    mend_time(record, "time_unix_nano", record.attributes)
    mend_time(record, "observed_time_unix_nano", record.attributes)


LOGS_REQUEST = Request(
    "logs",
    _MESSAGES,
    "LogRecord",
    Repair(
        {
            "ExportLogsServiceRequest": {0x0A: "ResourceLogs"},
            "ResourceLogs": {0x12: "ScopeLogs"},
            "ScopeLogs": {0x12: "LogRecord"},
        },
        {"ResourceLogs": mend_resource, "ScopeLogs": mend_scope, "LogRecord": _mend_record},
        "opentelemetry.proto.logs.v1.logs_pb2",
    ),
)
