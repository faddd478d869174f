"""A lake of many samples to query: a fleet that exports every 15 s, in segments of six minutes, made by the pipeline's
own code.

Kept under the directory it is made in: a second run with the same size takes what is there.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
SECOND_NS = 1_000_000_000
PODS, COUNTERS, GAUGES = 50, 40, 30  # 3,500 series
SERIES = PODS * (COUNTERS + GAUGES)
EXPORT_S = 15
EXPORTS = 24  # of a segment: six minutes
ORGANIZATION = DEFAULT_ORGANIZATION.id
_TIME, _VALUE = 1 << 62, 3 << 60  # numbers that stand nowhere else in the message


@dataclass(frozen=True)
class MetricsLake:
    store: LocalStore
    directory: Path
    segments: tuple[Segment, ...]

    @property
    def files(self) -> list[str]:
        return [str(self.directory / "store" / segment.path) for segment in self.segments]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


def metrics_lake(directory: Path, segments: int) -> MetricsLake:
    (directory / "store").mkdir(parents=True, exist_ok=True)
    marker = directory / "made.json"
    if marker.exists() and json.loads(marker.read_text()) != {"segments": segments}:
        sys.exit(f"{directory} holds another lake: {marker.read_text()}")
    if not marker.exists():
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            made = [one for part in pool.map(_segment, [(directory, n) for n in range(segments)]) for one in part]
        (directory / "segments.pickle").write_bytes(pickle.dumps(made))
        marker.write_text(json.dumps({"segments": segments}))
    sets: dict[Any, Any] = {}  # shared, as they are when they come from the index
    made = pickle.loads((directory / "segments.pickle").read_bytes())
    shared = [replace(one, columns=sets.setdefault(one.columns, one.columns), ingested=n) for n, one in enumerate(made)]
    return MetricsLake(LocalStore(directory / "store"), directory, tuple(shared))


def _segment(work: tuple[Path, int]) -> list[Segment]:
    directory, number = work
    template, times, values = _template()
    raws = []
    for export in range(number * EXPORTS, (number + 1) * EXPORTS):
        data = _filled(template, times, values, export)
        source = SourceObject("bench", f"{number}/{export}", "etag", len(data), OPENING_NS)
        raws.append(Raw(source, memoryview(data)))
    store = LocalStore(directory / "store")
    return list(make_segments(METRICS, ORGANIZATION, "bench", raws, store.put).segments)


def _template() -> tuple[Any, Any, Any]:
    """Build one request of all pods, with the offsets of the times and values of its points."""
    request = ExportMetricsServiceRequest()
    numbers = iter(range(SERIES))
    for pod in range(PODS):
        metrics = request.resource_metrics.add()
        for key, value in (
            ("service.name", f"service-{pod % 8}"),
            ("service.instance.id", f"pod-{pod}"),
            ("host.name", f"h{pod % 9}"),
        ):
            metrics.resource.attributes.add(key=key).value.string_value = value
        scope = metrics.scope_metrics.add()
        requests = scope.metrics.add(name="http.server.requests", unit="{request}")
        requests.sum.aggregation_temporality, requests.sum.is_monotonic = 2, True
        usage = scope.metrics.add(name="queue.usage", unit="1")
        for number in range(COUNTERS):
            point = requests.sum.data_points.add(start_time_unix_nano=OPENING_NS)
            point.as_int = _VALUE + (at := next(numbers))
            _label(point, number, at)
        for number in range(GAUGES):
            point = usage.gauge.data_points.add()
            point.as_int = _VALUE + (at := next(numbers))
            _label(point, number, at)
    data = request.SerializeToString()
    places = [[data.index((base + n).to_bytes(8, "little")) for n in range(SERIES)] for base in (_TIME, _VALUE)]
    return np.frombuffer(data, np.uint8), np.array(places[0]), np.array(places[1])


def _label(point: Any, number: int, at: int) -> None:
    point.time_unix_nano = _TIME + at
    point.attributes.add(key="http.route").value.string_value = f"/route/{number % 10}"
    point.attributes.add(key="http.response.status_code").value.int_value = 200 + number // 10


def _filled(template: Any, times: Any, values: Any, export: int) -> bytes:
    chance = np.random.default_rng(export)
    data = template.copy()
    at_ns = OPENING_NS + SECOND_NS * (EXPORT_S * export + 1)
    is_counter = np.arange(SERIES) % (COUNTERS + GAUGES) < COUNTERS
    totals = export * np.arange(1, SERIES + 1) + chance.integers(0, 40, SERIES)
    numbers = np.where(is_counter, totals.astype(np.int64), chance.random(SERIES).view(np.int64))
    data[times[:, None] + np.arange(8)] = np.full(SERIES, at_ns, "<u8").view(np.uint8).reshape(-1, 8)
    data[values[:, None] + np.arange(8)] = numbers.astype("<i8").view(np.uint8).reshape(-1, 8)
    # as_int (field 6) of a gauge becomes as_double (field 4), both of eight bytes
    data[values[~is_counter] - 1] = 4 << 3 | 1
    return data.tobytes()
