"""OTLP's AnyValue and KeyValue, from checked bytes into flat arrays.

Nothing is copied. A text is (at, size) into the input; a value is (kind, at, size), where kind is the field number of
AnyValue and at..at+size its encoded payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import Bytes, Int32s, Names, Records
from lakerunner.pipeline.read.names import names_for, number_all, number_of, texts_of
from lakerunner.pipeline.read.rows import CodedColumn
from lakerunner.pipeline.read.wire import BYTES as _LENGTH
from lakerunner.pipeline.read.wire import read_size, skip_field, tag_of

# AnyValue's field numbers. NULL is an AnyValue without a value, ABSENT no AnyValue at all.
ABSENT, NULL, STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, BYTES = -1, 0, 1, 2, 3, 4, 5, 6, 7

_KEY, _VALUE = (tag_of(number, _LENGTH) for number in (1, 2))

VALUE = np.dtype([("key", np.int32), ("kind", np.int32), ("at", np.int32), ("size", np.int32)])


class Attributes(NamedTuple):
    """The `values` of all owners one after the other, and their `keys` as names (read/names.py)."""

    values: Records
    keys: Names


def attributes_for(count: int) -> Attributes:
    """Return room for this many attributes."""
    return Attributes(np.zeros(count, VALUE), names_for(count))


def contiguous(first: Int32s) -> Int32s:
    """Copy one field of records into an array of its own: numba would compile again for numbers that are apart."""
    return np.ascontiguousarray(first)


def coded_column(rows: Records, field: str, data: Bytes, owner_of_row: Int32s | None = None) -> CodedColumn:
    """Return the texts that these rows have at `field`_at, of `field`_size bytes."""
    names = names_for(len(rows))
    at, size = (np.ascontiguousarray(rows[f"{field}_{part}"]) for part in ("at", "size"))
    codes = number_all(data, at, size, names)
    return CodedColumn(codes, string_array(names, data), owner_of_row)


def string_array(names: Names, data: Bytes) -> pa.Array:
    """Return the names as strings. The wire check has found them to be UTF-8, which the cast relies on."""
    return pa.array(texts_of(names, data), pa.binary()).cast(pa.string())


@njit(cache=True)
def read_value(data: Any, at: Any, end: Any) -> Any:
    """Return (kind, at, size) of the AnyValue in these bytes."""
    kind, start, stop = np.int64(NULL), at, at
    while at < end:
        tag = data[at]
        field = np.int64(tag >> 3)
        if tag >= 0x80 or field < STRING or field > BYTES:
            at = skip_field(data, at)
            continue
        kind = field
        if tag & 7 == 2:  # length-delimited: the payload begins behind the length
            start, stop = read_size(data, at + 1)
        else:
            start, stop = at + 1, skip_field(data, at)
        at = stop
    return kind, start, stop - start


@njit(cache=True)
def read_pair(data: Any, at: Any, end: Any, row: Any, attributes: Attributes) -> Any:
    """Read the KeyValue in these bytes into this row of the values."""
    key_at, key_end = at, at
    kind, start, size = np.int64(NULL), at, np.int64(0)
    while at < end:
        tag = data[at]
        if tag == _KEY:
            key_at, at = read_size(data, at + 1)
            key_end = at
        elif tag == _VALUE:
            start, at = read_size(data, at + 1)
            kind, start, size = read_value(data, start, at)
        else:
            at = skip_field(data, at)
    # The row before may belong to another owner. The guess is then likely wrong, which costs time but no correctness.
    before = np.int64(attributes.values[row - 1].key) if row > 0 else np.int64(-1)
    value = attributes.values[row]
    value.key = number_of(data, key_at, key_end - key_at, attributes.keys, before)
    value.kind, value.at, value.size = kind, start, size
