"""Spark in a process: one session for the pipeline's jobs, opened by the first job that needs it and opened again when
its JVM is gone; and the process of its own that answers engine=spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Condition, Lock

from pyspark.sql import SparkSession

from lakerunner.model.display import plural
from lakerunner.model.errors import LakerunnerError, Unavailable, UserError
from lakerunner.objects.open import StoreAddress, with_variables
from lakerunner.pipeline.ask.lease import QuerySpark, ShareLimits, Shares
from lakerunner.pipeline.ask.process import QueryProcesses, ServeSettings, for_queries, heap_bytes, slots
from lakerunner.pipeline.ask.run import AskLimits
from lakerunner.pipeline.job import start_workers
from lakerunner.pipeline.jvm import java_home
from lakerunner.pipeline.session import JvmStart, SparkSettings, close_session, is_alive, open_session
from lakerunner.services import spark_daemon
from lakerunner.services.logs import Log
from lakerunner.services.runtime import Runtime
from lakerunner.services.spark_units import UnitSettings, task_function
from lakerunner.settings import Settings

log = Log("spark")
_LOOK_SECONDS = 0.1
_LEAVE_SECONDS = 30.0  # jobs of a JVM that is gone fail within milliseconds


class ProcessSpark:
    """The session of the pipeline's jobs. Safe to use from many threads.

    What always holds: a job runs on one session from its first call to its last. PySpark has one JVM per process, and
    an object of the old JVM may bear the id of another in the new one, so a new JVM is started only after every job of
    the old one has returned.
    """

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self.turn = Lock()  # of those who tend the lake, where there are too few slots for all of them at once
        self._state = Condition()
        self._users = 0
        self._session: SparkSession | None = None

    @contextmanager
    def use(self) -> Iterator[SparkSession]:
        """Give the session for one job. Opening it takes seconds. Unavailable if it cannot be opened again, and
        whatever goes wrong in the block because the JVM is gone."""
        session = self._enter()
        try:
            yield session
        except LakerunnerError:
            raise
        except Exception as error:
            if is_alive(session):
                raise
            raise Unavailable(f"Spark's Java process has ended: {type(error).__name__}: {error}") from error
        finally:
            with self._state:
                self._users -= 1
                self._state.notify_all()

    def _enter(self) -> SparkSession:
        with self._state:
            if self._session is None:
                self._session = self._open_first()
            elif not is_alive(self._session):
                self._session = self._open_again(self._session)
            self._users += 1
            return self._session

    def _open_first(self) -> SparkSession:
        session = self._opened()
        self._runtime.defer("spark", self._close)
        self._runtime.on_stop(self._cancel)
        return session

    def _open_again(self, lost: SparkSession) -> SparkSession:
        if not self._state.wait_for(lambda: self._users == 0 or self._session is not lost, _LEAVE_SECONDS):
            raise Unavailable(f"Spark's Java process has ended, and {plural(self._users, 'job')} of it did not return")
        if self._session is not None and self._session is not lost:
            return self._session  # opened by another thread meanwhile
        if self._runtime.stopping.is_set():
            raise Unavailable("Spark's Java process has ended, and this process stops")
        log.warning("Spark's Java process has ended and is started again")
        close_session(lost)
        try:
            return self._opened()
        except UserError as error:  # the settings were good enough before: the machine has to recover
            raise Unavailable(f"cannot start Spark again: {error}") from error

    def _opened(self) -> SparkSession:
        """Open a session in a thread of its own: if the process stops meanwhile, its JVM is ended at once."""
        start = JvmStart()
        with ThreadPoolExecutor(1, "spark-open") as aside:
            opening = aside.submit(self._open, start)
            while wait([opening], _LOOK_SECONDS).not_done:
                if self._runtime.stopping.is_set():
                    start.end()
        if opening.exception() and self._runtime.stopping.is_set():
            raise Unavailable("Spark was not started: this process stops")
        return opening.result()

    def _open(self, start: JvmStart) -> SparkSession:
        settings = self._settings
        spark = _spark_settings(settings, settings.spark_master, settings.spark_driver_memory, "spark")
        session = open_session(spark, "lakerunner", start)
        try:
            start_workers(session)
        except BaseException:
            close_session(session)
            raise
        return session

    def _cancel(self) -> None:
        if self._session is not None and is_alive(self._session):
            self._session.sparkContext.cancelAllJobs()

    def _close(self) -> None:
        if self._session is not None:
            close_session(self._session)


def _spark_settings(settings: Settings, master: str, memory: str, directory: str) -> SparkSettings:
    work = settings.home.resolve() / directory
    conf = tuple(sorted(settings.spark_conf.items()))
    return SparkSettings(master, conf, memory, java_home(os.environ, work / "java"), work)


def task_address(settings: Settings, address: StoreAddress) -> StoreAddress:
    """Return the store's address for tasks of the pipeline. On this machine their environment has no credentials, so
    the address holds them; executors of a cluster have an environment and an identity of their own."""
    return with_variables(address, os.environ) if settings.spark_master.startswith("local") else address


def open_query_spark(settings: Settings, runtime: Runtime, address: StoreAddress) -> QuerySpark:
    """Return what runs engine=spark, in processes of their own that queries start."""
    limits = ShareLimits(settings.query_spark_concurrency, settings.org_concurrent_spark_queries)

    def report(reason: str) -> None:
        log.warning("Spark for queries has ended", reason=reason)

    processes = QueryProcesses(lambda: _serve_settings(settings, address), os.environ, report)
    runtime.defer("query spark", processes.close)
    return QuerySpark(processes, Shares(limits), settings.query_seconds, slots(_query_settings(settings)))


def _query_settings(settings: Settings) -> SparkSettings:
    plain = _spark_settings(settings, settings.query_spark_master, settings.query_spark_memory, "spark-query")
    return for_queries(plain, spark_daemon.MODULE)


def _serve_settings(settings: Settings, address: StoreAddress) -> ServeSettings:
    spark, memory = _query_settings(settings), settings.query_spark_memory
    if spark.is_local:
        address = with_variables(address, os.environ)
    units = UnitSettings(
        address,
        memory,
        heap_bytes(memory),
        settings.query_seconds,
        settings.unit_max_rows,
        settings.cache_max_bytes,
        settings.metrics_cache_bytes,
        slots(spark),
    )
    limits = AskLimits(settings.query_seconds, settings.query_max_rows, memory)
    return ServeSettings(spark, address, limits, task_function(units))
