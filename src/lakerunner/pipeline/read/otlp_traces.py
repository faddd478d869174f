"""OTLP traces: the bytes of export requests to Rows, one per span.

Comes in: raw objects. Goes out: the rows of the sound ones, not yet copied out of their bytes, and for each damaged
one its reason; nothing of a damaged object is among the rows. Rows stand in the order of the objects and, inside
one, of its spans; events and links in the order of their span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.pipeline.read.memory import load
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.otlp import joined
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Lists, Numbers, Raw, Read, Rows, Structs, Texts
from lakerunner.pipeline.read.traces_request import TRACES_REQUEST
from lakerunner.pipeline.read.walk import (
    BYTES,
    Attributes,
    Owners,
    attached_to,
    attributes_for,
    common_columns,
    owners_for,
    read_pair,
    read_resource,
    read_scope,
    strings,
)
from lakerunner.pipeline.read.wire import FIXED32, FIXED64, STRING, VARINT, read_size, read_varint, skip_field, tag_of

# ResourceSpans and ScopeSpans are alike: first what they are about, then their items.
_HEAD, _ITEMS, _SCHEMA_URL = (tag_of(number, STRING) for number in (1, 2, 3))
_TRACE_ID, _SPAN_ID, _TRACE_STATE, _PARENT, _NAME, _ATTRIBUTES, _EVENTS, _LINKS, _STATUS = (
    tag_of(number, STRING) for number in (1, 2, 3, 4, 5, 9, 11, 13, 15)
)
_KIND, _DROPPED, _DROPPED_EVENTS, _DROPPED_LINKS = (tag_of(number, VARINT) for number in (6, 10, 12, 14))
_START, _END = (tag_of(number, FIXED64) for number in (7, 8))
_FLAGS = tag_of(16, FIXED32)  # two bytes on the wire
_FLAGS_FIRST, _FLAGS_SECOND = _FLAGS & 0x7F | 0x80, _FLAGS >> 7
_EVENT_TIME, _EVENT_DROPPED = tag_of(1, FIXED64), tag_of(4, VARINT)
_EVENT_NAME, _EVENT_ATTRIBUTES = (tag_of(number, STRING) for number in (2, 3))
_LINK_ATTRIBUTES, _LINK_DROPPED, _LINK_FLAGS = tag_of(4, STRING), tag_of(5, VARINT), tag_of(6, FIXED32)
_STATUS_MESSAGE, _STATUS_CODE = tag_of(2, STRING), tag_of(3, VARINT)

_SPAN = np.dtype(
    [
        ("start", np.uint64),
        ("end", np.uint64),
        ("size", np.int32),  # of the span, in bytes
        ("first", np.int32),  # of its attributes; the next span's first ends them
        ("first_event", np.int32),
        ("first_link", np.int32),
        ("scope", np.int32),
        ("trace_at", np.int32),
        ("trace_size", np.int32),
        ("span_at", np.int32),
        ("span_size", np.int32),
        ("parent_at", np.int32),
        ("parent_size", np.int32),
        ("name", np.int32),  # these three as numbers of names
        ("trace_state", np.int32),
        ("status_message", np.int32),
        ("status_code", np.int32),
        ("kind", np.int32),
        ("flags", np.uint32),
        ("dropped", np.uint32),
        ("dropped_events", np.uint32),
        ("dropped_links", np.uint32),
    ]
)
_EVENT = np.dtype([("time", np.uint64), ("first", np.int32), ("name", np.int32), ("dropped", np.uint32)], align=True)
_LINK = np.dtype(
    [
        ("first", np.int32),
        ("trace_at", np.int32),
        ("trace_size", np.int32),
        ("span_at", np.int32),
        ("span_size", np.int32),
        ("trace_state", np.int32),
        ("flags", np.uint32),
        ("dropped", np.uint32),
    ]
)


class Inner(NamedTuple):
    """The events or links of all spans, one after the other. `names` are those of events, the trace states of links.
    `counts` are the rows and their attributes so far."""

    rows: Any
    attributes: Attributes
    names: Any
    counts: Any


class Parts(NamedTuple):
    """What spans are made of, beside their rows."""

    attributes: Attributes
    names: Any
    trace_states: Any
    status_messages: Any
    events: Inner
    links: Inner


class Traces(NamedTuple):
    """All requests, flat. `spans`, events and links have one more row at the end, to close the last one's attributes.
    `counts` are the spans and their attributes so far."""

    spans: Any
    parts: Parts
    scopes: Owners
    resources: Owners
    counts: Any


def read_traces(raws: Sequence[Raw]) -> Read:
    """The spans of these objects."""
    files = joined(raws, TRACES_REQUEST)
    if not files.counts.get("Span"):
        return Read(None, files.done, files.failed, files.left)
    traces = _traces_for(files.counts)
    _read_requests(files.data, files.end, traces)
    spans = traces.spans[:-1]
    scope = spans["scope"]
    attached = {
        ATTRIBUTES.map_column: Attached(*traces.parts.attributes, traces.spans["first"]),
        SCOPE.map_column: attached_to(traces.scopes, scope),
        RESOURCE.map_column: attached_to(traces.resources, traces.scopes.rows["resource"][scope]),
    }
    columns = {
        **_span_columns(traces, spans, files.data),
        **common_columns(traces.scopes, traces.resources, files.data, scope),
    }
    rows = Rows(len(spans), files.data, columns, attached, files.modified_ns, spans["size"])
    return Read(rows, files.done, files.failed, files.left)


def _span_columns(traces: Traces, spans: Any, data: Any) -> dict[str, Column]:
    """OTLP's own fields; the steps make times of the first two."""
    parts = traces.parts
    return {
        "start_time_unix_nano": Numbers(spans["start"]),
        "end_time_unix_nano": Numbers(spans["end"]),
        "trace_id": _bytes(spans, "trace"),
        "span_id": _bytes(spans, "span"),
        "parent_span_id": _bytes(spans, "parent", empty_is_null=True),
        "trace_state": Coded(spans["trace_state"], strings(parts.trace_states, data)),
        "name": Coded(spans["name"], strings(parts.names, data)),
        "kind": Numbers(spans["kind"]),
        "status_code": Numbers(spans["status_code"]),
        "status_message": Coded(spans["status_message"], strings(parts.status_messages, data)),
        "flags": Numbers(spans["flags"]),
        "events": Lists(traces.spans["first_event"], _events(parts.events, data)),
        "links": Lists(traces.spans["first_link"], _links(parts.links, data)),
        "dropped_attributes_count": Numbers(spans["dropped"]),
        "dropped_events_count": Numbers(spans["dropped_events"]),
        "dropped_links_count": Numbers(spans["dropped_links"]),
    }


