"""The ingest service on a real index and a real Spark: overlapping boxes, boxes that kill, a store that is away."""

from __future__ import annotations

import io
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq
import pytest
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

from lakerunner.bus.topics import IngestBox, ObjectArrived, arrivals, encode, ingest_boxes
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import Rejects, Route, SourceObject, SourceState
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.job import start_workers
from lakerunner.services.announce import arrival_of
from lakerunner.services.ingest import Ingest, IngestParts
from lakerunner.services.logs import configure_logs
from servers.memory_bus import MemoryBus
from servers.postgres import empty_index
from servers.spark import spark_session
from suites.requests import TIME_NS, request_of
from suites.rule_values import Added, added_parts
from suites.rules import rule

pytestmark = pytest.mark.slow

ORGANIZATION = DEFAULT_ORGANIZATION
LIMITS = IngestLimits(object_max_bytes=16 << 20, task_max_bytes=8 << 20)
ALWAYS = TimeRange(0, 1 << 62)
BUCKET_NS = 10 * 10**9


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark"), "local[2]") as session:
        start_workers(session)
        yield session


@pytest.fixture
def index(embedded_postgres_url: str) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, ORGANIZATION) as index:
        yield index


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress((tmp_path / "store").as_uri())


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return open_store(address)


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    before = logging.root.handlers[:]
    configure_logs("info", stream)
    yield stream
    logging.root.handlers[:] = before


class Lake:
    """A bus, a store, an index, and the objects that were announced."""

    def __init__(self, index: Index, store: ObjectStore) -> None:
        self.index = index
        self.store = store
        self.bus = MemoryBus()

    def announce(self, name: str, *messages: str, time_ns: int = TIME_NS) -> SourceObject:
        return self.put(f"{name}.binpb", request_of(*messages, time_ns=time_ns))

    def put(self, name: str, data: bytes) -> SourceObject:
        key = f"otel-raw/default/test/{name}"
        self.store.put(key, data)
        meta = self.store.head(key)
        source = SourceObject(self.store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
        self.index.sources.announce([arrival_of(source, ORGANIZATION, Route("default", "test", "logs"))])
        return source

    def box(self, *sources: SourceObject) -> None:
        box = IngestBox(ORGANIZATION.id, "test", "logs", tuple(sources))
        self.bus.publish([(ingest_boxes("logs"), encode(box))])

    def rows(self) -> Counter[str]:
        """Every message that a query would see, as often as it would."""
        found: Counter[str] = Counter()
        for segment in self.index.segments.pick(ORGANIZATION.id, "logs", ALWAYS).segments:
            data = io.BytesIO(self.store.get(segment.path, max_bytes=1 << 30))
            found.update(pq.read_table(data, columns=["message"])["message"].to_pylist())
        return found

    def parts(self, segments: Sequence[Segment]) -> Added:
        return added_parts(segments, lambda path: bytes(self.store.get(path, max_bytes=1 << 24)))

    def unfinished(self) -> int:
        return self.index.sources.counts()[SourceState.SEEN]

    def reasons(self) -> dict[str, str]:
        failed = self.index.sources.list(SourceState.FAILED)
        return {record.source.key.rpartition("/")[2].removesuffix(".binpb"): record.reason or "" for record in failed}


@pytest.fixture
def lake(index: Index, store: ObjectStore) -> Lake:
    return Lake(index, store)


def parts(
    lake: Lake, spark: SparkSession, address: StoreAddress, failpoint: str = "", attempts: int = 3
) -> IngestParts:
    limits = IngestLimits(LIMITS.object_max_bytes, LIMITS.task_max_bytes, failpoint)
    return IngestParts(lake.index, lambda: nullcontext(spark), address, limits, attempts)


def test_of_overlapping_boxes_each_object_comes_once(
    lake: Lake, spark: SparkSession, address: StoreAddress, said: io.StringIO
) -> None:
    """Two workers take boxes that share objects and work on them at the same time, until a commit was refused."""
    expected: Counter[str] = Counter()
    chance = random.Random(11)
    workers = [Ingest(LOGS, lake.bus, parts(lake, spark, address)) for _ in range(2)]
    for number in range(12):
        sources = []
        for place in range(4):
            messages = [f"{number} {place} {line}" for line in range(5)]
            expected.update(messages)
            sources.append(lake.announce(f"{number}-{place}", *messages))
        lake.box(*sources[:3])
        lake.box(*chance.sample(sources[1:], 3))
        start = Barrier(2)

        def work(worker: Ingest, start: Barrier = start) -> None:
            start.wait()
            for _ in range(4):  # a refused one does its box again
                worker.step()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, workers))
        assert lake.rows() == expected
        assert lake.unfinished() == 0
        if "another worker committed first" in said.getvalue():
            break
    else:
        raise AssertionError("the boxes never met")
    for worker in workers:
        worker.close()
    assert lake.bus.subscribe([ingest_boxes("logs")], "ingest").take(10, 0) == []


