"""What is given to push doors, and what they left in a store, told from the objects themselves."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from uuid import UUID

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.api.push.push_store import Origin
from lakerunner.model.organization import Organization
from lakerunner.model.source import RAW_PREFIX
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.unpack import unpack
from suites.requests import request_of

ACME = Organization(UUID(int=7), "acme")
OTHER = Organization(UUID(int=8), "other")
LOGS = Origin(ACME.id, "logs", "otlp")
NOW_NS = 1_766_577_984_449_000_001  # 2025-12-24 12:06:24 UTC


def requests(*lines: str) -> dict[bytes, bytes]:
    """One request per line, by its digest."""
    made = [request_of(line) for line in lines]
    return {blake2b(data, digest_size=16).digest(): data for data in made}


def pushed_objects(store: ObjectStore) -> dict[str, bytes]:
    """Every raw object, unpacked, by its key."""
    limit = 1 << 30
    return {
        meta.key: bytes(unpack(meta.key, store.get(meta.key, max_bytes=limit), limit)[1])
        for meta in store.list(RAW_PREFIX)
    }


def pushed_lines(store: ObjectStore) -> Counter[str]:
    """How often each log line is in the OTLP objects of the store, whoever announced them."""
    return Counter(line for data in pushed_objects(store).values() for line in lines_of(data))


def lines_of(data: bytes) -> list[str]:
    return [
        record.body.string_value
        for resource in ExportLogsServiceRequest.FromString(data).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
