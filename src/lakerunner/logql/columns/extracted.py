"""What the kernels of parsers share: lines and names as bytes in, columns of values out.

A kernel does not copy values. It writes where each value starts and ends, and how long it is without escapes (`Spans`);
`extracted` then builds a column of each name. What always holds: a row that a kernel cannot read exactly as the row
stage does is odd, and has no values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit

_BACKSLASH, _U = b"\\u"
_UNESCAPED = np.zeros(256, np.uint8)
_UNESCAPED[list(b"\"\\/'bfnrt")] = list(b"\"\\/'\b\f\n\r\t")
_HEX = np.full(256, -1, np.int64)
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
_REPLACEMENT = 0xFFFD  # stages write a space for it


@dataclass(frozen=True, slots=True)
class Extracted:
    """The labels of a batch of lines: a column for each name, null where the line has no such label. The row stage must
    read the rows that are `odd` (booleans)."""

    columns: Mapping[str, pa.Array]
    odd: Any


class LineBytes(NamedTuple):
    """Line n is `data[bounds[n] : bounds[n + 1]]`; a null line is empty."""

    data: Any
    bounds: Any


class NameBytes(NamedTuple):
    """Name n is `data[bounds[n] : bounds[n + 1]]`."""

    data: Any
    bounds: Any


class Spans(NamedTuple):
    """Where the values of the names (rows of these arrays) stand in each line (columns). `starts` is -1 where there is
    no value; `sizes` counts the bytes without escapes, so that a value with some is shorter than its place."""

    starts: Any
    ends: Any
    sizes: Any


def line_bytes(lines: pa.Array) -> LineBytes:
    texts = (lines.fill_null("") if lines.null_count else lines).cast(pa.large_string())
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64) if offsets else np.zeros(1, np.int64)
    return LineBytes(np.frombuffer(data or b"", np.uint8), bounds[texts.offset : texts.offset + len(texts) + 1].copy())


def name_bytes(names: Sequence[str]) -> NameBytes:
    texts = [name.encode() for name in names]
    bounds = np.cumsum([0, *map(len, texts)])
    return NameBytes(np.frombuffer(b"".join(texts), np.uint8), bounds)


def no_spans(names: int, rows: int) -> Spans:
    shape = (names, rows)
    return Spans(np.full(shape, -1, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64))


def extracted(lines: pa.Array, data: Any, names: Sequence[str], spans: Spans, odd: Any) -> Extracted:
    """Build the columns. They have the type of the lines: no value is longer than its line."""
    spans.starts[:, odd] = -1
    spans.sizes[:, odd] = 0
    kind = pa.string() if lines.type == pa.string() else pa.large_string()
    columns = {name: _column(kind, data, *(part[number] for part in spans)) for number, name in enumerate(names)}
    return Extracted(columns, odd)


def _column(kind: pa.DataType, data: Any, starts: Any, ends: Any, sizes: Any) -> pa.Array:
    bounds = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    values = np.empty(bounds[-1], np.uint8)
    _copy_values(data, starts, ends, bounds, values)
    is_there = starts >= 0
    valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    offsets = bounds.astype(np.int32) if kind == pa.string() else bounds
    return pa.Array.from_buffers(kind, len(starts), [valid, pa.py_buffer(offsets), pa.py_buffer(values)])


@njit(cache=True, nogil=True)
def value_size(data: Any, start: Any, end: Any, escapes: Any) -> Any:
    """Return the size of a quoted value without its escapes; -1 if it has one that is not among `escapes` (flags of
    bytes) or is half a pair, or has the replacement character."""
    size, at = 0, start
    while at < end:
        byte = data[at]
        if byte != _BACKSLASH:
            if byte == 0xEF and data[at + 1] == 0xBF and data[at + 2] == 0xBD:
                return -1
            size += 1
            at += 1
        elif at + 1 < end and escapes[data[at + 1]]:
            size += 1
            at += 2
        else:
            point = _code_point(data, at, end)
            if point < 0 or 0xD800 <= point <= 0xDFFF or point == _REPLACEMENT:
                return -1
            size += 1 if point < 0x80 else 2 if point < 0x800 else 3
            at += 6
    return size


@njit(cache=True, nogil=True)
def _code_point(data: Any, at: Any, end: Any) -> Any:
    """Return the number of an escape such as \\u00e4, -1 if it is none."""
    if at + 6 > end or data[at + 1] != _U:
        return -1
    point = 0
    for place in range(at + 2, at + 6):
        digit = _HEX[data[place]]
        if digit < 0:
            return -1
        point = point * 16 + digit
    return point


@njit(cache=True, nogil=True)
def _copy_values(data: Any, starts: Any, ends: Any, bounds: Any, values: Any) -> None:
    for row in range(len(starts)):
        at, to, stop = starts[row], bounds[row], bounds[row + 1]
        if ends[row] - at > stop - to:
            _copy_unescaped(data, at, values, to, stop)
            continue
        while to < stop:
            values[to] = data[at]
            at += 1
            to += 1


@njit(cache=True, nogil=True)
def _copy_unescaped(data: Any, at: Any, values: Any, to: Any, stop: Any) -> None:
    """Copy a value whose escapes `value_size` has checked."""
    while to < stop:
        if data[at] != _BACKSLASH:
            values[to] = data[at]
            at += 1
        elif data[at + 1] != _U:
            values[to] = _UNESCAPED[data[at + 1]]
            at += 2
        else:
            point = _code_point(data, at, at + 6)
            at += 6
            if point >= 0x800:
                values[to] = 0xE0 | point >> 12
                to += 1
            if point >= 0x80:
                values[to] = 0xC0 | point >> 6 if point < 0x800 else 0x80 | (point >> 6 & 0x3F)
                to += 1
            values[to] = point if point < 0x80 else 0x80 | (point & 0x3F)
        to += 1
