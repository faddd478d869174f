"""The same slice on production parts: Kafka, a PostgreSQL server, S3, services as processes of their own, Spark
executors that are processes of their own. Ingest is killed mid-box, notifications are sent ten times over."""

from __future__ import annotations

import gzip
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import SourceState
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner_demo.shop import Shop
from servers.kafka import KafkaBroker
from servers.lake import Process, lakerunner, wait_until
from servers.ports import free_port
from servers.postgres import fresh_database
from servers.seaweedfs import S3Server
from suites.otlp_rows import QUERIES, answered_rows, expected_rows, read_request

ORG = str(DEFAULT_ORGANIZATION.id)
START_NS = 1_766_577_600_000_000_000
KILLS = 5
BULK_FILES = 24
BULK_RECORDS = 10_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Cluster:
    """Five services on shared real servers."""

    directory: Path
    environment: dict[str, str]
    store: ObjectStore
    stack: ExitStack
    ports: dict[str, int] = field(default_factory=dict)

    def start(self, service: str, log: str = "", **settings: str) -> Process:
        port = self.ports.setdefault(service, free_port())
        environment = self.environment | settings
        arguments = [service, "--home", str(self.directory / service), "--listen", f"127.0.0.1:{port}"]
        process = self.stack.enter_context(lakerunner(arguments, self.directory / f"{log or service}.log", environment))
        process.wait_for('"ready"')
        return process

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def sql(self, query: str) -> list[dict[str, Any]]:
        answer = httpx.post(f"{self.url('query-api')}/api/v1/sql", json={"query": query}, timeout=120)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()["rows"]
        return rows

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = httpx.get(f"{self.url('query-api')}/api/v1/objects", timeout=30).json()["counts"]
        return found

    def notify(self, keys: list[str], times: int) -> None:
        records = [{"s3": {"bucket": {"name": self.store.bucket}, "object": {"key": key}}} for key in keys]
        for _ in range(times):
            answer = httpx.post(f"{self.url('pubsub')}/api/v1/events/s3", json={"Records": records}, timeout=120)
            assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker, embedded_postgres_url: str, s3_server: S3Server
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    address = s3_server.address("lake")
    database = fresh_database(embedded_postgres_url)
    environment = {
        "DATABASE_URL": database,
        "LAKERUNNER_BUS": f"kafka://{kafka.servers}",
        "LAKERUNNER_BUS_TOPIC_PREFIX": "production-test.",
        "LAKERUNNER_STORE": address.url,
        "LAKERUNNER_STORE_OPTIONS": ",".join(f"{name}={value}" for name, value in address.options),
        "LAKERUNNER_SPARK_MASTER": "local-cluster[2,1,1024]",
        "LAKERUNNER_WORKER_KEY": "a-secret-of-this-test",
    }
    with ExitStack() as stack:
        yield Cluster(directory, environment, open_store(address), stack)


def put_everything(store: ObjectStore, shared_data: Path) -> tuple[list[str], Counter[Any], Counter[Any]]:
    """The real files and a bulk that takes a while; their keys, the real rows, the bulk's records by service."""
    expected: Counter[Any] = Counter()
    keys = []
    for path in sorted((shared_data / "logs").glob("*.binpb.gz")):
        keys.append(f"otel-raw/{ORG}/real/{path.name}")
        store.put(keys[-1], path.read_bytes())
        expected += expected_rows("logs", read_request("logs", path))
    bulk: Counter[Any] = Counter()
    shop = Shop(seed=5, start_ns=START_NS, rate=50)
    for number, batch in enumerate(shop.bulk_logs(BULK_FILES * BULK_RECORDS, per_file=BULK_RECORDS)):
        keys.append(f"otel-raw/{ORG}/bulk/logs_{number:03}.binpb.gz")
        store.put(keys[-1], gzip.compress(batch.data, 1))
        for resource_logs in ExportLogsServiceRequest.FromString(batch.data).resource_logs:
            service = next(a.value.string_value for a in resource_logs.resource.attributes if a.key == "service.name")
            bulk[service] += sum(len(scope_logs.log_records) for scope_logs in resource_logs.scope_logs)
    assert bulk.total() == BULK_FILES * BULK_RECORDS
    return keys, expected, bulk


def test_nothing_is_lost_or_doubled_on_production_parts(cluster: Cluster, shared_data: Path) -> None:
    keys, expected, bulk = put_everything(cluster.store, shared_data)
    # No lister here: what is announced comes from notifications alone. Boxes are small, so that there are many to kill.
    cluster.start("pubsub", LAKERUNNER_LISTER_SECONDS="3600")
    cluster.start("boxer", LAKERUNNER_BOX_MAX_OBJECTS="5", LAKERUNNER_BOX_MAX_SECONDS="1")
    worker = cluster.start("query-worker")
    cluster.start("query-api", LAKERUNNER_WORKERS=cluster.url("query-worker"))
    cluster.notify(keys, times=10)
    kill_mid_box(cluster)
    ingest = cluster.start("ingest", log="ingest-last")
    wait_until(
        lambda: cluster.counts() == dict.fromkeys(SourceState, 0) | {"done": len(keys)},
        f"{len(keys)} objects done",
        240,
        lambda: f"{cluster.counts()}\n{ingest.text()}",
    )
    assert answered_rows(cluster.sql(f"{QUERIES['logs']} where collector = 'real'")) == expected
    by_service = cluster.sql("select service_name, count(*) as n from logs where collector = 'bulk' group by 1")
    assert {row["service_name"]: row["n"] for row in by_service} == bulk
    cluster.notify(keys, times=1)
    ingest.stop()
    assert cluster.sql("select count(*) as n from logs") == [{"n": bulk.total() + expected.total()}]
    worker.stop()
    away = httpx.post(f"{cluster.url('query-api')}/api/v1/sql", json={"query": "select 1 as one from logs"}, timeout=60)
    assert away.status_code == 503
    assert "no query worker is reachable" in away.json()["error"]["message"]


def kill_mid_box(cluster: Cluster) -> None:
    """Start ingest, wait until it has a box, kill it -9 before that box is done; until it was hit so five times."""
    chance = random.Random(7)
    hits = 0
    for number in range(KILLS * 2):
        ingest = cluster.start("ingest", log=f"ingest-{number}", LAKERUNNER_SPARK_MASTER="local[2]")
        ingest.wait_for('"box taken"')
        time.sleep(chance.uniform(0.0, 0.8))
        ingest.kill()
        text = ingest.text()
        hits += text.count('"box taken"') > text.count('"box ingested"')
        if hits == KILLS:
            return
    raise AssertionError(f"only {hits} of {KILLS * 2} kills fell into a box")
