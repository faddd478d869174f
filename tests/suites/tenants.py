"""Organizations whose every value is unmistakably theirs, and lakes that hold one of them or several.

A lake is all that a query-api with its doors serves: real routes, PostgreSQL, segments, caches, one HTTP port.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from uuid import UUID

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.api.app import admin_routes, build_app
from lakerunner.api.server import HttpServer, bind
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import Organization, Role
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.services.parts import Parts, open_parts
from lakerunner.services.processes import add_pubsub, add_query_api
from lakerunner.services.runtime import Runtime
from lakerunner.settings import load_settings
from query.sample_lake import HOUR, START, Elsewhere
from servers.postgres import drop_database, fresh_database
from suites.rules import rule

DAY = {"s": "2023-12-31T00:00:00Z", "e": "2024-01-02T00:00:00Z"}
ROLES = {"admin": Role.ADMIN, "reader": Role.READ, "writer": Role.WRITE}
_OF_DATA = ("svc", "pod", "podval", "scope", "msg", "key", "val", "tier", "metric", "unit", "about", "span")
_OF_LAKE = ("org", "edge", "etag", "reason", "rule", "made", *ROLES)
SHARED_KEY = "grafana"  # a name that every tenant has a key of


@dataclass(frozen=True)
class Tenant:
    """`name` begins every word of it, `byte` fills every id, `rows` is how many rows each of its segments has."""

    name: str
    byte: int
    rows: int

    @property
    def organization(self) -> Organization:
        return Organization(UUID(bytes=bytes([self.byte]) * 16), self.word("org"))

    @property
    def trace(self) -> bytes:
        return bytes([self.byte]) * 16

    @property
    def collector(self) -> str:
        return self.word("edge")

    def word(self, what: str) -> str:
        return f"{self.name}.{what}.q7"

    def raw(self, signal: str, part: int) -> Raw:
        """An OTLP file, of another hour for each part."""
        data = {"logs": self._logs, "metrics": self._metrics, "traces": self._traces}[signal](START + part * HOUR)
        key = f"otel-raw/{self.organization.id}/{self.collector}/{self.word(signal)}{part}.binpb"
        return Raw(SourceObject("local", key, self.word("etag"), len(data), START), memoryview(data))

    @cached_property
    def segments(self) -> tuple[tuple[Segment, ...], dict[str, bytes]]:
        """Of two hours of each signal, and the files they are in."""
        files: dict[str, bytes] = {}
        found: list[Segment] = []
        for signal in SIGNALS:
            for part in range(2):
                raws = [self.raw(signal, part)]
                made = make_segments(
                    SIGNALS[signal],
                    self.organization.id,
                    self.collector,
                    raws,
                    lambda path, data: files.update({path: bytes(data)}),
                )
                assert not made.failed
                found += made.segments
        return tuple(found), files

    @cached_property
    def markers(self) -> frozenset[str]:
        """What no one else's answer may hold, in lower case."""
        words = {self.word(what) for what in (*_OF_DATA, *_OF_LAKE)}
        flat = {word.replace(".", "_") for word in words}  # as tags are named
        segments, files = self.segments
        ids = {str(self.organization.id), self.trace.hex(), *(str(segment.id) for segment in segments)}
        return frozenset(words | flat | ids | files.keys())

    def _logs(self, start: int) -> bytes:
        found = ExportLogsServiceRequest()
        resource = found.resource_logs.add()
        resource.resource.attributes.add(key="service.name").value.string_value = self.word("svc")
        resource.resource.attributes.add(key=self.word("pod")).value.string_value = self.word("podval")
        scope = resource.scope_logs.add()
        scope.scope.name = self.word("scope")
        for number in range(self.rows):
            record = scope.log_records.add(time_unix_nano=start + number, severity_number=9 + number % 2 * 8)
            record.trace_id, record.span_id = self.trace, self.trace[:8]
            record.body.string_value = f"{self.word('msg')} said {number}"
            record.attributes.add(key=self.word("key")).value.string_value = self.word("val")
            record.attributes.add(key="http.status").value.int_value = self.byte * 1000 + number
            record.attributes.add(key="tier").value.string_value = self.word("tier")  # a key that all have
        return found.SerializeToString()

    def _metrics(self, start: int) -> bytes:
        found = ExportMetricsServiceRequest()
        resource = found.resource_metrics.add()
        resource.resource.attributes.add(key="service.name").value.string_value = self.word("svc")
        scope = resource.scope_metrics.add()
        for name in (self.word("metric"), "requests"):
            metric = scope.metrics.add(name=name, unit=self.word("unit"), description=self.word("about"))
            for number in range(self.rows):
                point = metric.gauge.data_points.add(time_unix_nano=start + number, as_int=self.byte)
                point.attributes.add(key=self.word("key")).value.string_value = self.word("val")
        served = scope.metrics.add(name="served")  # a series that all have
        served.sum.is_monotonic, served.sum.aggregation_temporality = True, 2
        point = served.sum.data_points.add(time_unix_nano=start, as_int=self.byte)
        exemplar = point.exemplars.add(time_unix_nano=start, as_int=self.byte, trace_id=self.trace)
        exemplar.filtered_attributes.add(key="tier").value.string_value = self.word("tier")
        return found.SerializeToString()

    def _traces(self, start: int) -> bytes:
        found = ExportTraceServiceRequest()
        resource = found.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = self.word("svc")
        scope = resource.scope_spans.add()
        for number in range(self.rows):
            span = scope.spans.add(trace_id=self.trace, span_id=self.trace[:7] + bytes([number]))
            span.name, span.start_time_unix_nano = self.word("span"), start + number
            span.end_time_unix_nano = start + number + 1_000_000
            span.attributes.add(key=self.word("key")).value.string_value = self.word("val")
        return found.SerializeToString()


