"""Ingest of OTLP spans through Spark, the same code without Spark, and a upb loop. The frame is _ingest.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from _ingest import OPENING_NS, Bench, Columns, attributes, main, until
from lakerunner.model.time import HOUR_NS
from lakerunner_demo.shop import Batch, Shop

FILE_SECONDS = 1.3  # of the shop: about 8,000 spans


def batches(shop: Shop, records: int) -> Iterator[Batch]:
    return until(shop.batches("traces", OPENING_NS, OPENING_NS + HOUR_NS, per_batch_seconds=FILE_SECONDS), records)


def columns_of(request: Any) -> Columns:
    """Append each field of each span to the list of its column."""
    columns: Columns = defaultdict(list)
    for resource_spans in request.resource_spans:
        resource = attributes(resource_spans.resource.attributes)
        service = resource.get("service.name", "")
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            for span in scope_spans.spans:
                columns["service_name"].append(service)
                columns["resource_attributes"].append(resource)
                columns["scope_name"].append(scope.name)
                columns["scope_version"].append(scope.version)
                columns["timestamp"].append(span.start_time_unix_nano)
                columns["end_timestamp"].append(span.end_time_unix_nano)
                columns["trace_id"].append(span.trace_id)
                columns["span_id"].append(span.span_id)
                columns["parent_span_id"].append(span.parent_span_id)
                columns["trace_state"].append(span.trace_state)
                columns["name"].append(span.name)
                columns["kind"].append(span.kind)
                columns["status_code"].append(span.status.code)
                columns["status_message"].append(span.status.message)
                columns["flags"].append(span.flags)
                columns["attributes"].append(attributes(span.attributes))
                columns["events"].append(
                    [(event.time_unix_nano, event.name, attributes(event.attributes)) for event in span.events]
                )
                columns["links"].append(
                    [(link.trace_id, link.span_id, attributes(link.attributes)) for link in span.links]
                )
    return columns


if __name__ == "__main__":
    main(Bench("traces", ExportTraceServiceRequest, batches, columns_of, (2.3, 1.25)))