def test_what_kills_its_worker_is_set_aside_and_its_neighbours_get_through(
    lake: Lake, spark: SparkSession, address: StoreAddress, said: io.StringIO
) -> None:
    sources = [lake.announce(f"good-{number}", f"line {number}") for number in range(6)]
    killer = lake.announce("killer", "never read")
    lake.box(*sources[:4], killer, *sources[4:])
    later = lake.announce("later", "the next box")
    lake.box(later)
    ingest = Ingest(LOGS, lake.bus, parts(lake, spark, address, "before-read@killer", attempts=2))
    for _ in range(12):
        ingest.step()
    assert lake.rows() == Counter([*(f"line {number}" for number in range(6)), "the next box"])
    assert lake.unfinished() == 0
    assert list(lake.reasons()) == ["killer"]
    assert lake.reasons()["killer"].startswith("2 workers that read it alone died of it")
    entries = [json.loads(line) for line in said.getvalue().splitlines()]
    died = [entry["objects"] for entry in entries if entry["message"] == "a worker died while processing a box"]
    assert died == [7, 7, 3, 3, 1, 1]
    ingest.close()
    assert lake.bus.subscribe([ingest_boxes("logs")], "ingest").take(10, 0) == []


def test_rejects_and_a_wrong_signal_count_once_however_often_workers_die(
    lake: Lake, spark: SparkSession, address: StoreAddress
) -> None:
    counted = partial(REGISTRY.get_sample_value, "lakerunner_lines_rejected_total", {"signal": "logs"})
    before = counted() or 0
    while lake.index.outbox.relay(lambda _: None):
        pass
    sources = [
        lake.put("part.jsonl", b'{"msg": "a"}\nno\n{"msg": "c"}\n'),
        lake.put("app.json", b'{"resourceMetrics": []}'),
        lake.announce("killer", "never read"),
    ]
    lake.box(*sources)
    lake.box(*sources)
    ingest = Ingest(LOGS, lake.bus, parts(lake, spark, address, "before-read@killer", attempts=2))
    for _ in range(12):
        ingest.step()
    ingest.close()
    assert lake.rows() == Counter("ac")
    (record,) = lake.index.sources.list(SourceState.PARTIAL)
    assert (record.rows, record.rejected, (counted() or 0) - before) == (2, 1, 1)
    _, rejects = lake.index.sources.rejects(record.source.key, ORGANIZATION.id) or ("", Rejects())
    assert [(one.line, one.offset, one.excerpt) for one in rejects.first] == [(2, 13, "no")]
    assert [(one.source.key, one.signal) for one in lake.index.sources.list(SourceState.SEEN)] == [
        ("otel-raw/default/test/app.json", "metrics")
    ]
    said: list[tuple[str, bytes]] = []
    while lake.index.outbox.relay(said.extend):
        pass
    moved = ObjectArrived(ORGANIZATION.id, "test", "metrics", sources[1])
    assert [message for message in said if message[0] == arrivals("metrics")] == [(arrivals("metrics"), encode(moved))]


