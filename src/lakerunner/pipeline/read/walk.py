"""What every OTLP signal has in common, from checked bytes into flat arrays: values, attributes, resources, scopes.

Nothing is copied here. A text is (at, size) into the input, a value (kind, at, size), where kind is the field number
of AnyValue and at..at+size the encoded payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import names_for, number_all, number_of, texts_of
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Numbers
from lakerunner.pipeline.read.wire import BYTES as _LENGTH
from lakerunner.pipeline.read.wire import VARINT, read_size, read_varint, skip_field, tag_of

# AnyValue's field numbers; ABSENT: there is no AnyValue at all.
ABSENT, NULL, STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, BYTES = -1, 0, 1, 2, 3, 4, 5, 6, 7
# The key under which a resource's entity_refs are kept; it stands behind the input, before the padding.
ENTITY_REFS = np.frombuffer(b"lakerunner.entity_refs", np.uint8)

_FIELD_1, _FIELD_2, _FIELD_3 = (tag_of(number, _LENGTH) for number in (1, 2, 3))
_NUMBER_2, _NUMBER_4 = tag_of(2, VARINT), tag_of(4, VARINT)

VALUE = np.dtype([("key", np.int32), ("kind", np.int32), ("at", np.int32), ("size", np.int32)])
OWNER = np.dtype(
    [
        ("first", np.int32),  # of its attributes; the next owner's first ends them
        ("dropped", np.uint32),
        ("schema_url_at", np.int32),
        ("schema_url_size", np.int32),
        ("resource", np.int32),  # the rest is for scopes only
        ("name_at", np.int32),
        ("name_size", np.int32),
        ("version_at", np.int32),
        ("version_size", np.int32),
    ]
)


class Attributes(NamedTuple):
    """`values` of all owners one after the other; `keys` are names."""

    values: Any
    keys: Any


class Owners(NamedTuple):
    """Resources or scopes, with one more row at the end to close the last one's attributes. `counts` are the owners and
    the attributes so far."""

    rows: Any
    attributes: Attributes
    counts: Any


def attributes_for(count: int) -> Attributes:
    return Attributes(np.zeros(count, VALUE), names_for(count))


def owners_for(count: int, attributes: int) -> Owners:
    return Owners(np.zeros(count + 1, OWNER), attributes_for(attributes), np.zeros(2, np.int64))


def attached_to(owners: Owners, owner_of_row: Any) -> Attached:
    return Attached(owners.attributes.values, owners.attributes.keys, owners.rows["first"], owner_of_row)


def common_columns(scopes: Owners, resources: Owners, data: Any, scope_of_row: Any) -> dict[str, Column]:
    """What every signal's rows have from their scope and resource."""
    resource_of_row = scopes.rows["resource"][scope_of_row]
    return {
        "scope_name": coded(scopes.rows, "name", data, scope_of_row),
        "scope_version": coded(scopes.rows, "version", data, scope_of_row),
        "scope_schema_url": coded(scopes.rows, "schema_url", data, scope_of_row),
        "scope_dropped_attributes": Numbers(scopes.rows["dropped"], None, scope_of_row),
        "resource_schema_url": coded(resources.rows, "schema_url", data, resource_of_row),
        "resource_dropped_attributes": Numbers(resources.rows["dropped"], None, resource_of_row),
    }


def coded(rows: Any, field: str, data: Any, owner_of_row: Any = None) -> Coded:
    """The texts that these rows have in `field`_at and `field`_size."""
    names = names_for(len(rows))
    at, size = (np.ascontiguousarray(rows[f"{field}_{part}"]) for part in ("at", "size"))
    codes = number_all(data, at, size, names)
    return Coded(codes, strings(names, data), owner_of_row)


def strings(names: Any, data: Any) -> pa.Array:
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
        if tag == _FIELD_1:
            key_at, at = read_size(data, at + 1)
            key_end = at
        elif tag == _FIELD_2:
            start, at = read_size(data, at + 1)
            kind, start, size = read_value(data, start, at)
        else:
            at = skip_field(data, at)
    # The row before may be another owner's: then the guess is a wrong one, which only costs time.
    before = np.int64(attributes.values[row - 1].key) if row > 0 else np.int64(-1)
    value = attributes.values[row]
    value.key = number_of(data, key_at, key_end - key_at, attributes.keys, before)
    value.kind, value.at, value.size = kind, start, size


@njit(cache=True)
def read_resource(data: Any, at: Any, end: Any, row: Any, owners: Owners) -> Any:
    """A Resource into its row. Called again for the same row, it merges as protobuf does."""
    count = owners.counts[1]
    while at < end:
        tag = data[at]
        if tag == _FIELD_1:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, owners.attributes)
            count += 1
        elif tag == _NUMBER_2:
            dropped, at = read_varint(data, at + 1)
            owners.rows[row].dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        elif tag == _FIELD_3:
            start, at = read_size(data, at + 1)
            size = np.int64(len(ENTITY_REFS))
            value = owners.attributes.values[count]
            value.key = number_of(data, len(data) - PADDING - size, size, owners.attributes.keys, np.int64(-1))
            value.kind, value.at, value.size = BYTES, start, at - start
            count += 1
        else:
            at = skip_field(data, at)
    owners.counts[1] = count


@njit(cache=True)
def read_scope(data: Any, at: Any, end: Any, row: Any, owners: Owners) -> Any:
    """An InstrumentationScope into its row. Called again for the same row, it merges as protobuf does."""
    count = owners.counts[1]
    scope = owners.rows[row]
    while at < end:
        tag = data[at]
        if tag == _FIELD_1:
            start, at = read_size(data, at + 1)
            scope.name_at, scope.name_size = start, at - start
        elif tag == _FIELD_2:
            start, at = read_size(data, at + 1)
            scope.version_at, scope.version_size = start, at - start
        elif tag == _FIELD_3:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, owners.attributes)
            count += 1
        elif tag == _NUMBER_4:
            dropped, at = read_varint(data, at + 1)
            scope.dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    owners.counts[1] = count
