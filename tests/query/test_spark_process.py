"""Spark for queries in a process of its own: what ends it ends the queries in it and nothing else, and it knows none of
our secrets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psutil
import pyarrow as pa
import pytest

from lakerunner.model.errors import Busy, Crashed, LakerunnerError, TooLarge, Unavailable, UserError
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask import frames
from lakerunner.pipeline.ask.lease import QuerySpark, ShareLimits, Shares
from lakerunner.pipeline.ask.process import QueryProcesses, ServeSettings, for_queries
from lakerunner.pipeline.ask.run import AskLimits
from lakerunner.pipeline.daemon import MEMORY_VARIABLE
from lakerunner.query.outgrown import Outgrown, SparkAnswer
from lakerunner.services import spark_daemon
from query.sample_lake import NOW, OTHER, OWN, Lake, answer_of
from query.spark_host import below, known
from servers.lake import wait_until
from servers.spark import spark_settings
from suites.queries import by_spark_sql

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

SECRETS = {"DATABASE_URL": "postgres://secret", "LAKERUNNER_WORKER_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}
ENDLESS = "SELECT count(*) FROM logs a, logs b, logs c WHERE a.severity_number + b.severity_number > c.severity_number"
COUNT = "SELECT count(*) AS n FROM logs"
# Each text is four times the one before: beyond any heap.
STEPS = "WITH t0 AS (SELECT message || '' AS x FROM logs LIMIT 1)" + "".join(
    f", t{n} AS (SELECT x || x || x || x AS x FROM t{n - 1})" for n in range(1, 14)
)
GROWTH = f"{STEPS} SELECT length(x) AS n, x < '' AS y FROM t13"
# Some 50 MB, small for the heap; Python has its upper case made by Arrow, beside the text itself.
PYTHON_GROWTH = f"{STEPS} SELECT length(upper(x)) AS n FROM t10"


class Host:
    """The process under test, and an engine that asks it."""

    def __init__(
        self, lake: Lake, directory: Path, seconds: float = 600.0, conf: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.directory = directory
        self.reasons: list[str] = []
        plain = spark_settings(directory)
        spark = for_queries(replace(plain, driver_memory="640m", conf=(*plain.conf, *conf)), spark_daemon.MODULE)
        address = StoreAddress((lake.directory / "store").as_uri())
        settings = ServeSettings(spark, address, AskLimits(seconds, 100_000, "640m"))
        self.processes = QueryProcesses(lambda: settings, os.environ | SECRETS, self.reasons.append)
        queries = QuerySpark(self.processes, Shares(ShareLimits(wait_seconds=5.0)), seconds)
        self.engine = lake.engine(outgrown=Outgrown(queries, lake.sandboxes()))

    def answer(self, sql: str, organization: UUID = OWN) -> SparkAnswer:
        answer = by_spark_sql(self.engine, organization, sql, NOW)
        assert isinstance(answer, SparkAnswer)
        return answer

    def ask(self, sql: str, organization: UUID = OWN) -> pa.Table:
        answer = self.answer(sql, organization)
        return pa.Table.from_batches(list(answer), schema=answer.schema)

    def settle(self) -> None:
        """Wait until every process is idle: one whose query was cancelled is given back when its jobs have ended."""
        wait_until(lambda: len(self.processes._idle) == len(self.processes._all), "idle processes", 180)

    @property
    def pid(self) -> int:
        """Of the process, where there is one."""
        (child,) = self.processes._all
        return child.popen.pid

    def below(self) -> list[psutil.Process]:
        """The process, its JVM, the daemon and its workers."""
        return below(self.pid)

    def jvm(self) -> psutil.Process:
        (java,) = [one.process for one in known(self.below()) if one.command[:1] and one.command[0].endswith("/java")]
        return java


@pytest.fixture(scope="module")
def host(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    started = Host(lake, tmp_path_factory.mktemp("query spark"))
    yield started
    started.processes.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def error_of(running: Future[pa.Table]) -> LakerunnerError:
    error = running.exception(timeout=500)
    assert isinstance(error, LakerunnerError), error
    return error


def _is_at_work(host: Host) -> bool:
    with suppress(psutil.NoSuchProcess):  # it is looked at again
        return any(one.status() == "running" for one in host.below()[1:])
    return False


def wait_until_runs(host: Host) -> None:
    """Until a Python worker of the JVM is at work."""
    wait_until(lambda: bool(host.processes._all), "a process", 300)
    wait_until(lambda: _is_at_work(host), "a query at work", 300)
    time.sleep(2)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT service_name, count(*) AS n, max(timestamp) AS last FROM logs GROUP BY 1 ORDER BY 1",
        "SELECT timestamp, message, attributes FROM logs ORDER BY 1, 2 LIMIT 5000",
        "SELECT message FROM logs WHERE message = 'no such'",
    ],
)
def test_it_answers_as_duckdb_does(host: Host, lake: Lake, sql: str) -> None:
    found, expected = host.ask(sql), answer_of(host.engine, sql)
    assert found.schema == expected.schema
    assert found.combine_chunks() == expected.combine_chunks()


def test_an_error_of_the_query_is_the_callers(host: Host) -> None:
    with pytest.raises(UserError, match="Could not convert string to INTEGER"):
        host.ask("SELECT CAST(message AS INTEGER) AS n FROM logs")
    pid = host.pid
    assert host.ask(COUNT).num_rows == 1
    assert host.pid == pid


def test_no_process_of_it_has_a_secret_and_all_have_a_low_priority(host: Host) -> None:
    host.ask(COUNT)
    processes = known(host.below())
    assert len(processes) >= 3
    for one in processes:
        assert "PATH" in one.variables
        assert not [name for name in one.variables if name in SECRETS or name.startswith(("LAKERUNNER_", "AWS_"))]
        assert "secret" not in f"{one.variables} {one.command}"
        assert one.nice >= 10
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            assert int(Path(f"/proc/{one.process.pid}/oom_score_adj").read_text()) >= 500


def test_an_organization_has_its_share_and_what_it_runs_hinders_no_other(host: Host, pool: ThreadPoolExecutor) -> None:
    host.ask(COUNT)
    pid = host.pid
    answer = host.answer(ENDLESS)
    running = pool.submit(list, answer)
    wait_until_runs(host)
    with pytest.raises(Busy, match=r"your organization runs 1 in Spark \(org_concurrent_spark_queries\)"):
        host.ask(COUNT)
    assert host.ask(COUNT, OTHER).to_pylist() == [{"n": 100}]
    assert not running.done()
    answer.close()
    assert str(error_of(running)) == "the query was cancelled"
    host.settle()
    other = next(child for child in host.processes._all if child.popen.pid != pid)
    other.close()
    assert host.ask(COUNT).num_rows == 1
    assert host.pid == pid


def test_an_answer_that_nobody_reads_gives_its_place_back(host: Host) -> None:
    answer = host.answer("SELECT a.message FROM logs a, logs b LIMIT 60000")
    rows = iter(answer)
    next(rows)
    answer.close()
    host.settle()
    assert host.ask(COUNT).num_rows == 1


def test_a_heap_that_is_exhausted_ends_that_query_alone(host: Host, pool: ThreadPoolExecutor) -> None:
    host.ask(COUNT)
    pid = host.pid
    error = error_of(pool.submit(host.ask, GROWTH))
    host.settle()
    assert isinstance(error, TooLarge), error
    assert str(error) == (
        "the query needs more than the heap of Spark (query_spark_memory 640m): select less, or raise it"
    )
    assert host.ask(COUNT).num_rows == 1
    assert host.pid != pid
    assert host.reasons


def test_a_python_worker_that_outgrows_its_memory_ends_that_query_alone(lake: Lake, tmp_path: Path) -> None:
    host = Host(lake, tmp_path, conf=((f"spark.executorEnv.{MEMORY_VARIABLE}", str(64 << 20)),))
    try:
        count = host.ask(COUNT)
        below = {one.pid for one in host.below()[:2]}
        with pytest.raises(TooLarge) as refused:
            host.ask(PYTHON_GROWTH)
        assert str(refused.value) == (
            "the query needs more than the memory of a Python worker of Spark "
            "(query_spark_memory 640m): select less, or raise it"
        )
        host.settle()
        assert host.ask(COUNT) == count
        assert {one.pid for one in host.below()[:2]} == below  # neither the process nor its JVM was started again
        assert host.reasons == []
    finally:
        host.processes.close()


def test_a_python_worker_may_take_as_much_as_the_heap(host: Host) -> None:
    host.ask(COUNT)
    workers = [one.process for one in known(host.below()) if spark_daemon.MODULE in one.command]
    assert len(workers) >= 2  # and their parent
    for one in workers:
        with suppress(psutil.NoSuchProcess):
            soft, hard = one.rlimit(psutil.RLIMIT_DATA)
            assert soft == hard
            assert 640 << 20 < hard < 2048 << 20


@pytest.mark.parametrize("of", ["jvm", "process"])
def test_a_killed_one_is_started_again(host: Host, pool: ThreadPoolExecutor, of: str) -> None:
    running = pool.submit(host.ask, ENDLESS)
    wait_until_runs(host)
    before = host.below()
    os.kill(host.jvm().pid if of == "jvm" else host.pid, signal.SIGKILL)
    error = error_of(running)
    assert isinstance(error, Crashed), error
    assert "ended" in str(error)
    assert psutil.wait_procs(before, timeout=120)[1] == []
    host.settle()
    assert host.ask(COUNT).num_rows == 1


def test_one_that_does_not_start_says_why(lake: Lake, tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no memory today >&2\nexit 1\n")
    java.chmod(0o755)
    host = Host(lake, tmp_path / "work")
    settings = host.processes._settings()
    broken = replace(settings, spark=replace(settings.spark, java_home=tmp_path / "java"))
    process = QueryProcesses(lambda: broken, os.environ, host.reasons.append)
    queries = QuerySpark(process, Shares(ShareLimits()), 10.0)
    engine = lake.engine(outgrown=Outgrown(queries, lake.sandboxes()))
    with pytest.raises(Unavailable, match=r"cannot start Spark for queries: .*no memory today"):
        list(by_spark_sql(engine, OWN, COUNT, NOW))
    process.close()


def test_it_ends_with_the_process_that_started_it(lake: Lake, tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from query.sample_lake import Lake
from test_spark_process import COUNT, Host
host = Host(Lake(Path(sys.argv[1])), Path(sys.argv[2]))
assert host.ask(COUNT).num_rows == 1
print(*[one.pid for one in host.below()], flush=True)
time.sleep(600)
"""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    arguments = [str(tmp_path / "lake"), str(tmp_path / "work"), *paths]
    owner = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    below = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
    assert len(below) >= 2
    owner.kill()
    owner.wait()
    assert psutil.wait_procs(below, timeout=120)[1] == []


