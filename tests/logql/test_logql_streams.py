"""The same lines by Loki push, by OTLP and as files: through ingest into segments, and out again as rows of streams."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.logql.log_lines import LogLines
from lakerunner.logql.log_rows import COLUMNS, INTERNAL, LogReader, LogRow, source_sql
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.model.labels.matcher import Matcher, Matchers
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.plan.scan import Scan
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.lease import LeasedFile
from lakerunner.query.segment_cache.relation import relation_sql
from pipeline.otlp_oracle import COLLECTOR, MODIFIED_NS, ORGANIZATION
from pipeline.test_transcode_loki import Stream, framed, push_json, push_protobuf
from pipeline.transcode_oracle import add, fill

NS = 1_700_000_000_000_000_000
TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))
OFF = StreamRules(service_labels=(), detect_levels=False)
SCAN = Scan("s", "logs", TimeRange(NS - HOUR_NS, NS + HOUR_NS), COLUMNS, (), internal=INTERNAL)


class Ingest:
    """Makes segments of requests, and reads them back as a worker does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(
        self, request: bytes, format_: str = "", rules: StreamRules = DEFAULT_RULES, matchers: Matchers = ()
    ) -> list[LogRow]:
        reader = LogReader(matchers, rules)
        found = [row for batch in self.batches(request, format_) for row in reader.rows(batch)]
        return sorted(found, key=lambda row: row.place)

    def batches(self, request: bytes, format_: str = "") -> list[pa.RecordBatch]:
        if format_:
            columns = GUESSED.near(MODIFIED_NS)
            request = TRANSCODERS[format_]("logs", memoryview(request), columns).require_complete()
        raw = Raw(SourceObject("bucket", "key.binpb", "etag", len(request), MODIFIED_NS), memoryview(request))
        made = make_segments(LOGS, ORGANIZATION, COLLECTOR, [raw], self._put)
        assert made.failed == ()
        files = {segment.id: LeasedFile(self._folder / segment.path, None) for segment in made.segments}
        relation = relation_sql(SCAN, made.segments, files, in_order=True)
        with duckdb.connect() as connection:
            for macro in MACROS:
                connection.execute(macro)
            table: Any = connection.sql(f'WITH "s" AS ({relation}) {source_sql(SCAN)}').to_arrow_table()
        batches: list[pa.RecordBatch] = table.to_batches()
        return batches

    def _put(self, path: str, data: memoryview) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@pytest.fixture
def ingest(tmp_path: Path) -> Ingest:
    return Ingest(tmp_path)


def shown(rows: list[LogRow]) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    return [(row.line, row.stream, row.metadata) for row in rows]


def otlp(resource: Mapping[str, Any], *records: tuple[Mapping[str, Any], Any, Mapping[str, Any]]) -> bytes:
    """Of a resource and records as (fields, body, attributes)."""
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add(schema_url="https://opentelemetry.io/schemas/1.30.0")
    add(resource_logs.resource.attributes, resource)
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = "lib"
    for fields, body, attributes in records:
        record = scope_logs.log_records.add(**fields)
        fill(record.body, body)
        add(record.attributes, attributes)
    return request.SerializeToString()


@pytest.mark.parametrize(("format_", "push"), [("lokipb", push_protobuf), ("lokijson", push_json)])
def test_a_loki_push_comes_back_as_it_was_sent(ingest: Ingest, format_: str, push: Any) -> None:
    streams: list[Stream] = [
        (
            {"app": "shop", "level": "warn", "empty": ""},
            [(NS, "first", {"trace_id": TRACE.hex(), "spanID": SPAN.hex(), "k": ""}), (NS + 1, "first", {})],
        ),
        ({"host": "h"}, [(NS + 2, 'msg="x" lvl=dbg', {"severity": "loud"}), (NS + 3, "an error", {})]),
    ]
    found = ingest.rows(framed(push(*streams)), format_)
    shop = {"app": "shop", "level": "warn", "service_name": "shop"}
    host = {"host": "h", "service_name": "unknown_service"}
    ids = {"trace_id": TRACE.hex(), "spanID": SPAN.hex(), "k": ""}
    assert shown(found) == [
        ("first", shop, {**ids, "detected_level": "warn"}),
        ("first", shop, {"detected_level": "warn"}),
        ('msg="x" lvl=dbg', host, {"severity": "loud", "detected_level": "loud"}),
        ("an error", host, {"detected_level": "error"}),
    ]
    off = ingest.rows(framed(push(*streams)), format_, OFF)
    assert [row.stream for row in off] == [{"app": "shop", "level": "warn"}] * 2 + [{"host": "h"}] * 2
    assert [row.metadata for row in off] == [ids, {}, {"severity": "loud"}, {}]


def test_a_line_that_is_not_utf8_comes_back_as_it_was_sent(ingest: Ingest) -> None:
    request = push_protobuf(({"app": "a"}, [(NS, "bad: ??", {})])).replace(b"??", b"\xff\xfe")
    (row,) = ingest.rows(framed(request), "lokipb", OFF)
    assert row.line == "bad: \udcff\udcfe"
    query = LogLines('{app="a"} | label_format all="{{ __line__ }}"', OFF, NS)
    (batch,) = query.run(iter(ingest.batches(framed(request), "lokipb")))
    (shown,) = batch.to_pylist()
    assert (shown["line"], orjson.loads(shown["parsed"])) == ("bad: \ufffd\ufffd", {"all": "bad: \ufffd\ufffd"})


