"""Run scripts in a whole lake: every state is an organization of its own, the pipeline ingests its samples from raw
remote-write objects, and Prometheus' API is called over HTTP, behind which three query workers, processes of their own,
evaluate a third of the series each.

The samples of each state come in three objects, which become segments of their own: every series is in two of them, its
earlier half in one and its later half in another. `shard_rows` and `most_shards` allow so few rows to be sharded at
all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import httpx
from starlette.routing import Route

from conformance.http_subject import Address, HttpSubject
from conformance.remote_write import request_of
from conformance.script import Case, Sample, State
from lakerunner.api.app import build_app
from lakerunner.api.prometheus.prometheus_api import MetricsLimits, PrometheusApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers
from lakerunner.bus.topics import IngestBox
from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.labels import Labels
from lakerunner.model.organization import Organization, Role
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_group
from lakerunner.services.ground import now_ns
from lakerunner.services.parts import authenticator, open_key_cache, open_query_limits
from lakerunner.settings import load_settings
from pipeline.remote_write_oracle import framed
from servers.lake import Process, lakerunner
from servers.ports import free_ports
from servers.spark import spark_session
from suites.queries import metric_queries

PARTS = 3
WORKERS = 3
COLLECTOR = "scripts"
LIMITS = IngestLimits(object_max_bytes=64 << 20, task_max_bytes=1)  # every object becomes segments of its own
_WORKER_KEY = "known-to-api-and-workers"


@dataclass
class ScriptedLake:
    """`keys` of the organizations, by state; `urls` by whether names are removed when an evaluation ends."""

    urls: Mapping[bool, str]
    workers: list[Process]
    keys: Mapping[State, str]
    client: httpx.Client

    @property
    def subject(self) -> HttpSubject:
        return HttpSubject(self.client, self._address)

    def workers_of(self, case: Case) -> set[str]:
        """Return the workers that evaluated parts of it."""
        address = self._address(case.state)
        fields = {"query": case.query, "time": f"{case.steps.start / 1000}", "stats": "all"}
        answer = self.client.post(f"{address.url}/api/v1/query", data=fields, headers=dict(address.headers)).json()
        return set(answer["data"]["stats"]["lakerunner"]["workers"])

    def _address(self, state: State) -> Address:
        return Address(f"{self.urls[state.delayed_names]}/prometheus", {"authorization": f"Bearer {self.keys[state]}"})


@contextmanager
def scripted_lake(directory: Path, cases: Iterable[Case], *, by_spark: bool) -> Iterator[ScriptedLake]:
    """Start a lake with the samples of these cases. `by_spark`: ingested by a Spark job; otherwise by calling what its
    tasks do."""
    states = list({case.state: None for case in cases})
    with ExitStack() as stack:
        address = StoreAddress((directory / "store").as_uri())
        url, index = stack.enter_context(started_index(directory))
        boxes = [_box(open_store(address), UUID(int=place), state) for place, state in enumerate(states, 1)]
        results = _by_spark(directory, address, boxes) if by_spark else [_ingest(address)(box) for box in boxes]
        keys = dict(zip(states, map(partial(_key_to, index), boxes, results), strict=True))
        workers, remote = stack.enter_context(started_workers(directory, url, address))
        urls = {
            delayed: stack.enter_context(_served(directory, index, remote, delayed)).url for delayed in (True, False)
        }
        yield ScriptedLake(urls, workers, keys, stack.enter_context(httpx.Client(timeout=120)))


@contextmanager
def started_index(directory: Path) -> Iterator[tuple[str, Index]]:
    """Start a database with an index; yield its URL too."""
    postgres = EmbeddedPostgres(directory / "postgres")
    url = postgres.start()
    index = Index.open(url, connections=4)
    try:
        index.migrate()
        yield url, index
    finally:
        index.close()
        postgres.stop()


@contextmanager
def started_workers(directory: Path, url: str, address: StoreAddress) -> Iterator[tuple[list[Process], RemoteWorkers]]:
    """Start the query workers, processes of their own, and yield them once they are ready."""
    environment = {"DATABASE_URL": url, "LAKERUNNER_STORE": address.url, "LAKERUNNER_WORKER_KEY": _WORKER_KEY}
    with ExitStack() as stack:
        ports = free_ports(WORKERS)
        workers = [stack.enter_context(_worker(directory, port, environment)) for port in ports]
        for worker in workers:
            worker.wait_for('"ready"')
        addresses = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        remote = RemoteWorkers(Addresses(lookups(addresses)), _WORKER_KEY, 120)
        stack.callback(remote.close)
        yield workers, remote


def query_service(directory: Path, index: Index) -> QueryService:
    """Return what query-api has, without its limits; callers need a key."""
    settings = load_settings({}, {"home": directory, "org_queries_per_second": 1e6, "key_cache_seconds": 3600.0})
    who = authenticator(open_key_cache(settings, index), "0.0.0.0")
    return QueryService(who, open_query_limits(settings), now_ns)


@contextmanager
def _served(directory: Path, index: Index, workers: RemoteWorkers, delayed_names: bool) -> Iterator[HttpServer]:
    """Serve Prometheus' API as query-api does, except for the size of shards."""
    engine = metric_queries(index, workers, shard_rows=1, most_shards=WORKERS, delayed_names=delayed_names)
    api = PrometheusApi(engine, query_service(directory, index), MetricsLimits(), lambda: True)
    with served(api.routes()) as server:
        yield server


