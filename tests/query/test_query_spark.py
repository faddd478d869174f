"""engine=spark: what Spark answers is what DuckDB answers, names and types too (spark.sql, one query a line); what it
does not have is refused by name and place.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lakerunner.model.errors import Absent, Corrupt, Crashed, TooLarge, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS, TRACES
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask.run import (
    AskLimits,
    JobGroup,
    SparkQueries,
    explain_error,
    own_session,
    refuse_substitution,
)
from lakerunner.pipeline.job import start_workers
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.session import SUBSTITUTE
from lakerunner.plan.spark import SparkPlan
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.row_text import json_rows
from lakerunner.query.segment_cache.footers import read_footer
from lakerunner.query.sql import Question, SqlQueries
from query.sample_lake import NOW, OTHER, OWN, START, Lake, Record, answer_of
from query.test_query_metrics import request as metrics_request
from query.test_query_spans import request as spans_request
from servers.lake import wait_until
from servers.spark import spark_session
from suites.queries import by_spark_sql
from suites.random_sql import RandomSql

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# One query a line; those above the blank line are asked in every run, the others take minutes.
OFTEN, SELDOM = (part.splitlines() for part in (Path(__file__).parent / "spark.sql").read_text().split("\n\n"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as opened:
        start_workers(opened)
        yield opened


@dataclass(frozen=True)
class Here:
    """Queries in the session of this process, which tests can look into. tests/query/test_spark_process.py has those of
    the process that the API starts."""

    queries: SparkQueries

    def start(self, _organization: UUID, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> HereRun:
        return HereRun(self.queries, self.queries.group(), plan, segments)


@dataclass(frozen=True)
class HereRun:
    queries: SparkQueries
    group: JobGroup
    plan: SparkPlan
    segments: Sequence[Sequence[Segment]]

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self.queries.sql(self.group, self.plan, self.segments, schema)

    def cancel(self) -> None:
        self.group.cancel()


def spark_engine(lake: Lake, session: SparkSession, seconds: float = 600.0, max_rows: int = 100_000) -> SqlQueries:
    address = StoreAddress((lake.directory / "store").as_uri())
    queries = SparkQueries(session, address, AskLimits(seconds, max_rows, "1g"))
    return lake.engine(outgrown=Outgrown(Here(queries), lake.sandboxes()))


@pytest.fixture(scope="module")
def both(lake: Lake, session: SparkSession) -> SqlQueries:
    return spark_engine(lake, session)


def by_spark(engine: SqlQueries, sql: str) -> pa.Table:
    answer = by_spark_sql(engine, OWN, sql, NOW)
    return pa.Table.from_batches(list(answer), schema=answer.schema)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """As Python values; nanoseconds as numbers."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def rounded(value: Any) -> Any:
    """Doubles to twelve digits, so that rows can be brought into one order; NaN equals itself."""
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else float(f"{value:.12g}")
    return value


def comparable(table: pa.Table, *, ordered: bool) -> list[Any]:
    rows = [tuple(rounded(value) for value in row) for row in rows_of(table)]
    return rows if ordered else sorted(rows, key=repr)


def test_what_java_says_is_told(session: SparkSession) -> None:
    """Java that is there and fails is not called gone."""
    with pytest.raises(Py4JJavaError) as raised:
        session._jvm.java.util.ArrayList().get(0)  # type: ignore[union-attr]
    told = explain_error(raised.value, "1g")
    assert isinstance(told, Crashed)
    assert str(told).startswith("Spark did not finish the query: java.lang.IndexOutOfBoundsException: ")
    told = explain_error(ConnectionRefusedError("no one is there"), "1g")
    assert str(told).endswith("has ended, or does not answer: ConnectionRefusedError: no one is there")


@pytest.mark.parametrize("sql", [*OFTEN, *(pytest.param(sql, marks=pytest.mark.slow) for sql in SELDOM)])
def test_spark_answers_as_duckdb_does(both: SqlQueries, sql: str) -> None:
    expected, found = answer_of(both, sql), by_spark(both, sql)
    assert found.schema == expected.schema
    ordered = "ORDER BY" in sql.rpartition(")")[2]
    assert comparable(found, ordered=ordered) == comparable(expected, ordered=ordered)


