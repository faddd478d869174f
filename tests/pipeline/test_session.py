"""A session: quiet, on loopback, and gone with everything it started, however its process ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.pipeline.session import SparkSettings, close_session, open_session
from servers.lake import wait_until
from servers.spark import spark_session, spark_settings

pytestmark = pytest.mark.heavy

SECRETS = {"DATABASE_URL": "postgres://secret", "LAKERUNNER_X": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}

# Prints its processes once a task runs on both slots, then waits for its end.
_PROCESS = """
import json, os, sys, threading, time
from pathlib import Path
import psutil
from servers.spark import spark_session

def announce(directory):
    Path(directory, str(os.getpid())).touch()
    time.sleep(600)

with spark_session(Path(sys.argv[1]), sys.argv[2]) as session:
    busy = Path(sys.argv[3])
    job = session.sparkContext.parallelize([str(busy)] * 2, 2)
    running = threading.Thread(target=lambda: job.foreach(announce), daemon=True)
    running.start()
    while running.is_alive() and len(list(busy.iterdir())) < 2:
        time.sleep(0.05)
    print(json.dumps([child.pid for child in psutil.Process().children(recursive=True)]), flush=True)
    time.sleep(600)
"""


def started(directory: Path, master: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A process with a session at work, and everything below it."""
    busy = directory / "busy"
    busy.mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, str(directory / "work"), master, str(busy)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.poll() is None
    return driver, [psutil.Process(pid) for pid in json.loads(driver.stdout.readline())]


def listening(process: psutil.Process) -> set[str]:
    return {c.laddr.ip.removeprefix("::ffff:") for c in process.net_connections() if c.status == "LISTEN"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark work")


TAKEN_OVER: list[int] = []  # signals that opening the session set a handler of


@pytest.fixture(scope="module")
def session(work: Path) -> Iterator[SparkSession]:
    os.environ |= SECRETS  # of this process; the session must not hand them on
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "signal", lambda number, _handler: TAKEN_OVER.append(number))
            conf = {"spark_app_label": "mine", "spark_driver_extraJavaOptions": "-Dlabel=mine"}
            opened = stack.enter_context(spark_session(work, **conf))
        yield opened
    for name in SECRETS:
        del os.environ[name]


def jvm(session: SparkSession) -> psutil.Process:
    gateway: Any = session.sparkContext._gateway
    return psutil.Process(gateway.proc.pid)


def test_it_answers_and_its_workers_are_this_python(session: SparkSession) -> None:
    def where(number: int) -> tuple[int, str]:
        return number * number, sys.executable

    answers = session.sparkContext.parallelize([3, 4], 2).map(where).collect()
    assert answers == [(9, sys.executable), (16, sys.executable)]
    assert session.range(4).selectExpr("sum(id) AS total").collect()[0].total == 6


def test_workers_are_born_with_what_tasks_need(session: SparkSession) -> None:
    def loaded(_: int) -> list[str]:
        return [name for name in ("pyarrow", "lakerunner.pipeline.make_segments") if name in sys.modules]

    answer = session.sparkContext.parallelize([0], 1).map(loaded).first()
    assert answer == ["pyarrow", "lakerunner.pipeline.make_segments"]


def test_neither_java_nor_workers_have_our_secrets(session: SparkSession) -> None:
    variables = dict(session.sparkContext.parallelize([0], 1).flatMap(lambda _: os.environ.items()).collect())
    assert {"PATH", "PYSPARK_PYTHON"} <= set(variables)
    java = jvm(session).environ()
    assert {"PATH", "JAVA_HOME"} <= set(java)
    for environment in (variables, java):
        assert not set(SECRETS) & set(environment)
        assert "secret" not in str(list(environment.values()))


def test_a_statement_is_read_as_it_is_written(session: SparkSession) -> None:
    assert session.sql("SELECT '${env:PATH}' AS v").collect()[0].v == "${env:PATH}"


def test_it_listens_on_loopback_only(session: SparkSession) -> None:
    processes = [jvm(session), *jvm(session).children(recursive=True)]
    assert set().union(*(listening(process) for process in processes)) == {"127.0.0.1"}
    assert session.sparkContext.uiWebUrl is None


