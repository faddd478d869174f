"""The table `spans`, over segments that the pipeline itself wrote: every column as OTLP stated it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.lakeql.tables import SPANS_TABLE
from lakerunner.model.signal import TRACES
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import Question, SqlQueries
from query.sample_lake import HOUR, OWN, START, Lake

TRACE = bytes(range(16))


def request() -> bytes:
    """A trace of two services: a root with events, and a failed child with a link; and a bare span an hour later."""
    found = ExportTraceServiceRequest()
    front = found.resource_spans.add(schema_url="resource/1")
    front.resource.attributes.add(key="service.name").value.string_value = "front"
    front.resource.dropped_attributes_count = 3
    scope = front.scope_spans.add(schema_url="scope/1")
    scope.scope.name, scope.scope.version = "tracer", "1.2"
    scope.scope.dropped_attributes_count = 4
    scope.scope.attributes.add(key="lib").value.bool_value = True
    root = scope.spans.add(trace_id=TRACE, span_id=b"rootroot", name="GET /", kind=2, trace_state="a=b", flags=0x101)
    root.start_time_unix_nano, root.end_time_unix_nano = START + 1, START + 1_000_000_001
    root.attributes.add(key="http.status_code").value.int_value = 200
    root.dropped_attributes_count, root.dropped_events_count, root.dropped_links_count = 5, 6, 7
    root.events.add(time_unix_nano=START + 5, name="first", dropped_attributes_count=8)
    second = root.events.add(name="second")
    second.attributes.add(key="n").value.int_value = 42
    second.attributes.add(key="n").value.string_value = "again"
    second.attributes.add(key="a").value.bytes_value = b"\xff"
    back = found.resource_spans.add()
    back.resource.attributes.add(key="service.name").value.string_value = "back"
    spans = back.scope_spans.add().spans
    child = spans.add(trace_id=TRACE, span_id=b"childish", parent_span_id=b"rootroot", name="query", kind=3)
    child.start_time_unix_nano, child.end_time_unix_nano = START + 10, START + 7
    child.status.code, child.status.message = 2, "too late"
    link = child.links.add(trace_id=bytes(16), span_id=b"elsewhere", trace_state="x=y", flags=1)
    link.attributes.add(key="why").value.double_value = 0.5
    link.dropped_attributes_count = 9
    spans.add(start_time_unix_nano=START + HOUR)
    return found.SerializeToString()


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> SqlQueries:
    lake = Lake(tmp_path_factory.mktemp("spans"))
    data = request()
    raw = Raw(SourceObject("bucket", "traces.binpb", "etag", len(data), START), memoryview(data))
    made = make_segments(TRACES, OWN, "edge", [raw], lambda path, file: lake.store.put(path, bytes(file)))
    assert len(made.segments) == 2
    lake.all += made.segments
    assert Path(lake.directory / "store" / made.segments[0].side_path("traces.parquet")).is_file()
    return lake.engine()


def ask(engine: SqlQueries, sql: str) -> list[dict[str, Any]]:
    return [orjson.loads(row) for batch in engine.sql(OWN, Question(sql, START)) for row in json_rows(batch)]


def test_every_column_of_a_root(spans: SqlQueries) -> None:
    (row,) = ask(spans, "SELECT * FROM spans WHERE service_name = 'front'")
    assert list(row) == [column.name for column in SPANS_TABLE.columns]
    assert row == {
        "timestamp": "2024-01-01T00:00:00.000000001Z",
        "end_timestamp": "2024-01-01T00:00:01.000000001Z",
        "duration": 1_000_000_000,
        "organization_id": str(OWN),
        "collector": "edge",
        "service_name": "front",
        "name": "GET /",
        "kind": 2,
        "status_code": 0,
        "status_message": "",
        "trace_id": TRACE.hex(),
        "span_id": b"rootroot".hex(),
        "parent_span_id": None,
        "trace_state": "a=b",
        "flags": 0x101,
        "events": [
            {
                "timestamp": "2024-01-01T00:00:00.000000005Z",
                "name": "first",
                "attributes": {},
                "dropped_attributes_count": 8,
            },
            {
                "timestamp": None,
                "name": "second",
                "attributes": {"a": "/w==", "n": "42"},
                "dropped_attributes_count": 0,
            },
        ],
        "links": [],
        "dropped_attributes_count": 5,
        "dropped_events_count": 6,
        "dropped_links_count": 7,
        "scope_name": "tracer",
        "scope_version": "1.2",
        "scope_schema_url": "scope/1",
        "resource_schema_url": "resource/1",
        "scope_dropped_attributes": 4,
        "resource_dropped_attributes": 3,
        "attributes": {"http.status_code": "200"},
        "resource_attrs": {"service.name": "front"},
        "scope_attrs": {"lib": "true"},
    }


def test_a_child_with_an_error_a_link_and_a_negative_duration(spans: SqlQueries) -> None:
    columns = "name, kind, duration, status_code, status_message, links"
    sql = f"SELECT {columns} FROM spans WHERE parent_span_id = '{b'rootroot'.hex()}'"
    link = {
        "trace_id": "00" * 16,
        "span_id": b"elsewhere".hex(),
        "trace_state": "x=y",
        "flags": 1,
        "attributes": {"why": "0.5"},
        "dropped_attributes_count": 9,
    }
    assert ask(spans, sql) == [
        {"name": "query", "kind": 3, "duration": -3, "status_code": 2, "status_message": "too late", "links": [link]}
    ]


def test_a_bare_span(spans: SqlQueries) -> None:
    sql = (
        "SELECT trace_id, span_id, parent_span_id, end_timestamp, duration, events, name FROM spans WHERE trace_id = ''"
    )
    empty = {"trace_id": "", "span_id": "", "parent_span_id": None, "end_timestamp": None, "duration": None}
    assert ask(spans, sql) == [{**empty, "events": [], "name": ""}]


LINKED = b"elsewhere".hex()
ANSWERS = {
    f"SELECT count(*) AS n FROM spans WHERE trace_id = '{TRACE.hex().upper()}'": [{"n": 2}],
    "SELECT attributes['http.status_code'] AS code FROM spans ORDER BY 1 NULLS LAST LIMIT 1": [{"code": "200"}],
    "SELECT e.name, e.attributes['n'] AS n FROM spans, unnest(events) AS u(e) ORDER BY 1": [
        {"name": "first", "n": None},
        {"name": "second", "n": "42"},
    ],
    "SELECT unnest(links).trace_id AS id FROM spans": [{"id": "00" * 16}],
    f"SELECT count(*) AS n FROM spans WHERE links[1].span_id = '{LINKED.upper()}'": [{"n": 1}],
    f"SELECT name FROM spans, unnest(links) AS u(l) WHERE l.span_id = '{LINKED.upper()}'": [{"name": "query"}],
    f"SELECT name FROM spans WHERE len(list_filter(links, lambda l: l.span_id = '{LINKED.upper()}')) = 1": [
        {"name": "query"}
    ],
    f"SELECT name FROM spans WHERE len([l.flags FOR l IN links IF l.span_id = '{LINKED.upper()}']) = 1": [
        {"name": "query"}
    ],
    "SELECT name FROM spans WHERE events[1].timestamp = '2024-01-01T02:00:00.000000005+02:00'": [{"name": "GET /"}],
    "SELECT e.timestamp::DATE AS day FROM spans, unnest(events) AS u(e) WHERE e.timestamp > '2024-01-01T00:00:00Z'": [
        {"day": "2024-01-01"}
    ],
    "SELECT events[1].name AS name, len(events) AS n FROM spans WHERE len(events) > 0": [{"name": "first", "n": 2}],
    "SELECT [x.name FOR x IN events] AS names FROM spans WHERE kind = 2": [{"names": ["first", "second"]}],
    "SELECT l.name FROM spans s JOIN spans l ON s.span_id = l.parent_span_id AND s.trace_id = l.trace_id": [
        {"name": "query"}
    ],
    "SELECT service_name, max(duration) AS longest FROM spans GROUP BY 1 ORDER BY 1": [
        {"service_name": "back", "longest": -3},
        {"service_name": "front", "longest": 1_000_000_000},
    ],
    "SELECT count(*) AS n FROM spans WHERE timestamp >= '2024-01-01T01:00:00Z'": [{"n": 1}],
    "SELECT count(*) AS n FROM spans WHERE end_timestamp = '2024-01-01T00:00:00.000000007Z'": [{"n": 1}],
    "SELECT count(*) AS n FROM spans WHERE timestamp > '2025-01-01'": [{"n": 0}],
    "SELECT events, links FROM spans WHERE timestamp > '2025-01-01'": [],
}


@pytest.mark.parametrize("sql", ANSWERS)
def test_questions(spans: SqlQueries, sql: str) -> None:
    assert ask(spans, sql) == ANSWERS[sql]
