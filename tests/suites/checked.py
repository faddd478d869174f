"""A small lake with real segments in a local store and a real index, to be damaged, and what fsck says of it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.commands.fsck import FsckRequest, run_fsck
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.settings import Settings
from servers.postgres import empty_index
from suites.otlp_metrics import Otlp, gauge
from suites.requests import request_of

START_NS = 1_760_000_000 * 10**9 // HOUR_NS * HOUR_NS
START = START_NS // 10**9
ORG = DEFAULT_ORGANIZATION


def logs_of(*messages: str, time_ns: int = START_NS) -> bytes:
    return request_of(*messages, time_ns=time_ns)


def points_of(*values: float, name: str = "load", time: float = START) -> bytes:
    """Points of one series, a second apart."""
    otlp = Otlp()
    gauge(otlp.resource(service_name="cart"), name, [(time + place, value) for place, value in enumerate(values)])
    return otlp.data


def spans_of(*names: str, time_ns: int = START_NS, **attributes: str) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "cart"
    scope = resource.scope_spans.add()
    for place, name in enumerate(names):
        span = scope.spans.add(name=name, trace_id=b"t" * 16, span_id=place.to_bytes(8, "big"))
        span.start_time_unix_nano, span.end_time_unix_nano = time_ns + place, time_ns + place + 5
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
    return bytes(request.SerializeToString())


@dataclass
class CheckedLake:
    index: Index
    store: LocalStore
    settings: Settings
    number: int = field(default=0)

    def make(self, signal: str, *datas: bytes, collector: str = "edge") -> tuple[Segment, ...]:
        """The segments of these objects, written and not committed."""
        raws = []
        for data in datas:
            self.number += 1
            source = SourceObject("local", f"otel-raw/{self.number}.binpb", f"e{self.number}", len(data), START_NS)
            raws.append(Raw(source, memoryview(data)))
        made = make_segments(SIGNALS[signal], ORG.id, collector, raws, self.store.put)
        assert made.failed == ()
        return made.segments

    def add(self, signal: str, *datas: bytes, collector: str = "edge") -> Segment:
        """Committed; there is one segment."""
        (segment,) = self.make(signal, *datas, collector=collector)
        self.index.commit(Commit((segment,), (), ()))
        return segment

    def path(self, key: str) -> Path:
        return self.store.root / key

    def age(self, key: str, hours: float) -> None:
        changed = os.stat(self.path(key)).st_mtime - hours * 3600
        os.utime(self.path(key), (changed, changed))

    def sql(self, statement: str, *values: object) -> None:
        with self.index.pool.connection() as connection:
            connection.execute(statement.encode(), values)

    def fsck(self, **asked: Any) -> tuple[int, dict[str, Any]]:
        """The exit code, and what --json prints."""
        out, errors = io.StringIO(), io.StringIO()
        code = run_fsck(self.settings, FsckRequest(json=True, **{"seed": 1, **asked}), out, errors)
        assert errors.getvalue() == ""
        return code, json.loads(out.getvalue())

    def found(self, **asked: Any) -> list[tuple[str, str, str, str]]:
        """(severity, check, what, where) of each finding."""
        return [
            tuple(one[name] for name in ("severity", "check", "what", "where"))
            for one in self.fsck(**asked)[1]["findings"]
        ]


@contextmanager
def checked_lake(postgres_url: str, directory: Path) -> Iterator[CheckedLake]:
    store = LocalStore(directory / "store")
    store.root.mkdir()
    with empty_index(postgres_url, ORG, connections=4) as index:
        settings = Settings(home=directory, database_url=index.url, store=store.root.as_uri())
        yield CheckedLake(index, store, settings)