def test_own_settings_win_and_add_up(session: SparkSession) -> None:
    assert session.conf.get("spark.app.label") == "mine"
    options = jvm(session).cmdline()
    assert "-Dlabel=mine" in options
    assert "-XX:+UseSerialGC" in options
    assert "-Xmx512m" in options


def test_it_writes_below_its_work_directory_only(session: SparkSession, work: Path) -> None:
    assert not Path("spark-warehouse").exists()
    assert not Path("artifacts").exists()
    opened = {Path(file.path) for file in jvm(session).open_files() if file.mode != "r"}
    assert opened
    assert all(work in path.parents for path in opened), opened
    assert (work / "spark.log").read_text() == ""


def test_ctrl_c_stays_with_the_process(session: SparkSession) -> None:
    """Also while it is opened: a handler of PySpark's would print traces of the calls that it cuts off."""
    assert TAKEN_OVER == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_is_refused(session: SparkSession, work: Path) -> None:
    with pytest.raises(UserError, match="has a Spark session already"):
        open_session(spark_settings(work), "second")


def test_closing_ends_all_processes_with_a_job_running(session: SparkSession, work: Path) -> None:
    """The last test of `session`: the fixture's own closing finds it closed, which must do no harm."""
    job = session.sparkContext.parallelize([60], 1)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            job.foreach(time.sleep)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive() and not session.sparkContext.statusTracker().getActiveStageIds():
        time.sleep(0.05)
    processes = [jvm(session), *jvm(session).children(recursive=True)]
    close_session(session)
    thread.join(60)
    assert len(failed) == 1
    assert psutil.wait_procs(processes, timeout=60)[1] == []
    assert list(work.glob("session-*")) == []


def test_a_killed_process_leaves_no_process_and_the_next_session_tidies_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    driver, below = started(tmp_path, "local[2]")
    assert len(below) >= 4  # the JVM, the daemon, two workers
    driver.kill()
    driver.wait()
    assert psutil.wait_procs(below, timeout=60)[1] == []
    left = set((tmp_path / "work").glob("session-*"))
    with spark_session(tmp_path / "work") as session:
        assert session.sparkContext.parallelize([1, 2], 2).sum() == 3
        now = set((tmp_path / "work").glob("session-*"))
        assert len(now) == 1
        assert not now & left
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_killed_process_leaves_no_executor(tmp_path: Path) -> None:
    driver, below = started(tmp_path, "local-cluster[2,1,1024]")
    assert sum("java" in process.name() for process in below) == 3  # the driver's JVM and two executors
    driver.kill()
    driver.wait()
    assert psutil.wait_procs(below, timeout=60)[1] == []


def test_a_java_that_does_not_start_says_so(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no memory today >&2\nexit 1\n")
    java.chmod(0o755)
    settings = SparkSettings("local[1]", (), "512m", tmp_path / "java", tmp_path / "work")
    with pytest.raises(UserError, match=r"cannot start Spark with master .*: .*no memory today"):
        open_session(settings, "test")


@pytest.mark.parametrize(("master", "error"), [("nonsense", UserError), ("local[nonsense]", Unavailable)])
def test_a_master_that_is_none_is_named_and_leaves_no_jvm(tmp_path: Path, master: str, error: type[Exception]) -> None:
    before = java_children()  # of other tests' servers
    with pytest.raises(error) as caught:
        open_session(spark_settings(tmp_path, master), "test")
    assert master in str(caught.value)
    assert "\n" not in str(caught.value)
    wait_until(lambda: java_children() == before, "no other Java", 60)


def java_children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "java" in child.name()}


def test_spark_reads_no_variable_into_a_statement_whatever_the_settings_say(tmp_path: Path) -> None:
    for value in ("true", "TRUE", " yes"):
        with pytest.raises(UserError, match=r"spark_conf: spark.sql.variable.substitute must be false"):
            spark_settings(tmp_path, spark_sql_variable_substitute=value)
    assert spark_settings(tmp_path, spark_sql_variable_substitute="False").master == "local[2]"
