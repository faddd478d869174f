"""Protobuf written many messages at a time, without message objects.

Comes in: a message as parts (constant bytes, holes, nested messages) and one column of bytes per hole.
Goes out: one `bytes` per row. A column is a matrix of the hole's bytes, one row per message, with a mask where rows
differ in width; the messages are laid out in one matrix at full width and the masked bytes are then dropped.
The bytes are canonical: fields in the order of their numbers, shortest varints, as protobuf's own writers make them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from string import Formatter

import numpy as np
from numpy.typing import NDArray

from lakerunner.model.protobuf import DELIMITED as DELIMITED
from lakerunner.model.protobuf import FIXED32 as FIXED32
from lakerunner.model.protobuf import FIXED64 as FIXED64
from lakerunner.model.protobuf import VARINT as VARINT
from lakerunner.model.protobuf import tag as tag
from lakerunner.model.protobuf import varint as varint
from lakerunner_demo.noise import I64, U64, Mask

Bytes = NDArray[np.uint8]


class Form(Enum):
    """How a hole's value stands on the wire; the number is its field in OTLP's AnyValue."""

    TEXT = 1
    BOOL = 2
    INT = 3
    DOUBLE = 4
    BYTES = 7


@dataclass(frozen=True)
class Hole:
    name: str
    form: Form = Form.TEXT


@dataclass(frozen=True)
class Nested:
    """A length-delimited field whose parts hold a hole."""

    tag: bytes
    parts: tuple[Part, ...]


Part = bytes | Hole | Nested
Value = str | bool | int | float | Hole | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(frozen=True)
class Column:
    """matrix[row] holds the bytes of a row; those where mask is False do not count."""

    matrix: Bytes
    mask: Mask | None = None

    def width(self) -> int | I64:
        if self.mask is None:
            return int(self.matrix.shape[1])
        widths: I64 = self.mask.sum(axis=1, dtype=np.int64)
        return widths

    def take(self, rows: I64) -> Column:
        return Column(self.matrix[rows], None if self.mask is None else self.mask[rows])


def nested(field: int, *parts: Part) -> Part:
    """Return a sub-message, or a string or bytes field, as constant bytes if it has no hole."""
    head = tag(field, DELIMITED)
    if all(isinstance(part, bytes) for part in parts):
        content = b"".join(part for part in parts if isinstance(part, bytes))
        return head + varint(len(content)) + content
    return Nested(head, tuple(parts))


def text_parts(pattern: str) -> Iterable[Part]:
    """Split a text such as `order {order} placed` into constants and text holes."""
    for literal, name, _, _ in Formatter().parse(pattern):
        if literal:
            yield literal.encode()
        if name is not None:
            yield Hole(name)


def any_value(field: int, value: Value) -> Part:
    """Return OTLP's AnyValue as this field. A string may contain {holes}; a Hole has the type of its form."""
    match value:
        case Hole(form=Form.TEXT | Form.BYTES):
            return nested(field, nested(value.form.value, value))
        case Hole(form=Form.DOUBLE):
            return nested(field, tag(4, FIXED64), value)
        case Hole():
            return nested(field, tag(value.form.value, VARINT), value)
        case str():
            return nested(field, nested(1, *text_parts(value)))
        case bool():
            return nested(field, tag(2, VARINT), varint(value))
        case int():
            return nested(field, tag(3, VARINT), varint(value & 0xFFFF_FFFF_FFFF_FFFF))
        case float():
            return nested(field, tag(4, FIXED64), struct.pack("<d", value))
        case Mapping():
            return nested(field, nested(6, *(key_value(1, k, v) for k, v in value.items())))
        case _:
            return nested(field, nested(5, *(any_value(1, item) for item in value)))


def key_value(field: int, key: str, value: Value) -> Part:
    return nested(field, nested(1, key.encode()), any_value(2, value))


def key_values(field: int, attributes: Mapping[str, Value]) -> tuple[Part, ...]:
    return tuple(key_value(field, key, value) for key, value in attributes.items())


def constant(part: Part) -> bytes:
    """Return the bytes of a part without holes."""
    if not isinstance(part, bytes):
        raise TypeError(f"{part} holds a hole")
    return part


def words_column(words: tuple[str, ...], index: I64) -> Column:
    """Return a column with one of the words per row."""
    return _word_table(words).take(index)


