"""The Spark session of a process: opened once, warmed, closed by the runtime."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from lakerunner.pipeline.ingest import warm
from lakerunner.pipeline.java import java_home
from lakerunner.pipeline.session import SparkSettings, close_session, open_session
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings


def open_spark(settings: Settings, runtime: Runtime) -> SparkSession:
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
