"""Ingest where executors are processes of their own, and die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psutil
import pytest
from isal import igzip
from pyspark.sql import SparkSession

from lakerunner.bus.topics import IngestBox
from lakerunner.model.errors import Unavailable
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box, ingest_group, split
from lakerunner.pipeline.job import start_workers
from lakerunner_demo.shop import Shop
from servers.spark import spark_session

pytestmark = pytest.mark.slow

LIMITS = IngestLimits(64 << 20, 16 << 20)
RECORDS = 200_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark"), "local-cluster[2,1,1024]") as session:
        start_workers(session)
        yield session


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> StoreAddress:
    return StoreAddress((tmp_path_factory.mktemp("lake") / "store").as_uri())


@pytest.fixture(scope="module")
def box(address: StoreAddress) -> IngestBox:
    store, sources = open_store(address), []
    shop = Shop(seed=7, start_ns=1_767_225_600_000_000_000, rate=500)
    for number, batch in enumerate(shop.bulk_logs(RECORDS, per_file=8000)):
        key = f"otel-raw/default/test/{number}.binpb.gz"
        store.put(key, igzip.compress(batch.data))
        meta = store.head(key)
        sources.append(SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
    return IngestBox(UUID(int=7), "test", "logs", tuple(sources))


@pytest.fixture(scope="module")
def expected(box: IngestBox, address: StoreAddress) -> list[BoxResult]:
    """What each of two tasks must give."""
    return [ingest_group(group, address, LIMITS) for group in split(box, 2)]


def segments(results: list[BoxResult]) -> set[str]:
    return {segment.path for result in results for segment in result.segments}


def wait_for_tasks(spark: SparkSession) -> None:
    deadline = time.monotonic() + 20
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)


def jvm(spark: SparkSession) -> psutil.Process:
    gateway: Any = spark.sparkContext._gateway
    return psutil.Process(gateway.proc.pid)


def test_executors_give_what_a_plain_process_gives(
    spark: SparkSession, box: IngestBox, address: StoreAddress, expected: list[BoxResult]
) -> None:
    result = ingest_box(spark, box, address, LIMITS)
    assert sum(segment.rows for segment in result.segments) == RECORDS
    assert segments([result]) == segments(expected)
    assert (sorted(result.done), result.failed) == (sorted(box.sources), ())


def test_a_killed_executor_changes_nothing(
    spark: SparkSession, box: IngestBox, address: StoreAddress, expected: list[BoxResult]
) -> None:
    executors = [child for child in jvm(spark).children() if "java" in child.name()]
    assert len(executors) == 2
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest_box, spark, box, address, LIMITS)
        wait_for_tasks(spark)
        executors[0].kill()
        assert segments([running.result(timeout=120)]) == segments(expected)


def test_a_dead_driver_jvm_is_told_and_closed(spark: SparkSession, box: IngestBox, address: StoreAddress) -> None:
    """The last test of the session: the fixture closes what is left of it."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest_box, spark, box, address, LIMITS)
        wait_for_tasks(spark)
        jvm(spark).kill()
        with pytest.raises(Unavailable, match="Spark's Java process has ended"):
            running.result(timeout=30)
