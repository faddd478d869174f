"""engine=spark on a cluster: executors are processes of their own, which a master starts, as on many machines. Answers
are those of the process to the last bit, and no executor knows a variable of ours that the allow-list lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil
import pyarrow as pa
import pytest

from lakerunner.pipeline.jvm import spark_variables
from lakerunner.query.sql import Question
from query.sample_lake import NOW, OWN, Lake
from query.spark_host import SECRETS, SparkHost, known
from query.test_spark_units import PROMQL, TASKS, WHOLE, Asker, asker, lake, rows_of, workers_of

__all__ = ["lake"]  # a fixture

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
MASTER = "local-cluster[2,1,1024]"  # two executors of one core
# Made by the shell that starts Java, and for sandboxes: nothing of our environment.
MADE = {"PWD", "OLDPWD", "SHLVL", "_", "ARROW_DEFAULT_MEMORY_POOL"}


@pytest.fixture(scope="module")
def asking(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    host = SparkHost(lake.store.root, tmp_path_factory.mktemp("cluster"), master=MASTER)
    yield asker(lake, host)
    host.processes.close()


def executors(host: SparkHost) -> list[psutil.Process]:
    name = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return [one.process for one in known(host.below()) if name in one.command]


def test_sql_gives_the_same_bytes(asking: Asker) -> None:
    for text in TASKS:
        answer = asking.sql.sql(OWN, Question(text, NOW, engine="spark"))
        found = pa.Table.from_batches(list(answer), schema=answer.schema)
        expected = asking.table(text, "duckdb")
        assert found.schema == expected.schema
        assert rows_of(found) == rows_of(expected), text
        assert workers_of(answer.account) <= {"spark-1", "spark-2"}
        assert answer.account.workers


def test_spark_sql_gives_the_same(asking: Asker) -> None:
    assert asking.table(WHOLE[1]).combine_chunks() == asking.table(WHOLE[1], "duckdb").combine_chunks()


def test_promql_gives_the_same_bits(asking: Asker) -> None:
    for text in PROMQL:
        found, account = asking.series(text, "spark")
        assert found == asking.series(text, "duckdb")[0], text
        assert workers_of(account) == {"spark-1", "spark-2"}


def test_another_language_gives_the_same(asking: Asker) -> None:
    for text in ("user logged -n 7", "count boom"):
        assert asking.grep(text, "spark")[0] == asking.grep(text, "duckdb")[0], text


def test_units_run_in_executors_that_know_no_secret(asking: Asker) -> None:
    asking.table(TASKS[1])
    assert len(executors(asking.host)) == 2
    # Executors start Python workers for their tasks, and those sandboxes; the driver's JVM has none.
    parents = {one.pid for one in executors(asking.host)}
    workers = {one.pid for one in asking.host.python_workers()}
    processes = known(asking.host.below())
    sandboxes = {one.process.pid for one in processes if "lakerunner.query.sandbox.zygote" in one.command}
    assert workers
    assert sandboxes
    for one in processes:
        assert not [name for name in one.variables if name in SECRETS]
        assert set(one.variables) - set(spark_variables(one.variables)) <= MADE
        assert "secret" not in f"{one.variables} {one.command}"
        assert one.nice >= 10
        with suppress(psutil.NoSuchProcess):
            if one.process.pid in workers | sandboxes:
                assert not parents.isdisjoint(parent.pid for parent in one.process.parents())
            if one.process.pid in workers:
                soft, hard = one.process.rlimit(psutil.RLIMIT_DATA)
                assert soft == hard
                assert 640 << 20 < hard < 2048 << 20


def test_a_killed_executor_changes_nothing(asking: Asker) -> None:
    expected, pid = rows_of(asking.table(TASKS[1], "duckdb")), asking.host.pid
    killed = executors(asking.host)[0]
    killed.kill()
    assert rows_of(asking.table(TASKS[1])) == expected
    assert asking.host.pid == pid


def test_closing_leaves_nothing(asking: Asker) -> None:
    """The last test of the cluster: it ends it."""
    asking.table(TASKS[1])
    host = asking.host
    below = host.below()
    assert list(host.directory.rglob("lakerunner-units"))
    host.processes.close()
    assert psutil.wait_procs(below, timeout=120)[1] == []
    assert list(host.directory.glob("session-*")) == []
