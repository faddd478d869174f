"""Write typed JSON (model/typed_json.py) from checked OTLP bytes, in jitted code.

Comes in: values as (kind, at, size). Goes out: their text. No value's text is longer than `room` of its size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.number_text import put_int, put_python_double
from lakerunner.model.typed_json import WRAPPERS
from lakerunner.pipeline.read.memory import load
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, NULL, STRING, read_value
from lakerunner.pipeline.read.wire import MAX_DEPTH, MESSAGE, read_size, read_varint, skip_field, tag_of

_FIRST, _SECOND = tag_of(1, MESSAGE), tag_of(2, MESSAGE)
_QUOTE, _COMMA, _COLON, _BACKSLASH = 34, 44, 58, 92


def _bytes(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


_TRUE, _FALSE, _NULL = _bytes("true"), _bytes("false"), _bytes("null")
_NAN, _INFINITY, _MINUS_INFINITY = _bytes("NaN"), _bytes("Infinity"), _bytes("-Infinity")
_OPEN_BYTES, _OPEN_DOUBLE, _OPEN_KVLIST = (
    _bytes(f'{{"{name}":' + quote) for name, quote in zip(WRAPPERS, ('"', '"', ""), strict=True)
)
_CLOSE = _bytes('"}')
_WRAPPERS = tuple(_bytes(name) for name in WRAPPERS)
_HEX = _bytes("0123456789abcdef")
_BASE64 = _bytes("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
# What follows the backslash for a byte of a string: 0 for a plain byte, "u" for \u00XX.
_ESCAPE = np.zeros(256, np.uint8)
_ESCAPE[:32] = ord("u")
for _byte, _sign in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _ESCAPE[_byte] = _sign

# Rows of the stack of open containers: where the next member starts, where they end, is it a kvlist, is it wrapped,
# has it a member yet.
_NEXT, _END, _IS_MAP, _IS_WRAPPED, _HAS_MEMBER = range(5)


def stack() -> Any:
    """Return reusable working memory for `put_value`."""
    return np.zeros((5, MAX_DEPTH), np.int64)


@njit(cache=True)
def room(size: Any) -> Any:
    """Return the most bytes that the text of a value of this size takes: a control character takes six, and the
    smallest members, such as an empty bytes value, take less than that per byte."""
    return 6 * size + 32


@njit(cache=True)
def _put(out: Any, at: Any, text: Any) -> Any:
    for place in range(len(text)):
        out[at + place] = text[place]
    return at + len(text)


@njit(cache=True)
def _put_string(data: Any, start: Any, end: Any, out: Any, at: Any) -> Any:
    out[at] = _QUOTE
    at += 1
    for place in range(start, end):
        byte = data[place]
        escape = _ESCAPE[byte]
        if escape == 0:
            out[at] = byte
            at += 1
            continue
        out[at], out[at + 1] = _BACKSLASH, escape
        at += 2
        if escape == 117:
            out[at], out[at + 1] = 48, 48
            out[at + 2], out[at + 3] = _HEX[byte >> 4], _HEX[byte & 15]
            at += 4
    out[at] = _QUOTE
    return at + 1


@njit(cache=True)
def _put_base64(data: Any, start: Any, end: Any, out: Any, at: Any) -> Any:
    while start < end:
        left = end - start
        first = np.int64(data[start])
        second = np.int64(data[start + 1]) if left > 1 else 0
        third = np.int64(data[start + 2]) if left > 2 else 0
        out[at], out[at + 1] = _BASE64[first >> 2], _BASE64[(first & 3) << 4 | second >> 4]
        out[at + 2] = _BASE64[(second & 15) << 2 | third >> 6] if left > 1 else 61
        out[at + 3] = _BASE64[third & 63] if left > 2 else 61
        start += 3
        at += 4
    return at


@njit(cache=True)
def _put_double(bits: Any, out: Any, at: Any) -> Any:
    if bits & np.uint64(0x7FF0000000000000) != np.uint64(0x7FF0000000000000):
        return put_python_double(out, at, bits)
    at = _put(out, at, _OPEN_DOUBLE)
    if bits & np.uint64(0xFFFFFFFFFFFFF) != 0:
        at = _put(out, at, _NAN)
    else:
        at = _put(out, at, _MINUS_INFINITY if bits >> np.uint64(63) != 0 else _INFINITY)
    return _put(out, at, _CLOSE)


@njit(cache=True)
def _put_scalar(data: Any, value: Any, out: Any, at: Any) -> Any:
    """Write a value that is not a container; `value` is (kind, at, size)."""
    kind, start, size = value
    if kind == STRING:
        return _put_string(data, start, start + size, out, at)
    if kind == INT:
        number, _ = read_varint(data, start)
        return put_int(out, at, np.int64(number))
    if kind == DOUBLE:
        return _put_double(load(data, start), out, at)
    if kind == BYTES:
        at = _put(out, at, _OPEN_BYTES)
        at = _put_base64(data, start, start + size, out, at)
        return _put(out, at, _CLOSE)
    if kind == BOOL:
        number, _ = read_varint(data, start)
        return _put(out, at, _TRUE if number != 0 else _FALSE)
    return _put(out, at, _NULL)


@njit(cache=True)
def _read_pair(data: Any, at: Any, end: Any) -> Any:
    """Return ((kind, at, size) of the value, start, end of the key) of the KeyValue in these bytes."""
    key_at, key_end = at, at
    value = (np.int64(NULL), at, np.int64(0))
    while at < end:
        if data[at] == _FIRST:
            key_at, at = read_size(data, at + 1)
            key_end = at
        elif data[at] == _SECOND:
            start, at = read_size(data, at + 1)
            value = read_value(data, start, at)
        else:
            at = skip_field(data, at)
    return value, key_at, key_end


@njit(cache=True)
def _next_member(data: Any, at: Any, end: Any) -> Any:
    """Return (start, end) of the next member of a list; start is -1 if there is none."""
    while at < end:
        if data[at] == _FIRST:
            return read_size(data, at + 1)
        at = skip_field(data, at)
    return np.int64(-1), end


@njit(cache=True)
def _looks_wrapped(data: Any, at: Any, end: Any) -> Any:
    """Return whether a kvlist is one pair whose key is the name of a wrapper: it is then wrapped itself, to stay
    distinct."""
    start, stop = _next_member(data, at, end)
    if start < 0 or _next_member(data, stop, end)[0] >= 0:
        return False
    _, key_at, key_end = _read_pair(data, start, stop)
    for name in _WRAPPERS:
        equal = key_end - key_at == len(name)
        for place in range(min(key_end - key_at, len(name))):
            equal &= data[key_at + place] == name[place]
        if equal:
            return True
    return False


@njit(cache=True)
def _open(data: Any, value: Any, level: Any, out: Any, at: Any) -> Any:
    """Begin a container; `level` is its column of the stack."""
    kind, start, size = value
    wrapped = kind == KVLIST and _looks_wrapped(data, start, start + size)
    level[_NEXT], level[_END] = start, start + size
    level[_IS_MAP], level[_IS_WRAPPED], level[_HAS_MEMBER] = kind == KVLIST, wrapped, 0
    if wrapped:
        at = _put(out, at, _OPEN_KVLIST)
    out[at] = 123 if kind == KVLIST else 91
    return at + 1


@njit(cache=True)
def put_value(data: Any, value: Any, out: Any, at: Any, levels: Any) -> Any:
    """Write the typed JSON of (kind, at, size); return the position after it. `levels` comes from `stack`, in place of
    recursion."""
    depth = -1
    while True:
        if value[0] == ARRAY or value[0] == KVLIST:
            depth += 1
            at = _open(data, value, levels[:, depth], out, at)
        else:
            at = _put_scalar(data, value, out, at)
        while depth >= 0:
            start, stop = _next_member(data, levels[_NEXT, depth], levels[_END, depth])
            if start >= 0:
                break
            out[at], out[at + 1] = 125 if levels[_IS_MAP, depth] else 93, 125
            at += 1 + levels[_IS_WRAPPED, depth]
            depth -= 1
        if depth < 0:
            return at
        if levels[_HAS_MEMBER, depth]:
            out[at] = _COMMA
            at += 1
        levels[_HAS_MEMBER, depth], levels[_NEXT, depth] = 1, stop
        if levels[_IS_MAP, depth]:
            value, key_at, key_end = _read_pair(data, start, stop)
            at = _put_string(data, key_at, key_end, out, at)
            out[at] = _COLON
            at += 1
        else:
            value = read_value(data, start, stop)
