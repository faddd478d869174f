"""OTLP's traces request: its messages for the wire check, and how what is odd in them is mended."""

from __future__ import annotations

from typing import Any

from lakerunner.pipeline.read.otlp import COMMON, KEY_VALUE, Request
from lakerunner.pipeline.read.repair import Repair, mend_pairs, mend_resource, mend_scope, mend_text, mend_time
from lakerunner.pipeline.read.wire import BYTES, FIXED32, MESSAGE, STRING, TIME, VARINT, Field, Messages

_MESSAGES: Messages = {
    "ExportTraceServiceRequest": {1: Field("resource_spans", MESSAGE, "ResourceSpans", many=1)},
    "ResourceSpans": {
        1: Field("resource", MESSAGE, "Resource"),
        2: Field("scope_spans", MESSAGE, "ScopeSpans", many=1),
        3: Field("schema_url", STRING),
    },
    "ScopeSpans": {
        1: Field("scope", MESSAGE, "Scope"),
        2: Field("spans", MESSAGE, "Span"),
        3: Field("schema_url", STRING),
    },
    "Span": {
        1: Field("trace_id", BYTES),
        2: Field("span_id", BYTES),
        3: Field("trace_state", STRING),
        4: Field("parent_span_id", BYTES),
        5: Field("name", STRING),
        6: Field("kind", VARINT),
        7: Field("start_time_unix_nano", TIME),
        8: Field("end_time_unix_nano", TIME),
        9: Field("attributes", MESSAGE, "Span.attributes"),
        10: Field("dropped_attributes_count", VARINT),
        11: Field("events", MESSAGE, "Event"),
        12: Field("dropped_events_count", VARINT),
        13: Field("links", MESSAGE, "Link"),
        14: Field("dropped_links_count", VARINT),
        15: Field("status", MESSAGE, "Status"),
        16: Field("flags", FIXED32),
    },
    "Span.attributes": KEY_VALUE,
    "Event": {
        1: Field("time_unix_nano", TIME),
        2: Field("name", STRING),
        3: Field("attributes", MESSAGE, "Event.attributes"),
        4: Field("dropped_attributes_count", VARINT),
    },
    "Event.attributes": KEY_VALUE,
    "Link": {
        1: Field("trace_id", BYTES),
        2: Field("span_id", BYTES),
        3: Field("trace_state", STRING),
        4: Field("attributes", MESSAGE, "Link.attributes"),
        5: Field("dropped_attributes_count", VARINT),
        6: Field("flags", FIXED32),
    },
    "Link.attributes": KEY_VALUE,
    "Status": {2: Field("message", STRING), 3: Field("code", VARINT)},
    **COMMON,
}


def _mend_span(span: Any) -> None:
    mend_pairs(span.attributes)
    mend_text(span, "trace_state", span.attributes)
    mend_text(span, "name", span.attributes)
    mend_text(span.status, "message", span.attributes, "status.message")
    mend_time(span, "start_time_unix_nano", span.attributes)
    mend_time(span, "end_time_unix_nano", span.attributes)
    for event in span.events:
        mend_pairs(event.attributes)
        mend_text(event, "name", event.attributes)
        mend_time(event, "time_unix_nano", event.attributes)
    for link in span.links:
        mend_pairs(link.attributes)
        mend_text(link, "trace_state", link.attributes)


TRACES_REQUEST = Request(
    "traces",
    _MESSAGES,
    "Span",
    Repair(
        {
            "ExportTraceServiceRequest": {0x0A: "ResourceSpans"},
            "ResourceSpans": {0x12: "ScopeSpans"},
            "ScopeSpans": {0x12: "Span"},
        },
        {"ResourceSpans": mend_resource, "ScopeSpans": mend_scope, "Span": _mend_span},
        "opentelemetry.proto.trace.v1.trace_pb2",
    ),
    weights={"Event": 150, "Link": 150},
)
