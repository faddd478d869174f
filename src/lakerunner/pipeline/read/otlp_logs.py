"""OTLP logs: the bytes of export requests to Rows.

Comes in: raw objects. Goes out: the rows of the sound ones, not yet copied out of their bytes, and for each damaged
one its reason; nothing of a damaged object is among the rows. Rows stand in the order of the objects and, inside
one, of its records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.pipeline.read.names import Names, names_for, number_of
from lakerunner.pipeline.read.otlp import LOGS_REQUEST, joined
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Json, Numbers, Raw, Read, Rows, Texts
from lakerunner.pipeline.read.walk import (
    ABSENT,
    BYTES,
    VALUE,
    Attributes,
    Owners,
    attached_to,
    attributes_for,
    common_columns,
    owners_for,
    read_pair,
    read_resource,
    read_scope,
    read_value,
    strings,
)
from lakerunner.pipeline.read.wire import read_varint, skip

_RECORD = np.dtype(
    [
        ("time", np.uint64),
        ("observed", np.uint64),
        ("first", np.int32),  # of its attributes; the next record's first ends them
        ("scope", np.int32),
        ("severity_number", np.int32),
        ("severity_text", np.int32),  # as a number of Logs.severity_texts
        ("event_name", np.int32),
        ("flags", np.uint32),
        ("dropped", np.uint32),
        ("body_kind", np.int32),
        ("body_at", np.int32),
        ("body_size", np.int32),
        ("trace_at", np.int32),
        ("trace_size", np.int32),
        ("span_at", np.int32),
        ("span_size", np.int32),
    ]
)


class Logs(NamedTuple):
    """All requests, flat. `records` has one more row at the end to close the last one's attributes."""

    records: Any
    count: Any
    attributes: Attributes
    scopes: Owners
    resources: Owners
    severity_texts: Names
    event_names: Names


def read_logs(raws: Sequence[Raw]) -> Read:
    """The log records of these objects."""
    files = joined(raws, LOGS_REQUEST)
    if not files.counts.get("LogRecord"):
        return Read(None, files.done, files.failed)
    logs = _logs_for(files.counts)
    _read_requests(files.data, files.end, logs)
    records = logs.records[:-1]
    scope = records["scope"]
    attached = {
        ATTRIBUTES.map_column: Attached(logs.attributes.values, logs.attributes.keys, logs.records["first"]),
        SCOPE.map_column: attached_to(logs.scopes, scope),
        RESOURCE.map_column: attached_to(logs.resources, logs.scopes.rows["resource"][scope]),
    }
    columns = {
        **_record_columns(logs, records, files.data),
        **common_columns(logs.scopes, logs.resources, files.data, scope),
    }
    return Read(Rows(len(records), files.data, columns, attached, files.modified_ns), files.done, files.failed)


def _record_columns(logs: Logs, records: Any, data: Any) -> dict[str, Column]:
    """OTLP's own fields; the steps make the segment's columns of them."""
    body = np.empty(len(records), VALUE)
    for name in ("kind", "at", "size"):
        body[name] = records[f"body_{name}"]
    return {
        "time_unix_nano": Numbers(records["time"]),
        "observed_time_unix_nano": Numbers(records["observed"]),
        "severity_number": Numbers(records["severity_number"]),
        "severity_text": Coded(records["severity_text"], strings(logs.severity_texts, data)),
        "event_name": Coded(records["event_name"], strings(logs.event_names, data)),
        "body": Json(body),
        "trace_id": Texts(BYTES, records["trace_at"], records["trace_size"], empty_is_null=True),
        "span_id": Texts(BYTES, records["span_at"], records["span_size"], empty_is_null=True),
        "flags": Numbers(records["flags"]),
        "dropped_attributes_count": Numbers(records["dropped"]),
    }


def _logs_for(counts: Mapping[str, int]) -> Logs:
    records = counts["LogRecord"]
    return Logs(
        np.zeros(records + 1, _RECORD),
        np.zeros(1, np.int64),
        attributes_for(counts["LogRecord.attributes"]),
        owners_for(counts["ScopeLogs"], counts["Scope.attributes"]),
        owners_for(counts["ResourceLogs"], counts["Resource.attributes"] + counts["EntityRef"]),
        names_for(records + 1),
        names_for(records + 1),
    )