def _events(events: Inner, data: Any) -> Structs:
    rows = events.rows
    fields: dict[str, Column] = {
        "timestamp": Numbers(rows["time"], rows["time"] != 0),
        "name": Coded(rows["name"], strings(events.names, data)),
        "dropped_attributes_count": Numbers(rows["dropped"]),
    }
    return Structs(fields, Attached(*events.attributes, rows["first"]))


def _links(links: Inner, data: Any) -> Structs:
    rows = links.rows
    fields: dict[str, Column] = {
        "trace_id": _bytes(rows, "trace"),
        "span_id": _bytes(rows, "span"),
        "trace_state": Coded(rows["trace_state"], strings(links.names, data)),
        "flags": Numbers(rows["flags"]),
        "dropped_attributes_count": Numbers(rows["dropped"]),
    }
    return Structs(fields, Attached(*links.attributes, rows["first"]))


def _bytes(rows: Any, field: str, *, empty_is_null: bool = False) -> Texts:
    return Texts(BYTES, rows[f"{field}_at"], rows[f"{field}_size"], empty_is_null)


def _traces_for(counts: Mapping[str, int]) -> Traces:
    spans = counts["Span"]
    return Traces(
        np.zeros(spans + 1, _SPAN),
        Parts(
            attributes_for(counts["Span.attributes"]),
            names_for(spans),
            names_for(spans),
            names_for(spans),
            _inner_for(_EVENT, counts["Event"], counts["Event.attributes"]),
            _inner_for(_LINK, counts["Link"], counts["Link.attributes"]),
        ),
        owners_for(counts["ScopeSpans"], counts["Scope.attributes"]),
        owners_for(counts["ResourceSpans"], counts["Resource.attributes"] + counts["EntityRef"]),
        np.zeros(2, np.int64),
    )


def _inner_for(kind: Any, count: int, attributes: int) -> Inner:
    return Inner(np.zeros(count + 1, kind), attributes_for(attributes), names_for(count), np.zeros(2, np.int64))


@njit(cache=True)
def _read_event(data: Any, at: Any, end: Any, events: Inner) -> Any:
    event = events.rows[events.counts[0]]
    count = events.counts[1]
    event.first = count
    name_at, name_end = at, at
    while at < end:
        tag = data[at]
        if tag == _EVENT_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, events.attributes)
            count += 1
        elif tag == _EVENT_TIME:
            event.time = load(data, at + 1)
            at += 9
        elif tag == _EVENT_NAME:
            name_at, at = read_size(data, at + 1)
            name_end = at
        elif tag == _EVENT_DROPPED:
            number, at = read_varint(data, at + 1)
            event.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    event.name = number_of(data, name_at, name_end - name_at, events.names, np.int64(-1))
    events.counts[0] += 1
    events.counts[1] = count