def test_otlp_becomes_what_loki_makes_of_it(ingest: Ingest) -> None:
    request = otlp(
        {"service.name": "shop", "k8s.pod.name": "p-1", "host.name": "h", "os": {"type": "linux", "9": [1, 2.5]}},
        ({"time_unix_nano": NS, "severity_number": 13, "trace_id": TRACE}, "plain", {"user.id": 7, "x": 2.5}),
        (
            {"time_unix_nano": NS + 1, "observed_time_unix_nano": NS + 9, "severity_text": "Spam", "span_id": SPAN},
            {"b": [1, True], "a": "<é>"},
            {},
        ),
        ({"observed_time_unix_nano": NS + 2, "event_name": "e", "flags": 1}, "level=dbg", {"b": b"\xff"}),
    )
    labels = {"service_name": "shop", "k8s_pod_name": "p-1"}
    shared = {"host_name": "h", "os_type": "linux", "os_9": "[1,2.5]", "scope_name": "lib"}
    wanted = [
        (
            "plain",
            {"user_id": "7", "x": "2.5", "severity_number": "13", "trace_id": TRACE.hex(), "detected_level": "warn"},
        ),
        (
            '{"a":"\\u003cé\\u003e","b":[1,true]}',
            {
                "observed_timestamp": str(NS + 9),
                "severity_text": "Spam",
                "span_id": SPAN.hex(),
                "detected_level": "Spam",
            },
        ),
        ("level=dbg", {"event_name": "e", "flags": "1", "b": "/w==", "detected_level": "debug"}),
    ]
    assert shown(ingest.rows(request)) == [(line, labels, {**shared, **own}) for line, own in wanted]


NOT_JSON = "json: unsupported value:"  # as OpenTelemetry writes it
VALUES: list[tuple[Any, str | None]] = [
    *(
        ("text", "text"),
        (7, "7"),
        (True, "true"),
        (2.5, "2.5"),
        (1e21, "1e+21"),
        (nan, f"{NOT_JSON} NaN"),
        (inf, f"{NOT_JSON} +Inf"),
    ),
    *(([1, "a"], '[1,"a"]'), (b"\xff", "/w=="), (None, ""), ("", ""), ("7", "7"), ('"quoted"', '"quoted"')),
    *(("null", "null"), ("\0nul", "\0nul"), ("\0005", "\0005"), ("[1]", "[1]"), ({"n": 1}, None)),
]


@pytest.mark.parametrize("most", ["text", 7, 2.5, True, b"b", [0]], ids=lambda one: type(one).__name__)
def test_values_of_any_type_in_a_column_and_in_the_map(ingest: Ingest, most: Any) -> None:
    """The column of a key has the type that most values have; others, and a key that comes again, are in the map."""
    attributes = [{"key": value, "Key": n, "KEY": str(n)} for n, (value, _) in enumerate(VALUES)]
    filling = [{"key": most}] * 50
    records = [({"time_unix_nano": NS + n}, "line", own) for n, own in enumerate([*attributes, *filling])]
    request = ExportLogsServiceRequest.FromString(otlp({"service.name": "shop"}, *records))
    for record in request.resource_logs[0].scope_logs[0].log_records:
        fill(record.attributes.add(key="key").value, "again")
    found = ingest.rows(request.SerializeToString(), rules=OFF)[: len(VALUES)]
    assert [row.metadata.get("key") for row in found] == [text for _, text in VALUES]
    assert found[-1].metadata["key_n"] == "1"
    assert [(row.metadata["Key"], row.metadata["KEY"]) for row in found] == [(str(n),) * 2 for n in range(len(VALUES))]


def test_lines_of_a_file_are_as_if_they_had_come_by_otlp(ingest: Ingest) -> None:
    lines = [{"timestamp": NS, "message": "m", "level": "error", "service": "shop", "user": {"id": 7}}]
    (row,) = ingest.rows(b"\n".join(map(orjson.dumps, lines)), "jsonl")
    assert (row.line, row.stream) == ("m", {"service_name": "shop"})
    assert row.metadata["detected_level"] == "error"
    assert {name: row.metadata[name] for name in row.metadata if name.startswith("user")} == {"user_id": "7"}


def test_rows_of_other_streams_are_not_read(ingest: Ingest) -> None:
    streams: list[Stream] = [({"app": app}, [(NS + n, f"of {app}", {})]) for n, app in enumerate("abca")]
    request = framed(push_json(*streams))
    for matcher, wanted in ((Matcher("app", "=", "a"), "aa"), (Matcher("service_name", "=~", "b|c"), "bc")):
        assert [row.stream["app"] for row in ingest.rows(request, "lokijson", matchers=(matcher,))] == list(wanted)


def test_equal_lines_stay_two_and_know_their_delivery(ingest: Ingest) -> None:
    rows = ingest.rows(framed(push_json(({"app": "a"}, [(NS, "same", {}), (NS, "same", {})]))), "lokijson")
    assert [row.line for row in rows] == ["same", "same"]
    assert [row.delivery[1] for row in rows if row.delivery] == [0, 1]


@pytest.mark.parametrize(
    ("stream", "metadata", "labels"),
    [
        ({"a": "s"}, {"a": "m"}, ({"a": "s"}, {"a_extracted": "m"}, {})),
        ({"a": "s", "a_extracted": "t"}, {"a": "m"}, ({"a": "s"}, {"a_extracted": "m"}, {})),
        (
            {"detected_level": "x"},
            {"detected_level": "y"},
            ({"detected_level": "x"}, {"detected_level_extracted": "y"}, {}),
        ),
        ({"a": "s"}, {"b": ""}, ({"a": "s"}, {"b": ""}, {})),
    ],
)
def test_on_a_collision_the_stream_keeps_the_name(
    stream: dict[str, str], metadata: dict[str, str], labels: tuple[dict[str, str], ...]
) -> None:
    assert LineLabels(stream, metadata).by_kind() == labels
