"""Export of all lines, and the context of one line, over HTTP."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.loki.loki_lake import LINES, NOW, SECOND, LokiClient, add_lines, lines_lake, loki_server
from conformance.answer import LogEntry
from lakerunner.api.formats.parquet_stream import ParquetStream
from lakerunner.api.loki.line_answer import LABELS, LINE_SCHEMA
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.model.errors import TooLarge
from lakerunner.model.time import iso_time
from lakerunner.query.options import Options
from query.sample_lake import OWN, START, Lake

WITHIN = {"start": START, "end": NOW}
MANY = (("app", "many"), ("env", "test"))
COUNT = 120
# Ten lines have the same time; in another stream, whose labels are more, lines stand between them.
ALIKE = tuple(LogEntry(START + number // 10 * SECOND, f"line {number:03}", MANY) for number in range(COUNT))
MORE = tuple(LogEntry(START + number * SECOND, "not this", (*MANY, ("pod", "p"))) for number in range(12))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lines_lake(tmp_path_factory.mktemp("export"), (*LINES, *MORE))
    add_lines(lake, OWN, ALIKE)  # in parts that are cut between times: parts arrive at the same moment
    return lake


@pytest.fixture(scope="module")
def loki(lake: Lake) -> Iterator[LokiClient]:
    with loki_server(lake, most=LokiLimits(entries=50)) as client:
        yield client


def export(loki: LokiClient, query: str, **given: Any) -> httpx.Response:
    return loki.send("/api/v1/logs/export", {"query": query, **WITHIN, **given})


def rows(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [orjson.loads(line) for line in response.content.splitlines()]


def test_all_lines_beyond_the_limit_of_entries(loki: LokiClient) -> None:
    found = rows(export(loki, '{app="many", pod=""}', direction="forward"))
    assert [row["line"] for row in found] == [entry.text for entry in ALIKE]
    backward = rows(export(loki, '{app="many", pod=""}'))
    assert [row["line"] for row in backward] == [entry.text for entry in reversed(ALIKE)]


def test_labels_by_kind(loki: LokiClient) -> None:
    (row, *_) = rows(export(loki, '{app="cart"} | logfmt', direction="forward"))
    assert row == {
        "timestamp": iso_time(START + SECOND),
        "line": "level=info took=10ms path=/a",
        "stream": {"app": "cart", "env": "prod", "service_name": "cart"},
        "metadata": {"detected_level": "info", "trace_id": "t1"},
        "parsed": {"level": "info", "path": "/a", "took": "10ms"},
    }


def test_csv_and_parquet_hold_the_same(loki: LokiClient) -> None:
    query = '{app=~"cart|pay"} | logfmt'
    expected = rows(export(loki, query))
    table = pq.read_table(io.BytesIO(export(loki, query, format="parquet").content))
    assert table.schema.equals(LINE_SCHEMA)
    kinds = ("stream", "metadata", "parsed")
    assert [{"line": row["line"], **{kind: dict(row[kind]) for kind in kinds}} for row in table.to_pylist()] == [
        {name: row[name] for name in ("line", *kinds)} for row in expected
    ]
    assert table.column("timestamp").cast(pa.int64()).to_pylist()[-1] == START + SECOND
    written = list(csv.DictReader(io.StringIO(export(loki, query, format="csv").text)))
    assert [{**row, **{kind: orjson.loads(row[kind]) for kind in kinds}} for row in written] == expected


def test_an_empty_export_is_a_whole_file(loki: LokiClient) -> None:
    assert export(loki, '{app="none"}').content == b""
    assert export(loki, '{app="none"}', format="csv").text == "timestamp,line,stream,metadata,parsed\n"
    table = pq.read_table(io.BytesIO(export(loki, '{app="none"}', format="parquet").content))
    assert (table.num_rows, table.schema.equals(LINE_SCHEMA)) == (0, True)


def test_rows_of_parquet_leave_memory_as_they_come() -> None:
    """Of a thousand batches no more than a row group is held: what is ready is handed out, and forgotten."""
    file, written, held = ParquetStream(LINE_SCHEMA, 1 << 16), bytearray(), 0
    labels = pa.array([[]] * 10, LABELS)
    columns = [pa.array([1] * 10, pa.timestamp("ns")), pa.array(["x" * 100] * 10), labels, labels, labels]
    batch = pa.record_batch(columns, schema=LINE_SCHEMA)
    for _ in range(1000):
        written += file.add(batch)
        held = max(held, file.waiting_bytes)
    written += file.finish()
    read = pq.ParquetFile(io.BytesIO(bytes(written)))
    assert (read.metadata.num_rows, read.metadata.num_row_groups > 10) == (10_000, True)
    assert held < 1 << 16


def test_the_limit_of_rows_does_not_apply(lake: Lake) -> None:
    """A query stops at query_max_rows, an export does not."""
    engine = lake.engine(worker=lake.worker(), max_rows=50).engine
    plan = compile_logql(LogqlQuestion('{app="many"}', START, NOW, 1, None), NOW)
    with pytest.raises(TooLarge, match="query_max_rows"):
        list(engine.answer(OWN, plan, Options(NOW)))
    exported = engine.answer(OWN, plan, Options(NOW, whole=True))
    assert sum(batch.num_rows for batch in exported) == COUNT + len(MORE)


def test_refused(loki: LokiClient) -> None:
    for given, message in (
        ({"query": ""}, "parameter query is missing"),
        ({"query": 'rate({app="a"}[1m])'}, "an export returns lines"),
        ({"query": "{"}, "syntax error"),
        ({"query": '{app="a"}', "format": "xml"}, "unknown format 'xml': use one of ndjson, csv, parquet"),
        ({"query": '{app="a"}', "start": "x"}, "could not parse 'start' parameter"),
    ):
        response = loki.send("/api/v1/logs/export", {**WITHIN, **given})
        assert (response.status_code, message in response.json()["error"]["message"]) == (400, True), response.text


def test_only_the_own_organization(loki: LokiClient) -> None:
    assert {row["stream"]["app"] for row in rows(export(loki, '{app=~".+"}'))} == {"cart", "pay", "many"}
    assert [row["line"] for row in rows(export(replace(loki, key="other"), '{app=~".+"}'))] == ["theirs"]
    assert context(replace(loki, key="other"), START)["at"] == []


# ---- context


STREAM = '{app="many", env="test", service_name="many"}'


def context(loki: LokiClient, time: int, stream: str = STREAM, **given: Any) -> Any:
    response = loki.send("/api/v1/logs/context", {"stream": stream, "time": time, **given})
    assert response.status_code == 200, response.text
    return response.json()


def texts(found: Any) -> tuple[list[str], list[str], list[str]]:
    before, at, after = ([line["line"] for line in found[part]] for part in ("before", "at", "after"))
    return before, at, after


ALL = [entry.text for entry in ALIKE]


def test_lines_before_and_after_a_time(loki: LokiClient) -> None:
    found = context(loki, START + 5 * SECOND, before=3, after=2)
    assert texts(found) == (ALL[47:50], ALL[50:60], ALL[60:62])
    assert found["stream"] == {"app": "many", "env": "test", "service_name": "many"}
    assert found["at"][0]["timestamp"] == str(START + 5 * SECOND)
    assert found["at"][0]["metadata"] == {"detected_level": "unknown"}


def test_a_position_tells_lines_of_equal_time_apart(loki: LokiClient) -> None:
    at = context(loki, START + 5 * SECOND)["at"]
    for number in (0, 4, 9):
        found = context(loki, START + 5 * SECOND, before=6, after=7, position=at[number]["position"])
        hit = 50 + number
        assert texts(found) == (ALL[hit - 6 : hit], [ALL[hit]], ALL[hit + 1 : hit + 8])


def test_context_at_the_ends(loki: LokiClient) -> None:
    assert texts(context(loki, START, before=5, after=0)) == ([], ALL[:10], [])
    assert texts(context(loki, START + 11 * SECOND, before=0, after=5)) == ([], ALL[110:], [])
    assert texts(context(loki, START + 5 * SECOND, start=START + 4 * SECOND, before=50, after=0))[0] == ALL[40:50]


def test_context_refused(loki: LokiClient) -> None:
    for given, message in (
        ({}, "parameter time is missing"),
        ({"time": START}, "parameter stream is missing"),
        ({"time": START, "stream": '{app=~"a"}'}, "is not one stream"),
        ({"time": START, "stream": STREAM, "before": 51}, "before must be between 0 and 50"),
        ({"time": START, "stream": STREAM, "after": -1}, "after must be between 0 and 50"),
        ({"time": START, "stream": STREAM, "position": "1.2"}, "has position '1.2'"),
    ):
        response = loki.send("/api/v1/logs/context", given)
        assert (response.status_code, message in response.json()["error"]["message"]) == (400, True), response.text
