"""The pipeline's Spark outlives its Java process: jobs fail as Unavailable, the next ones run on a new session, and the
death counts against no object."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.signal import LOGS
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.session import Sessions
from lakerunner.services.ingest import Ingest, IngestParts
from lakerunner.services.runtime import Runtime
from lakerunner.services.spark import ProcessSpark
from lakerunner.settings import Settings
from services.test_ingest_service import LIMITS, Lake

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessSpark]:
    runtime, home = Runtime("test"), tmp_path_factory.mktemp("home")
    yield ProcessSpark(Settings(home=home, spark_master="local[2]", spark_driver_memory="512m"), runtime)
    assert runtime.shut_down() == 0
    assert list((home / "spark").glob("session-*")) == []


def kill_java(session: SparkSession) -> None:
    gateway = session.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    java.kill()
    java.wait(60)


def test_a_java_process_that_dies_counts_against_no_object(index: Index, spark: ProcessSpark, tmp_path: Path) -> None:
    @contextmanager
    def dying() -> Iterator[SparkSession]:
        with spark.use() as session:
            kill_java(session)
            yield session

    def ingest_with(sessions: Sessions) -> Ingest:
        return Ingest(LOGS, lake.bus, IngestParts(index, sessions, address, LIMITS, 1))

    address = StoreAddress((tmp_path / "store").as_uri())
    lake = Lake(index, open_store(address))
    one = lake.announce("one", "line")
    lake.box(one)
    ingest = ingest_with(dying)
    for _ in range(2):
        with pytest.raises(Unavailable, match="Spark's Java process has ended"):
            ingest.step()
    assert index.sources.attempts([one.identity])[one.identity].count == 0
    ingest.close()
    lake.box(one)
    ingest = ingest_with(spark.use)
    ingest.step()
    assert lake.rows() == Counter(["line"])
    ingest.close()


def test_all_jobs_move_to_one_new_java_process(spark: ProcessSpark) -> None:
    started = threading.Barrier(4)

    def job(number: int) -> int:
        started.wait(60)
        with spark.use() as session:
            return run_tasks(session, "test", [number], abs)[0]

    for _ in range(2):
        with spark.use() as session:
            kill_java(session)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(job, range(4))) == [0, 1, 2, 3]
    children = psutil.Process().children()
    assert sum("java" in child.name() for child in children if child.status() != "zombie") == 1


def test_a_session_that_java_has_stopped_is_replaced(spark: ProcessSpark) -> None:
    with spark.use() as session:
        session.sparkContext._jsc.stop()
        with pytest.raises(Unavailable, match="has stopped the session"):
            run_tasks(session, "test", [1], abs)
    with spark.use() as session:
        assert run_tasks(session, "test", [1], abs) == [1]


def test_a_new_java_process_waits_for_the_jobs_of_the_old_one(spark: ProcessSpark) -> None:
    entered = threading.Event()

    def next_job() -> int:
        entered.set()
        with spark.use() as session:
            return run_tasks(session, "test", [2], abs)[0]

    with ThreadPoolExecutor(1) as pool:
        with spark.use() as session:
            kill_java(session)
            following = pool.submit(next_job)
            assert entered.wait(60)
            with pytest.raises(Unavailable):
                run_tasks(session, "test", [1], abs)
            assert not following.done()
        assert following.result(120) == 2


def test_a_java_process_that_cannot_be_started_again_is_waited_for(
    spark: ProcessSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("Spark does not start: no memory today")

    with spark.use() as session:
        kill_java(session)
    with monkeypatch.context() as patched:
        patched.setattr("lakerunner.services.spark.open_session", refuse)
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"cannot start Spark again: .*no memory today"), spark.use():
                pass
    with spark.use() as session:
        assert run_tasks(session, "test", [1], abs) == [1]