@njit(cache=True)
def _fixed(data: Any, at: Any, size: Any) -> Any:
    value = np.uint64(0)
    for place in range(size):
        value |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return value


@njit(cache=True)
def _read_record(data: Any, at: Any, end: Any, logs: Logs, record: Any) -> Any:
    before = -1
    text_at, text_size, event_at, event_size = 0, 0, 0, 0
    record.first = logs.attributes.count[0]
    record.body_kind = ABSENT
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if wire_type == 2:
            length, at = read_varint(data, at)
            stop = at + np.int64(length)
            if field == 6:
                before = read_pair(data, at, stop, logs.attributes, before)
            elif field == 5:
                record.body_kind, record.body_at, record.body_size = read_value(data, at, stop)
            elif field == 3:
                text_at, text_size = at, stop - at
            elif field == 9:
                record.trace_at, record.trace_size = at, stop - at
            elif field == 10:
                record.span_at, record.span_size = at, stop - at
            elif field == 12:
                event_at, event_size = at, stop - at
            at = stop
            continue
        stop = skip(data, at, wire_type)
        if field == 1:
            record.time = _fixed(data, at, 8)
        elif field == 11:
            record.observed = _fixed(data, at, 8)
        elif field == 8:
            record.flags = np.uint32(_fixed(data, at, 4))
        elif field == 2:
            number, _ = read_varint(data, at)
            record.severity_number = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif field == 7:
            number, _ = read_varint(data, at)
            record.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        at = stop
    record.severity_text = number_of(data, text_at, text_size, logs.severity_texts, -1)
    record.event_name = number_of(data, event_at, event_size, logs.event_names, -1)


@njit(cache=True)
def _read_scope_logs(data: Any, at: Any, end: Any, logs: Logs) -> Any:
    index = logs.scopes.count[0]
    logs.scopes.count[0] = index + 1
    scope = logs.scopes.rows[index]
    scope.first = logs.scopes.attributes.count[0]
    scope.resource = logs.resources.count[0] - 1
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        stop = skip(data, at, wire_type)
        if field == 1:
            _, at = read_varint(data, at)
            read_scope(data, at, stop, scope, logs.scopes.attributes)
        elif field == 2:
            _, at = read_varint(data, at)
            row = logs.count[0]
            logs.count[0] = row + 1
            logs.records[row].scope = index
            _read_record(data, at, stop, logs, logs.records[row])
        elif field == 3:
            _, at = read_varint(data, at)
            scope.schema_url_at, scope.schema_url_size = at, stop - at
        at = stop


@njit(cache=True)
def _read_resource_logs(data: Any, at: Any, end: Any, logs: Logs) -> Any:
    resource = logs.resources.rows[logs.resources.count[0]]
    logs.resources.count[0] += 1
    resource.first = logs.resources.attributes.count[0]
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        stop = skip(data, at, wire_type)
        if field == 1:
            _, at = read_varint(data, at)
            read_resource(data, at, stop, resource, logs.resources.attributes)
        elif field == 2:
            _, at = read_varint(data, at)
            _read_scope_logs(data, at, stop, logs)
        elif field == 3:
            _, at = read_varint(data, at)
            resource.schema_url_at, resource.schema_url_size = at, stop - at
        at = stop


@njit(cache=True)
def _read_requests(data: Any, end: Any, logs: Logs) -> Any:
    """All requests, one after the other: concatenated messages read as one message that holds them all."""
    at = 0
    while at < end:
        tag, at = read_varint(data, at)
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        stop = skip(data, at, wire_type)
        if field == 1:
            _, at = read_varint(data, at)
            _read_resource_logs(data, at, stop, logs)
        at = stop
    logs.records[logs.count[0]].first = logs.attributes.count[0]
    for owners in (logs.scopes, logs.resources):
        owners.rows[owners.count[0]].first = owners.attributes.count[0]
