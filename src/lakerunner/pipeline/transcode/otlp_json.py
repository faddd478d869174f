"""OTLP/JSON to OTLP protobuf: proto3 JSON, except that trace and span ids are hex instead of base64.

Comes in: a request as JSON. Goes out: the same request in protobuf. The writers are built from OTLP's own descriptors,
so that every field is known; unknown fields are ignored, as OTLP requires of receivers. What is ambiguous is refused: a
member given twice, or two members of a oneof.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.errors import UserError
from lakerunner.model.protobuf import DELIMITED, FIXED32, FIXED64, VARINT, delimited, length, tag, varint
from lakerunner.pipeline.transcode.any_values import SHORT, SHORT_VALUES, Unfit, attribute_key
from lakerunner.pipeline.transcode.json_text import load_fast, names_are_unique, parse_exactly

_REQUESTS = {
    "logs": ExportLogsServiceRequest.DESCRIPTOR,
    "metrics": ExportMetricsServiceRequest.DESCRIPTOR,
    "traces": ExportTraceServiceRequest.DESCRIPTOR,
}
# The member by which a request is known, in both spellings.
REQUEST_MEMBERS = {
    "resourceLogs": "logs",
    "resource_logs": "logs",
    "resourceMetrics": "metrics",
    "resource_metrics": "metrics",
    "resourceSpans": "traces",
    "resource_spans": "traces",
}
_IDS = ("trace_id", "span_id", "parent_span_id")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)
_EXACT = float(1 << 53)  # up to here, a double without a fraction is exactly the number that was written
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_SECOND = b"\x12"

Write = Callable[[Any], bytes]


class _FieldError(Unfit):
    """Raised with what is wrong, and the path to the field."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason, self.path = reason, path

    def under(self, name: str) -> _FieldError:
        """Return the error with this name in front of its path."""
        dot = "." if self.path and self.path[0] != "[" else ""
        return _FieldError(self.reason, f"{name}{dot}{self.path}")


def request_from_json(signal: str, data: bytes) -> bytes:
    """Return the export request as protobuf. Raise UserError if it is not one."""
    if signal not in _REQUESTS:
        raise UserError(f"unknown signal {signal!r}: use one of {', '.join(_REQUESTS)}")
    try:
        value = load_fast(data)
    except Unfit as error:
        raise UserError(f"the body is not JSON: {error}") from error
    if type(value) is not dict:
        raise UserError("an OTLP/JSON request must be an object")
    try:
        return write_request(signal, value if names_are_unique(data, value) else parse_exactly(data))
    except Unfit as error:
        raise UserError(f"the body is not an OTLP {signal} request: {error}") from error


def write_request(signal: str, value: Any) -> bytes:
    """Encode a request from parsed JSON. Raise Unfit, with the path of the error, if it is not one."""
    try:
        return _message(_REQUESTS[signal])(value)
    except RecursionError:
        raise Unfit("it is nested too deeply") from None


@cache
def _message(descriptor: Descriptor) -> Write:
    """Return a function that writes the content of such a message."""
    fields: dict[str, tuple[int, Write]] = {}

    def write(value: Any) -> bytes:
        if not fields:  # filled at the first use, because messages are recursive
            fields.update(_fields(descriptor))
        if type(value) is not dict:
            raise _not_an_object(value)
        parts, seen = [], 0
        for name, item in value.items():
            known = fields.get(name)
            if known is None or item is None:
                continue
            bit, write_field = known
            if seen & bit:
                raise _FieldError("given twice, or together with a field that excludes it", name)
            seen |= bit
            try:
                parts.append(write_field(item))
            except _FieldError as error:
                raise error.under(name) from None
        return b"".join(parts)

    return _scalars_first(write) if descriptor.name == "KeyValue" else write


def _scalars_first(write: Write) -> Write:
    """Return a faster writer for a KeyValue that holds a scalar, as most do. Anything else, and every error, is left to
    `write`, which knows what is wrong."""

    def write_pair(value: Any) -> bytes:
        if type(value) is not dict or len(value) != 2:
            return write(value)
        key, inner = value.get("key"), value.get("value")
        if type(key) is not str or type(inner) is not dict or len(inner) != 1:
            return write(value)
        ((kind, item),) = inner.items()
        if kind == "stringValue" and type(item) is str and len(text := item.encode()) < SHORT:
            return b"".join((attribute_key(key), SHORT_VALUES[len(text)], text))
        scalar = _SCALAR_VALUES.get(kind)
        if scalar is None:
            return write(value)
        try:
            data = scalar(item)
        except _FieldError:
            return write(value)
        return b"".join((attribute_key(key), _SECOND, length(len(data)), data))

    return write_pair


def _not_an_object(value: Any) -> _FieldError:
    if type(value) is list or not isinstance(value, list):
        return _FieldError(f"{_excerpt(value)} is not an object")
    names = [name for name, _ in value]
    return _FieldError("given twice", next(name for name in names if names.count(name) > 1))


def _fields(descriptor: Descriptor) -> dict[str, tuple[int, Write]]:
    """Return, by both of its names, each field's writer and its bit, which the members of a oneof share."""
    fields = {}
    for field in descriptor.fields:
        if field.name.endswith("_strindex"):  # only for profiles
            continue
        oneof = field.containing_oneof
        bit = 1 << (64 + oneof.index) if oneof is not None and len(oneof.fields) > 1 else 1 << field.number
        fields[field.json_name] = fields[field.name] = (bit, _field(field))
    return fields