def check_random(engine: SqlQueries, seeds: range) -> None:
    """Random SQL from the grammar: the same answer, or refused by name. Most of it is answered."""
    refused = []
    for seed in seeds:
        sql = RandomSql(seed, spark=True).query().replace("{time}", "timestamp")
        try:
            found = by_spark(engine, sql)
        except UserError as error:
            if "engine=spark" not in str(error):
                raise
            refused.append(sql)
            continue
        expected = answer_of(engine, sql)
        assert found.schema == expected.schema, sql
        assert comparable(found, ordered=False) == comparable(expected, ordered=False), sql
    assert len(refused) <= len(seeds) // 4, refused


def test_random_sql_is_answered_as_duckdb_does(both: SqlQueries) -> None:
    check_random(both, range(8))


@pytest.mark.slow
def test_more_random_sql_is_answered_as_duckdb_does(both: SqlQueries) -> None:
    check_random(both, range(8, 100))


DOLLARS = "${env:PATH} ${system:user.dir} ${spark.app.name} $ {x} \\u0024{env:PATH}"


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (f"SELECT '{DOLLARS}' AS v", {}),
        ("SELECT $1 AS v", {"1": DOLLARS}),
        (f"SELECT concat('{DOLLARS}', '') AS v FROM logs LIMIT 1", {}),
        (f"SELECT max(v) AS v FROM (SELECT CASE WHEN message IS NULL THEN '' ELSE '{DOLLARS}' END AS v FROM logs)", {}),
    ],
)
def test_nothing_is_put_in_the_place_of_a_dollar(both: SqlQueries, sql: str, parameters: dict[str, Any]) -> None:
    """Spark would replace ${env:NAME} in the text of a statement by the server's variable."""
    by_duckdb = both.sql(OWN, Question(sql, NOW, parameters=parameters))
    for answer in (by_duckdb, by_spark_sql(both, OWN, sql, NOW, parameters)):
        assert [row for batch in answer for row in batch.to_pylist()] == [{"v": DOLLARS}]


def test_a_message_with_a_dollar_is_found_as_it_is_written(tmp_path: Path, session: SparkSession) -> None:
    lake = Lake(tmp_path)
    lake.add([Record(START, message="${env:PATH}"), *[Record(START, message=os.environ["PATH"])] * 2])
    engine = spark_engine(lake, session)
    sql = "SELECT count(*) AS n FROM logs WHERE message = '${env:PATH}'"
    assert by_spark(engine, sql).to_pylist() == answer_of(engine, sql).to_pylist() == [{"n": 1}]


def test_no_query_is_run_where_variables_would_be_put_into_it(session: SparkSession) -> None:
    own = own_session(session)
    refuse_substitution(own)
    own.conf.set(SUBSTITUTE, "true")
    with pytest.raises(Unavailable, match=f"{SUBSTITUTE} is not false"):
        refuse_substitution(own)


def test_an_account_says_what_was_read(both: SqlQueries) -> None:
    answer = by_spark_sql(both, OWN, "SELECT 1 FROM logs WHERE timestamp < '1970-01-01'", NOW)
    assert [batch.num_rows for batch in answer] == [1]
    assert (answer.account.considered, answer.account.read, answer.account.rows) == (1, 1, 1)


def test_rows_of_another_organization_are_out_of_reach(both: SqlQueries) -> None:
    (batch,) = by_spark_sql(both, OTHER, "SELECT count(*) AS n FROM logs", NOW)
    assert batch.to_pylist() == [{"n": 100}]


def test_one_row_past_the_limit_is_refused(lake: Lake, session: SparkSession) -> None:
    engine = spark_engine(lake, session, max_rows=10)
    assert by_spark(engine, "SELECT message FROM logs LIMIT 10").num_rows == 10
    with pytest.raises(TooLarge, match="more than 10 rows, limit query_max_rows"):
        by_spark(engine, "SELECT message FROM logs LIMIT 11")


ENDLESS = "SELECT count(*) FROM logs a, logs b, logs c WHERE a.severity_number + b.severity_number > c.severity_number"


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_query_ends_at_its_time(lake: Lake, session: SparkSession, seconds: float) -> None:
    """Also at one that comes before Spark has planned it, as on a busy machine."""
    with pytest.raises(UserError, match=rf"stopped after {seconds:g} s: limit query_seconds"):
        by_spark(spark_engine(lake, session, seconds=seconds), ENDLESS)


