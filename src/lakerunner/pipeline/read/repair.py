"""Odd OTLP requests, valid but unusual, rewritten in the plain form that the walkers understand.

Comes in: bytes that passed the wire check and are odd. Goes out: the same records as bytes in which no value occurs
twice (protobuf merges such values, or the last one wins), every string is UTF-8 and every time fits a timestamp.
Nothing is lost; what its field cannot hold is kept as an attribute:

- an attribute value that is a string but not UTF-8 becomes bytes;
- an attribute key that is not UTF-8 gets U+FFFD in place of invalid bytes, and `lakerunner.key.<that key>` beside it
  holds the original bytes; the same inside nested values;
- any other string that is not UTF-8 gets U+FFFD in place of invalid bytes, and the attribute `lakerunner.<field>` of
  its record, event, link, scope or resource holds the original bytes;
- a time past the last timestamp becomes unset, and the attribute `lakerunner.<field>` holds its decimal digits.

Only odd messages are parsed, by protobuf's own classes: about 50 µs for each odd record, little for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.read.wire import LAST_TIME, varint

_PREFIX = "lakerunner."
# Returns how many messages of any type these bytes of the named type hold, and whether they are odd.
Inspect = Callable[[bytes, str], tuple[int, bool]]

# Messages in one head or record. Protobuf's classes take 100 bytes and more for each; no honest sender comes near it.
MAX_PARTS = 200_000


@dataclass(frozen=True)
class Repair:
    """How the messages of one signal are mended. `items` has the tags and types of each message's items; the rest of a
    message is its head, which `mend` changes in place. `module` is the one of protobuf's generated classes. A message
    in `either` may have only one item."""

    items: Mapping[str, Mapping[int, str]]
    mend: Mapping[str, Callable[[Any], None]]
    module: str
    either: frozenset[str] = frozenset()


def repair_message(data: bytes, inspect: Inspect, repair: Repair, name: str) -> bytes:
    """Return the plain form of this message. Raise Corrupt if a single head or record is odd and has too many parts."""
    if not inspect(data, name)[1]:
        return data
    if name in repair.either:
        data = keep_last_item(data, repair, name)
    tags = repair.items.get(name, {})
    head, items = bytearray(), bytearray()
    for start, payload, end in _fields(data):
        if data[start] in tags:
            items += _field(data[start], repair_message(data[payload:end], inspect, repair, tags[data[start]]))
        else:
            head += data[start:end]
    return _mend_head(bytes(head), inspect, repair, name) + bytes(items)


def keep_last_item(data: bytes, repair: Repair, name: str) -> bytes:
    """Return this message with a single item, as protobuf reads a oneof: the last kind of item replaces those before
    it, and items of the same kind are merged. Merging messages is joining their bytes."""
    tags = repair.items[name]
    head, merged, last = bytearray(), bytearray(), 0
    for start, payload, end in _fields(data):
        if data[start] not in tags:
            head += data[start:end]
            continue
        if data[start] != last:
            merged, last = bytearray(), data[start]
        merged += data[payload:end]
    return bytes(head) + (_field(last, bytes(merged)) if last else b"")


def _field(tag: int, payload: bytes) -> bytes:
    return bytes([tag]) + varint(len(payload)) + payload


def _mend_head(head: bytes, inspect: Inspect, repair: Repair, name: str) -> bytes:
    parts, odd = inspect(head, name)
    if not odd:
        return head
    if parts > MAX_PARTS:
        raise Corrupt(
            f"a {name} of {parts} parts has text that is not UTF-8, times after the year 2262 or "
            f"values given twice: these are repaired for up to {MAX_PARTS} parts"
        )
    message = _message_type(repair.module, name).FromString(head)
    repair.mend[name](message)
    return bytes(message.SerializeToString())


def _fields(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, start of the payload, end) of each field of checked bytes."""
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
    """Return (value, next position) of a varint."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def mend_resource(resource_items: Any) -> None:
    """Mend the head of a ResourceLogs, ResourceMetrics or ResourceSpans."""
    mend_fields(resource_items, resource_items.resource.attributes, "schema_url")


def mend_scope(scope_items: Any) -> None:
    """Mend the head of a ScopeLogs, ScopeMetrics or ScopeSpans."""
    mend_fields(scope_items.scope, scope_items.scope.attributes, "name", "version")
    mend_text(scope_items, "schema_url", scope_items.scope.attributes)


def mend_fields(message: Any, attributes: Any, *fields: str) -> None:
    """Mend the attributes, then these texts and times of the message."""
    mend_pairs(attributes)
    for field in fields:
        mend = mend_time if isinstance(getattr(message, field), int) else mend_text
        mend(message, field, attributes)


def mend_time(message: Any, field: str, attributes: Any) -> None:
    """Unset a time that no timestamp can hold, and keep its digits among the attributes."""
    number = getattr(message, field)
    if number > LAST_TIME:
        add_kept_value(attributes, field).string_value = str(number).encode()
        setattr(message, field, 0)


def mend_text(message: Any, field: str, attributes: Any, name: str = "") -> None:
    """Make a text field valid UTF-8, and keep its original bytes among the attributes as `name`, by default the
    field's."""
    original = getattr(message, field)
    text = replace_invalid_utf8(original)
    if text != original:
        setattr(message, field, text)
        add_kept_value(attributes, name or field).bytes_value = original


def mend_pairs(pairs: Any) -> None:
    """Mend the keys and values of attributes."""
    for pair in list(pairs):
        mend_value(pair.value)
        original = pair.key
        pair.key = replace_invalid_utf8(original)
        if pair.key != original:
            add_kept_value(pairs, f"key.{pair.key.decode()}").bytes_value = original


def mend_value(value: Any) -> None:
    """Turn strings that are not UTF-8 into bytes, also inside arrays and maps."""
    kind = value.WhichOneof("value")
    if kind == "string_value" and replace_invalid_utf8(value.string_value) != value.string_value:
        value.bytes_value = value.string_value
    elif kind == "array_value":
        for item in value.array_value.values:
            mend_value(item)
    elif kind == "kvlist_value":
        mend_pairs(value.kvlist_value.values)


def replace_invalid_utf8(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def add_kept_value(attributes: Any, name: str) -> Any:
    """Add an attribute for what a field cannot hold, and return its value to be set."""
    pair = attributes.add()
    pair.key = (_PREFIX + name).encode()
    return pair.value


@cache
def _message_type(module: str, name: str) -> Any:
    """Return the class of a message in which every string is declared as bytes, so that protobuf accepts invalid UTF-8,
    and fields that only profiles use are left out. protobuf is imported here because most processes never need it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    generated = import_module(module)
    pool = descriptor_pool.DescriptorPool()

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        declare(proto.message_type)
        pool.Add(proto)

    def declare(messages: Any) -> None:
        for message in messages:
            kept = [field for field in message.field if not field.name.endswith("_strindex")]
            for field in kept:
                if field.type == field.TYPE_STRING:
                    field.type = field.TYPE_BYTES
            del message.field[:]
            message.field.extend(kept)
            declare(message.nested_type)

    add(generated.DESCRIPTOR)
    full_name = f"{generated.DESCRIPTOR.package}.{name}"
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