def _field(field: FieldDescriptor) -> Write:
    """Return a function that writes the whole field: tag, length if it has one, content."""
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        content, wire_type = _message(field.message_type), DELIMITED
    elif field.type == FieldDescriptor.TYPE_BYTES:
        content, wire_type = (_hex if field.name in _IDS else _base64), DELIMITED
    elif field.type == FieldDescriptor.TYPE_ENUM:
        content, wire_type = _enum(field.enum_type), VARINT
    else:
        content, wire_type = _SCALARS[field.type]
    if field.is_repeated:
        packed = wire_type != DELIMITED
        return _packed(tag(field.number, DELIMITED), content) if packed else _repeated(tag(field.number, 2), content)
    field_tag = tag(field.number, wire_type)
    if wire_type != DELIMITED:
        return lambda value: field_tag + content(value)

    def write(value: Any) -> bytes:
        data = content(value)
        return b"".join((field_tag, length(len(data)), data))

    return write


def _repeated(field_tag: bytes, content: Write) -> Write:
    def write(value: Any) -> bytes:
        parts: list[bytes] = []
        for index, item in enumerate(_items(value)):
            try:
                data = content(item)
            except _FieldError as error:
                raise error.under(f"[{index}]") from None
            parts += (field_tag, length(len(data)), data)
        return b"".join(parts)

    return write


def _packed(field_tag: bytes, content: Write) -> Write:
    def write(value: Any) -> bytes:
        return delimited(field_tag, b"".join([content(item) for item in _items(value)]))

    return write


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _FieldError(f"{_excerpt(value)} is not a list")
    return value


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."


def _string(value: Any) -> bytes:
    if type(value) is not str:
        raise _FieldError(f"{_excerpt(value)} is not a string")
    return value.encode()


def _hex(value: Any) -> bytes:
    if type(value) is not str or not _HEX.fullmatch(value):
        raise _FieldError(f"{_excerpt(value)} is not hex")
    return bytes.fromhex(value)


def _base64(value: Any) -> bytes:
    """Decode base64 with either alphabet, padded or not, as proto3 JSON allows."""
    try:
        return base64.b64decode(value.translate(_STANDARD) + "=" * (-len(value) % 4), validate=True)
    except (AttributeError, ValueError, binascii.Error):
        raise _FieldError(f"{_excerpt(value)} is not base64") from None


_STANDARD = str.maketrans("-_", "+/")


def _bool(value: Any) -> bytes:
    if type(value) is not bool:
        raise _FieldError(f"{_excerpt(value)} is not true or false")
    return b"\x01" if value else b"\x00"


def _double(value: Any) -> bytes:
    number = value
    if type(value) is str:
        number = _WORDS.get(value)
        try:
            number = float(value) if number is None and value[:1] in "-0123456789" else number
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _FieldError(f"{_excerpt(value)} is not a number")
    try:
        return struct.pack("<d", number)
    except OverflowError:
        raise _FieldError(f"{_excerpt(value)} is larger than a double") from None


def _integer_writer(low: int, high: int, write: Callable[[int], bytes]) -> Write:
    def content(value: Any) -> bytes:
        number = value
        digits = type(value) is str and _INTEGER.fullmatch(value)
        if digits or (isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT):
            number = int(value)
        if type(number) is not int or not low <= number <= high:
            raise _FieldError(f"{_excerpt(value)} is not a whole number from {low} to {high}")
        return write(number)

    return content


def _enum(enum: Any) -> Write:
    numbers = {value.name: value.number for value in enum.values}

    def content(value: Any) -> bytes:
        if type(value) is str and value in numbers:
            return varint(numbers[value])
        return _SCALARS[FieldDescriptor.TYPE_INT32][0](value)

    return content


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _signed(number: int) -> bytes:
    return varint(number & 0xFFFF_FFFF_FFFF_FFFF)


_I32, _I64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_U32, _U64 = (0, (1 << 32) - 1), (0, (1 << 64) - 1)
_SCALARS: dict[int, tuple[Write, int]] = {
    FieldDescriptor.TYPE_STRING: (_string, DELIMITED),
    FieldDescriptor.TYPE_BOOL: (_bool, VARINT),
    FieldDescriptor.TYPE_DOUBLE: (_double, FIXED64),
    FieldDescriptor.TYPE_INT32: (_integer_writer(*_I32, _signed), VARINT),
    FieldDescriptor.TYPE_INT64: (_integer_writer(*_I64, _signed), VARINT),
    FieldDescriptor.TYPE_UINT32: (_integer_writer(*_U32, varint), VARINT),
    FieldDescriptor.TYPE_UINT64: (_integer_writer(*_U64, varint), VARINT),
    FieldDescriptor.TYPE_SINT32: (_integer_writer(*_I32, _zigzag), VARINT),
    FieldDescriptor.TYPE_FIXED32: (_integer_writer(*_U32, struct.Struct("<I").pack), FIXED32),
    FieldDescriptor.TYPE_FIXED64: (_integer_writer(*_U64, struct.Struct("<Q").pack), FIXED64),
    FieldDescriptor.TYPE_SFIXED64: (_integer_writer(*_I64, struct.Struct("<q").pack), FIXED64),
}
# AnyValue's scalars except texts, by their JSON names.
_SCALAR_VALUES: dict[str, Write] = {
    "intValue": lambda value: b"\x18" + _SCALARS[FieldDescriptor.TYPE_INT64][0](value),
    "boolValue": lambda value: b"\x10" + _bool(value),
    "doubleValue": lambda value: b"\x21" + _double(value),
}
