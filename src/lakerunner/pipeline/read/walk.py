"""The values and attributes of OTLP, from checked bytes into flat arrays.

Nothing is copied here. A text is (at, size) into the input, a value (kind, at, size), where kind is the field number
of AnyValue and at..at+size the encoded payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.pipeline.read.arrays import Bytes, Int32s, Names, Records
from lakerunner.pipeline.read.names import names_for, number_all, number_of, texts_of
from lakerunner.pipeline.read.rows import Coded
from lakerunner.pipeline.read.wire import BYTES as _LENGTH
from lakerunner.pipeline.read.wire import read_size, skip_field, tag_of

# AnyValue's field numbers; ABSENT: there is no AnyValue at all.
ABSENT, NULL, STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, BYTES = -1, 0, 1, 2, 3, 4, 5, 6, 7

_KEY, _VALUE = (tag_of(number, _LENGTH) for number in (1, 2))

VALUE = np.dtype([("key", np.int32), ("kind", np.int32), ("at", np.int32), ("size", np.int32)])


class Attributes(NamedTuple):
    """`values` of all owners one after the other; `keys` are names."""

    values: Records
    keys: Names


def attributes_for(count: int) -> Attributes:
    return Attributes(np.zeros(count, VALUE), names_for(count))


def coded(rows: Records, field: str, data: Bytes, owner_of_row: Int32s | None = None) -> Coded:
    """Return the texts that these rows have in `field`_at and `field`_size."""
    names = names_for(len(rows))
    at, size = (np.ascontiguousarray(rows[f"{field}_{part}"]) for part in ("at", "size"))
    codes = number_all(data, at, size, names)
    return Coded(codes, strings(names, data), owner_of_row)


def strings(names: Names, data: Bytes) -> pa.Array:
    return pa.array(texts_of(names, data), pa.binary()).cast(pa.string())


@njit(cache=True)
def read_value(data: Any, at: Any, end: Any) -> Any:
    """(kind, at, size) of the AnyValue that these bytes are."""
    kind, start, stop = np.int64(NULL), at, at
    while at < end:
        tag = data[at]
        field = np.int64(tag >> 3)
        if tag >= 0x80 or field < STRING or field > BYTES:
            at = skip_field(data, at)
            continue
        kind = field
        if tag & 7 == 2:
            start, stop = read_size(data, at + 1)
        else:
            start, stop = at + 1, skip_field(data, at)
        at = stop
    return kind, start, stop - start


@njit(cache=True)
def read_pair(data: Any, at: Any, end: Any, row: Any, attributes: Attributes) -> Any:
    """The KeyValue that these bytes are into this row of the values."""
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
    # The row before may be another owner's: then the guess is a wrong one, which only costs time.
    before = np.int64(attributes.values[row - 1].key) if row > 0 else np.int64(-1)
    value = attributes.values[row]
    value.key = number_of(data, key_at, key_end - key_at, attributes.keys, before)
    value.kind, value.at, value.size = kind, start, size
