"""OTLP traces: the bytes of export requests to Rows, one for each span.

Comes in: raw objects. Goes out: the rows of the valid ones, not yet copied out of their bytes, and the reason for each
damaged one, which has no rows at all. Rows are in the order of the objects and, inside one, of its spans; events and
links are in the order of their span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.pipeline.read.envelope import read_envelope
from lakerunner.pipeline.read.memory import Bytes, Names, Records, load, slice_fields
from lakerunner.pipeline.read.names import names_for
from lakerunner.pipeline.read.otlp import join_files
from lakerunner.pipeline.read.otlp_requests import TRACES_REQUEST
from lakerunner.pipeline.read.rows import (
    Attached,
    Column,
    ListColumn,
    NumberColumn,
    Raw,
    ReadResult,
    Rows,
    StructColumn,
    TextColumn,
)
from lakerunner.pipeline.read.walk import BYTES, VALUE, Attributes, coded_column, contiguous, read_pair
from lakerunner.pipeline.read.wire import FIXED32, FIXED64, STRING, VARINT, read_size, read_varint, skip_field, tag_of

_TRACE_ID, _SPAN_ID, _TRACE_STATE, _PARENT, _NAME, _ATTRIBUTES, _EVENTS, _LINKS, _STATUS = (
    tag_of(number, STRING) for number in (1, 2, 3, 4, 5, 9, 11, 13, 15)
)
_KIND, _DROPPED, _DROPPED_EVENTS, _DROPPED_LINKS = (tag_of(number, VARINT) for number in (6, 10, 12, 14))
_START, _END = (tag_of(number, FIXED64) for number in (7, 8))
_FLAGS = tag_of(16, FIXED32)  # takes two bytes on the wire, so both are compared
_FLAGS_FIRST, _FLAGS_SECOND = _FLAGS & 0x7F | 0x80, _FLAGS >> 7
_EVENT_TIME, _EVENT_DROPPED = tag_of(1, FIXED64), tag_of(4, VARINT)
_EVENT_NAME, _EVENT_ATTRIBUTES = (tag_of(number, STRING) for number in (2, 3))
_LINK_ATTRIBUTES, _LINK_DROPPED, _LINK_FLAGS = tag_of(4, STRING), tag_of(5, VARINT), tag_of(6, FIXED32)
_STATUS_MESSAGE, _STATUS_CODE = tag_of(2, STRING), tag_of(3, VARINT)

_SPAN = np.dtype(
    [
        ("start", np.uint64),
        ("end", np.uint64),
        ("first", np.int32),  # its first attribute; they end at the next span's first, as do events and links
        ("first_event", np.int32),
        ("first_link", np.int32),
        *slice_fields("trace", "span", "parent", "name", "state", "message"),
        ("status_code", np.int32),
        ("kind", np.int32),
        ("flags", np.uint32),
        ("dropped", np.uint32),
        ("dropped_events", np.uint32),
        ("dropped_links", np.uint32),
    ]
)
_EVENT = np.dtype(
    [
        ("time", np.uint64),
        ("first", np.int32),
        *slice_fields("name"),
        ("dropped", np.uint32),
    ]
)
_LINK = np.dtype(
    [
        ("first", np.int32),
        *slice_fields("trace", "span", "state"),
        ("flags", np.uint32),
        ("dropped", np.uint32),
    ]
)


# Places in SpanArrays.counts, each the number of rows or attributes so far.
_SPAN_PAIRS, _EVENT_ROWS, _EVENT_PAIRS, _LINK_ROWS, _LINK_PAIRS = range(5)


class SpanArrays(NamedTuple):
    """The spans of all requests, their events and links, and the attributes of all three, which share their `keys`.
    Spans, events and links have one more row at the end that closes the last one's attributes."""

    spans: Records
    values: Records
    events: Records
    event_values: Records
    links: Records
    link_values: Records
    keys: Names
    counts: Any


def read_traces(raws: Sequence[Raw]) -> ReadResult:
    """Read the spans of these objects."""
    files = join_files(raws, TRACES_REQUEST)
    if not files.counts["Span"]:
        return ReadResult(None, files.done, files.failed, files.left, files.items)
    envelope = read_envelope(files, TRACES_REQUEST)
    scope = envelope.items["scope"]
    traces = _traces_for(files.counts)
    _read_spans(files.data, envelope.items, traces)
    attached = {
        ATTRIBUTES.map_column: Attached(traces.values, traces.keys, traces.spans["first"]),
        **envelope.attached(scope),
    }
    columns = {**_span_columns(traces, files.data), **envelope.columns(files.data, scope)}
    rows = Rows(len(scope), files.data, columns, attached, files.modified_ns, envelope.items["size"])
    return ReadResult(rows, files.done, files.failed, files.left, files.items)


