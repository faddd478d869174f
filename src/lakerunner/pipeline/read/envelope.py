"""The envelope of an OTLP request, the same for every signal: resources, their scopes, and the places of the items.

Comes in: checked bytes. Goes out: a row for each resource and each scope, and for each item (a LogRecord, Metric or
Span) its place and its scope, in the order of the bytes. Each signal's own kernel then reads the items from their
places. One kernel that calls the signal's for each item would save this second pass, but numba does not cache the
machine code of functions that take functions (docs/decisions/0019-wire-walkers.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import RESOURCE, SCOPE
from lakerunner.pipeline.read.memory import PADDING, Bytes, Int32s, Records, slice_fields
from lakerunner.pipeline.read.names import number_of
from lakerunner.pipeline.read.otlp import ENTITY_REFS, Files, Request
from lakerunner.pipeline.read.rows import Attached, Column, NumberColumn
from lakerunner.pipeline.read.walk import BYTES, Attributes, attributes_for, coded_column, read_pair
from lakerunner.pipeline.read.wire import STRING, VARINT, read_size, read_varint, skip_field, tag_of

# The request, ResourceX and ScopeX (X: Logs, Metrics, Spans) have the same fields: 1 is a ResourceX or the head (a
# Resource or InstrumentationScope), 2 the items.
_HEAD, _ITEMS, _SCHEMA_URL = (tag_of(number, STRING) for number in (1, 2, 3))
_RESOURCE_ATTRIBUTES, _RESOURCE_DROPPED, _ENTITY_REFS = tag_of(1, STRING), tag_of(2, VARINT), tag_of(3, STRING)
_SCOPE_NAME, _SCOPE_VERSION, _SCOPE_ATTRIBUTES = (tag_of(number, STRING) for number in (1, 2, 3))
_SCOPE_DROPPED = tag_of(4, VARINT)

ITEM = np.dtype([("at", np.int32), ("size", np.int32), ("scope", np.int32)])
OWNER = np.dtype(
    [
        ("at", np.int32),  # where the ResourceX or ScopeX begins
        ("size", np.int32),
        ("item", np.int32),  # its first item
        ("first", np.int32),  # its first attribute; they end at the next owner's first
        ("dropped", np.uint32),
        *slice_fields("schema_url"),
        ("resource", np.int32),  # the rest is for scopes only
        *slice_fields("name", "version"),
    ]
)


class Owners(NamedTuple):
    """Resources or scopes, with one more row at the end that closes the last one's attributes. `counts` are the owners
    and the attributes so far."""

    rows: Records
    attributes: Attributes
    counts: Any

    def attached(self, owner_of_row: Int32s) -> Attached:
        """Return the attributes that each row has from its owner."""
        return Attached(self.attributes.values, self.attributes.keys, self.rows["first"], owner_of_row)


class Envelope(NamedTuple):
    """The items of all requests, their scopes and resources."""

    items: Records
    scopes: Owners
    resources: Owners

    def attached(self, scope_of_row: Int32s) -> dict[str, Attached]:
        """Return the attributes of each row's scope and resource, by their map columns."""
        resource_of_row = self.scopes.rows["resource"][scope_of_row]
        return {
            SCOPE.map_column: self.scopes.attached(scope_of_row),
            RESOURCE.map_column: self.resources.attached(resource_of_row),
        }

    def columns(self, data: Bytes, scope_of_row: Int32s) -> dict[str, Column]:
        """Return the columns that rows of every signal have from their scope and resource."""
        scopes, resources = self.scopes.rows, self.resources.rows
        resource_of_row = scopes["resource"][scope_of_row]
        return {
            "scope_name": coded_column(scopes, "name", data, scope_of_row),
            "scope_version": coded_column(scopes, "version", data, scope_of_row),
            "scope_schema_url": coded_column(scopes, "schema_url", data, scope_of_row),
            "scope_dropped_attributes": NumberColumn(scopes["dropped"], None, scope_of_row),
            "resource_schema_url": coded_column(resources, "schema_url", data, resource_of_row),
            "resource_dropped_attributes": NumberColumn(resources["dropped"], None, resource_of_row),
        }


