"""engine=spark: units of every language run as Spark's tasks, and give the same bytes as in the process; what goes
wrong there is told as by any worker, and harms no other query."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, TooLarge, TooLong, Unavailable, UserError
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.daemon import MEMORY_VARIABLE
from lakerunner.plan.explain import Explain
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, SqlFinish
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.engine import Engine
from lakerunner.query.gather import GatherOptions
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.options import Options
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from lakerunner.series.values import Steps
from query.grep_language import compile_grep
from query.metric_lake import NS, T0, MetricLake, gauge
from query.sample_lake import FULL_SHRED, HOUR, NOW, OTHER, OWN, START, Lake, Record, random_records
from query.spark_host import SECRETS, SparkHost, known
from query.test_metrics_engine import MINUTE, shown
from query.test_query_exact import QUERIES
from servers.lake import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

TASKS = [
    "SELECT count(*) AS n, sum(CAST(attributes['ratio'] AS DOUBLE)) AS s FROM logs WHERE attributes['ratio'] = '0.5'",
    "SELECT service_name, sum(severity_number * 0.1) s, avg(severity_number / 3.0) a FROM logs GROUP BY 1 ORDER BY ALL",
    "SELECT timestamp, message, attributes FROM logs ORDER BY message, timestamp LIMIT 50",
    "SELECT strftime(timestamp, '%Y-%m-%d %H') AS hour, count(*) AS n FROM logs GROUP BY 1 ORDER BY 1",
    "SELECT timestamp, message FROM logs ORDER BY timestamp",
    "SELECT DISTINCT severity FROM logs ORDER BY 1",
    "SELECT message FROM logs WHERE message = 'no such'",
]
WHOLE = [
    "SELECT a.service_name, count(*) AS n FROM logs a JOIN logs b ON a.timestamp = b.timestamp GROUP BY 1 ORDER BY 1",
    "SELECT median(severity_number) AS m FROM logs",
    "SELECT message, severity_number FROM logs ORDER BY message, severity_number",
    "SELECT severity_number AS n FROM logs UNION SELECT 1 ORDER BY 1",
]
PROMQL = [
    "temperature",
    "sum by (zone) (temperature)",
    "avg_over_time(temperature[10m]) > 15",
    "quantile(0.9, temperature)",
    "topk(2, temperature)",
]
STEPS = Steps(T0 + 10 * MINUTE, T0 + 110 * MINUTE, 7 * MINUTE)
# Of a unit: it ends by itself after hours.
ENDLESS = "SELECT count(*) AS message FROM range(1000000) a(x), range(1000000) b(y) WHERE x + y = -1"
DAY = TimeRange(START, START + 25 * HOUR)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Logs of two organizations, and metrics."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    for n in range(6):
        lake.add(random_records(300, n, START + n * HOUR), shred=FULL_SHRED if n % 2 else None)
    lake.add(random_records(100, 9, START), organization=OTHER)
    metrics = MetricLake(tmp_path_factory.mktemp("metrics"))
    for hour in range(2):
        times = [T0 + (60 * hour + n) * MINUTE for n in range(60)]
        points = [[(at, 15 + (at // MINUTE * host % 97) / 7) for at in times] for host in range(1, 12)]
        metrics.add(*(gauge("temperature", some, host=f"h{n}", zone="ab"[n % 2]) for n, some in enumerate(points)))
    shutil.copytree(metrics.store.root, lake.store.root, dirs_exist_ok=True)
    lake.all += metrics.segments
    return lake


@dataclass
class Asker:
    """The same engine with and without Spark."""

    host: SparkHost
    engine: Engine
    sql: SqlQueries
    metrics: MetricQueries

    def table(self, text: str, engine: str = "spark", organization: UUID = OWN, **how: Any) -> pa.Table:
        answer = self.sql.sql(organization, Question(text, NOW, engine=engine, **how))
        return pa.Table.from_batches(list(answer), schema=answer.schema)

    def by_tasks(self, text: str) -> pa.Table:
        """Units run as tasks, also of a query that Spark SQL would run whole."""
        plan = compile_sql(text, OWN, NOW, types=partial(self.sql._syntax.columns, OWN))
        answer = self.engine.answer(OWN, plan, Options(NOW, text=text, engine="spark"))
        return pa.Table.from_batches(list(answer), schema=answer.schema)

    def series(
        self, text: str, engine: str, *, instant: bool = False, streamed: bool = False, steps: Steps = STEPS
    ) -> Any:
        steps = Steps(STEPS.end, STEPS.end) if instant else steps
        question = PromqlQuestion(text, steps, instant, T0 * NS, streamed=streamed, engine=engine)
        answer = self.metrics.promql(OWN, question)
        return shown(list(answer)), answer.account

    def grep(self, text: str, engine: str, **how: Any) -> tuple[list[Any], Any]:
        answer = self.engine.answer(OWN, compile_grep(text, DAY), Options(NOW, engine=engine, **how))
        found = pa.Table.from_batches(list(answer), schema=answer.schema)
        return (found.to_pylist() if "explain" in how else rows_of(found)), answer.account


def asker(lake: Lake, host: SparkHost, results: ResultCache | None = None) -> Asker:
    sandboxes = lake.sandboxes(seconds=600.0)  # the start of a JVM is in it
    gathering = GatherOptions(shard_rows=300)
    engine = Engine(
        KnownSegments(lake),
        OneWorker(lake.worker()),
        Coordinator(sandboxes),
        gathering,
        results=results,
        spark=host.spark,
        first_bytes=1,
    )
    return Asker(host, engine, SqlQueries(engine, sandboxes, Outgrown(host.spark, sandboxes)), MetricQueries(engine))


@pytest.fixture(scope="module")
def asking(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    host = SparkHost(lake.store.root, tmp_path_factory.mktemp("spark"))
    yield asker(lake, host)
    host.processes.close()


def rows_of(table: pa.Table) -> list[bytes]:
    """Each row as JSON, in which every number has all its digits and a time its nanoseconds."""
    return [row for batch in table.combine_chunks().to_batches() for row in json_rows(batch)]


def workers_of(account: Any) -> set[str]:
    return set(account.workers)


@pytest.mark.parametrize("text", TASKS)
def test_sql_gives_the_same_bytes(asking: Asker, text: str) -> None:
    answer = asking.sql.sql(OWN, Question(text, NOW, engine="spark"))
    found = pa.Table.from_batches(list(answer), schema=answer.schema)
    assert workers_of(answer.account) <= {"spark-1", "spark-2"}
    assert answer.account.workers
    expected = asking.table(text, "duckdb")
    assert found.schema == expected.schema
    assert rows_of(found) == rows_of(expected)


@pytest.mark.parametrize("text", QUERIES)
def test_tasks_answer_as_the_worker_of_the_process(asking: Asker, text: str) -> None:
    """Those of tests/query/test_workers_http.py, whatever the finish needs."""
    found, expected = asking.by_tasks(text), asking.table(text, "duckdb")
    assert found.schema == expected.schema
    assert sorted(rows_of(found)) == sorted(rows_of(expected))
    if "ORDER BY" in text.rpartition(")")[2]:
        assert rows_of(found) == rows_of(expected)


def test_rows_that_pass_are_the_same(asking: Asker) -> None:
    text = "SELECT timestamp, service_name, attributes FROM logs WHERE severity_number > 9"
    tables = [asking.table(text, engine) for engine in ("spark", "duckdb")]
    assert sorted(rows_of(tables[0])) == sorted(rows_of(tables[1]))


@pytest.mark.parametrize("text", WHOLE)
def test_what_needs_all_rows_goes_to_spark_sql(asking: Asker, text: str) -> None:
    answer = asking.sql.sql(OWN, Question(text, NOW, engine="spark"))
    found = pa.Table.from_batches(list(answer), schema=answer.schema)
    assert workers_of(answer.account) == {"spark"}
    assert found.combine_chunks() == asking.table(text, "duckdb").combine_chunks()


def test_what_spark_sql_lacks_is_refused(asking: Asker) -> None:
    with pytest.raises(UserError, match="strftime is not available with engine=spark"):
        asking.table("SELECT strftime(a.timestamp, '%H') FROM logs a, logs b")


@pytest.mark.parametrize("text", PROMQL)
@pytest.mark.parametrize("how", ["range", "instant", "streamed"])
def test_promql_gives_the_same_bits(asking: Asker, text: str, how: str) -> None:
    options: dict[str, Any] = {"instant": how == "instant", "streamed": how == "streamed"}
    found, account = asking.series(text, "spark", **options)
    assert workers_of(account) == {"spark-1", "spark-2"}
    assert found == asking.series(text, "duckdb", **options)[0]


@pytest.mark.parametrize("text", ["user logged -n 7", "count boom", "nothing"])
def test_another_language_gives_the_same(asking: Asker, text: str) -> None:
    found, account = asking.grep(text, "spark")
    assert found == asking.grep(text, "duckdb")[0]
    assert workers_of(account) <= {"spark-1", "spark-2"}


def test_explain_says_what_runs_where(asking: Asker) -> None:
    def lines(text: str) -> list[str]:
        return [line.strip() for line in asking.table(text)["plan"].to_pylist()]

    assert "engine spark: units run as tasks" in lines("EXPLAIN SELECT count(*) FROM logs")
    assert lines(f"EXPLAIN {WHOLE[0]}")[0] == "engine spark: Spark SQL runs the query whole"
    assert "engine spark: units run as tasks" not in str(asking.table("EXPLAIN SELECT count(*) FROM logs", "duckdb"))
    measured = lines("EXPLAIN ANALYZE SELECT count(*) FROM logs")
    assert [line for line in measured if line.startswith("units") and "on spark-1" in line]
    assert "units 6 on spark" in " ".join(lines(f"EXPLAIN ANALYZE {WHOLE[1]}"))
    plan, _ = asking.grep("user", "spark", explain=Explain.PLAN)
    assert "engine spark: units run as tasks" in [row["plan"].strip() for row in plan]


def test_one_engine_serves_what_the_other_has_kept(asking: Asker, lake: Lake) -> None:
    keeping = asker(lake, asking.host, ResultCache(1 << 20, 300.0, time.monotonic))
    first = keeping.table(TASKS[1])
    answer = keeping.sql.sql(OWN, Question(TASKS[1], NOW))
    assert pa.Table.from_batches(list(answer), schema=answer.schema) == first
    assert answer.account.from_cache


def test_a_second_query_finds_the_segments_cached(asking: Asker) -> None:
    text = "SELECT severity, count(*) AS n FROM logs GROUP BY 1"
    for _ in range(4):  # both Python workers have seen all segments then
        answer = asking.sql.sql(OWN, Question(text, NOW, engine="spark"))
        list(answer)
    assert answer.account.bytes_cached > 0
    caches = [path for path in asking.host.directory.rglob("lakerunner-units/segments*") if path.is_dir()]
    assert caches
    assert all(path.is_relative_to(asking.host.directory) for path in caches)


def test_each_organization_sees_its_own(asking: Asker) -> None:
    assert asking.table("SELECT count(*) AS n FROM logs", organization=OTHER).to_pylist() == [{"n": 100}]
    assert asking.table("SELECT count(*) AS n FROM logs").to_pylist() == [{"n": 1800}]


def test_no_process_and_no_log_of_spark_has_a_secret(asking: Asker) -> None:
    asking.table(TASKS[0])
    processes = known(asking.host.below())
    assert len(processes) >= 4  # a sandbox is among them
    for one in processes:
        assert not [name for name in one.variables if name in SECRETS or name.startswith(("LAKERUNNER_", "AWS_"))]
        assert "secret" not in f"{one.variables} {one.command}"
        assert one.nice >= 10
    logs = [path for path in asking.host.directory.iterdir() if path.suffix in (".log", ".out")]
    assert logs
    assert not [path for path in logs if "secret" in path.read_text(errors="replace")]


def test_a_damaged_segment_is_an_error_or_a_gap(lake: Lake, asking: Asker, tmp_path: Path) -> None:
    victim = lake.add([Record(START + 20 * HOUR, message="damaged")])
    path = lake.store.root / victim.path
    try:
        path.write_bytes(b"x" * victim.bytes)
        text = "SELECT count(*) AS n FROM logs"
        with pytest.raises(Corrupt, match=str(victim.id)):
            asking.table(text)
        answer = asking.sql.sql(OWN, Question(text, NOW, engine="spark", partial=True))
        found = pa.Table.from_batches(list(answer), schema=answer.schema)
        assert found.to_pylist() == [{"n": 1800}]
        assert [(gap.segments, str(victim.id) in gap.reason) for gap in answer.account.missing] == [(1, True)]
    finally:
        lake.all.remove(victim)


def test_an_error_of_the_query_has_its_position(asking: Asker) -> None:
    with pytest.raises(UserError) as by_spark:
        asking.table("SELECT CAST(message AS INTEGER) AS n FROM logs")
    with pytest.raises(UserError) as by_duckdb:
        asking.table("SELECT CAST(message AS INTEGER) AS n FROM logs", "duckdb")
    assert str(by_spark.value) == str(by_duckdb.value)
    assert by_spark.value.position == by_duckdb.value.position


def unit_answer(asking: Asker, sql: str) -> Any:
    """The answer of a plan whose units run this SQL."""
    (scan,) = compile_sql("SELECT message FROM logs", OWN, NOW).scans
    plan = Plan((Leaf(scan, SqlRows(sql, steady=False)),), SqlFinish(f'SELECT * FROM "{scan.relation}"'))
    return asking.engine.answer(OWN, plan, Options(NOW, engine="spark"))


def endless(asking: Asker, pool: ThreadPoolExecutor) -> tuple[Any, Any]:
    """A query whose tasks do not end by themselves, at work."""
    answer = unit_answer(asking, ENDLESS)
    running = pool.submit(list, answer)
    wait_until(lambda: bool(asking.host.python_workers()) and _sandboxes_work(asking.host), "tasks at work", 300)
    return answer, running


def _sandboxes_work(host: SparkHost) -> bool:
    found = [one.process for one in known(host.below()) if "lakerunner.query.sandbox.zygote" in one.command]
    with suppress(psutil.NoSuchProcess):  # it is looked at again
        return any(one.status() == "running" for one in found)
    return False


def test_cancelling_frees_the_process(asking: Asker) -> None:
    asking.table(TASKS[0])
    pid = asking.host.pid
    with ThreadPoolExecutor(1) as pool:
        answer, running = endless(asking, pool)
        answer.close()
        error = running.exception(timeout=500)
        assert isinstance(error, UserError)
        assert str(error) == "the query was cancelled"
    asking.host.settle()
    assert asking.table("SELECT count(*) AS n FROM logs").to_pylist() == [{"n": 1800}]
    assert asking.host.pid == pid
    wait_until(lambda: not _sandboxes_work(asking.host), "no sandbox at work", 120)


def test_an_organization_has_its_share(asking: Asker) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer, running = endless(asking, pool)
        with pytest.raises(Busy, match=r"your organization runs 1 in Spark \(org_concurrent_spark_queries\)"):
            asking.table(TASKS[0])
        with pytest.raises(Busy, match="org_concurrent_spark_queries"):
            asking.series("temperature", "spark")
        answer.close()
        running.exception(timeout=500)
    asking.host.settle()


def test_an_answer_that_is_not_read_to_its_end_gives_its_process_back(asking: Asker) -> None:
    answer = asking.sql.sql(OWN, Question("SELECT * FROM logs LIMIT 5", NOW, engine="spark"))
    assert sum(batch.num_rows for batch in answer) == 5
    asking.host.settle()
    answer = asking.sql.sql(OWN, Question("SELECT * FROM logs", NOW, engine="spark"))
    next(iter(answer))
    answer.close()
    asking.host.settle()
    assert asking.table("SELECT count(*) AS n FROM logs").num_rows == 1


def test_a_killed_python_worker_is_told_and_the_process_goes_on(asking: Asker) -> None:
    asking.table(TASKS[0])
    pid = asking.host.pid
    with ThreadPoolExecutor(1) as pool:
        _, running = endless(asking, pool)
        killed: list[psutil.Process] = []
        while not running.done():
            for one in asking.host.python_workers():
                with suppress(psutil.NoSuchProcess):
                    one.kill()
                    killed.append(one)
            time.sleep(0.2)
        error = running.exception()
    assert isinstance(error, TooLarge), error
    assert "query_spark_memory 640m" in str(error)
    asking.host.settle()
    assert asking.table("SELECT count(*) AS n FROM logs").to_pylist() == [{"n": 1800}]
    assert asking.host.pid == pid
    assert psutil.wait_procs(killed, timeout=120)[1] == []


def test_a_killed_jvm_is_told_and_another_is_started(asking: Asker) -> None:
    with ThreadPoolExecutor(1) as pool:
        _, running = endless(asking, pool)
        before = asking.host.below()
        (java,) = [one for one in before if one.name() == "java"]
        os.kill(java.pid, signal.SIGKILL)
        error = running.exception(timeout=500)
    assert isinstance(error, Unavailable), error
    assert "ended" in str(error)
    assert psutil.wait_procs(before, timeout=120)[1] == []
    asking.host.settle()
    assert asking.table("SELECT count(*) AS n FROM logs").to_pylist() == [{"n": 1800}]


def test_a_sandbox_that_outgrows_its_memory_is_refused_with_the_setting(asking: Asker) -> None:
    with pytest.raises(TooLarge, match="query_spark_memory 640m"):
        list(unit_answer(asking, "SELECT len(list(x)) AS message FROM range(300000000) t(x)"))
    asking.host.settle()
    assert asking.table("SELECT count(*) AS n FROM logs").to_pylist() == [{"n": 1800}]


@pytest.fixture(scope="module")
def narrow(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """A driver that takes little, and Python workers with memory for a small query."""
    conf = (("spark.driver.maxResultSize", "100k"), (f"spark.executorEnv.{MEMORY_VARIABLE}", str(200 << 20)))
    host = SparkHost(lake.store.root, tmp_path_factory.mktemp("narrow"), conf=conf)
    yield asker(lake, host)
    host.processes.close()


def test_a_unit_past_what_the_driver_takes_is_refused_with_the_setting(narrow: Asker) -> None:
    with pytest.raises(TooLarge, match=r"spark\.driver\.maxResultSize"):
        narrow.table("SELECT * FROM logs")
    narrow.host.settle()
    assert narrow.table("SELECT count(*) AS n FROM logs").num_rows == 1


def test_a_python_worker_that_outgrows_its_memory_is_refused(narrow: Asker) -> None:
    """Values of a series at ten million steps have 80 MB: enough memory for all else, and not for several of them."""
    many = Steps(STEPS.start, STEPS.start + 10_000_000 - 1)
    with pytest.raises(LakerunnerError, match="query_spark_memory 640m"):
        narrow.series("sum(temperature)", "spark", steps=many)


def test_what_is_over_its_time_is_stopped(lake: Lake, tmp_path: Path) -> None:
    """A unit, and SQL that runs whole."""
    host = SparkHost(lake.store.root, tmp_path, seconds=0.0)
    try:
        for text in ("SELECT count(*) AS n FROM logs", WHOLE[0]):
            with pytest.raises(TooLong, match="stopped after 0 s: limit query_seconds"):
                asker(lake, host).table(text)
            host.settle()
    finally:
        host.processes.close()


def test_threads_are_not_left_behind(asking: Asker) -> None:
    asking.table(TASKS[0])
    before = threading.active_count()
    for _ in range(3):
        asking.table(TASKS[0])
    wait_until(lambda: threading.active_count() <= before + 2, "threads to end", 120)


def test_closing_leaves_nothing(asking: Asker) -> None:
    """The last test of this host: it ends it."""
    asking.table(TASKS[1])
    host = asking.host
    below = host.below()
    assert list(host.directory.rglob("lakerunner-units"))
    host.processes.close()
    assert psutil.wait_procs(below, timeout=120)[1] == []
    assert list(host.directory.rglob("lakerunner-units")) == []
    assert list(host.directory.glob("session-*")) == []
