"""Unusual yet right OTLP logs requests, written anew in the plain form that the walk understands.

Comes in: bytes that passed the wire check and were found odd. Goes out: the same records as bytes in which no value
stands twice (protobuf merges them, the last one wins), every string is UTF-8 and every time fits a timestamp. What
cannot stay in its field is kept beside it, so nothing is lost:

- an attribute value that is a string but not UTF-8 becomes bytes;
- an attribute key that is not UTF-8 gets U+FFFD for what is wrong in it, and `lakerunner.key.<that key>` beside it
  holds its bytes; the same inside nested values;
- any other string that is not UTF-8 gets U+FFFD for what is wrong in it, and the attribute `lakerunner.<field>` of its
  record, scope or resource holds its bytes;
- a time past the last timestamp becomes unset, and the attribute `lakerunner.<field>` holds its decimal digits.

This path is rare and slow (protobuf messages in Python).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.read.wire import LAST_TIME

_PREFIX = "lakerunner."


def repaired(data: Any) -> bytes:
    """The plain form of this ExportLogsServiceRequest. Corrupt where protobuf itself refuses it, which only a
    damaged part that the check passes over can bring about (an EntityRef)."""
    from google.protobuf.message import DecodeError

    try:
        request = _request_type().FromString(bytes(data))
    except DecodeError as error:
        raise Corrupt(f"protobuf refuses it: {error}") from error
    for resource_logs in request.resource_logs:
        _mend_pairs(resource_logs.resource.attributes)
        _mend_text(resource_logs, "schema_url", resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            scope = scope_logs.scope
            _mend_pairs(scope.attributes)
            _mend_text(scope, "name", scope.attributes)
            _mend_text(scope, "version", scope.attributes)
            _mend_text(scope_logs, "schema_url", scope.attributes)
            for record in scope_logs.log_records:
                _mend_record(record)
    return bytes(request.SerializeToString())


def _mend_record(record: Any) -> None:
    _mend_pairs(record.attributes)
    _mend_text(record, "severity_text", record.attributes)
    _mend_text(record, "event_name", record.attributes)
    if record.body.WhichOneof("value") == "string_value":
        original = record.body.string_value
        record.body.string_value = _text(original)
        if record.body.string_value != original:
            _add(record.attributes, "body").bytes_value = original
    elif record.HasField("body"):
        _mend_value(record.body)
    for field in ("time_unix_nano", "observed_time_unix_nano"):
        number = getattr(record, field)
        if number > LAST_TIME:
            _add(record.attributes, field).string_value = str(number).encode()
            setattr(record, field, 0)


def _mend_text(message: Any, field: str, attributes: Any) -> None:
    original = getattr(message, field)
    text = _text(original)
    if text != original:
        setattr(message, field, text)
        _add(attributes, field).bytes_value = original


def _mend_pairs(pairs: Any) -> None:
    for pair in list(pairs):
        _mend_value(pair.value)
        original = pair.key
        pair.key = _text(original)
        if pair.key != original:
            _add(pairs, f"key.{pair.key.decode()}").bytes_value = original


def _mend_value(value: Any) -> None:
    kind = value.WhichOneof("value")
    if kind == "string_value" and _text(value.string_value) != value.string_value:
        value.bytes_value = value.string_value
    elif kind == "array_value":
        for item in value.array_value.values:
            _mend_value(item)
    elif kind == "kvlist_value":
        _mend_pairs(value.kvlist_value.values)


def _text(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def _add(attributes: Any, name: str) -> Any:
    pair = attributes.add()
    pair.key = (_PREFIX + name).encode()
    return pair.value


@cache
def _request_type() -> Any:
    """ExportLogsServiceRequest with every string declared as bytes, so that no string is refused, and without the
    fields that only profiles use. Imported here: most processes never need it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

    pool = descriptor_pool.DescriptorPool()

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        for message in proto.message_type:
            kept = [field for field in message.field if not field.name.endswith("_strindex")]
            for field in kept:
                if field.type == field.TYPE_STRING:
                    field.type = field.TYPE_BYTES
            del message.field[:]
            message.field.extend(kept)
        pool.Add(proto)

    add(logs_service_pb2.DESCRIPTOR)
    name = "opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest"
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
