"""ingest_box on a real Spark: every record once, bad objects set aside, and nothing half-done."""

from __future__ import annotations

import gzip
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from isal import igzip
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from pyspark.sql import SparkSession

from lakerunner.bus.topics import IngestBox
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box, ingest_group, split
from lakerunner.pipeline.job import start_workers
from servers.lake import wait_until
from servers.spark import spark_session

ORGANIZATION = UUID(int=7)
LIMITS = IngestLimits(object_max_bytes=16 << 20, task_max_bytes=8 << 20)
HOUR = 1_767_225_600_000_000_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark"), "local[2]") as session:
        start_workers(session)
        yield session


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress((tmp_path / "store").as_uri())


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return open_store(address)


def request(first: int, count: int) -> bytes:
    """An export request of so many records, a millisecond apart."""
    message = ExportLogsServiceRequest()
    resource = message.resource_logs.add()
    pair = resource.resource.attributes.add(key="service.name")
    pair.value.string_value = "shop"
    records = resource.scope_logs.add().log_records
    for number in range(first, first + count):
        records.add(time_unix_nano=HOUR + number * 1_000_000).body.string_value = f"order {number} accepted"
    return message.SerializeToString()


def source(store: ObjectStore, name: str, data: bytes) -> SourceObject:
    key = f"otel-raw/default/test/{name}"
    store.put(key, data)
    meta = store.head(key)
    return SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)


def box(*sources: SourceObject) -> IngestBox:
    return IngestBox(ORGANIZATION, "test", "logs", sources)


def jvm_of(spark: SparkSession) -> psutil.Process:
    gateway: Any = spark.sparkContext._gateway
    return psutil.Process(gateway.proc.pid)


@contextmanager
def frozen_workers(spark: SparkSession) -> Iterator[list[psutil.Process]]:
    """Stop the idle workers, so that a job cannot end however fast the machine is. Those that the job did not use, and
    that Spark therefore did not kill, go on at the end."""
    jvm = jvm_of(spark)
    workers = list(set(jvm.children(recursive=True)) - set(jvm.children()))  # the children of the daemon
    assert workers
    for worker in workers:
        worker.suspend()
    try:
        yield workers
    finally:
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.resume()


