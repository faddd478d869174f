"""Log segments as the pipeline makes them, text index included, with many row groups, in a store that is elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.steps import order
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import Limits
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker
from query.sample_lake import OWN, START, Elsewhere

SERVICES = ("cart", "checkout", "pay", "shop")
WORDS = ("timeout", "user", "logged", "in", "café", "ERROR", "connection", "refused", "🚚", "retry")


class CountingStore(Elsewhere):
    """Remembers what was read: (key, start, length)."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[tuple[str, int, int]] = []

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        self.reads.append((key, start, length))
        return super().get_range(key, start, length)


def some_records(request: Any, rows: int, seed: int) -> None:
    """Messages are long and random, so that they are most of a segment; one in a hundred records is odd."""
    chance = random.Random(seed)
    for service in SERVICES:
        resource = request.resource_logs.add()
        resource.resource.attributes.add(key="service.name").value.string_value = service
        records = resource.scope_logs.add().log_records
        for n in range(rows // len(SERVICES)):
            record = records.add(
                time_unix_nano=START + seed * 10**9 + n * 1000, severity_text=chance.choice(["INFO", "WARN"])
            )
            record.body.string_value = (
                f"{' '.join(chance.choices(WORDS, k=3))} {service}-{n} {chance.randbytes(60).hex()}"
            )
            record.trace_id = chance.randbytes(16)
            value = record.attributes.add(key="id").value
            value.string_value = f"id-{chance.randbytes(12).hex()}-z"
            code = record.attributes.add(key="code").value
            if chance.random() < 0.01:
                code.string_value = "teapot"
            else:
                code.int_value = chance.choice([200, 404, 500])
            if n % 300 == 0:  # too rare for columns of their own
                record.attributes.add(key="rare").value.bytes_value = chance.randbytes(24)
                record.attributes.add(key="aaa").value.bool_value = True


class RealLake:
    """`add` makes the segment of one request."""

    def __init__(self, directory: Path) -> None:
        (directory / "store").mkdir(parents=True)
        self.directory = directory
        self.store = CountingStore(directory / "store")
        self.segments: list[Segment] = []

    def add(self, fill: Callable[[Any], None], group_bytes: int = 200_000) -> Segment:
        request = ExportLogsServiceRequest()
        fill(request)
        data = request.SerializeToString()
        source = SourceObject("b", f"{len(self.segments)}.binpb", "etag", len(data), 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(order, "ROW_GROUP_BYTES", group_bytes)
            made = make_segments(LOGS, OWN, "default", [Raw(source, memoryview(data))], self.store.put)
        (segment,) = made.segments
        self.segments.append(segment)
        return segment

    def cache(self, name: str = "cache", max_bytes: int = 1 << 30) -> SegmentCache:
        return SegmentCache(self.store, self.directory / name, max_bytes)


class Asking:
    """A worker on a cache, and what its answers are."""

    def __init__(self, cache: SegmentCache, directory: Path) -> None:
        limits = Limits("500MB", 60.0, 1_000_000)
        self.cache = cache
        self._worker = QueryWorker(cache, Sandboxes(limits, threads=2, spill_directory=directory / "spill"))

    def ask(self, scan: Scan, sql: str, segments: list[Segment]) -> tuple[pa.Table, Account]:
        answer = self._worker.run(Unit(OWN, Leaf(scan, SqlRows(sql)), tuple(segments)))
        table = pa.Table.from_batches(list(answer), schema=answer.schema)
        return table, answer.account