def test_closing_leaves_nothing(host: Host) -> None:
    """The last test of this host: it ends it."""
    host.ask(COUNT)
    below = host.below()
    host.processes.close()
    assert psutil.wait_procs(below, timeout=120)[1] == []
    assert list(host.directory.glob("session-*")) == []
    with pytest.raises(Unavailable, match="this process stops"):
        host.ask(COUNT)


def test_what_the_process_sends_is_never_trusted() -> None:
    schema = pa.schema([("n", pa.int64())])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"A\xff\xff\xff\xff")
        with pytest.raises(BrokenStream, match="is longer than"):
            receive_frame(ours)
    batch = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
    content = bytearray(frames.write_rows(batch))
    assert frames.read_rows(content, schema) == [batch]
    with pytest.raises(Crashed, match="unexpected schema"):
        frames.read_rows(content, pa.schema([("m", pa.int64())]))
    with pytest.raises(Crashed, match="cannot read the"):
        frames.read_rows(content[:40], schema)
    for text in (b"", b"[]", b'{"kind": "SystemExit", "message": "x"}', b'{"kind": "UserError"}', b"\x80\x04"):
        assert str(frames.read_failure(bytearray(text))) == "cannot read the error that Spark for queries sent"
    error = TooLarge("x" * 10_000)
    told = frames.read_failure(bytearray(frames.write_failure(error)))
    assert (type(told), len(str(told))) == (TooLarge, 4000)


@pytest.mark.parametrize(
    ("master", "used"),
    [("local[*]", "local[*,2]"), ("local[4,3]", "local[4,3]"), ("spark://host:7077", "spark://host:7077")],
)
def test_a_task_that_lost_its_worker_runs_once_more(master: str, used: str, tmp_path: Path) -> None:
    assert for_queries(spark_settings(tmp_path, master), spark_daemon.MODULE).master == used
