"""A lake in pieces that can be taken away: PostgreSQL, an object store over S3, query workers, each a process of
its own. Segments are put in without ingest: logs and metrics of the default organization, and metrics of another one,
whose files a test may damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from lakerunner.api.workers.worker_api import worker_name
from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization, Role
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, METRICS, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from servers.lake import Process, lakerunner, wait_until
from servers.ports import free_ports
from servers.seaweedfs import S3Server, seaweedfs

FRAGILE = Organization(UUID(bytes=b"fragile-segments"), "fragile")  # the one whose files may be damaged
START_NS = 1_767_225_600_000_000_000  # 2026-01-01
HOUR_NS = 3_600_000_000_000
SEGMENTS, ROWS = 24, 4000  # of logs
METRIC_HOURS, SERIES, EVERY_SECONDS = 6, 20, 15
_WORKER_KEY = "a-secret-of-this-test"


@dataclass
class Cluster:
    """`keys` by the name of the organization."""

    directory: Path
    postgres: EmbeddedPostgres
    s3: S3Server
    store: ObjectStore
    logs: tuple[Segment, ...]
    metrics: tuple[Segment, ...]
    fragile: tuple[Segment, ...]
    environment: dict[str, str]
    secrets: tuple[str, ...]
    keys: dict[str, str]
    stack: ExitStack
    ports: tuple[int, ...] = ()
    workers: dict[int, Process] = field(default_factory=dict)
    homes: int = 0

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def names(self) -> list[str]:
        """Of workers, as answers have them: not their addresses."""
        return [worker_name(url, _WORKER_KEY) for url in self.urls]

    @property
    def key(self) -> str:
        return self.keys[DEFAULT_ORGANIZATION.name]

    def start_worker(self, port: int) -> None:
        """With nothing in its cache."""
        self.homes += 1
        home = self.directory / f"worker-{self.homes}"
        arguments = ["query-worker", "--home", str(home), "--listen", f"127.0.0.1:{port}"]
        log = self.directory / f"worker-{self.homes}.log"
        self.workers[port] = self.stack.enter_context(lakerunner(arguments, log, self.environment))

    def fresh_workers(self) -> None:
        for port, worker in list(self.workers.items()):
            worker.kill()
            del self.workers[port]
        self.complete_workers()

    def complete_workers(self) -> None:
        """Those that are there stay as they are."""
        for port in self.ports:
            if port not in self.workers:
                self.start_worker(port)
        for worker in self.workers.values():
            worker.wait_for('"ready"')

    def kill_worker(self, port: int) -> None:
        self.workers.pop(port).kill()

    @contextmanager
    def without_store(self) -> Iterator[None]:
        self.s3.stop()
        try:
            yield
        finally:
            assert self.s3.start()
            wait_until(self._store_gives_all, "every segment in the store", 60)

    def _store_gives_all(self) -> bool:
        """It answers before it has found its volumes again."""
        with suppress(LakerunnerError):
            for segment in (*self.logs, *self.metrics):
                self.store.get_range(segment.path, 0, 4)
            return True
        return False

    @contextmanager
    def without_postgres(self) -> Iterator[None]:
        self.postgres.stop()
        try:
            yield
        finally:
            self.postgres.start()

    def check_tells_no_secret(self, text: str) -> None:
        for secret in self.secrets:
            assert secret not in text


@contextmanager
def cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    with ExitStack() as stack:
        s3 = stack.enter_context(seaweedfs(directory / "s3"))
        address = s3.address("lake")
        postgres = EmbeddedPostgres(directory / "postgres")
        url = postgres.start()
        stack.callback(postgres.stop)
        index = Index.open(url, connections=2)
        index.migrate()
        store = open_store(address)
        keys = {}
        for organization in (DEFAULT_ORGANIZATION, FRAGILE):
            index.organizations.create(organization)
            keys[organization.name] = index.keys.create(organization.id, "reader", frozenset({Role.READ}))
        logs = tuple(_log_segments(store))
        metrics, fragile = (tuple(_metric_segments(store, one.id)) for one in (DEFAULT_ORGANIZATION, FRAGILE))
        index.commit(Commit(logs, (), ()))
        for segment in (*metrics, *fragile):
            index.commit(Commit((segment,), (), ()))
        index.close()
        options = dict(address.options)
        environment = {
            "DATABASE_URL": url,
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_STORE_OPTIONS": ",".join(f"{name}={value}" for name, value in options.items()),
            "LAKERUNNER_STORE_RETRY_SECONDS": "1",
            "LAKERUNNER_UNIT_MAX_BYTES": "1",
            "LAKERUNNER_WORKER_KEY": _WORKER_KEY,
            "LAKERUNNER_KEY_CACHE_SECONDS": "1",
        }
        secrets = (
            _WORKER_KEY,
            options["secret_access_key"],
            str(urlsplit(url).password),
            *keys.values(),
            str(directory),
        )
        made = Cluster(directory, postgres, s3, store, logs, metrics, fragile, environment, secrets, keys, stack)
        made.ports = tuple(free_ports(workers))
        environment["LAKERUNNER_WORKERS"] = ",".join(made.urls)
        yield made


def _log_segments(store: ObjectStore) -> Iterator[Segment]:
    """One an hour; row n of the lake says its number."""
    for hour in range(SEGMENTS):
        request = ExportLogsServiceRequest()
        records = request.resource_logs.add().scope_logs.add().log_records
        for n in range(hour * ROWS, (hour + 1) * ROWS):
            record = records.add(time_unix_nano=START_NS + hour * HOUR_NS + n)
            record.body.string_value = f"{n:06}"
        yield _segment(store, LOGS, DEFAULT_ORGANIZATION.id, hour, request.SerializeToString())


def _metric_segments(store: ObjectStore, organization: UUID) -> Iterator[Segment]:
    """One an hour, each series in all of them: `served_total`, whose sums depend on the order of their parts to the
    last bit, and `load`, which is the hour."""
    chance = random.Random(6)
    totals = [0.0] * SERIES
    for hour in range(METRIC_HOURS):
        request = ExportMetricsServiceRequest()
        metrics = request.resource_metrics.add().scope_metrics.add().metrics
        served, load = metrics.add(name="served"), metrics.add(name="load")
        served.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        served.sum.is_monotonic = True
        start = START_NS + hour * HOUR_NS
        for time in range(start, start + HOUR_NS, EVERY_SECONDS * 1_000_000_000):
            load.gauge.data_points.add(time_unix_nano=time, as_int=hour)
            for number in range(SERIES):
                totals[number] += chance.random() * 10.0 ** (number % 7)
                point = served.sum.data_points.add(time_unix_nano=time, as_double=totals[number])
                point.attributes.add(key="pod").value.string_value = f"pod-{number}"
                point.attributes.add(key="zone").value.string_value = "abc"[number % 3]
        yield _segment(store, METRICS, organization, hour, request.SerializeToString())


def _segment(store: ObjectStore, signal: SignalSpec, organization: UUID, hour: int, data: bytes) -> Segment:
    source = SourceObject("tests", f"{signal.name}-{hour}", f"{hour}", len(data), START_NS)
    made = make_segments(signal, organization, "tests", [Raw(source, memoryview(data))], store.put)
    (segment,) = made.segments
    return segment
