"""OTLP logs: the bytes of export requests to Rows, one for each log record.

Comes in: raw objects. Goes out: the rows of the valid ones, not yet copied out of their bytes, and the reason for each
damaged one, which has no rows at all. Rows are in the order of the objects and, inside one, of its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.model.streams.log_record import LOKI_MARKS
from lakerunner.pipeline.read.envelope import Envelope, read_envelope
from lakerunner.pipeline.read.memory import Bytes, Int32s, Names, Records, digest_slices, load, slice_fields
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.otlp import join_files
from lakerunner.pipeline.read.otlp_requests import LOGS_REQUEST
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    JsonColumn,
    NumberColumn,
    Raw,
    ReadResult,
    Rows,
    TextColumn,
)
from lakerunner.pipeline.read.walk import (
    ABSENT,
    BYTES,
    VALUE,
    Attributes,
    attributes_for,
    contiguous,
    read_pair,
    read_value,
    string_array,
)
from lakerunner.pipeline.read.wire import FIXED32, FIXED64, STRING, VARINT, read_size, read_varint, skip_field, tag_of

_TIME, _OBSERVED_TIME = (tag_of(number, FIXED64) for number in (1, 11))
_SEVERITY_NUMBER, _DROPPED = (tag_of(number, VARINT) for number in (2, 7))
_SEVERITY_TEXT, _BODY, _ATTRIBUTES, _TRACE_ID, _SPAN_ID, _EVENT_NAME = (
    tag_of(number, STRING) for number in (3, 5, 6, 9, 10, 12)
)
_FLAGS = tag_of(8, FIXED32)
_MARKS = pa.array(LOKI_MARKS)
_MARK_HEAD = np.int32(2)  # its tag and its length

_RECORD = np.dtype(
    [
        ("time", np.uint64),
        ("observed", np.uint64),
        ("first", np.int32),  # its first attribute; they end at the next record's first
        ("severity_number", np.int32),
        ("severity_text", np.int32),  # as a number of LogArrays.severity_texts
        ("event_name", np.int32),
        ("flags", np.uint32),
        ("dropped", np.uint32),
        ("body_kind", np.int32),
        *slice_fields("body", "trace", "span"),
    ]
)


class LogArrays(NamedTuple):
    """The records of all requests. `records` has one more row at the end that closes the last one's attributes. Texts
    with few different values are names (read/names.py)."""

    records: Records
    attributes: Attributes
    severity_texts: Names
    event_names: Names


def read_logs(raws: Sequence[Raw]) -> ReadResult:
    """Read the log records of these objects."""
    files = join_files(raws, LOGS_REQUEST)
    if not files.counts["LogRecord"]:
        return ReadResult(None, files.done, files.failed, files.left, files.items)
    envelope = read_envelope(files, LOGS_REQUEST)
    scope = envelope.items["scope"]
    logs = _logs_for(files.counts)
    _read_records(files.data, envelope.items, logs)
    attached = {
        ATTRIBUTES.map_column: Attached(*logs.attributes, logs.records["first"]),
        **envelope.attached(scope),
    }
    of_owners = envelope.columns(files.data, scope)
    columns = {
        **_record_columns(logs, files.data),
        **of_owners,
        **_delivery_columns(envelope, files.data, of_owners["resource_schema_url"]),
    }
    rows = Rows(len(scope), files.data, columns, attached, files.modified_ns, envelope.items["size"])
    return ReadResult(rows, files.done, files.failed, files.left, files.items)


def _delivery_columns(envelope: Envelope, data: Bytes, schema_url: Column) -> dict[str, Column]:
    """Return the ResourceLogs that each record came in, as a digest of its bytes, and the record's place in it. Merges
    know by them which rows were delivered twice (docs/decisions/0013-which-rows-are-one.md)."""
    resources = envelope.resources.rows[:-1]
    resource = envelope.scopes.rows["resource"][envelope.items["scope"]]
    mark = _mark_bytes(resources, schema_url)
    at, size = contiguous(resources["at"] + mark), contiguous(resources["size"] - mark)
    return {
        "delivery": NumberColumn(digest_slices(data, at, size, np.uint64(0)).view(np.int64), None, resource),
        "delivery_row": NumberColumn((np.arange(len(resource)) - resources["item"][resource]).astype(np.uint32)),
    }


def _mark_bytes(resources: Records, schema_url: Column) -> Int32s:
    """Return the bytes of the mark that each ResourceLogs of a Loki stream begins with. It is ours, and no part of the
    delivery: releases before it wrote the same bytes without it, and their rows must stay equal to these."""
    if not isinstance(schema_url, CodedColumn):
        raise TypeError(f"resource_schema_url is {type(schema_url).__name__}, not CodedColumn")
    is_mark = pc.is_in(schema_url.values, value_set=_MARKS).to_numpy(zero_copy_only=False)
    is_first = resources["schema_url_at"] == resources["at"] + _MARK_HEAD
    marked = is_first & is_mark[schema_url.codes[: len(resources)]]
    return np.where(marked, resources["schema_url_size"] + _MARK_HEAD, 0).astype(np.int32)


def _record_columns(logs: LogArrays, data: Bytes) -> dict[str, Column]:
    """Return OTLP's own fields; the steps derive the segment's columns from them."""
    records = logs.records[:-1]
    body = np.empty(len(records), VALUE)
    for name in ("kind", "at", "size"):
        body[name] = records[f"body_{name}"]
    return {
        "time_unix_nano": NumberColumn(records["time"]),
        "observed_time_unix_nano": NumberColumn(records["observed"]),
        "severity_number": NumberColumn(records["severity_number"]),
        "severity_text": CodedColumn(records["severity_text"], string_array(logs.severity_texts, data)),
        "event_name": CodedColumn(records["event_name"], string_array(logs.event_names, data)),
        "body": JsonColumn(body),
        "trace_id": TextColumn(BYTES, records["trace_at"], records["trace_size"], empty_is_null=True),
        "span_id": TextColumn(BYTES, records["span_at"], records["span_size"], empty_is_null=True),
        "flags": NumberColumn(records["flags"]),
        "dropped_attributes_count": NumberColumn(records["dropped"]),
    }


def _logs_for(counts: Counter[str]) -> LogArrays:
    records = counts["LogRecord"]
    return LogArrays(
        np.zeros(records + 1, _RECORD),
        attributes_for(counts["LogRecord.attributes"]),
        names_for(records),
        names_for(records),
    )


@njit(cache=True)
def _read_record(data: Any, at: Any, end: Any, record: Any, logs: LogArrays) -> Any:
    """Read a LogRecord into its row, whose attributes begin at `record.first`; return where they end."""
    text_at, text_end, event_at, event_end = at, at, at, at
    count = np.int64(record.first)
    record.body_kind = ABSENT
    while at < end:
        tag = data[at]
        if tag == _ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, logs.attributes)
            count += 1
        elif tag == _TIME:
            record.time = load(data, at + 1)
            at += 9
        elif tag == _OBSERVED_TIME:
            record.observed = load(data, at + 1)
            at += 9
        elif tag == _SEVERITY_NUMBER:
            number, at = read_varint(data, at + 1)
            # An enum is an int32, sent sign-extended to 64 bits: the lower half is the number.
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
            record.flags = np.uint32(load(data, at + 1) & np.uint64(0xFFFFFFFF))  # the padding allows the wider load
            at += 5
        elif tag == _DROPPED:
            number, at = read_varint(data, at + 1)
            record.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        elif tag == _EVENT_NAME:
            event_at, at = read_size(data, at + 1)
            event_end = at
        else:
            at = skip_field(data, at)
    record.severity_text = number_of(data, text_at, text_end - text_at, logs.severity_texts, np.int64(-1))
    record.event_name = number_of(data, event_at, event_end - event_at, logs.event_names, np.int64(-1))
    return count


@njit(cache=True)
def _read_records(data: Any, items: Any, logs: LogArrays) -> Any:
    """Read the LogRecords at these places into their rows."""
    count = np.int64(0)
    for row in range(len(items)):
        at = np.int64(items[row].at)
        record = logs.records[row]
        record.first = count
        count = _read_record(data, at, at + np.int64(items[row].size), record, logs)
    logs.records[len(items)].first = count
