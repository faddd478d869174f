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
from lakerunner.pipeline.read.logs_request import LOGS_REQUEST
from lakerunner.pipeline.read.memory import digest, load
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.otlp import joined
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
from lakerunner.pipeline.read.wire import FIXED32, FIXED64, STRING, VARINT, read_size, read_varint, skip_field, tag_of

# ResourceLogs and ScopeLogs are alike: first what they are about, then their items.
_HEAD, _ITEMS, _SCHEMA_URL = (tag_of(number, STRING) for number in (1, 2, 3))
_TIME, _OBSERVED_TIME = (tag_of(number, FIXED64) for number in (1, 11))
_SEVERITY_NUMBER, _DROPPED = (tag_of(number, VARINT) for number in (2, 7))
_SEVERITY_TEXT, _BODY, _ATTRIBUTES, _TRACE_ID, _SPAN_ID, _EVENT_NAME = (
    tag_of(number, STRING) for number in (3, 5, 6, 9, 10, 12)
)
_FLAGS = tag_of(8, FIXED32)

_RECORD = np.dtype(
    [
        ("time", np.uint64),
        ("observed", np.uint64),
        ("size", np.int32),  # of the record, in bytes
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


class Parts(NamedTuple):
    """What records are made of, beside their rows: attributes, and the names of texts that are few."""

    attributes: Attributes
    severity_texts: Any
    event_names: Any


class Logs(NamedTuple):
    """All requests, flat. `records` has one more row at the end to close the last one's attributes. `counts` are the
    records and their attributes so far. Of each resource `deliveries` is a digest of the bytes of its ResourceLogs, and
    `firsts` the first of its records, which stand together."""

    records: Any
    parts: Parts
    scopes: Owners
    resources: Owners
    counts: Any
    deliveries: Any
    firsts: Any


def read_logs(raws: Sequence[Raw]) -> Read:
    """The log records of these objects."""
    files = joined(raws, LOGS_REQUEST)
    if not files.counts.get("LogRecord"):
        return Read(None, files.done, files.failed, files.left, files.items)
    logs = _logs_for(files.counts)
    _read_requests(files.data, files.end, logs)
    records = logs.records[:-1]
    scope = records["scope"]
    resource = logs.scopes.rows["resource"][scope]
    attached = {
        ATTRIBUTES.map_column: Attached(*logs.parts.attributes, logs.records["first"]),
        SCOPE.map_column: attached_to(logs.scopes, scope),
        RESOURCE.map_column: attached_to(logs.resources, resource),
    }
    columns = {
        **_record_columns(logs, records, files.data),
        **common_columns(logs.scopes, logs.resources, files.data, scope),
        "delivery": Numbers(logs.deliveries, None, resource),
        "delivery_row": Numbers((np.arange(len(records)) - logs.firsts[resource]).astype(np.uint32)),
    }
    rows = Rows(len(records), files.data, columns, attached, files.modified_ns, records["size"])
    return Read(rows, files.done, files.failed, files.left, files.items)


def _record_columns(logs: Logs, records: Any, data: Any) -> dict[str, Column]:
    """OTLP's own fields; the steps make the segment's columns of them."""
    body = np.empty(len(records), VALUE)
    for name in ("kind", "at", "size"):
        body[name] = records[f"body_{name}"]
    return {
        "time_unix_nano": Numbers(records["time"]),
        "observed_time_unix_nano": Numbers(records["observed"]),
        "severity_number": Numbers(records["severity_number"]),
        "severity_text": Coded(records["severity_text"], strings(logs.parts.severity_texts, data)),
        "event_name": Coded(records["event_name"], strings(logs.parts.event_names, data)),
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
        Parts(attributes_for(counts["LogRecord.attributes"]), names_for(records), names_for(records)),
        owners_for(counts["ScopeLogs"], counts["Scope.attributes"]),
        owners_for(counts["ResourceLogs"], counts["Resource.attributes"] + counts["EntityRef"]),
        np.zeros(2, np.int64),
        np.zeros(counts["ResourceLogs"], np.int64),
        np.zeros(counts["ResourceLogs"], np.int64),
    )


@njit(cache=True)
def _read_record(data: Any, at: Any, end: Any, record: Any, parts: Parts) -> Any:
    """A LogRecord into its row; how many attributes there are now, of which `record.first` were there before."""
    text_at, text_end, event_at, event_end = at, at, at, at
    count = np.int64(record.first)
    record.body_kind = ABSENT
    while at < end:
        tag = data[at]
        if tag == _ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, parts.attributes)
            count += 1
        elif tag == _TIME:
            record.time = load(data, at + 1)
            at += 9
        elif tag == _OBSERVED_TIME:
            record.observed = load(data, at + 1)
            at += 9
        elif tag == _SEVERITY_NUMBER:
            number, at = read_varint(data, at + 1)
            record.severity_number = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif tag == _SEVERITY_TEXT:
            text_at, at = read_size(data, at + 1)
            text_end = at
        elif tag == _BODY:
            start, at = read_size(data, at + 1)
            record.body_kind, record.body_at, record.body_size = read_value(data, start, at)
        elif tag == _TRACE_ID:
            start, at = read_size(data, at + 1)
            record.trace_at, record.trace_size = start, at - start
        elif tag == _SPAN_ID:
            start, at = read_size(data, at + 1)
            record.span_at, record.span_size = start, at - start
        elif tag == _FLAGS:
            record.flags = np.uint32(load(data, at + 1) & np.uint64(0xFFFFFFFF))
            at += 5
        elif tag == _DROPPED:
            number, at = read_varint(data, at + 1)
            record.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        elif tag == _EVENT_NAME:
            event_at, at = read_size(data, at + 1)
            event_end = at
        else:
            at = skip_field(data, at)
    record.severity_text = number_of(data, text_at, text_end - text_at, parts.severity_texts, np.int64(-1))
    record.event_name = number_of(data, event_at, event_end - event_at, parts.event_names, np.int64(-1))
    return count


@njit(cache=True)
def _read_scope_logs(data: Any, at: Any, end: Any, logs: Logs) -> Any:
    index = logs.scopes.counts[0]
    logs.scopes.counts[0] = index + 1
    scope = logs.scopes.rows[index]
    scope.first = logs.scopes.counts[1]
    scope.resource = logs.resources.counts[0] - 1
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            record = logs.records[logs.counts[0]]
            record.size, record.scope, record.first = at - start, index, logs.counts[1]
            logs.counts[1] = _read_record(data, start, at, record, logs.parts)
            logs.counts[0] += 1
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            read_scope(data, start, at, index, logs.scopes)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            scope.schema_url_at, scope.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_resource_logs(data: Any, at: Any, end: Any, logs: Logs) -> Any:
    index = logs.resources.counts[0]
    logs.resources.counts[0] = index + 1
    resource = logs.resources.rows[index]
    resource.first = logs.resources.counts[1]
    logs.firsts[index] = logs.counts[0]
    logs.deliveries[index] = np.int64(digest(data, at, end - at, np.uint64(0)))
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            _read_scope_logs(data, start, at, logs)
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            read_resource(data, start, at, index, logs.resources)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            resource.schema_url_at, resource.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_requests(data: Any, end: Any, logs: Logs) -> Any:
    at = np.int64(0)
    while at < end:
        if data[at] == _HEAD:
            start, at = read_size(data, at + 1)
            _read_resource_logs(data, start, at, logs)
        else:
            at = skip_field(data, at)
    logs.records[logs.counts[0]].first = logs.counts[1]
    for owners in (logs.scopes, logs.resources):
        owners.rows[owners.counts[0]].first = owners.counts[1]
