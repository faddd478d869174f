"""What every OTLP signal has in common, read from checked bytes into flat arrays: values, attributes, resources, scopes.

Nothing is copied here. A text is (at, size) into the input, a value (kind, at, size), where kind is the field number
of AnyValue and at..at+size the encoded payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.pipeline.read.names import Names, names_for, number_all, number_of, texts_of
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Numbers
from lakerunner.pipeline.read.wire import read_varint, skip

# AnyValue's field numbers; ABSENT: there is no AnyValue at all.
ABSENT, NULL, STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, BYTES = -1, 0, 1, 2, 3, 4, 5, 6, 7
ENTITY_REFS = b"lakerunner.entity_refs"

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
    """`values` of all owners one after the other, `keys` interned, `count` the values so far."""

    values: Any
    keys: Names
    count: Any


class Owners(NamedTuple):
    """Resources or scopes, with one more row at the end to close the last one's attributes."""

    rows: Any
    attributes: Attributes
    count: Any


def attributes_for(count: int) -> Attributes:
    return Attributes(np.zeros(count, VALUE), names_for(count), np.zeros(1, np.int64))


def attached_to(owners: Owners, owner_of_row: Any) -> Attached:
    return Attached(owners.attributes.values, owners.attributes.keys, owners.rows["first"], owner_of_row)


def common_columns(scopes: Owners, resources: Owners, data: Any, scope_of_row: Any) -> dict[str, Column]:
    """What every signal's rows have from their scope and resource."""
    resource_of_row = scopes.rows["resource"][scope_of_row]
    return {
        "scope_name": _coded(scopes, "name", data, scope_of_row),
        "scope_version": _coded(scopes, "version", data, scope_of_row),
        "scope_schema_url": _coded(scopes, "schema_url", data, scope_of_row),
        "scope_dropped_attributes": Numbers(scopes.rows["dropped"], None, scope_of_row),
        "resource_schema_url": _coded(resources, "schema_url", data, resource_of_row),
        "resource_dropped_attributes": Numbers(resources.rows["dropped"], None, resource_of_row),
    }


def _coded(owners: Owners, field: str, data: Any, owner_of_row: Any) -> Coded:
    names = names_for(len(owners.rows))
    codes = number_all(data, owners.rows[f"{field}_at"], owners.rows[f"{field}_size"], names)
    return Coded(codes, strings(names, data), owner_of_row)


def strings(names: Names, data: Any) -> pa.Array:
    return pa.array(texts_of(names, data), pa.binary()).cast(pa.string())


def owners_for(count: int, attributes: int) -> Owners:
    return Owners(np.zeros(count + 1, OWNER), attributes_for(attributes), np.zeros(1, np.int64))


@njit(cache=True)
def read_value(data: Any, at: Any, end: Any) -> Any:
    """(kind, at, size) of the AnyValue that these bytes are."""
    kind, place, size = NULL, at, 0
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if wire_type == 2:
            length, at = read_varint(data, at)
            stop = at + np.int64(length)
        else:
            stop = skip(data, at, wire_type)
        if STRING <= field <= BYTES:
            kind, place, size = field, at, stop - at
        at = stop
    return kind, place, size


@njit(cache=True)
def read_pair(data: Any, at: Any, end: Any, attributes: Attributes, before: Any) -> Any:
    """Append the KeyValue that these bytes are; the number of its key. `before` is the key before it, or -1."""
    key_at, key_size = at, 0
    row = attributes.count[0]
    attributes.count[0] = row + 1
    value = attributes.values[row]
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if field == 1:
            length, at = read_varint(data, at)
            key_at, key_size = at, np.int64(length)
            at += key_size
        elif field == 2:
            length, at = read_varint(data, at)
            stop = at + np.int64(length)
            value.kind, value.at, value.size = read_value(data, at, stop)
            at = stop
        else:
            at = skip(data, at, wire_type)
    key = number_of(data, key_at, key_size, attributes.keys, before)
    value.key = key
    return key


@njit(cache=True)
def read_resource(data: Any, at: Any, end: Any, resource: Any, attributes: Attributes) -> Any:
    """A Resource into its row. Called again for the same row, it merges as protobuf does."""
    before = -1
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        stop = skip(data, at, wire_type)
        if field == 1:
            _, at = read_varint(data, at)
            before = read_pair(data, at, stop, attributes, before)
        elif field == 2:
            dropped, at = read_varint(data, at)
            resource.dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        elif field == 3:
            _, at = read_varint(data, at)
            row = attributes.count[0]
            attributes.count[0] = row + 1
            name_at = len(data) - len(ENTITY_REFS)
            before = number_of(data, name_at, len(ENTITY_REFS), attributes.keys, before)
            value = attributes.values[row]
            value.key, value.kind, value.at, value.size = before, BYTES, at, stop - at
        at = stop


@njit(cache=True)
def read_scope(data: Any, at: Any, end: Any, scope: Any, attributes: Attributes) -> Any:
    """An InstrumentationScope into its row. Called again for the same row, it merges as protobuf does."""
    before = -1
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        stop = skip(data, at, wire_type)
        if field == 1:
            _, at = read_varint(data, at)
            scope.name_at, scope.name_size = at, stop - at
        elif field == 2:
            _, at = read_varint(data, at)
            scope.version_at, scope.version_size = at, stop - at
        elif field == 3:
            _, at = read_varint(data, at)
            before = read_pair(data, at, stop, attributes, before)
        elif field == 4:
            dropped, at = read_varint(data, at)
            scope.dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        at = stop