def read_envelope(files: Files, request: Request) -> Envelope:
    """Read the envelope of these files, but not their items."""
    counts = files.counts
    _, resource, scope, *_ = request.messages
    envelope = Envelope(
        np.zeros(counts[request.item], ITEM),
        _owners_for(counts[scope], counts["Scope.attributes"]),
        _owners_for(counts[resource], counts["Resource.attributes"] + counts["EntityRef"]),
    )
    _walk_requests(files.data, files.end, envelope)
    return envelope


def _owners_for(count: int, attributes: int) -> Owners:
    return Owners(np.zeros(count + 1, OWNER), attributes_for(attributes), np.zeros(2, np.int64))


@njit(cache=True)
def _walk_requests(data: Any, end: Any, envelope: Envelope) -> Any:
    at, item = np.int64(0), np.int64(0)
    while at < end:
        if data[at] == _HEAD:
            start, at = read_size(data, at + 1)
            item = _walk_resource(data, start, at, item, envelope)
        else:
            at = skip_field(data, at)
    for owners in (envelope.scopes, envelope.resources):
        owners.rows[owners.counts[0]].first = owners.counts[1]


@njit(cache=True)
def _walk_resource(data: Any, at: Any, end: Any, item: Any, envelope: Envelope) -> Any:
    """Read a ResourceX whose first item has the number `item`; return the number of items so far."""
    owners = envelope.resources
    index = _open(at, end, item, owners)
    resource = owners.rows[index]
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            item = _walk_scope(data, start, at, item, envelope)
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            _read_resource(data, start, at, resource, owners)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            resource.schema_url_at, resource.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)
    return item


@njit(cache=True)
def _walk_scope(data: Any, at: Any, end: Any, item: Any, envelope: Envelope) -> Any:
    """Read a ScopeX and note its items; return the number of items so far."""
    owners = envelope.scopes
    index = _open(at, end, item, owners)
    scope = owners.rows[index]
    scope.resource = envelope.resources.counts[0] - 1
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            place = envelope.items[item]
            place.at, place.size, place.scope = start, at - start, index
            item += 1
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            _read_scope(data, start, at, scope, owners)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            scope.schema_url_at, scope.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)
    return item


@njit(cache=True)
def _open(at: Any, end: Any, item: Any, owners: Owners) -> Any:
    """Begin the row of one more owner; return its number."""
    index = owners.counts[0]
    owners.counts[0] = index + 1
    row = owners.rows[index]
    row.at, row.size, row.item, row.first = at, end - at, item, owners.counts[1]
    return index


@njit(cache=True)
def _read_resource(data: Any, at: Any, end: Any, resource: Any, owners: Owners) -> Any:
    """Read a Resource into its row. Called again for the same row, it merges as protobuf does."""
    count = owners.counts[1]
    while at < end:
        tag = data[at]
        if tag == _RESOURCE_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, owners.attributes)
            count += 1
        elif tag == _RESOURCE_DROPPED:
            dropped, at = read_varint(data, at + 1)
            resource.dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        elif tag == _ENTITY_REFS:
            start, at = read_size(data, at + 1)
            # Kept whole as an attribute; its key stands behind the input (otlp.ENTITY_REFS).
            size = np.int64(len(ENTITY_REFS))
            value = owners.attributes.values[count]
            value.key = number_of(data, len(data) - PADDING - size, size, owners.attributes.keys, np.int64(-1))
            value.kind, value.at, value.size = BYTES, start, at - start
            count += 1
        else:
            at = skip_field(data, at)
    owners.counts[1] = count


@njit(cache=True)
def _read_scope(data: Any, at: Any, end: Any, scope: Any, owners: Owners) -> Any:
    """Read an InstrumentationScope into its row. Called again for the same row, it merges as protobuf does."""
    count = owners.counts[1]
    while at < end:
        tag = data[at]
        if tag == _SCOPE_NAME:
            start, at = read_size(data, at + 1)
            scope.name_at, scope.name_size = start, at - start
        elif tag == _SCOPE_VERSION:
            start, at = read_size(data, at + 1)
            scope.version_at, scope.version_size = start, at - start
        elif tag == _SCOPE_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, owners.attributes)
            count += 1
        elif tag == _SCOPE_DROPPED:
            dropped, at = read_varint(data, at + 1)
            scope.dropped = np.uint32(dropped & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    owners.counts[1] = count
