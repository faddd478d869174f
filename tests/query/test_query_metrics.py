"""The table `metrics`, over segments that the pipeline itself wrote: every column as OTLP stated it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.lakeql.tables import METRICS_TABLE
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import Question, SqlQueries
from query.sample_lake import HOUR, OWN, START, Lake

TRACE = bytes(range(16))
BIG = 2**53 + 1


def request() -> bytes:
    """Numbers, a histogram, an exponential one and a summary, and a gauge an hour later that lacks what they have."""
    found = ExportMetricsServiceRequest()
    resource_metrics = found.resource_metrics.add(schema_url="resource/1")
    resource_metrics.resource.attributes.add(key="service.name").value.string_value = "cart"
    resource_metrics.resource.dropped_attributes_count = 3
    scope = resource_metrics.scope_metrics.add(schema_url="scope/1")
    scope.scope.name, scope.scope.version = "meter", "1.2"
    counter = scope.metrics.add(name="requests", unit="1", description="Served.")
    counter.metadata.add(key="team").value.string_value = "shop"
    counter.sum.aggregation_temporality, counter.sum.is_monotonic = 2, True
    for number in range(3):
        point = counter.sum.data_points.add(time_unix_nano=START + number, start_time_unix_nano=START, as_int=number)
        point.attributes.add(key="route").value.string_value = "/cart"
        point.flags = 1 if number == 2 else 0
    mixed = scope.metrics.add(name="mixed").gauge
    mixed.data_points.add(time_unix_nano=START, as_int=BIG)
    mixed.data_points.add(time_unix_nano=START + 1, as_double=0.5)
    mixed.data_points.add(time_unix_nano=START + 2, as_int=7)
    mixed.data_points.add(time_unix_nano=START + 3)
    histogram = scope.metrics.add(name="duration", unit="s").histogram
    histogram.aggregation_temporality = 1
    point = histogram.data_points.add(time_unix_nano=START, count=3, sum=1.5, min=0.25, max=1.0)
    point.bucket_counts.extend([1, 2])
    point.explicit_bounds.append(0.5)
    exemplar = point.exemplars.add(time_unix_nano=START + 5, as_double=0.25, trace_id=TRACE, span_id=b"spanspan")
    exemplar.filtered_attributes.add(key="user").value.int_value = 42
    point.exemplars.add(as_int=1)
    exponential = scope.metrics.add(name="size").exponential_histogram.data_points.add(time_unix_nano=START, count=2)
    exponential.scale, exponential.zero_count, exponential.zero_threshold = -1, 1, 0.125
    exponential.positive.offset = -3
    exponential.positive.bucket_counts.extend([1, 0, 2])
    summary = scope.metrics.add(name="old").summary.data_points.add(time_unix_nano=START, count=2, sum=3.5)
    summary.quantile_values.add(quantile=0.5, value=1.75)
    scope.metrics.add(name="later").gauge.data_points.add(time_unix_nano=START + HOUR, as_double=2.5)
    return found.SerializeToString()


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> SqlQueries:
    lake = Lake(tmp_path_factory.mktemp("metrics"))
    data = request()
    raw = Raw(SourceObject("bucket", "metrics.binpb", "etag", len(data), START), memoryview(data))
    made = make_segments(METRICS, OWN, "edge", [raw], lambda path, file: lake.store.put(path, bytes(file)))
    assert len(made.segments) == 2
    assert {"count", "exemplars", "metadata"}.isdisjoint(column.name for column in made.segments[1].columns)
    lake.all += made.segments
    return lake.engine()


def ask(engine: SqlQueries, sql: str) -> list[dict[str, Any]]:
    return [orjson.loads(row) for batch in engine.sql(OWN, Question(sql, START)) for row in json_rows(batch)]


def test_every_column_of_a_counter(metrics: SqlQueries) -> None:
    (row,) = ask(metrics, "SELECT * FROM metrics WHERE metric_name = 'requests' AND value = 2")
    assert list(row) == [column.name for column in METRICS_TABLE.columns]
    assert isinstance(row.pop("series"), int)
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {
        "timestamp": "2024-01-01T00:00:00.000000002Z",
        "start_timestamp": "2024-01-01T00:00:00.000000000Z",
        "organization_id": str(OWN),
        "collector": "edge",
        "service_name": "cart",
        "metric_name": "requests",
        "metric_type": "sum",
        "temporality": "cumulative",
        "monotonic": True,
        "unit": "1",
        "description": "Served.",
        "value": 2.0,
        "int_value": 2,
        "exemplars": [],
        "flags": 1,
        "metadata": {"team": "shop"},
        "scope_name": "meter",
        "scope_version": "1.2",
        "scope_schema_url": "scope/1",
        "resource_schema_url": "resource/1",
        "scope_dropped_attributes": 0,
        "resource_dropped_attributes": 3,
        "attributes": {"route": "/cart"},
        "resource_attrs": {"service.name": "cart"},
        "scope_attrs": {},
    }


ANSWERS = {
    "SELECT value, int_value FROM metrics WHERE metric_name = 'mixed' ORDER BY timestamp": [
        {"value": float(BIG - 1), "int_value": BIG},
        {"value": 0.5, "int_value": None},
        {"value": 7.0, "int_value": 7},
        {"value": None, "int_value": None},
    ],
    "SELECT temporality, count, sum, min, max, bounds, bucket_counts FROM metrics WHERE bounds IS NOT NULL": [
        {
            "temporality": "delta",
            "count": 3,
            "sum": 1.5,
            "min": 0.25,
            "max": 1.0,
            "bounds": [0.5],
            "bucket_counts": [1, 2],
        }
    ],
    "SELECT exemplars, exemplar_trace FROM metrics WHERE exemplar_trace IS NOT NULL": [
        {
            "exemplars": [
                {
                    "timestamp": "2024-01-01T00:00:00.000000005Z",
                    "double_value": 0.25,
                    "int_value": None,
                    "trace_id": TRACE.hex(),
                    "span_id": b"spanspan".hex(),
                    "attributes": {"user": "42"},
                },
                {
                    "timestamp": None,
                    "double_value": None,
                    "int_value": 1,
                    "trace_id": None,
                    "span_id": None,
                    "attributes": {},
                },
            ],
            "exemplar_trace": TRACE.hex(),
        }
    ],
    "SELECT scale, zero_count, zero_threshold, positive, negative FROM metrics WHERE scale IS NOT NULL": [
        {
            "scale": -1,
            "zero_count": 1,
            "zero_threshold": 0.125,
            "positive": {"offset": -3, "counts": [1, 0, 2], "float_counts": None},
            "negative": None,
        }
    ],
    "SELECT count, sum, quantiles, quantile_values FROM metrics WHERE metric_type = 'summary'": [
        {"count": 2, "sum": 3.5, "quantiles": [0.5], "quantile_values": [1.75]}
    ],
    "SELECT value, count, positive, exemplars, metadata FROM metrics WHERE metric_name = 'later'": [
        {"value": 2.5, "count": None, "positive": None, "exemplars": [], "metadata": None}
    ],
    "SELECT metric_name, count(DISTINCT series) AS n FROM metrics GROUP BY 1 ORDER BY 1": [
        {"metric_name": name, "n": 1} for name in ("duration", "later", "mixed", "old", "requests", "size")
    ],
    "SELECT attributes['route'] AS route, sum(value) AS total FROM metrics WHERE monotonic GROUP BY 1": [
        {"route": "/cart", "total": 3.0}
    ],
    "SELECT count(*) AS n FROM metrics WHERE timestamp >= '2024-01-01T01:00:00Z'": [{"n": 1}],
    "SELECT value, exemplars FROM metrics WHERE timestamp > '2025-01-01'": [],
}


@pytest.mark.parametrize("sql", ANSWERS)
def test_questions(metrics: SqlQueries, sql: str) -> None:
    assert ask(metrics, sql) == ANSWERS[sql]
