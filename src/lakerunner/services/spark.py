"""The Spark session of a process: opened once, by whoever needs it first, warmed, closed by the runtime."""

from __future__ import annotations

import os
from threading import Lock

from pyspark.sql import SparkSession

from lakerunner.pipeline.java import java_home
from lakerunner.pipeline.job import warm
from lakerunner.pipeline.session import SparkSettings, close_session, open_session
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings


class ProcessSpark:
    """Safe to use from many threads."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self.turn = Lock()  # of those who tend the lake, where there are too few slots for all of them at once
        self._lock = Lock()
        self._session: SparkSession | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def session(self) -> SparkSession:
        """Opens it the first time, which takes seconds."""
        with self._lock:
            if self._session is None:
                self._session = _open(self._settings, self._runtime)
            return self._session


def _open(settings: Settings, runtime: Runtime) -> SparkSession:
    work = settings.home.resolve() / "spark"
    spark_settings = SparkSettings(
        master=settings.spark_master,
        conf=tuple(sorted(settings.spark_conf.items())),
        driver_memory=settings.spark_driver_memory,
        java_home=java_home(os.environ, work / "java"),
        work_directory=work,
    )
    session = open_session(spark_settings, "lakerunner")
    runtime.defer("spark", lambda: close_session(session))
    runtime.on_stop(session.sparkContext.cancelAllJobs)
    warm(session)
    return session
