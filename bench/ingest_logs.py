"""Ingest of OTLP logs through Spark, the same code without Spark, and a upb loop. The frame is _ingest.py."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from _ingest import Bench, Columns, attributes, main, value

PER_FILE = 8192


def columns_of(request: Any) -> Columns:
    """Append each field of each record to the list of its column."""
    columns: Columns = defaultdict(list)
    for resource_logs in request.resource_logs:
        resource = attributes(resource_logs.resource.attributes)
        service = resource.get("service.name", "")
        for scope_logs in resource_logs.scope_logs:
            scope = scope_logs.scope
            for record in scope_logs.log_records:
                columns["service_name"].append(service)
                columns["resource_attributes"].append(resource)
                columns["scope_name"].append(scope.name)
                columns["scope_version"].append(scope.version)
                columns["timestamp"].append(record.time_unix_nano)
                columns["observed_timestamp"].append(record.observed_time_unix_nano)
                columns["severity_number"].append(record.severity_number)
                columns["severity_text"].append(record.severity_text)
                columns["message"].append(value(record.body))
                columns["attributes"].append(attributes(record.attributes))
                columns["trace_id"].append(record.trace_id)
                columns["span_id"].append(record.span_id)
                columns["flags"].append(record.flags)
                columns["event_name"].append(record.event_name)
    return columns


if __name__ == "__main__":
    main(
        Bench(
            "logs",
            ExportLogsServiceRequest,
            lambda shop, records: shop.bulk_logs(records, per_file=PER_FILE),
            columns_of,
            (1.8, 1.25),
        )
    )