def test_a_closed_answer_ends_its_job(both: SqlQueries, session: SparkSession) -> None:
    answer = by_spark_sql(both, OWN, ENDLESS, NOW)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            list(answer)
        except UserError as error:
            errors.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    tracker = session.sparkContext.statusTracker()
    while reading.is_alive() and not tracker.getActiveStageIds():
        time.sleep(0.05)
    answer.close()
    reading.join(120)
    assert [str(error) for error in errors] == ["the query was cancelled"]
    wait_until(lambda: not tracker.getActiveStageIds(), "Spark's own word that nothing runs, a moment later", 60)
    with pytest.raises(UserError, match="cancelled"):
        list(answer)


def test_what_goes_wrong_in_a_task_says_what_it_was(tmp_path: Path, session: SparkSession) -> None:
    lake = Lake(tmp_path)
    segment = lake.add([Record(START)])
    engine = spark_engine(lake, session)
    with pytest.raises(UserError, match="Could not convert string to INTEGER: hello"):
        by_spark(engine, "SELECT CAST(message AS INTEGER) FROM logs")
    with pytest.raises(UserError, match="overflow"):
        by_spark(engine, "SELECT (severity_number + 2147483647) FROM logs")
    data = bytearray(lake.store.get(segment.path, max_bytes=segment.bytes))
    ((_, end),) = read_footer(lake.store.root / segment.path, "key").chunks("message")[0]
    data[end - 1] ^= 1
    lake.store.put(segment.path, bytes(data))
    with pytest.raises(Corrupt, match=f"{segment.path} cannot be read: .*CRC checksum verification failed"):
        by_spark(engine, "SELECT message FROM logs")
    assert by_spark(engine, "SELECT severity_number FROM logs").to_pylist() == [{"severity_number": 9}]
    lake.store.put(segment.path, b"short")
    with pytest.raises(Corrupt, match=r"has 5 bytes, .* in the index"):
        by_spark(engine, "SELECT message FROM logs")
    lake.store.delete([segment.path])
    with pytest.raises(Absent, match=segment.path):
        by_spark(engine, "SELECT message FROM logs")


def test_an_engine_that_is_not_there_is_named(lake: Lake, engine: SqlQueries) -> None:
    for sql in ("SELECT 1", "SELECT count(*) FROM logs", "EXPLAIN SELECT 1", "SELECT 1 FROM logs a, logs b"):
        with pytest.raises(UserError, match="engine=spark is not available: the setting query_spark is off"):
            engine.sql(OWN, Question(sql, NOW, engine="spark"))
    with pytest.raises(UserError, match="unknown engine 'presto': use one of duckdb, spark"):
        engine.sql(OWN, Question("SELECT 1", NOW, engine="presto"))


@pytest.fixture(scope="module")
def other_signals(tmp_path_factory: pytest.TempPathFactory, session: SparkSession) -> SqlQueries:
    """Metrics and spans as the pipeline writes them."""
    lake = Lake(tmp_path_factory.mktemp("signals"))
    for spec, data in ((METRICS, metrics_request()), (TRACES, spans_request())):
        raw = Raw(SourceObject("bucket", "a.binpb", "etag", len(data), START), memoryview(data))
        made = make_segments(spec, OWN, "edge", [raw], lambda path, file: lake.store.put(path, bytes(file)))
        lake.all += made.segments
    return spark_engine(lake, session)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM metrics",
        "SELECT * FROM spans",
        "SELECT metric_name, sum(value), max(int_value), sum(count), avg(value) FROM metrics GROUP BY 1",
        "SELECT s.name, m.metric_name FROM spans s JOIN metrics m ON s.trace_id = m.exemplar_trace",
    ],
)
def test_metrics_and_spans(other_signals: SqlQueries, sql: str) -> None:
    expected, found = answer_of(other_signals, sql), by_spark(other_signals, sql)
    assert found.schema == expected.schema
    assert sorted(map(repr, as_json(found))) == sorted(map(repr, as_json(expected)))


def as_json(table: pa.Table) -> list[Any]:
    rows = [orjson.loads(row) for batch in table.to_batches() for row in json_rows(batch)]
    return [{name: rounded(value) for name, value in row.items()} for row in rows]
