"""An independent reading of OTLP log and trace files: upb and plain Python, to hold the pipeline's answers against."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return {"bytesValue": base64.b64encode(value.bytes_value).decode()}
    return getattr(value, kind) if kind else None


def text(value: AnyValue) -> str:
    """The plain text that `attributes['key']` gives; nested values as canonical JSON."""
    found = plain(value)
    if isinstance(found, str):
        return found
    return json.dumps(found, sort_keys=True)


def attributes(pairs: list[KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair.key, text(pair.value)) for pair in pairs))


def canonical(found: dict[str, str | None]) -> tuple[tuple[str, str], ...]:
    """A map as the API gives it, with nested JSON values made canonical."""
    return tuple(sorted((key, _canonical_text(value)) for key, value in found.items()))


def _canonical_text(value: str | None) -> str:
    if value is None:
        return "null"
    if value[:1] in "{[":
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


def requests(path: Path) -> ExportLogsServiceRequest:
    data = path.read_bytes()
    return ExportLogsServiceRequest.FromString(gzip.decompress(data) if path.suffix == ".gz" else data)


def expected_rows(request: ExportLogsServiceRequest) -> Counter[tuple[Any, ...]]:
    """Every record with all it says, as a multiset."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for resource_logs in request.resource_logs:
        resource = attributes(list(resource_logs.resource.attributes))
        service = dict(resource).get("service.name", "")
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                rows[
                    (
                        record.time_unix_nano or record.observed_time_unix_nano,
                        service,
                        record.severity_number,
                        record.severity_text,
                        text(record.body),
                        record.trace_id.hex() or None,
                        record.span_id.hex() or None,
                        record.flags,
                        scope_logs.scope.name,
                        attributes(list(record.attributes)),
                        resource,
                    )
                ] += 1
    return rows


ROW_QUERY = """
    select epoch_ns(timestamp) as ns, service_name, severity_number, severity_text, message, trace_id, span_id, flags,
           scope_name, attributes, resource_attrs
    from logs where collector = '{collector}'
"""


def answered_rows(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            row["ns"],
            row["service_name"],
            row["severity_number"],
            row["severity_text"],
            row["message"],
            row["trace_id"],
            row["span_id"],
            row["flags"],
            row["scope_name"],
            canonical(row["attributes"]),
            canonical(row["resource_attrs"]),
        )
        for row in rows
    )


def trace_requests(path: Path) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(gzip.decompress(path.read_bytes()))


def expected_spans(request: ExportTraceServiceRequest) -> Counter[tuple[Any, ...]]:
    """Every span with all it says, as a multiset."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for resource_spans in request.resource_spans:
        resource = attributes(list(resource_spans.resource.attributes))
        service = dict(resource).get("service.name", "")
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                events = [(e.time_unix_nano, e.name, attributes(list(e.attributes))) for e in span.events]
                links = [(link.trace_id.hex(), link.span_id.hex(), link.flags) for link in span.links]
                rows[
                    (
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.end_time_unix_nano - span.start_time_unix_nano,
                        service,
                        (span.name, span.kind, span.status.code, span.status.message, span.flags),
                        (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex() or None),
                        (scope_spans.scope.name, scope_spans.scope.version),
                        attributes(list(span.attributes)),
                        resource,
                        tuple(events),
                        tuple(links),
                    )
                ] += 1
    return rows


SPAN_QUERY = """
    select *, epoch_ns(timestamp) as start_ns, epoch_ns(end_timestamp) as end_ns,
           [epoch_ns(e.timestamp) for e in events] as event_ns
    from spans where collector = '{collector}'
"""


def answered_spans(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            row["start_ns"],
            row["end_ns"],
            row["duration"],
            row["service_name"],
            tuple(row[name] for name in ("name", "kind", "status_code", "status_message", "flags")),
            tuple(row[name] for name in ("trace_id", "span_id", "parent_span_id")),
            (row["scope_name"], row["scope_version"]),
            canonical(row["attributes"]),
            canonical(row["resource_attrs"]),
            tuple(
                (ns, event["name"], canonical(event["attributes"]))
                for ns, event in zip(row["event_ns"], row["events"], strict=True)
            ),
            tuple((link["trace_id"], link["span_id"], link["flags"]) for link in row["links"]),
        )
        for row in rows
    )