@pytest.mark.parametrize(
    "failpoint",
    ["before-read:2", *(f"{moment}-put:{number}" for number in (1, 3, 4, 5, 10) for moment in ("before", "after"))],
)
def test_what_a_dead_worker_left_is_made_again_as_it_was(
    lake: Lake, spark: SparkSession, address: StoreAddress, failpoint: str
) -> None:
    """Two segments, as the lines are of two hours, each with two files beside it; and of each the parts of a rule, with
    one file. Another process finishes the box."""
    counted = lake.index.metric_rules.put(ORGANIZATION.id, rule("lines", selector='{service_name="cart"}'))
    expected = [f"line {number}" for number in range(6)]
    sources = [
        lake.announce("early", *expected[:3]),
        lake.announce("late", *expected[3:], time_ns=TIME_NS + HOUR_NS),
    ]
    lake.box(*sources)
    dies = Ingest(LOGS, lake.bus, parts(lake, spark, address, failpoint))
    dies.step()
    dies.close()
    assert lake.rows() == Counter()
    assert lake.unfinished() == 2
    lives = Ingest(LOGS, lake.bus, parts(lake, spark, address))
    lives.step()
    lives.close()
    assert lake.rows() == Counter(expected)
    segments = lake.index.segments.pick(ORGANIZATION.id, "logs", ALWAYS).segments
    assert [segment.rule_set for segment in segments] == [(counted.id,)] * 2
    made = lake.index.segments.pick(ORGANIZATION.id, "metrics", ALWAYS).segments
    ends = [-(-time // BUCKET_NS) * 10 for time in (TIME_NS, TIME_NS + HOUR_NS)]
    labels = (("service_name", "cart"),)
    assert lake.parts(made) == {(counted.collector, labels, end): (3, 3.0) for end in ends}
    paths = {
        path
        for segment in (*segments, *made)
        for path in (segment.path, *map(segment.side_path, segment.statistics["side_bytes"]))
    }
    assert {meta.key for meta in lake.store.list("db/")} == paths


def test_a_rule_that_makes_too_many_series_is_paused_and_the_lines_are_ingested(
    lake: Lake, spark: SparkSession, address: StoreAddress, said: io.StringIO
) -> None:
    counted = partial(REGISTRY.get_sample_value, "lakerunner_rule_rows_total", {"rule": "many", "state": "matched"})
    before = counted() or 0
    many = rule("many", selector='{service_name="cart"}', dimensions=("number",), max_series=2)
    version = lake.index.metric_rules.put(ORGANIZATION.id, many)
    worker = Ingest(LOGS, lake.bus, parts(lake, spark, address))
    for number, messages in enumerate((["a", "b"], ["c", "d", "e"], ["f"])):
        lake.box(lake.announce(f"box-{number}", *messages))
        worker.step()
    worker.close()
    assert lake.rows() == Counter("abcdef")
    segments = lake.index.segments.pick(ORGANIZATION.id, "logs", ALWAYS).segments
    assert {segment.rows: segment.rule_set for segment in segments} == {2: (version.id,), 3: (), 1: ()}
    made = lake.index.segments.pick(ORGANIZATION.id, "metrics", ALWAYS).segments
    assert sum(count for count, _ in lake.parts(made).values()) == 2
    assert (counted() or 0) - before >= 2
    paused = lake.index.metric_rules.find(ORGANIZATION.id, "many").paused
    assert paused.startswith("more than 2 series in one segment")
    assert said.getvalue().count('"rule paused"') == 1


def test_what_was_set_aside_can_be_tried_again(lake: Lake, spark: SparkSession, address: StoreAddress) -> None:
    killer = lake.announce("killer", "read at last")
    lake.box(killer)
    ingest = Ingest(LOGS, lake.bus, parts(lake, spark, address, "before-read@killer", attempts=1))
    for _ in range(3):
        ingest.step()
    ingest.close()
    assert list(lake.reasons()) == ["killer"]
    lake.index.sources.retry([arrival_of(killer, ORGANIZATION, Route("default", "test", "logs"))])
    lake.box(killer)
    well = Ingest(LOGS, lake.bus, parts(lake, spark, address))
    well.step()
    assert lake.rows() == Counter(["read at last"])
    well.close()


def test_a_store_that_is_away_costs_nothing_and_the_box_stays_in_hand(
    lake: Lake, spark: SparkSession, address: StoreAddress, tmp_path: Path
) -> None:
    one = lake.announce("one", "line")
    lake.box(one)
    ingest = Ingest(LOGS, lake.bus, parts(lake, spark, address, attempts=1))
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    for _ in range(3):
        with pytest.raises(Unavailable, match="store"):
            ingest.step()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    ingest.step()
    assert lake.rows() == Counter(["line"])
    ingest.close()
    assert lake.bus.subscribe([ingest_boxes("logs")], "ingest").take(10, 0) == []