@contextmanager
def served(routes: Sequence[Route]) -> Iterator[HttpServer]:
    server = HttpServer(build_app(routes), bind("127.0.0.1", 0), print)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def _worker(directory: Path, port: int, environment: Mapping[str, str]) -> Iterator[Process]:
    home = directory / f"worker-{port}"
    arguments = ["query-worker", "--home", str(home), "--listen", f"127.0.0.1:{port}"]
    with lakerunner(arguments, directory / f"worker-{port}.log", environment) as process:
        yield process


def _key_to(index: Index, box: IngestBox, result: BoxResult) -> str:
    """Create a key to the box's organization, once its segments are in the index."""
    if result.failed:
        raise AssertionError(f"a script's data were set aside: {result.failed}")
    index.organizations.create(Organization(box.organization, f"state-{box.organization}"))
    if result.segments:
        assert len(result.segments) >= len(box.sources)
        index.commit(Commit(result.segments, (), ()))
    return index.keys.create(box.organization, "reader", frozenset({Role.READ}))


def _box(store: ObjectStore, organization: UUID, state: State) -> IngestBox:
    sources = tuple(_put(store, organization, n, part) for n, part in enumerate(_parts(state)) if part)
    return IngestBox(organization, COLLECTOR, "metrics", sources)


def _ingest(address: StoreAddress) -> Callable[[IngestBox], BoxResult]:
    return partial(ingest_group, address=address, limits=LIMITS)


def _by_spark(directory: Path, address: StoreAddress, boxes: Sequence[IngestBox]) -> list[BoxResult]:
    """Ingest everything in one job: a job for each box, as the pipeline does it, spends most of its time on starting
    and stopping."""
    (directory / "spark").mkdir()
    with spark_session(directory / "spark", "local[2]") as spark:
        tasks = spark.sparkContext.parallelize(boxes, 2 * spark.sparkContext.defaultParallelism)
        found: list[BoxResult] = tasks.map(_ingest(address)).collect()
    return found


def _parts(state: State) -> list[dict[Labels, list[Sample]]]:
    parts: list[dict[Labels, list[Sample]]] = [{} for _ in range(PARTS)]
    for labels, samples in state.series.items():
        first = zlib.crc32(repr(labels).encode())
        for place, sample in enumerate(samples):
            part = parts[(first + 2 * place // len(samples)) % PARTS]
            part.setdefault(labels, []).append(sample)
    return parts


def _put(store: ObjectStore, organization: UUID, number: int, part: Mapping[Labels, list[Sample]]) -> SourceObject:
    key = f"otel-raw/{organization}/{COLLECTOR}/{number}.prw2"
    store.put(key, framed(request_of(part.items())))
    meta = store.head(key)
    return SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
