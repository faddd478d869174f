"""Every row once, whatever dies and when: the services as processes, each killed at every failpoint on the way of a
box, while notifications and arrivals come several times and in any order. A rule counts the rows: its parts too are
there once.

The order, the repetitions and the counts come from a seed, which a failure prints: EXACTLY_ONCE_SEED=... replays it.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.bus.postgres import PostgresBus
from lakerunner.bus.topics import ObjectArrived, arrivals, encode
from lakerunner.index.index import Index
from lakerunner.model.failpoint import POINTS
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import SourceObject, SourceState
from lakerunner.model.time import TimeRange
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner_demo.shop import Shop
from servers.lake import START_SECONDS, Process, lakerunner, wait_until
from servers.ports import free_port
from servers.postgres import drop_database, fresh_database
from suites.otlp_rows import expected_rows
from suites.rule_values import Added, added_parts
from suites.rules import rule

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ORGANIZATION = DEFAULT_ORGANIZATION
START_NS = 1_766_577_600_000_000_000
BUCKET_NS = 10 * 10**9
FILES = 8
RECORDS = 40
COLLECTORS = ("north", "south")  # a box is of one, so every round has two at least
# Each round kills one process after the other, at these points. What a round's ingest leaves is the next one's to mend.
ROUNDS = (
    ("before-relay", "before-box", "before-commit"),
    ("after-relay", "after-box", "after-commit"),
    ("", "after-arrivals", "after-ingest"),
)
# In a Spark worker: tests/services/test_ingest_service.py kills there.
IN_A_WORKER = {"before-read", "before-put", "after-put"}
# Of merges, rollups and sweeps: test_tending_killed.py kills there.
OF_TENDING = {
    f"{moment}-{point}"
    for moment in ("before", "after")
    for point in ("merge", "swap", "window", "roll", "expire", "sweep")
} | {"after-compact", "after-rollup", "after-forget"}


class Lake:
    """One PostgreSQL, one store, and the services that share them."""

    def __init__(self, directory: Path, database: str, stack: ExitStack, seed: int) -> None:
        self.directory = directory
        self.stack = stack
        self.chance = random.Random(seed)
        self.address = StoreAddress((directory / "store").as_uri())
        self.store: ObjectStore = open_store(self.address)
        self.index = Index.open(database)
        stack.callback(self.index.close)
        self.bus = PostgresBus(self.index.pool, database)
        stack.callback(self.bus.close)
        self.port = free_port()
        self.sent: list[SourceObject] = []
        self.environment = {
            "DATABASE_URL": database,
            "LAKERUNNER_STORE": self.address.url,
            "LAKERUNNER_SPARK_MASTER": "local[1]",
            "LAKERUNNER_LISTER_SECONDS": "3600",  # what is announced comes from notifications alone
            "LAKERUNNER_REMINDER_SECONDS": "3600",  # and no reminder mends what was lost
            "LAKERUNNER_BOX_MAX_SECONDS": "0.5",
            "LAKERUNNER_BOX_MAX_OBJECTS": "3",
        }
        self.numbers: Counter[str] = Counter()

    def start(self, service: str, failpoint: str = "") -> Process:
        process = self.launch(service, failpoint)
        wait_until(
            lambda: process.popen.poll() is not None or '"ready"' in process.text(),
            f"{service} is ready",
            START_SECONDS,
            process.text,
        )
        return process

    def launch(self, service: str, failpoint: str = "") -> Process:
        self.numbers[service] += 1
        port = self.port if service == "pubsub" else free_port()
        return self.stack.enter_context(
            lakerunner(
                [service, "--home", str(self.directory / service), "--listen", f"127.0.0.1:{port}"],
                self.directory / f"{service}-{self.numbers[service]}.log",
                self.environment | {"LAKERUNNER_FAILPOINT": failpoint},
            )
        )

    def put(self, files: Sequence[tuple[str, bytes]]) -> list[SourceObject]:
        sources = []
        for place, (name, data) in enumerate(files):
            key = f"otel-raw/default/{COLLECTORS[place % 2]}/{name}"
            self.store.put(key, data)
            meta = self.store.head(key)
            sources.append(SourceObject(self.store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
        self.sent += sources
        return sources

    def notify(self, sources: Sequence[SourceObject]) -> bool:
        """In any order, some several times; whether pubsub lived to answer all of it."""
        keys = [source.key for source in sources for _ in range(self.chance.randint(1, 3))]
        self.chance.shuffle(keys)
        while keys:
            some, keys = keys[:5], keys[5:]
            records = [{"s3": {"bucket": {"name": self.store.bucket}, "object": {"key": key}}} for key in some]
            try:
                url = f"http://127.0.0.1:{self.port}/api/v1/events/s3"
                httpx.post(url, json={"Records": records}, timeout=60).raise_for_status()
            except httpx.TransportError:
                return False
        return True

    def arrive_again(self, sources: Sequence[SourceObject]) -> None:
        """The same arrivals on the bus once more, as a bus that delivers at least once may do; also old ones."""
        several = [self.chance.choice(sources) for _ in range(self.chance.randint(1, 6))]
        several += self.chance.choices(self.sent, k=2)
        messages = [ObjectArrived(ORGANIZATION.id, source.key.split("/")[2], "logs", source) for source in several]
        self.bus.publish([(arrivals("logs"), encode(message)) for message in messages])

    def rows(self) -> Counter[tuple[int, str, str]]:
        """(time, service, message) of every row that a query would see, as often as it would."""
        found: Counter[tuple[int, str, str]] = Counter()
        for segment in self.index.segments.pick(ORGANIZATION.id, "logs", TimeRange(0, 1 << 62)).segments:
            data = io.BytesIO(self.store.get(segment.path, max_bytes=1 << 30))
            table = pq.read_table(data, columns=["timestamp", "service_name", "message"])
            times = table["timestamp"].cast("int64").to_pylist()
            found.update(zip(times, table["service_name"].to_pylist(), table["message"].to_pylist(), strict=True))
        return found

    def parts(self) -> Added:
        """What the live parts of all rules add up to."""
        made = self.index.segments.pick(ORGANIZATION.id, "metrics", TimeRange(0, 1 << 62)).segments
        return added_parts(made, lambda path: bytes(self.store.get(path, max_bytes=1 << 30)))


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("EXACTLY_ONCE_SEED", time.time_ns() % 1_000_000))


@pytest.fixture
def lake(tmp_path: Path, embedded_postgres_url: str, seed: int) -> Iterator[Lake]:
    database = fresh_database(embedded_postgres_url)
    with ExitStack() as stack:
        stack.callback(drop_database, database)
        yield Lake(tmp_path, database, stack, seed)


def died(process: Process, failpoint: str) -> None:
    wait_until(lambda: process.popen.poll() is not None, f"death {failpoint}", START_SECONDS, process.text)
    assert process.popen.returncode == -signal.SIGKILL, process.text()


def test_every_point_is_hit() -> None:
    assert {name for round_ in ROUNDS for name in round_ if name} == POINTS.keys() - IN_A_WORKER - OF_TENDING


def test_nothing_is_lost_or_doubled_whatever_dies(lake: Lake, seed: int) -> None:
    print(f"EXACTLY_ONCE_SEED={seed}")  # shown if this fails
    expected: Counter[tuple[int, str, str]] = Counter()
    batches = Shop(seed=seed, start_ns=START_NS, rate=50).bulk_logs(FILES * RECORDS * len(ROUNDS), per_file=RECORDS)
    lake.index.migrate()
    lake.index.organizations.create(ORGANIZATION)
    counted = lake.index.metric_rules.put(ORGANIZATION.id, rule("rows", selector='{service_name=~".+"}'))
    pubsub, boxer = None, None
    for number, (relay_dies, boxer_dies, ingest_dies) in enumerate(ROUNDS):
        files = []
        for place in range(FILES):
            data = next(batches).data
            files.append((f"logs-{number}-{place}.binpb", data))
            for row, times in rows_of(data).items():
                expected[row] += times
        sources = lake.put(files)
        if relay_dies:
            if pubsub is not None:
                pubsub.stop()
            pubsub = lake.start("pubsub", relay_dies)
            lake.notify(sources)
            died(pubsub, relay_dies)
            pubsub = None
        # Not before: its relay would take the messages. While Spark starts, the boxer dies.
        failpoint = f"{ingest_dies}:{lake.chance.randint(1, 2)}"
        ingest = lake.launch("ingest", failpoint)
        pubsub = pubsub or lake.start("pubsub")
        if boxer_dies:
            if boxer is not None:
                boxer.stop()
            boxer = lake.start("boxer", boxer_dies)
        assert lake.notify(sources)
        lake.arrive_again(sources)
        if boxer is not None and boxer_dies:
            died(boxer, boxer_dies)
            boxer = None
        boxer = boxer or lake.start("boxer")
        died(ingest, failpoint)
    ingest = lake.start("ingest")
    wait_until(
        lambda: lake.index.sources.counts() == {**dict.fromkeys(SourceState, 0), SourceState.DONE: len(lake.sent)},
        f"all ended, EXACTLY_ONCE_SEED={seed}",
        120,
        lambda: f"{lake.index.sources.counts()}\n{ingest.text()}",
    )
    found = lake.rows()
    assert found == expected, f"EXACTLY_ONCE_SEED={seed}: lost {expected - found}, doubled {found - expected}"
    parts: Counter[tuple[str, int]] = Counter()
    for (time_ns, service, _), times in expected.items():
        parts[service, -(-time_ns // BUCKET_NS) * 10] += times
    assert lake.parts() == {
        (counted.collector, (("service_name", service),), end): (count, float(count))
        for (service, end), count in parts.items()
    }, f"EXACTLY_ONCE_SEED={seed}"


def rows_of(data: bytes) -> Counter[tuple[int, str, str]]:
    found: Counter[tuple[int, str, str]] = Counter()
    for text, times in expected_rows("logs", ExportLogsServiceRequest.FromString(data)).items():
        row = json.loads(text)
        found[row["ns"], row["service_name"], row["message"]] += times
    return found
