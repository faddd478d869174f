"""What a transcoder must give, built with OTLP's own protobuf classes and plain Python.

`same` compares parsed requests: attributes of one owner in any order, because OTLP gives that no meaning; those of
equal keys in theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.transcode.columns import GUESSED, Columns
from lakerunner.pipeline.transcode.formats import TRANSCODERS

REQUESTS: dict[str, Any] = {
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
}
TRACE_ID, SPAN_ID = bytes(range(1, 17)), bytes(range(1, 9))


def transcoded(name: str, signal: str, data: bytes, columns: Columns = GUESSED) -> Any:
    """The request that comes out."""
    return REQUESTS[signal].FromString(TRANSCODERS[name](signal, memoryview(data), columns).require_complete())


def reason(name: str, signal: str, data: bytes) -> str:
    with pytest.raises(Corrupt) as caught:
        TRANSCODERS[name](signal, memoryview(data), GUESSED).require_complete()
    return str(caught.value)


def fill(target: Any, value: Any) -> None:
    """An AnyValue with this Python value."""
    if value is None:
        target.Clear()
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            target.int_value = value
        else:
            target.string_value = str(value)
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, Mapping):
        target.kvlist_value.SetInParent()
        add(target.kvlist_value.values, value)
    else:
        target.array_value.SetInParent()
        for item in value:
            fill(target.array_value.values.add(), item)


def add(attributes: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        pair = attributes.add(key=key)
        pair.value.SetInParent()
        fill(pair.value, value)


def logs_request(*records: tuple[str | None, Mapping[str, Any], Mapping[str, Any]]) -> Any:
    """Of (service, fields, attributes), one resource for each service in the order they come."""
    request = ExportLogsServiceRequest()
    scopes: dict[str | None, Any] = {}
    for service, fields, attributes in records:
        if service not in scopes:
            resource_logs = request.resource_logs.add()
            if service is not None:
                add(resource_logs.resource.attributes, {"service.name": service})
            scopes[service] = resource_logs.scope_logs.add()
        fields = dict(fields)
        body = fields.pop("body", ...)
        record = scopes[service].log_records.add(**fields)
        if body is not ...:
            record.body.SetInParent()
            fill(record.body, body)
        add(record.attributes, attributes)
    return request


def same(found: Any, wanted: Any) -> None:
    assert str(_sorted(found)) == str(_sorted(wanted))


def _sorted(message: Any) -> Any:
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        items = list(value) if field.is_repeated else [value]
        for item in items:
            _sorted(item)
        if field.name == "attributes":
            ordered = sorted(items, key=lambda pair: pair.key)
            del value[:]
            value.extend(ordered)
    return message