@lru_cache(maxsize=256)
def _word_table(words: tuple[str, ...]) -> Column:
    encoded = [word.encode() for word in words]
    widths = np.array([len(word) for word in encoded])
    size = int(widths.max())
    table = np.frombuffer(b"".join(word.ljust(size, b"\0") for word in encoded), np.uint8)
    table = table.reshape(len(words), size)
    return Column(table, None if (widths == size).all() else np.arange(size) < widths[:, None])


def decimal_column(numbers: I64, point: int = 0) -> Column:
    """Return numbers >= 0 as decimal text, with `point` digits after the decimal point."""
    size = max(len(str(int(numbers.max(initial=0)))), point + 1)
    digits = np.empty((len(numbers), size), np.uint8)
    rest = numbers
    for position in range(size - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, position] = digit + 48
    powers = np.array([10**k for k in range(point + 1, size)], np.int64)
    hidden = len(powers) - np.searchsorted(powers, numbers, side="right")
    mask = None if len(powers) == 0 else np.arange(size) >= hidden[:, None]
    if point:
        digits = np.insert(digits, size - point, 46, axis=1)
        mask = None if mask is None else np.insert(mask, size - point, True, axis=1)
    return Column(digits, mask)


def varint_column(numbers: I64) -> Column:
    """Return numbers >= 0 as shortest varints."""
    size = len(varint(int(numbers.max(initial=0))))
    if size == 1:
        return Column(numbers.astype(np.uint8)[:, None])
    shifted = numbers[:, None] >> np.arange(0, 7 * size, 7)
    more = (shifted >> 7) > 0
    mask = np.ones((len(numbers), size), bool)
    mask[:, 1:] = more[:, :-1]
    return Column(((shifted & 0x7F) | (more << 7)).astype(np.uint8), None if mask.all() else mask)


def fixed_column(numbers: I64 | U64 | NDArray[np.float64]) -> Column:
    """Return the eight bytes of each number, little-endian: fixed64, double, and ids of 8 bytes."""
    return Column(np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8))


def hex_column(bits: U64) -> Column:
    """Return sixteen hexadecimal digits per number."""
    pairs = np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 8)
    halves = np.stack((pairs >> 4, pairs & 15), axis=2).reshape(-1, 16)
    return Column(np.frombuffer(b"0123456789abcdef", np.uint8)[halves])


def encode(parts: Sequence[Part], column: Callable[[Hole], Column], rows: int) -> list[bytes]:
    """Encode one message per row; `column` returns the bytes of a hole for these rows."""
    pieces: list[bytes | Column] = []
    widths = _lay(parts, column, pieces)
    runs = _joined(pieces)
    size = sum(len(run) if isinstance(run, bytes) else run.matrix.shape[1] for run in runs)
    matrix = np.empty((rows, size), np.uint8)
    mask = np.ones((rows, size), bool)
    at = 0
    for run in runs:
        if isinstance(run, bytes):
            end = at + len(run)
            matrix[:, at:end] = np.frombuffer(run, np.uint8)
        else:
            end = at + run.matrix.shape[1]
            matrix[:, at:end] = run.matrix
            if run.mask is not None:
                mask[:, at:end] = run.mask
        at = end
    flat = matrix[mask].tobytes()
    ends = np.cumsum(np.broadcast_to(np.asarray(widths, np.int64), rows))
    return [flat[a:b] for a, b in pairwise([0, *ends.tolist()])]


def _lay(parts: Sequence[Part], column: Callable[[Hole], Column], pieces: list[bytes | Column]) -> int | I64:
    """Append the parts' pieces in order and return their width, per row where rows differ."""
    total: int | I64 = 0
    for part in parts:
        if isinstance(part, bytes):
            pieces.append(part)
            total = total + len(part)
        elif isinstance(part, Hole):
            cells = column(part)
            pieces.append(cells)
            total = total + cells.width()
        else:
            inside: list[bytes | Column] = []
            width = _lay(part.parts, column, inside)
            length: bytes | Column = varint(width) if isinstance(width, int) else varint_column(width)
            pieces += [part.tag, length, *inside]
            total = total + len(part.tag) + width
            total = total + (len(length) if isinstance(length, bytes) else length.width())
    return total


def _joined(pieces: Iterable[bytes | Column]) -> list[bytes | Column]:
    """Join adjacent constants."""
    runs: list[bytes | Column] = []
    for piece in pieces:
        if isinstance(piece, bytes) and runs and isinstance(runs[-1], bytes):
            runs[-1] += piece
        else:
            runs.append(piece)
    return runs
