"""The SQL endpoint on a real engine over a small lake: what may be asked, and the same rows in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.api.formats.row_formats import FORMATS, format_accepted
from lakerunner.api.sql.sql_api import SqlRequest
from lakerunner.lakeql.tables import TABLES
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Organization
from lakerunner.query.sql import SqlQueries
from query.sample_lake import FULL_SHRED, HOUR, NOW, OTHER, OWN, START, Lake, answer_of, random_records
from suites.scripted import Scripted, ScriptedEngine, events_of, sql_server

ROWS = (
    "SELECT timestamp, service_name, message, fingerprint, trace_id, attributes, "
    "sum(fingerprint) OVER (PARTITION BY service_name) AS total, 0.5::DECIMAL(4, 2) AS half, 'nan'::DOUBLE AS nan "
    "FROM logs WHERE timestamp >= '2024-01-01T00:00:00Z' ORDER BY timestamp, message, fingerprint LIMIT 5000"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.add(random_records(2000, 1, START), shred=FULL_SHRED)
    lake.add(random_records(1000, 2, START + HOUR))
    lake.add(random_records(10, 3, START), organization=OTHER)
    return lake


@pytest.fixture(scope="module")
def engine(lake: Lake) -> SqlQueries:
    return lake.engine()


@pytest.fixture(scope="module")
def url(engine: SqlQueries) -> Iterator[str]:
    with sql_server(engine, Organization(OWN, "own"), lambda: NOW) as base:
        yield f"{base}/api/v1/sql"


@pytest.fixture(scope="module")
def expected(engine: SqlQueries) -> pa.Table:
    return answer_of(engine, ROWS)


def ask(url: str, format_: str, query: str = ROWS) -> httpx.Response:
    response = httpx.post(url, json={"query": query}, params={"format": format_}, timeout=60)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].partition(";")[0] == FORMATS[format_].media_type
    return response


def test_arrow_and_parquet_have_the_rows_and_types(url: str, expected: pa.Table) -> None:
    assert expected.num_rows == 3000
    streamed = pa.ipc.open_stream(ask(url, "arrow").content).read_all()
    assert streamed.schema == expected.schema
    assert streamed.drop(["nan"]).equals(expected.drop(["nan"]))
    file = pq.ParquetFile(io.BytesIO(ask(url, "parquet").content))
    read = file.read()
    assert read.schema.names == expected.schema.names
    wanted = expected.drop(["nan"])
    assert read.drop(["nan"]).cast(wanted.schema).equals(wanted)
    assert read.schema.field("timestamp").type == pa.timestamp("ns")
    assert read.schema.field("total").type == pa.decimal128(38, 0)
    assert file.metadata.num_row_groups == 1


def test_json_ndjson_and_events_have_the_same_rows(url: str, expected: pa.Table) -> None:
    body = ask(url, "json").json()
    lines = [json.loads(line) for line in ask(url, "ndjson").text.splitlines()]
    events = events_of(ask(url, "sse"))
    assert body["rows"] == lines == [event["data"] for event in events if event["type"] == "result"]
    assert [row["fingerprint"] for row in lines] == expected["fingerprint"].to_pylist()
    assert [row["total"] for row in lines] == [int(value) for value in expected["total"].to_pylist()]
    assert {row["nan"] for row in lines} == {"NaN"}
    assert body["columns"] == next(
        event["columns"] for event in events if "columns" in event
    )  # progress may come first
    assert body["columns"][0] == {"name": "timestamp", "type": "timestamp[ns]"}
    assert (body["row_count"], body["complete"], body["missing"], body["degraded"]) == (3000, True, [], None)
    last = events[-1]
    assert (last["type"], last["row_count"], last["complete"]) == ("done", 3000, True)
    assert [event["type"] for event in events].count("done") == 1
    assert body["stats"].keys() == last["stats"].keys() >= {"considered", "read", "pruned", "bytes_fetched", "seconds"}


def test_csv_has_the_same_rows(url: str, expected: pa.Table) -> None:
    lines = list(csv.DictReader(io.StringIO(ask(url, "csv").text, newline="")))
    assert [line["message"] for line in lines] == expected["message"].to_pylist()
    assert [line["total"] for line in lines] == [str(value) for value in expected["total"].to_pylist()]
    assert [line["trace_id"] or None for line in lines] == expected["trace_id"].to_pylist()
    assert {line["nan"] for line in lines} == {"NaN"}
    assert {line["half"] for line in lines} == {"0.50"}
    maps = [json.loads(line["attributes"]) for line in lines]
    assert maps == [dict(pairs) for pairs in expected["attributes"].to_pylist()]


def test_what_parquet_cannot_hold_is_refused_by_name(url: str) -> None:
    response = httpx.post(url, json={"query": "SELECT INTERVAL 1 DAY AS i FROM logs LIMIT 1", "format": "parquet"})
    assert response.status_code == 400
    assert "month_day_nano_interval" in response.json()["error"]["message"]


def test_a_wrong_query_is_refused_with_its_position_in_every_format(url: str) -> None:
    for name in FORMATS:
        response = httpx.post(url, json={"query": "SELECT\n nope FROM logs", "format": name}, timeout=30)
        assert response.status_code == 400
        assert response.json()["error"]["position"] == {"line": 2, "column": 2}


def test_tables_say_every_column_with_its_type_and_meaning(url: str, engine: SqlQueries) -> None:
    tables = {table["name"]: table for table in httpx.get(f"{url}/tables").json()["tables"]}
    assert list(tables) == ["logs", "metrics", "spans"]
    shown = answer_of(engine, "SELECT * FROM logs LIMIT 0").schema.names
    assert [column["name"] for column in tables["logs"]["columns"]] == shown
    assert tables["logs"]["columns"][0] == {
        "name": "timestamp",
        "type": "TIMESTAMP_NS",
        "description": "when it happened, UTC, exact to the nanosecond",
    }
    assert tables["spans"]["aliases"]["resource_attributes"] == "resource_attrs"


def test_show_and_describe_list_tables_columns_and_attributes(url: str) -> None:
    shown = ask(url, "json", "SHOW TABLES").json()
    assert shown["columns"] == [{"name": "name", "type": "string"}, {"name": "description", "type": "string"}]
    assert shown["rows"] == [{"name": name, "description": table.meaning} for name, table in TABLES.items()]
    described = ask(url, "json", "DESCRIBE logs").json()["rows"]
    columns = [(column.name, column.type, column.meaning) for column in TABLES["logs"].columns]
    assert [(row["name"], row["type"], row["description"]) for row in described[: len(columns)]] == columns
    attributes = {row["name"]: row["description"] for row in described[len(columns) :]}
    assert attributes["attributes['ok']"] == "attribute of the last 24 hours, sent as bool"
    assert attributes["resource_attrs['pod']"] == "attribute of the last 24 hours, sent as int64"
    assert attributes["attributes['it''s']"] == "attribute of the last 24 hours, sent as string"
    spans = ask(url, "ndjson", "SHOW COLUMNS FROM spans").text.splitlines()
    assert len(spans) == len(TABLES["spans"].columns)
    refused = httpx.post(url, json={"query": "DESCRIBE lgos"})
    assert (refused.status_code, refused.json()["error"]["position"]) == (400, {"line": 1, "column": 10})


def test_every_table_and_column_has_a_meaning() -> None:
    assert all(table.meaning and all(column.meaning for column in table.columns) for table in TABLES.values())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"querry": "x"}, "the body has an unknown field 'querry': did you mean 'query'?"),
        ({"query": "x", "zzz": 1}, "unknown field 'zzz': known fields: query, parameters, partial, engine, format"),
        ({}, "`query` is not a text"),
        ({"query": 5}, "`query` is not a text"),
        ({"query": "x", "parameters": "a"}, "`parameters` must be an object"),
        ({"query": "x", "partial": "yes"}, "`partial` must be true or false"),
        ({"query": "x", "engine": "sparc"}, "unknown engine 'sparc': use one of duckdb, spark"),
        ({"query": "x", "engine": ["spark"]}, "unknown engine ['spark']"),
        ({"query": "x", "format": "jsn"}, "unknown format 'jsn': did you mean json?"),
        ({"query": "x", "format": "xml"}, "unknown format 'xml': use one of json, ndjson, csv, arrow, parquet"),
        ({"query": "x", "format": ["csv"]}, "`format` must be one of"),
    ],
)
def test_what_is_not_understood_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        SqlRequest.parse(body, {}, "*/*")
    assert said in str(refused.value)


def test_the_query_string_names_a_format_and_nothing_else() -> None:
    assert SqlRequest.parse({"query": "x"}, {"format": "csv"}, "application/json").format.name == "csv"
    assert SqlRequest.parse({"query": "x", "format": "csv"}, {"format": "csv"}, "").format.name == "csv"
    with pytest.raises(UserError, match="the body names format 'csv', the query string 'json': name only one"):
        SqlRequest.parse({"query": "x", "format": "csv"}, {"format": "json"}, "")
    with pytest.raises(UserError, match="the query string has an unknown field 'query'"):
        SqlRequest.parse({"query": "x"}, {"query": "y"}, "")


@pytest.mark.parametrize(
    ("accept", "name"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("text/html, application/*", "json"),
        ("text/event-stream", "sse"),
        ("TEXT/CSV; charset=utf-8", "csv"),
        ("application/json;q=0.5, application/vnd.apache.arrow.stream", "arrow"),
        ("application/vnd.apache.parquet, */*;q=0.1", "parquet"),
        ("application/x-ndjson;q=x, text/csv;q=0.2", "csv"),
    ],
)
def test_accept_chooses_the_format(accept: str, name: str) -> None:
    assert format_accepted(accept).name == name


def test_an_accept_that_cannot_be_served_is_406(url: str) -> None:
    response = httpx.post(url, json={"query": "SELECT 1"}, headers={"accept": "text/html"})
    assert response.status_code == 406
    assert "application/vnd.apache.parquet" in response.json()["error"]["message"]


def test_parameters_and_engine_reach_the_engine() -> None:
    engine = ScriptedEngine({"q": Scripted([1])})
    with sql_server(engine) as base:
        asks: list[dict[str, Any]] = [{"parameters": {"a": 1}}, {"parameters": ["x", None]}, {"engine": "spark"}]
        for more in asks:
            assert httpx.post(f"{base}/api/v1/sql", json={"query": "q", **more}).status_code == 200
    assert [question.parameters for question in engine.asked] == [{"a": 1}, {"1": "x", "2": None}, {}]
    assert [question.engine for question in engine.asked] == ["duckdb", "duckdb", "spark"]
