"""Small OTLP requests with every kind of value: reading them once compiles all jitted code, or loads it from the cache.

Each kind occurs with the same value in all records and with a different one in each, because texts that repeat and
texts that do not take different paths into a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.read.wire import FIXED64, MESSAGE, VARINT, tag_of, varint

_RECORDS = 4


def _request(item: Callable[[int], bytes], count: int = _RECORDS) -> bytes:
    resource = _message((1, _pair("service.name", _text("sample"))), *((1, pair) for pair in _pairs("resource", 0)))
    scope = _message((1, b"scope"), *((3, pair) for pair in _pairs("scope", 0)))
    items = [(2, item(number)) for number in range(count)]
    return _message((1, _message((1, resource), (2, _message((1, scope), *items)))))


def _record(number: int) -> bytes:
    body = (_text(f"sample {number}"), _nested(number), _double(float(number)), b"")[number]
    pairs = [*_pairs("same", 0), *_pairs("other", number), *_pairs(f"rare{number}", number), *_pairs("same", 0)]
    time = bytes([tag_of(1, FIXED64)]) + struct.pack("<Q", number + 1)
    return time + _message((5, body), (9, bytes([number]) * 16), *((6, pair) for pair in pairs))


def _metric(number: int) -> bytes:
    field, attributes, exemplars, more = _POINTS[number % len(_POINTS)]
    time = b"".join(bytes([tag_of(place, FIXED64)]) + struct.pack("<Q", number + 1) for place in (2, 3))
    pairs = [*_pairs("same", 0), *_pairs("other", number), *_pairs("same", 0)]
    point = time + _message(*((attributes, pair) for pair in pairs)) + more
    if exemplars:
        point += _message((exemplars, _message((5, bytes([number]) * 16), *((7, pair) for pair in pairs))))
    data = _message((1, point)) + bytes([tag_of(2, VARINT), 2])
    return _message((1, f"metric {number}".encode()), (12, pairs[0]), (field, data))


def _span(number: int) -> bytes:
    pairs = [*_pairs("same", 0), *_pairs("other", number)]
    event = _message((2, b"event"), *((3, pair) for pair in pairs))
    link = _message((1, bytes([number]) * 16), (2, b"span"), *((4, pair) for pair in pairs))
    time = bytes([tag_of(7, FIXED64)]) + struct.pack("<Q", number + 1)
    ids = _message((1, bytes([number & 1]) * 16), (2, bytes([number]) * 8), (5, f"span {number}".encode()))
    return time + ids + _message(*((9, pair) for pair in pairs), (11, event), (13, link))


def _pairs(name: str, number: int) -> list[bytes]:
    """Return one attribute of each kind of value."""
    values = {
        STRING: _text(f"text {number}"),
        BOOL: _number(BOOL, number & 1),
        INT: _number(INT, number),
        DOUBLE: _double(number / 3),
        ARRAY: _message((ARRAY, _message((1, _text(f"{number}")), (1, _nested(number))))),
        KVLIST: _nested(number),
        BYTES: _message((BYTES, bytes([number]))),
    }
    return [_pair(f"{name}.{kind}", value) for kind, value in values.items()]


def _nested(number: int) -> bytes:
    return _message((KVLIST, _message((1, _pair("number", _number(INT, number))))))


def _message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([tag_of(number, MESSAGE)]) + varint(len(data)) + data for number, data in fields)


def _pair(key: str, value: bytes) -> bytes:
    return _message((1, key.encode()), (2, value))


def _text(text: str) -> bytes:
    return _message((STRING, text.encode()))


def _number(kind: int, number: int) -> bytes:
    return bytes([tag_of(kind, VARINT)]) + varint(number)


def _double(number: float) -> bytes:
    return bytes([tag_of(DOUBLE, FIXED64)]) + struct.pack("<d", number)


# For each kind of metric: its field, the fields of a point's attributes and exemplars, and the rest of a point.
_HALF = bytes([tag_of(4, FIXED64)]) + struct.pack("<d", 1.5)
_POINTS = (
    (5, 7, 5, _HALF),
    (7, 7, 5, bytes([tag_of(6, FIXED64)]) + struct.pack("<q", 1)),
    (9, 9, 8, _HALF + _message((6, struct.pack("<2Q", 1, 2)), (7, struct.pack("<d", 0.5)))),
    (10, 1, 11, _HALF + _message((8, _message((2, bytes([1, 2])))), (9, _message((2, bytes([3])))))),
    (11, 7, 0, _HALF + _message((6, bytes([tag_of(1, FIXED64)]) + struct.pack("<d", 0.5)))),
)

SAMPLES: dict[str, Callable[[], bytes]] = {
    "logs": partial(_request, _record),
    "metrics": partial(_request, _metric, 2 * len(_POINTS)),
    "traces": partial(_request, _span),
}
