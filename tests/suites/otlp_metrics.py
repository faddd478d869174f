"""OTLP metrics for tests: a request filled metric by metric, and a lake in this process that holds what it is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.index.commit import Commit
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from suites.tenants import TenantLake, tenant_lake

SECOND = 1_000_000_000
DELTA, CUMULATIVE = 1, 2


@dataclass
class Otlp:
    """One request. Times are seconds; labels are attributes of points."""

    request: Any = field(default_factory=ExportMetricsServiceRequest)

    def resource(self, **attributes: str) -> Any:
        """What metrics are added to; `_` in names stands for a dot."""
        made = self.request.resource_metrics.add()
        label(made.resource, {name.replace("_", "."): value for name, value in attributes.items()})
        return made.scope_metrics.add()

    @property
    def data(self) -> bytes:
        data: bytes = self.request.SerializeToString()
        return data


def label(target: Any, labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        target.attributes.add(key=name).value.string_value = value


def gauge(scope: Any, name: str, points: Iterable[tuple[float, float]], **labels: str) -> Any:
    metric = scope.metrics.add(name=name)
    for time, value in points:
        label(metric.gauge.data_points.add(time_unix_nano=int(time * SECOND), as_double=value), labels)
    return metric


def counter(
    scope: Any, name: str, points: Iterable[tuple[float, float, float]], temporality: int, **labels: str
) -> Any:
    """Points are (start, time, value)."""
    metric = scope.metrics.add(name=name)
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, temporality
    for start, time, value in points:
        times = {"start_time_unix_nano": int(start * SECOND), "time_unix_nano": int(time * SECOND)}
        label(metric.sum.data_points.add(**times, as_double=value), labels)
    return metric


@dataclass
class SmallLake:
    """Asked over HTTP, as the default organization."""

    inner: TenantLake
    number: int = 0

    def add(self, data: bytes, collector: str = "edge") -> None:
        """As ingest would: one file, its segments committed together, after all that was there before."""
        self.number += 1
        source = SourceObject(self.inner.store.bucket, f"otel-raw/{self.number}.binpb", "etag", len(data), SECOND)
        raw = Raw(source, memoryview(data))
        made = make_segments(METRICS, DEFAULT_ORGANIZATION.id, collector, [raw], self.inner.store.put)
        assert not made.failed, made.failed
        self.inner.index.commit(Commit(made.segments, (), ()))

    def api(self) -> Api:
        return Api(self.inner.http)


@dataclass
class Api:
    """Prometheus' API of a lake."""

    http: httpx.Client

    def get(self, path: str, **given: Any) -> Any:
        response = self.http.get(f"/prometheus/api/v1/{path}", params=given)
        assert response.status_code == 200, response.text
        body = response.json()
        assert "warnings" not in body, body["warnings"]
        return body["data"]

    def instant(self, query: str, at: float) -> dict[tuple[tuple[str, str], ...], str]:
        """The values by labels, sorted."""
        rows = self.get("query", query=query, time=f"{at:.3f}")["result"]
        return {tuple(sorted(row["metric"].items())): row["value"][1] for row in rows}

    def number(self, query: str, at: float) -> float:
        (value,) = self.instant(query, at).values()
        return float(value)

    def points(self, query: str, at: float) -> dict[tuple[tuple[str, str], ...], list[tuple[float, str]]]:
        """Of a range vector."""
        rows = self.get("query", query=query, time=f"{at:.3f}")["result"]
        return {tuple(sorted(row["metric"].items())): [tuple(one) for one in row["values"]] for row in rows}


@contextmanager
def small_lake(directory: Path, postgres_url: str) -> Iterator[SmallLake]:
    with tenant_lake(directory, postgres_url) as inner:
        yield SmallLake(inner)
