"""Python values as OTLP's AnyValue and KeyValue, written straight as protobuf.

Comes in: values from parsers of JSON, CSV and Parquet. Goes out: the bytes of one message. What always holds: the type
is kept (int, double, bool, bytes, array, kvlist, empty), an integer that int64 cannot hold becomes a string of its
digits, and nothing is nested deeper than the OTLP reader accepts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from lakerunner.model.protobuf import delimited, length, varint

# Levels of objects and arrays in one value. An object takes three messages per level, the reader accepts a hundred, and
# the deepest place of an attribute is seven levels down.
MAX_NESTING = 30

_KEY, _VALUE = b"\x0a", b"\x12"  # of a KeyValue; the items of ArrayValue and KeyValueList have the first tag, too
_STRING, _INT, _DOUBLE, _ARRAY, _KVLIST, _BYTES = b"\x0a", b"\x18", b"\x21", b"\x2a", b"\x32", b"\x3a"
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_MASK = 0xFFFF_FFFF_FFFF_FFFF
# By size, the beginning of the value of a KeyValue that is a string; shorter than where lengths take a second byte.
SHORT = 126
SHORT_VALUES = tuple(_VALUE + bytes([size + 2]) + _STRING + bytes([size]) for size in range(SHORT))
_double = struct.Struct("<d").pack


@cache
def short_heads(field_tag: bytes) -> tuple[bytes, ...]:
    """Return, by size, the tag and length of a field of few bytes."""
    return tuple(field_tag + length(size) for size in range(4 * SHORT))


class Unfit(Exception):
    """Raised for a record that cannot be accepted, with the reason. The caller knows its line, and rejects it."""


ABSENT = object()  # no value: an empty cell, a null of Parquet. A null of JSON is a value.


class Members(list[tuple[str, Any]]):
    """A JSON object in which a name may occur more than once."""


class Written(float):
    """A double that keeps the text it was read from."""

    text: str

    def __new__(cls, text: str) -> Written:
        number = super().__new__(cls, text)
        number.text = text
        return number


def any_value(value: Any, level: int = 0) -> bytes:
    """Return the content of an AnyValue."""
    kind = type(value)
    if kind is str:
        data = value.encode()
        return b"".join((_STRING, length(len(data)), data))
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is int:
        if -(1 << 63) <= value < 1 << 63:
            return _INT + (length(value) if value >= 0 else varint(value & _MASK))
        return delimited(_STRING, str(value).encode())
    if kind is float or kind is Written:
        return _DOUBLE + _double(value)
    if value is None:
        return b""
    if kind is bytes:
        return delimited(_BYTES, value)
    if level == MAX_NESTING:
        raise Unfit(f"a value is nested deeper than {MAX_NESTING} levels")
    if kind is list or kind is tuple:
        return delimited(_ARRAY, b"".join([delimited(_KEY, any_value(item, level + 1)) for item in value]))
    if kind is dict or kind is Members:
        pairs = value.items() if kind is dict else value
        return delimited(_KVLIST, b"".join([key_value(_KEY, key, item, level + 1) for key, item in pairs]))
    raise TypeError(f"{kind.__name__} is not an OTLP value")


def key_value(field_tag: bytes, key: str, value: Any, level: int = 0) -> bytes:
    """Return a KeyValue as a field with this tag."""
    name = attribute_key(key)
    if type(value) is str and len(text := value.encode()) < SHORT:
        return b"".join((field_tag, length(len(name) + 4 + len(text)), name, SHORT_VALUES[len(text)], text))
    data = any_value(value, level)
    size = length(len(data))
    return b"".join((field_tag, length(len(name) + 1 + len(size) + len(data)), name, _VALUE, size, data))


def attribute_key(name: str) -> bytes:
    """Return the key as the first field of a KeyValue."""
    return _short_key(name) if len(name) < SHORT else delimited(_KEY, name.encode())


@lru_cache(maxsize=8192)
def _short_key(name: str) -> bytes:
    return delimited(_KEY, name.encode())


def key_values(field_tag: bytes, pairs: Iterable[tuple[str, Any]]) -> bytes:
    return b"".join([key_value(field_tag, key, value) for key, value in pairs])