AMBER, BASIL = Tenant("amber", 0xA1, 7), Tenant("basil", 0xB2, 11)


@dataclass(frozen=True)
class TenantLake:
    """`secrets` by tenant and name of the key."""

    url: str
    index: Index
    store: LocalStore
    http: httpx.Client
    secrets: dict[tuple[str, str], str]

    def secret(self, tenant: Tenant, role: str = "admin") -> str:
        return self.secrets[tenant.name, tenant.word(role)]


@contextmanager
def tenant_lake(directory: Path, postgres_url: str, *tenants: Tenant) -> Iterator[TenantLake]:
    """With every tenant's segments, keys, and an object that was set aside; loopback, so that no key is needed."""
    url = fresh_database(postgres_url)
    (directory / "lake").mkdir(parents=True)
    settings = load_settings(
        {},
        {
            "home": directory,
            "store": (directory / "lake").as_uri(),
            "database_url": url,
            "otlp_listen": "",
            "org_queries_per_second": 1e6,
            "lister_seconds": 600.0,
            "query_threads": 1,
        },
    )
    runtime = Runtime("test")
    parts = open_parts(settings, runtime, lambda _: None)
    store = Elsewhere(directory / "lake")
    parts = replace(parts, store=store)
    secrets = {pair: secret for tenant in tenants for pair, secret in _settled(parts, tenant).items()}
    routes = [*add_query_api(parts, lambda _: None), *add_pubsub(parts, lambda _: None)]
    server = HttpServer(build_app(admin_routes(runtime.health), routes), bind("127.0.0.1", 0), lambda _: None)
    server.start()
    runtime.defer("http", server.stop)
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield TenantLake(server.url, parts.index, store, http, secrets)
    runtime.shut_down()
    drop_database(url)


def _settled(parts: Parts, tenant: Tenant) -> dict[tuple[str, str], str]:
    """The tenant's secrets, once all that is its is there."""
    organization = tenant.organization
    parts.index.organizations.create(organization)
    segments, files = tenant.segments
    for path, data in files.items():
        parts.store.put(path, data)
    parts.index.commit(Commit(segments, tuple(tenant.raw(signal, 0).source for signal in SIGNALS), ()))
    failed = replace(tenant.raw("logs", 1).source, bucket=parts.store.bucket)
    parts.index.sources.set_aside(failed, tenant.word("reason"), organization.id, tenant.collector, "logs")
    made = tenant.word("made").replace(".", "_")
    parts.index.metric_rules.put(
        organization.id, rule(tenant.word("rule"), metric=made, description=tenant.word("made"))
    )
    names = {tenant.word(name): role for name, role in ROLES.items()} | {SHARED_KEY: Role.READ}
    create = parts.index.keys.create
    return {(tenant.name, name): create(organization.id, name, frozenset({role})) for name, role in names.items()}
