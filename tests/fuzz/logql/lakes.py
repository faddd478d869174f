"""The random rows in lakes of several forms, which must all give the same answers.

`one`: one worker. `three`: three workers. `no text index`: without the side files. `compacted`: all segments of each
collector merged into one. Row groups are small, so that pruning has something to skip.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from conformance.answer import LogEntry
from conformance.logql_push import LIMITS, push_request
from fuzz.logql.lines import Delivery
from lakerunner.bus.topics import IngestBox
from lakerunner.model.protobuf import varint
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.text_index import SIDE_FILE
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.ingest import BoxResult, ingest_group
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.query.engine import Engine
from query.sample_lake import OWN, Lake, removed
from query.test_random_sql import Several

ROW_GROUP_ROWS = 16
COMPACT_LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)


@contextmanager
def small_row_groups() -> Iterator[None]:
    """Write log segments with few rows in a row group."""
    before = LOGS.row_group_rows
    object.__setattr__(LOGS, "row_group_rows", ROW_GROUP_ROWS)
    try:
        yield
    finally:
        object.__setattr__(LOGS, "row_group_rows", before)


@contextmanager
def random_lakes(directory: Path, deliveries: Sequence[Delivery]) -> Iterator[Mapping[str, Engine]]:
    """Yield the engines by the names of the lakes' forms."""
    with ExitStack() as stack:
        with small_row_groups():
            plain = Lake(directory / "plain")
            plain.all += ingested(plain, deliveries)
            bare = Lake(copied(directory, "bare"))
            bare.all = list(plain.all)
            for path in (directory / "bare" / "store").rglob(f"*{SIDE_FILE}"):
                path.unlink()
            merged = Lake(copied(directory, "merged"))
            merged.all = compacted(merged, plain.all)
        for lake in (plain, bare, merged):
            stack.callback(removed, lake.directory)
            stack.callback(lake.close)
        yield {
            "one": plain.engine().engine,
            "three": plain.engine(workers=Several(plain, 3)).engine,
            "no text index": bare.engine().engine,
            "compacted": merged.engine().engine,
        }


def copied(directory: Path, name: str) -> Path:
    shutil.copytree(directory / "plain" / "store", directory / name / "store")
    return directory / name


def ingested(lake: Lake, deliveries: Sequence[Delivery], organization: UUID = OWN) -> list[Segment]:
    """Ingest each delivery by itself, in the order of their coming."""
    return [
        replace(one, ingested=number + 1)
        for number, delivery in enumerate(deliveries)
        for one in ingest_delivery(lake, delivery, number, organization).segments
    ]


def ingest_delivery(
    lake: Lake, delivery: Delivery, number: int, organization: UUID = OWN, book: RuleBook = NO_RULES
) -> BoxResult:
    """Ingest one delivery, the `number`th."""
    address = StoreAddress((lake.directory / "store").as_uri())
    ending, data = ("lokipb", framed(pushed(delivery))) if delivery.kind == "loki" else ("binpb", exported(delivery))
    key = f"otel-raw/{organization}/fuzz/logs-{number}.{ending}"
    store = open_store(address)
    store.put(key, data)
    meta = store.head(key)
    source = SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
    result = ingest_group(IngestBox(organization, "fuzz", "logs", (source,)), address, LIMITS, book=book)
    assert not result.failed, result.failed
    return result


def compacted(lake: Lake, segments: Sequence[Segment]) -> list[Segment]:
    address = StoreAddress((lake.directory / "store").as_uri())
    ordered = tuple(sorted(segments, key=lambda one: one.ingested))
    first = ordered[0]
    work = CompactWork(first.organization, first.collector, "logs", 0, 1, ordered)
    outcome = compact_work(work, address, COMPACT_LIMITS)
    assert not outcome.error, outcome.error
    return list(outcome.segments)


def framed(request: bytes) -> bytes:
    """Return a request as it stands in a file."""
    return varint(len(request)) + request


def pushed(delivery: Delivery) -> bytes:
    """Return a request of Loki's push, not compressed."""
    entries = []
    for row in delivery.rows:
        sent = tuple(sorted((n, v) for n, v in row.stream.items() if n != "service_name"))
        entries.append(LogEntry(row.time, row.line, sent, tuple(row.sent.items())))
    return push_request(entries)


def exported(delivery: Delivery) -> bytes:
    """Return a request of OTLP."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    for key, value in delivery.resource.items():
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_logs.add()
    for row in delivery.rows:
        record = scope.log_records.add(time_unix_nano=row.time, severity_text=row.severity, severity_number=row.number)
        record.body.string_value = row.line
        record.trace_id = bytes.fromhex(row.trace_id)
        for key, value in row.sent.items():
            record.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()
