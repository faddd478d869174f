"""Unusual yet right OTLP logs requests, written anew in the plain form that the walk understands.

Comes in: bytes that passed the wire check and were found odd. Goes out: the same records as bytes in which no value
stands twice (protobuf merges such values, or the last one wins), every string is UTF-8 and every time fits a
timestamp. What cannot stay in its field is kept beside it, so nothing is lost:

- an attribute value that is a string but not UTF-8 becomes bytes;
- an attribute key that is not UTF-8 gets U+FFFD for what is wrong in it, and `lakerunner.key.<that key>` beside it
  holds its bytes; the same inside nested values;
- any other string that is not UTF-8 gets U+FFFD for what is wrong in it, and the attribute `lakerunner.<field>` of its
  record, scope or resource holds its bytes;
- a time past the last timestamp becomes unset, and the attribute `lakerunner.<field>` holds its decimal digits.

Only what is odd is taken apart, by protobuf's own messages: some 50 µs for each odd record, little for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.read.wire import LAST_TIME, varint

_PREFIX = "lakerunner."
# Each message's items: their tag and what they are. The rest of a message is its head.
_ITEMS = {
    "ExportLogsServiceRequest": (0x0A, "ResourceLogs"),
    "ResourceLogs": (0x12, "ScopeLogs"),
    "ScopeLogs": (0x12, "LogRecord"),
}

# How many messages of any type are in these bytes of the named type, and whether they are odd.
Look = Callable[[bytes, str], tuple[int, bool]]

# Of one head or record. Protobuf needs 100 bytes and more for each; no honest sender comes near it.
MAX_PARTS = 200_000


def repaired(data: bytes, look: Look, name: str = "ExportLogsServiceRequest") -> bytes:
    """The plain form of this message. Corrupt if a single head or record of it is odd and has too many parts."""
    if not look(data, name)[1]:
        return data
    tag, item = _ITEMS.get(name, (0, ""))
    head, items = bytearray(), []
    for start, payload, end in _fields(data):
        if data[start] == tag:
            plain = repaired(data[payload:end], look, item)
            items.append(bytes([tag]) + varint(len(plain)) + plain)
        else:
            head += data[start:end]
    return _mended(bytes(head), look, name) + b"".join(items)


def _mended(head: bytes, look: Look, name: str) -> bytes:
    parts, odd = look(head, name)
    if not odd:
        return head
    if parts > MAX_PARTS:
        raise Corrupt(
            f"a {name} of {parts} parts holds text that is not UTF-8, times past the year 2262 or values given twice: "
            f"that is mended for up to {MAX_PARTS} parts"
        )
    message = _message_type(name).FromString(head)
    _MEND[name](message)
    return bytes(message.SerializeToString())


def _fields(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, start of the payload, end) of each field of checked bytes."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _number(data, at)
        wire_type = tag & 7
        if wire_type == 0:
            payload, end = at, _number(data, at)[1]
        elif wire_type == 2:
            size, payload = _number(data, at)
            end = payload + size
        else:
            payload, end = at, at + (8 if wire_type == 1 else 4)
        yield start, payload, end
        at = end


def _number(data: bytes, at: int) -> tuple[int, int]:
    """(value, next position) of a varint."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _mend_resource_logs(resource_logs: Any) -> None:
    attributes = resource_logs.resource.attributes
    _mend_pairs(attributes)
    _mend_text(resource_logs, "schema_url", attributes)


def _mend_scope_logs(scope_logs: Any) -> None:
    scope = scope_logs.scope
    _mend_pairs(scope.attributes)
    _mend_text(scope, "name", scope.attributes)
    _mend_text(scope, "version", scope.attributes)
    _mend_text(scope_logs, "schema_url", scope.attributes)


def _mend_record(record: Any) -> None:
    _mend_pairs(record.attributes)
    _mend_text(record, "severity_text", record.attributes)
    _mend_text(record, "event_name", record.attributes)
    if record.body.WhichOneof("value") == "string_value":
        original = record.body.string_value
        text = _text(original)
        if text != original:
            record.body.string_value = text
            _add(record.attributes, "body").bytes_value = original
    elif record.HasField("body"):
        _mend_value(record.body)
    for field in ("time_unix_nano", "observed_time_unix_nano"):
        number = getattr(record, field)
        if number > LAST_TIME:
            _add(record.attributes, field).string_value = str(number).encode()
            setattr(record, field, 0)


_MEND: dict[str, Callable[[Any], None]] = {
    "ResourceLogs": _mend_resource_logs,
    "ScopeLogs": _mend_scope_logs,
    "LogRecord": _mend_record,
}


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
def _message_type(name: str) -> Any:
    """A message of OTLP logs with every string declared as bytes, so that none is refused, and without the fields that
    only profiles use. protobuf is imported here because most processes never need it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from opentelemetry.proto.logs.v1 import logs_pb2

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

    add(logs_pb2.DESCRIPTOR)
    full_name = f"{logs_pb2.DESCRIPTOR.package}.{name}"
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
