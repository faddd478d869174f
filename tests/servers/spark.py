"""A real Spark session for tests. A process has one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lakerunner.pipeline.jvm import java_home
from lakerunner.pipeline.session import LEAN_JVM, SparkSettings, close_session, open_session


def spark_settings(work: Path, master: str = "local[2]", **conf: str) -> SparkSettings:
    """`conf` with underscores for dots."""
    if master.startswith("local-cluster"):  # executors of a test end before optimized code pays
        conf = {"spark_executor_extraJavaOptions": LEAN_JVM, **conf}
    pairs = tuple((name.replace("_", "."), value) for name, value in conf.items())
    return SparkSettings(master, pairs, "512m", java_home(os.environ, work / "java"), work)


@contextmanager
def spark_session(work: Path, master: str = "local[2]", **conf: str) -> Iterator[SparkSession]:
    session = open_session(spark_settings(work, master, **conf), "test")
    try:
        yield session
    finally:
        close_session(session)
