"""What a segment of OTLP spans, and its side index, must hold, worked out with protobuf and plain Python."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from lakerunner.model.segment import Segment
from lakerunner.model.time import HOUR_NS
from pipeline.otlp_oracle import MODIFIED_NS, Row, by_key, common_columns, pairs_of, text_of, time_of, type_with_bytes


def request_type() -> Any:
    return type_with_bytes(trace_service_pb2, "ExportTraceServiceRequest")


def decoded(data: bytes) -> Any:
    """The request, or None where protobuf itself refuses it."""
    try:
        return request_type().FromString(data)
    except DecodeError:
        return None


def expected(requests: Iterable[Any], modified_ns: int = MODIFIED_NS) -> list[Row]:
    """The rows of these requests in the order of a single hour's segment after the other."""
    rows = [row for request in requests for row in _rows(request, modified_ns)]
    return sorted(rows, key=lambda row: (row["timestamp"] // HOUR_NS, row["trace_id"], row["timestamp"]))


def _rows(request: Any, modified_ns: int) -> Iterator[Row]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield {**common_columns(resource_spans, scope_spans), **_span(span, modified_ns)}


def _span(span: Any, modified_ns: int) -> Row:
    own = pairs_of(span.attributes)
    texts = {name: text_of(span, name, own) for name in ("trace_state", "name")}
    message = text_of(span.status, "message", own, "status.message")
    start, end = (time_of(span, name, own) for name in ("start_time_unix_nano", "end_time_unix_nano"))
    numbers = ("kind", "flags", "dropped_attributes_count", "dropped_events_count", "dropped_links_count")
    return {
        **texts,
        **{name: getattr(span, name) for name in numbers},
        "timestamp": start or end or modified_ns,
        "end_timestamp": end,
        "duration": end - start if start and end else None,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id or None,
        "status_code": span.status.code,
        "status_message": message,
        "events": [_event(event) for event in span.events] or None,
        "links": [_link(link) for link in span.links] or None,
        "attributes": by_key(own),
    }


def _event(event: Any) -> Row:
    own = pairs_of(event.attributes)
    return {
        "name": text_of(event, "name", own),
        "timestamp": time_of(event, "time_unix_nano", own),
        "dropped_attributes_count": event.dropped_attributes_count,
        "attributes": by_key(own),
    }


def _link(link: Any) -> Row:
    own = pairs_of(link.attributes)
    names = ("trace_id", "span_id", "flags", "dropped_attributes_count")
    return {
        **{name: getattr(link, name) for name in names},
        "trace_state": text_of(link, "trace_state", own),
        "attributes": by_key(own),
    }


def with_items_by_key(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of `otlp_oracle.actual`, with the attributes of events and links in its form."""
    for row in rows:
        for item in [*(row["events"] or ()), *(row["links"] or ())]:
            found: dict[str, list[str]] = {}
            for key, text in item["attributes"]:
                found.setdefault(key, []).append(text)
            item["attributes"] = found
    return rows


def expected_index(rows: Iterable[Row]) -> list[Row]:
    """The side index of the segment that holds these rows, in their order."""
    found = []
    for trace_id, group in groupby(enumerate(rows), key=lambda numbered: numbered[1]["trace_id"]):
        numbered = list(group)
        spans = [span for _, span in numbered]
        root = next((span for span in spans if span["parent_span_id"] is None), None)
        found.append(
            {
                "trace_id": trace_id,
                "first_row": numbered[0][0],
                "spans": len(spans),
                "errors": sum(span["status_code"] == 2 for span in spans),
                "start_timestamp": min(span["timestamp"] for span in spans),
                "end_timestamp": max((span["end_timestamp"] for span in spans if span["end_timestamp"]), default=None),
                "root_service_name": root and root["service_name"],
                "root_name": root and root["name"],
                "services": list(dict.fromkeys(span["service_name"] for span in spans))[:50],
            }
        )
    return found


def index_of(segment: Segment, files: Mapping[str, bytes]) -> list[Row]:
    table = pq.read_table(io.BytesIO(files[segment.side_path("traces.parquet")]))
    for name in ("start_timestamp", "end_timestamp"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
    return list(table.to_pylist())