def _span_columns(traces: SpanArrays, data: Bytes) -> dict[str, Column]:
    """Return OTLP's own fields; the steps derive the times from the first two."""
    spans = traces.spans[:-1]
    return {
        "start_time_unix_nano": NumberColumn(spans["start"]),
        "end_time_unix_nano": NumberColumn(spans["end"]),
        "trace_id": _bytes(spans, "trace"),
        "span_id": _bytes(spans, "span"),
        "parent_span_id": _bytes(spans, "parent", empty_is_null=True),
        "trace_state": coded_column(spans, "state", data),
        "name": coded_column(spans, "name", data),
        "kind": NumberColumn(spans["kind"]),
        "status_code": NumberColumn(spans["status_code"]),
        "status_message": coded_column(spans, "message", data),
        "flags": NumberColumn(spans["flags"]),
        "events": ListColumn(contiguous(traces.spans["first_event"]), _events(traces, data)),
        "links": ListColumn(contiguous(traces.spans["first_link"]), _links(traces, data)),
        "dropped_attributes_count": NumberColumn(spans["dropped"]),
        "dropped_events_count": NumberColumn(spans["dropped_events"]),
        "dropped_links_count": NumberColumn(spans["dropped_links"]),
    }


def _events(traces: SpanArrays, data: Bytes) -> StructColumn:
    rows = traces.events
    fields: dict[str, Column] = {
        "timestamp": NumberColumn(rows["time"], rows["time"] != 0),
        "name": coded_column(rows, "name", data),
        "dropped_attributes_count": NumberColumn(rows["dropped"]),
    }
    return StructColumn(fields, Attached(traces.event_values, traces.keys, contiguous(rows["first"])))


def _links(traces: SpanArrays, data: Bytes) -> StructColumn:
    rows = traces.links
    fields: dict[str, Column] = {
        "trace_id": _bytes(rows, "trace"),
        "span_id": _bytes(rows, "span"),
        "trace_state": coded_column(rows, "state", data),
        "flags": NumberColumn(rows["flags"]),
        "dropped_attributes_count": NumberColumn(rows["dropped"]),
    }
    return StructColumn(fields, Attached(traces.link_values, traces.keys, contiguous(rows["first"])))


def _bytes(rows: Records, field: str, *, empty_is_null: bool = False) -> TextColumn:
    return TextColumn(BYTES, rows[f"{field}_at"], rows[f"{field}_size"], empty_is_null)


def _traces_for(counts: Counter[str]) -> SpanArrays:
    spans, events, links = counts["Span"], counts["Event"], counts["Link"]
    owned = [counts[f"{owner}.attributes"] for owner in ("Span", "Event", "Link")]
    values, event_values, link_values = (np.zeros(count, VALUE) for count in owned)
    return SpanArrays(
        np.zeros(spans + 1, _SPAN),
        values,
        np.zeros(events + 1, _EVENT),
        event_values,
        np.zeros(links + 1, _LINK),
        link_values,
        names_for(sum(owned)),
        np.zeros(5, np.int64),
    )


@njit(cache=True)
def _read_event(data: Any, at: Any, end: Any, traces: SpanArrays) -> Any:
    event = traces.events[traces.counts[_EVENT_ROWS]]
    count = traces.counts[_EVENT_PAIRS]
    event.first = count
    attributes = Attributes(traces.event_values, traces.keys)
    while at < end:
        tag = data[at]
        if tag == _EVENT_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, attributes)
            count += 1
        elif tag == _EVENT_TIME:
            event.time = load(data, at + 1)
            at += 9
        elif tag == _EVENT_NAME:
            start, at = read_size(data, at + 1)
            event.name_at, event.name_size = start, at - start
        elif tag == _EVENT_DROPPED:
            number, at = read_varint(data, at + 1)
            event.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    traces.counts[_EVENT_ROWS] += 1
    traces.counts[_EVENT_PAIRS] = count


