"""Scripts in a whole lake: every state is an organization of its own, its samples are ingested by the pipeline from raw
remote-write objects, and a query-api with three query workers, real processes all, is asked over HTTP.

Each state's samples come in three objects, which become segments of their own: every series is in two of them, its
earlier half in one and its later half in another.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import httpx
from pyspark.sql import SparkSession

from conformance.http_subject import Address, HttpSubject
from conformance.remote_write import request_of
from conformance.script import Case, Sample, State
from lakerunner.bus.topics import IngestBox
from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.labels import Labels
from lakerunner.model.organization import Organization
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_group
from pipeline.remote_write_oracle import framed
from servers.lake import Process, free_port, lakerunner, query_api
from servers.spark import spark_session

PARTS = 3
WORKERS = 3
COLLECTOR = "scripts"
LIMITS = IngestLimits(object_max_bytes=64 << 20, task_max_bytes=1)  # every object makes segments of its own
_WORKER_KEY = "known-to-api-and-workers"


@dataclass
class ScriptedLake:
    """`keys` of the organizations, by state."""

    url: str
    workers: list[Process]
    keys: Mapping[State, str]
    _client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=120))

    @property
    def subject(self) -> HttpSubject:
        return HttpSubject(self._client, self._address)

    def _address(self, state: State) -> Address:
        return Address(f"{self.url}/prometheus", {"authorization": f"Bearer {self.keys[state]}"})


@contextmanager
def scripted_lake(directory: Path, cases: Iterable[Case]) -> Iterator[ScriptedLake]:
    states = list({case.state: None for case in cases})
    with ExitStack() as stack:
        address = StoreAddress((directory / "store").as_uri())
        postgres = EmbeddedPostgres(directory / "postgres")
        url = postgres.start()
        stack.callback(postgres.stop)
        keys = _filled(directory, address, url, states)
        ports = [free_port() for _ in range(WORKERS)]
        environment = {
            "DATABASE_URL": url,
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_UNIT_MAX_BYTES": "1",
            "LAKERUNNER_WORKER_KEY": _WORKER_KEY,
            "LAKERUNNER_WORKERS": ",".join(f"http://127.0.0.1:{port}" for port in ports),
        }
        workers = [stack.enter_context(_worker(directory, port, environment)) for port in ports]
        for worker in workers:
            worker.wait_for('"ready"')
        served = stack.enter_context(query_api(directory / "api", environment))
        lake = ScriptedLake(served.url, workers, keys)
        stack.callback(lake._client.close)
        yield lake


@contextmanager
def _worker(directory: Path, port: int, environment: Mapping[str, str]) -> Iterator[Process]:
    home = directory / f"worker-{port}"
    arguments = ["query-worker", "--home", str(home), "--listen", f"127.0.0.1:{port}"]
    with lakerunner(arguments, directory / f"worker-{port}.log", environment) as process:
        yield process


def _filled(directory: Path, address: StoreAddress, url: str, states: Sequence[State]) -> dict[State, str]:
    """The keys of the organizations, once all that is loaded is in the lake."""
    index = Index.open(url, connections=2)
    index.migrate()
    store = open_store(address)
    (directory / "spark").mkdir()
    boxes = [_box(store, state) for state in states]
    with spark_session(directory / "spark", "local[2]") as spark:
        results = _ingested(spark, address, boxes)
    keys: dict[State, str] = {}
    for number, (state, box, result) in enumerate(zip(states, boxes, results, strict=True)):
        if result.failed:
            raise AssertionError(f"a script's data were set aside: {result.failed}")
        index.organizations.create(Organization(box.organization, f"state-{number}"))
        if result.segments:
            assert len(result.segments) >= len(box.sources)
            index.commit(Commit(result.segments, (), ()))
        keys[state] = index.keys.create(box.organization, "reader", frozenset({"read"}))
    index.close()
    return keys


def _box(store: ObjectStore, state: State) -> IngestBox:
    organization = uuid4()
    sources = tuple(_put(store, organization, n, part) for n, part in enumerate(_parts(state)) if part)
    return IngestBox(organization, COLLECTOR, "metrics", sources)


def _ingested(spark: SparkSession, address: StoreAddress, boxes: Sequence[IngestBox]) -> list[BoxResult]:
    """All in one job: a job for each box, as the pipeline would have it, takes most of its time to begin and end."""
    tasks = spark.sparkContext.parallelize(boxes, 2 * spark.sparkContext.defaultParallelism)
    return tasks.map(partial(ingest_group, address=address, limits=LIMITS)).collect()


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