def wait_for_tasks(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()

    def are_running() -> bool:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    wait_until(are_running, "tasks of the job run", 120)


def rows(result: BoxResult) -> int:
    return sum(segment.rows for segment in result.segments)


def reasons(result: BoxResult) -> dict[str, str]:
    return {source.key.rpartition("/")[2]: reason for source, reason in result.failed}


def written(store: ObjectStore) -> dict[str, bytes]:
    return {meta.key: bytes(store.get(meta.key, max_bytes=1 << 30)) for meta in store.list("db/")}


# A box's flow


def test_every_record_of_real_files_comes_once(
    spark: SparkSession, address: StoreAddress, store: ObjectStore, shared_data: Path
) -> None:
    files = sorted((shared_data / "logs").glob("*.binpb.gz"))
    assert files
    expected = 0
    for file in files:
        message = ExportLogsServiceRequest.FromString(gzip.decompress(file.read_bytes()))
        expected += sum(len(s.log_records) for r in message.resource_logs for s in r.scope_logs)
    sources = [source(store, file.name, file.read_bytes()) for file in files]
    result = ingest_box(spark, box(*sources), address, LIMITS)
    assert expected > 1000
    assert rows(result) == expected
    assert sorted(result.done) == sorted(sources)
    assert result.failed == ()
    paths = [path for s in result.segments for path in (s.path, *map(s.side_path, s.statistics["side_bytes"]))]
    assert sorted(written(store)) == sorted(paths)


def test_the_same_box_gives_the_same_segments_with_spark_and_without(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    sources = [source(store, f"{n}.binpb.gz", igzip.compress(request(n * 100, 100))) for n in range(5)]
    first = ingest_box(spark, box(*sources), address, LIMITS)
    bytes_of_first = written(store)
    again = ingest_box(spark, box(*reversed(sources)), address, LIMITS)
    alone = ingest_group(box(*sources), address, LIMITS)
    assert rows(first) == 500
    assert first == again == alone
    assert written(store) == bytes_of_first


def test_an_object_twice_in_a_box_is_taken_once(spark: SparkSession, address: StoreAddress, store: ObjectStore) -> None:
    one = source(store, "one.binpb", request(0, 10))
    result = ingest_box(spark, box(one, one, one), address, LIMITS)
    assert (rows(result), result.done) == (10, (one,))


def test_bad_objects_are_set_aside_and_their_neighbours_are_not(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    packed = igzip.compress(request(0, 50))
    good = [
        source(store, "good.binpb.gz", packed),
        source(store, "plain.binpb", request(50, 50)),
    ]
    grown = source(store, "grown.binpb", request(0, 1))
    store.put(grown.key, request(0, 2))
    shrunk = source(store, "shrunk.binpb", request(0, 2))
    store.put(shrunk.key, request(0, 1))
    rewritten = source(store, "rewritten.binpb", request(0, 1))
    store.put(rewritten.key, request(1, 1))
    gone = source(store, "gone.binpb", request(0, 1))
    store.delete([gone.key])
    bad = [
        source(store, "damaged.binpb", b"\xff" * 40 + request(0, 5)),
        source(store, "truncated.binpb.gz", packed[:-20]),
        source(store, "bomb.binpb.gz", igzip.compress(bytes(LIMITS.object_max_bytes + 1))),
        source(store, "large.binpb", bytes(LIMITS.object_max_bytes + 1)),
        source(store, "unknown.xyz", b"a,b\n"),
        grown,
        shrunk,
        rewritten,
        gone,
    ]
    mixed = [bad[0], good[0], *bad[1:4], good[1], *bad[4:]]
    result = ingest_box(spark, box(*mixed), address, LIMITS)
    assert rows(result) == 100
    assert sorted(result.done) == sorted(good)
    assert sorted(failed for failed, _ in result.failed) == sorted(bad)
    said = reasons(result)
    assert said.pop("damaged.binpb")
    assert said.pop("gone.binpb").endswith("/gone.binpb: it was deleted after it was announced")
    assert "unknown.xyz' has an unknown ending" in said.pop("unknown.xyz")
    assert said == {
        "truncated.binpb.gz": "the gzip file is cut short",
        "bomb.binpb.gz": "the file unpacks to more than 16777216 bytes: raise object_max_bytes to ingest it",
        "large.binpb": "the file has 16777217 bytes: raise object_max_bytes to ingest it",
        "grown.binpb": "the object has changed since it was announced",
        "shrunk.binpb": "the object has changed since it was announced",
        "rewritten.binpb": "the object has changed since it was announced",
    }


def test_a_box_of_bad_objects_only_makes_nothing(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    bad = source(store, "bad.binpb", b"\xff\xff\xff")
    result = ingest_box(spark, box(bad), address, LIMITS)
    assert (result.segments, result.done) == ((), ())
    assert len(result.failed) == 1
    assert written(store) == {}


def test_a_box_larger_than_a_task_may_hold_is_done_in_pieces(address: StoreAddress, store: ObjectStore) -> None:
    sources = [source(store, f"{n}.binpb", request(n * 1000, 1000)) for n in range(6)]
    tight = IngestLimits(LIMITS.object_max_bytes, task_max_bytes=2 * sources[-1].size)
    result = ingest_group(box(*sources), address, tight)
    assert rows(result) == 6000
    assert [segment.rows for segment in result.segments] == [2000, 2000, 2000]
    one_each = ingest_group(box(*sources), address, IngestLimits(LIMITS.object_max_bytes, task_max_bytes=1))
    assert [segment.rows for segment in one_each.segments] == [1000] * 6


# Errors on their way to the driver


def test_a_store_that_is_away_is_unavailable(spark: SparkSession, tmp_path: Path) -> None:
    away = StoreAddress(
        "s3://lake",
        (("endpoint", "http://127.0.0.1:9"), ("allow_http", "true"), ("region", "x"), ("skip_signature", "true")),
        retries=1,
        retry_seconds=1,
    )
    lost = SourceObject("lake", "otel-raw/default/test/x.binpb", "e", 10, 0)
    with pytest.raises(Unavailable, match="the object store cannot"):
        ingest_box(spark, box(lost), away, LIMITS)


def test_a_wrong_address_is_the_users_and_says_what(spark: SparkSession) -> None:
    lost = SourceObject("lake", "otel-raw/default/test/x.binpb", "e", 10, 0)
    with pytest.raises(UserError, match="ftp://lake"):
        ingest_box(spark, box(lost), StoreAddress("ftp://lake"), LIMITS)


def test_a_bug_in_a_task_comes_as_itself_with_the_frames_that_help(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    """A collector without a name stands for a bug."""
    one = source(store, "logs.binpb", request(0, 1))
    nameless: Any = None
    with pytest.raises(TypeError) as caught:
        ingest_box(spark, IngestBox(ORGANIZATION, nameless, "logs", (one,)), address, LIMITS)
    (note,) = caught.value.__notes__
    assert "_write_segments" in note
    assert "pyspark" not in note
    assert "py4j" not in note


def test_workers_survive_errors_and_are_warm(spark: SparkSession, address: StoreAddress, store: ObjectStore) -> None:
    def workers() -> set[int]:
        return {child.pid for child in jvm_of(spark).children(recursive=True)}

    before = workers()
    with pytest.raises(UserError):
        ingest_box(spark, box(source(store, "x.binpb", request(0, 1))), StoreAddress("ftp://lake"), LIMITS)
    ingest_box(spark, box(source(store, "y.binpb", request(0, 1))), address, LIMITS)
    assert workers() == before


def test_killed_workers_make_the_box_unavailable_and_the_next_try_whole(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    sources = [source(store, f"{n}.binpb.gz", igzip.compress(request(0, 40_000))) for n in range(8)]
    with frozen_workers(spark) as workers, ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest_box, spark, box(*sources), address, LIMITS)
        wait_for_tasks(spark)
        for worker in workers:
            worker.kill()
        with pytest.raises(Unavailable, match=r"Spark did not finish the job: .*Python worker exited"):
            running.result(timeout=120)
    assert rows(ingest_box(spark, box(*sources), address, LIMITS)) == 320_000


def test_a_cancelled_box_is_unavailable_at_once_and_the_session_goes_on(
    spark: SparkSession, address: StoreAddress, store: ObjectStore
) -> None:
    """As a service does at shutdown: the loop waits in its thread, the main thread cancels."""
    sources = [source(store, f"{n}.binpb.gz", igzip.compress(request(0, 40_000))) for n in range(8)]
    with frozen_workers(spark), ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest_box, spark, box(*sources), address, LIMITS)
        wait_for_tasks(spark)
        started = time.monotonic()
        spark.sparkContext.cancelAllJobs()
        with pytest.raises(Unavailable, match="the Spark job was cancelled"):
            running.result(timeout=120)
        assert time.monotonic() - started < 60
    assert rows(ingest_box(spark, box(sources[0]), address, LIMITS)) == 40_000


def test_an_interrupted_box_cancels_its_job(spark: SparkSession, address: StoreAddress, store: ObjectStore) -> None:
    """Ctrl-C in the thread that waits for the job."""
    sources = [source(store, f"{n}.binpb.gz", igzip.compress(request(0, 40_000))) for n in range(8)]

    waiting = threading.get_ident()

    def interrupt() -> None:
        wait_for_tasks(spark)
        signal.pthread_kill(waiting, signal.SIGINT)  # a signal to this thread would not wake the one that waits

    with frozen_workers(spark):
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            ingest_box(spark, box(*sources), address, LIMITS)
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveStageIds(), "Spark's own word that nothing runs", 60)
    assert rows(ingest_box(spark, box(sources[0]), address, LIMITS)) == 40_000


# How a box is cut


def sized(*sizes: int) -> IngestBox:
    return box(*(SourceObject("b", f"k{n:03}", "e", size, 0) for n, size in enumerate(sizes)))


def sizes(groups: list[IngestBox]) -> list[list[int]]:
    return [[source.size for source in group.sources] for group in groups]


MB = 1 << 20


def test_small_boxes_stay_whole_and_large_ones_fill_the_slots() -> None:
    assert sizes(split(sized(10, 20, 30), 8)) == [[10, 20, 30]]
    assert sizes(split(sized(MB, MB, MB - 1), 8)) == [[MB, MB - 1], [MB]]
    assert sizes(split(sized(*[MB] * 8), 2)) == [[MB] * 4, [MB] * 4]
    assert sizes(split(sized(100 * MB), 8)) == [[100 * MB]]
    assert sizes(split(sized(0, 0), 8)) == [[0, 0]]


def test_tasks_get_about_the_same() -> None:
    groups = split(sized(9 * MB, *[MB] * 9), 2)
    assert [sum(group) for group in sizes(groups)] == [9 * MB, 9 * MB]


def test_a_split_keeps_the_box_and_every_object_and_depends_on_nothing_else() -> None:
    whole = sized(*[MB + n for n in range(50)])
    groups = split(whole, 4)
    assert sorted(source for group in groups for source in group.sources) == list(whole.sources)
    assert {(group.organization, group.collector, group.signal) for group in groups} == {
        (whole.organization, whole.collector, whole.signal)
    }
    assert split(box(*reversed(whole.sources)), 4) == groups


def test_an_empty_box_is_nothing(spark: SparkSession, address: StoreAddress) -> None:
    assert split(box(), 4) == []
    assert ingest_box(spark, box(), address, LIMITS) == BoxResult((), (), ())