@njit(cache=True)
def _read_link(data: Any, at: Any, end: Any, links: Inner) -> Any:
    link = links.rows[links.counts[0]]
    count = links.counts[1]
    link.first = count
    state_at, state_end = at, at
    while at < end:
        tag = data[at]
        if tag == _LINK_ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, links.attributes)
            count += 1
        elif tag == _TRACE_ID:
            start, at = read_size(data, at + 1)
            link.trace_at, link.trace_size = start, at - start
        elif tag == _SPAN_ID:
            start, at = read_size(data, at + 1)
            link.span_at, link.span_size = start, at - start
        elif tag == _TRACE_STATE:
            state_at, at = read_size(data, at + 1)
            state_end = at
        elif tag == _LINK_FLAGS:
            link.flags = np.uint32(load(data, at + 1) & np.uint64(0xFFFFFFFF))
            at += 5
        elif tag == _LINK_DROPPED:
            number, at = read_varint(data, at + 1)
            link.dropped = np.uint32(number & np.uint64(0xFFFFFFFF))
        else:
            at = skip_field(data, at)
    link.trace_state = number_of(data, state_at, state_end - state_at, links.names, np.int64(-1))
    links.counts[0] += 1
    links.counts[1] = count


@njit(cache=True)
def _read_status(data: Any, at: Any, end: Any, span: Any, messages: Any) -> Any:
    """A Status into its span. Called again for the same span, it merges as protobuf does."""
    while at < end:
        tag = data[at]
        if tag == _STATUS_CODE:
            number, at = read_varint(data, at + 1)
            span.status_code = np.int32(np.uint32(number & np.uint64(0xFFFFFFFF)))
        elif tag == _STATUS_MESSAGE:
            start, at = read_size(data, at + 1)
            span.status_message = number_of(data, start, at - start, messages, np.int64(-1))
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_rare(data: Any, at: Any, span: Any, parts: Parts) -> Any:
    """The position behind a field that few spans have, or that we do not know."""
    tag = data[at]
    if tag == _EVENTS:
        start, at = read_size(data, at + 1)
        _read_event(data, start, at, parts.events)
    elif tag == _LINKS:
        start, at = read_size(data, at + 1)
        _read_link(data, start, at, parts.links)
    elif tag == _STATUS:
        start, at = read_size(data, at + 1)
        _read_status(data, start, at, span, parts.status_messages)
    elif tag == _TRACE_STATE:
        start, at = read_size(data, at + 1)
        span.trace_state = number_of(data, start, at - start, parts.trace_states, np.int64(-1))
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
def _read_span(data: Any, at: Any, end: Any, span: Any, parts: Parts) -> Any:
    """A Span into its row; how many attributes there are now, of which `span.first` were there before."""
    name_at, name_end = at, at
    count = np.int64(span.first)
    span.trace_state = number_of(data, at, np.int64(0), parts.trace_states, np.int64(-1))
    span.status_message = number_of(data, at, np.int64(0), parts.status_messages, np.int64(-1))
    while at < end:
        tag = data[at]
        if tag == _ATTRIBUTES:
            start, at = read_size(data, at + 1)
            read_pair(data, start, at, count, parts.attributes)
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
            name_at, at = read_size(data, at + 1)
            name_end = at
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
            at = _read_rare(data, at, span, parts)
    span.name = number_of(data, name_at, name_end - name_at, parts.names, np.int64(-1))
    return count


@njit(cache=True)
def _read_scope_spans(data: Any, at: Any, end: Any, traces: Traces) -> Any:
    index = traces.scopes.counts[0]
    traces.scopes.counts[0] = index + 1
    scope = traces.scopes.rows[index]
    scope.first = traces.scopes.counts[1]
    scope.resource = traces.resources.counts[0] - 1
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            span = traces.spans[traces.counts[0]]
            span.size, span.scope, span.first = at - start, index, traces.counts[1]
            span.first_event, span.first_link = traces.parts.events.counts[0], traces.parts.links.counts[0]
            traces.counts[1] = _read_span(data, start, at, span, traces.parts)
            traces.counts[0] += 1
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            read_scope(data, start, at, index, traces.scopes)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            scope.schema_url_at, scope.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_resource_spans(data: Any, at: Any, end: Any, traces: Traces) -> Any:
    index = traces.resources.counts[0]
    traces.resources.counts[0] = index + 1
    resource = traces.resources.rows[index]
    resource.first = traces.resources.counts[1]
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            _read_scope_spans(data, start, at, traces)
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            read_resource(data, start, at, index, traces.resources)
        elif tag == _SCHEMA_URL:
            start, at = read_size(data, at + 1)
            resource.schema_url_at, resource.schema_url_size = start, at - start
        else:
            at = skip_field(data, at)


@njit(cache=True)
def _read_requests(data: Any, end: Any, traces: Traces) -> Any:
    at = np.int64(0)
    while at < end:
        if data[at] == _HEAD:
            start, at = read_size(data, at + 1)
            _read_resource_spans(data, start, at, traces)
        else:
            at = skip_field(data, at)
    events, links = traces.parts.events, traces.parts.links
    last = traces.spans[traces.counts[0]]
    last.first, last.first_event, last.first_link = traces.counts[1], events.counts[0], links.counts[0]
    events.rows[events.counts[0]].first = events.counts[1]
    links.rows[links.counts[0]].first = links.counts[1]
    for owners in (traces.scopes, traces.resources):
        owners.rows[owners.counts[0]].first = owners.counts[1]