@njit(cache=True)
def _read_link(data: Any, at: Any, end: Any, traces: SpanArrays) -> Any:
    link = traces.links[traces.counts[_LINK_ROWS]]
    count = traces.counts[_LINK_PAIRS]
    link.first = count
    attributes = Attributes(traces.link_values, traces.keys)
    while at < end:
        tag = data[at]
        if tag == _LINK_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, attributes)
            count += 1
        elif tag == _TRACE_ID:
            start, at = read_size(data, at + 1)
            link.trace_at, link.trace_size = start, at - start
        elif tag == _SPAN_ID:
            start, at = read_size(data, at + 1)
            link.span_at, link.span_size = start, at - start
        elif tag == _TRACE_STATE:
            start, at = read_size(data, at + 1)
            link.state_at, link.state_size = start, at - start
        elif tag == _LINK_FLAGS:
            link.flags = np.uint32(load(data, at + 1) & np.uint64(0xFFFFFFFF))
            at += 5
        elif tag == _LINK_DROPPED:
            number, at = read_varint(data, at + 1)
            link.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    traces.counts[_LINK_ROWS] += 1
    traces.counts[_LINK_PAIRS] = count


@njit(cache=True)
def _read_status(data: Any, at: Any, end: Any, span: Any) -> Any:
    """Read a Status into its span. A second call for the same span merges, as protobuf does."""
    while at < end:
        tag = data[at]
        if tag == _STATUS_CODE:
            number, at = read_varint(data, at + 1)
            span.status_code = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif tag == _STATUS_MESSAGE:
            start, at = read_size(data, at + 1)
            span.message_at, span.message_size = start, at - start
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_rare(data: Any, at: Any, span: Any, traces: SpanArrays) -> Any:
    """Read a field that few spans have, or skip an unknown one; return the position behind it. Apart from `_read_span`
    so that its loop stays small."""
    tag = data[at]
    if tag == _EVENTS:
        start, at = read_size(data, at + 1)
        _read_event(data, start, at, traces)
    elif tag == _LINKS:
        start, at = read_size(data, at + 1)
        _read_link(data, start, at, traces)
    elif tag == _STATUS:
        start, at = read_size(data, at + 1)
        _read_status(data, start, at, span)
    elif tag == _TRACE_STATE:
        start, at = read_size(data, at + 1)
        span.state_at, span.state_size = start, at - start
    elif tag == _DROPPED:
        number, at = read_varint(data, at + 1)
        span.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
    elif tag == _DROPPED_EVENTS:
        number, at = read_varint(data, at + 1)
        span.dropped_events = np.uint32(number & np.uint64(0xFFFFFFFF))
    elif tag == _DROPPED_LINKS:
        number, at = read_varint(data, at + 1)
        span.dropped_links = np.uint32(number & np.uint64(0xFFFFFFFF))
    else:
        at = skip_field(data, at)
    return at


@njit(cache=True)
def _read_span(data: Any, at: Any, end: Any, span: Any, traces: SpanArrays) -> Any:
    """Read a Span into its row."""
    count = traces.counts[_SPAN_PAIRS]
    span.first, span.first_event, span.first_link = count, traces.counts[_EVENT_ROWS], traces.counts[_LINK_ROWS]
    attributes = Attributes(traces.values, traces.keys)
    while at < end:
        tag = data[at]
        if tag == _ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, attributes)
            count += 1
        elif tag == _TRACE_ID:
            start, at = read_size(data, at + 1)
            span.trace_at, span.trace_size = start, at - start
        elif tag == _SPAN_ID:
            start, at = read_size(data, at + 1)
            span.span_at, span.span_size = start, at - start
        elif tag == _PARENT:
            start, at = read_size(data, at + 1)
            span.parent_at, span.parent_size = start, at - start
        elif tag == _NAME:
            start, at = read_size(data, at + 1)
            span.name_at, span.name_size = start, at - start
        elif tag == _KIND:
            number, at = read_varint(data, at + 1)
            span.kind = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif tag == _START:
            span.start = load(data, at + 1)
            at += 9
        elif tag == _END:
            span.end = load(data, at + 1)
            at += 9
        elif tag == _FLAGS_FIRST and data[at + 1] == _FLAGS_SECOND:
            span.flags = np.uint32(load(data, at + 2) & np.uint64(0xFFFFFFFF))
            at += 6
        else:
            at = _read_rare(data, at, span, traces)
    traces.counts[_SPAN_PAIRS] = count


@njit(cache=True)
def _read_spans(data: Any, items: Any, traces: SpanArrays) -> Any:
    """Read the Spans at these places into their rows."""
    counts = traces.counts
    for row in range(len(items)):
        at = np.int64(items[row].at)
        _read_span(data, at, at + np.int64(items[row].size), traces.spans[row], traces)
    last = traces.spans[len(items)]
    last.first, last.first_event, last.first_link = counts[_SPAN_PAIRS], counts[_EVENT_ROWS], counts[_LINK_ROWS]
    traces.events[counts[_EVENT_ROWS]].first = counts[_EVENT_PAIRS]
    traces.links[counts[_LINK_ROWS]].first = counts[_LINK_PAIRS]
