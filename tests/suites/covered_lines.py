"""Lines in files, the rules over them, a store, and what the rules must make of lines."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.bus.topics import IngestBox
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_group
from lakerunner.pipeline.part_segments import RuleBook
from suites.ingested import ORGANIZATION, START
from suites.rule_values import Added, Key, added_parts, version

LIMITS = IngestLimits(object_max_bytes=16 << 20, task_max_bytes=8 << 20)
BY_SERVICE = version(3, selector='{service_name=~"cart|shop"}', dimensions=("service_name",))
BYTES = version(5, "bytes", '{service_name="shop"} |= "paid"')
BOOK = RuleBook((BY_SERVICE, BYTES))
Line = tuple[str, int, str]  # service, seconds of the hour, text


def request(lines: Iterable[Line]) -> bytes:
    made = ExportLogsServiceRequest()
    for service, second, text in lines:
        resource = made.resource_logs.add()
        resource.resource.attributes.add(key="service.name").value.string_value = service
        record = resource.scope_logs.add().log_records.add(time_unix_nano=START + second * 10**9)
        record.body.string_value = text
    return made.SerializeToString()


def random_lines(chance: random.Random, count: int = 40, last: int = 3600) -> list[Line]:
    texts = ["paid 3", "refused", "päid no", "paid äö"]
    # Lines differ: the same record of the same time in a request of its own is one that came twice.
    return [
        (chance.choice(["cart", "shop", "other"]), chance.randint(0, last), f"{chance.choice(texts)} {chance.random()}")
        for _ in range(count)
    ]


def expected_parts(lines: Iterable[Line], *versions: RuleVersion) -> Added:
    """Return what versions of these two rules, whatever their numbers, make of the lines."""
    found: dict[Key, list[int]] = defaultdict(list)
    for service, second, text in lines:
        end = START // 10**9 + -(-second // 10) * 10
        for one in versions:
            if one.rule.selector == BY_SERVICE.rule.selector and service in ("cart", "shop"):
                found[one.collector, (("service_name", service),), end].append(1)
            if one.rule.selector == BYTES.rule.selector and service == "shop" and "paid" in text:
                found[one.collector, (), end].append(len(text.encode()))
    return {key: (len(values), float(sum(values))) for key, values in found.items()}


class Files:
    """A store with raw objects and what becomes of them."""

    def __init__(self, directory: Path) -> None:
        self.address = StoreAddress(directory.as_uri())
        self.store: ObjectStore = shared_store(self.address)

    def put(self, name: str, data: bytes) -> SourceObject:
        key = f"otel-raw/{ORGANIZATION}/c/{name}.binpb"
        self.store.put(key, data)
        meta = self.store.head(key)
        return SourceObject(self.store.bucket, key, meta.etag or "", meta.size, START)

    def ingest(self, *sources: SourceObject, book: RuleBook = BOOK) -> BoxResult:
        result = ingest_group(IngestBox(ORGANIZATION, "c", "logs", sources), self.address, LIMITS, book=book)
        assert result.failed == ()
        return result

    def read(self, path: str) -> bytes:
        return bytes(self.store.get(path, max_bytes=1 << 24))

    def parts(self, *segments: Segment) -> Added:
        return added_parts(segments, self.read)
