"""Open the parts of processes from settings; the runtime closes them, in order."""

from __future__ import annotations

import hmac
import re
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock

from lakerunner.api.auth import Authenticator
from lakerunner.api.http_protocol import Bounds
from lakerunner.api.key_cache import Ages, KeyCache
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.server import is_loopback
from lakerunner.api.tls import Certificate, trusting
from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers
from lakerunner.bus.bus import Bus
from lakerunner.bus.open import open_bus
from lakerunner.index.api_keys import KeyGrant
from lakerunner.index.index import Index
from lakerunner.index.tending import Retry
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, EVERY_ROLE, Caller, Share
from lakerunner.objects.open import HurryingStore, StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ask.lease import QuerySpark
from lakerunner.pipeline.job import probe_workers
from lakerunner.promql.operators import Limits as SeriesLimits
from lakerunner.query.contract.failures import Limits
from lakerunner.query.engine import Engine
from lakerunner.query.gather import GatherOptions, UnitSize
from lakerunner.query.inflow import Spool
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.slots import Slots
from lakerunner.query.worker import QueryWorker, units_at_once
from lakerunner.query.workers import OneWorker, Workers
from lakerunner.services.ground import Say, open_index, store_address
from lakerunner.services.query_counts import CountedLimits, CountedMetricQueries
from lakerunner.services.runtime import Runtime
from lakerunner.services.spark import ProcessSpark, open_query_spark, task_address
from lakerunner.services.work import WorkParts
from lakerunner.settings import Settings

_SLOTS_FOR_ALL = 4  # from this number on, a quarter of the slots is at least one for each, and one is left for ingest
_ORIGIN = re.compile(r"https?://[^/?#\s@]+")
_KEYLESS = b""  # not the digest of any secret


@dataclass(frozen=True)
class Parts:
    """What nearly every process has: settings, index, store, bus, and Spark, which is started on first use.
    `task_address` is the address of the store for Spark's tasks."""

    settings: Settings
    runtime: Runtime
    index: Index
    store: ObjectStore
    address: StoreAddress
    bus: Bus
    keys: KeyCache
    spark: ProcessSpark
    task_address: StoreAddress
    token: str = ""  # of its home (services/home.py); empty if it has none
    certificate: Certificate | None = None  # None if its ports do not speak TLS
    doors: dict[str, str] = field(default_factory=dict)  # doors besides the HTTP API: name, and where it listens


def open_parts(
    settings: Settings, runtime: Runtime, say: Say, token: str = "", certificate: Certificate | None = None
) -> Parts:
    index = open_index(settings, runtime, say)
    address = store_address(settings)
    store = open_store(address)
    bus = open_bus(settings.bus, pool=index.pool, url=index.url, topic_prefix=settings.bus_topic_prefix)
    runtime.defer("bus", bus.close)
    return Parts(
        settings,
        runtime,
        index,
        store,
        address,
        bus,
        open_key_cache(settings, index.hurried()),
        ProcessSpark(settings, runtime),
        task_address(settings, address),
        token,
        certificate,
    )


def open_sandboxes(settings: Settings) -> Sandboxes:
    """Open the pool of processes that run users' SQL. All parts of a process share it, so one bound holds for all."""
    hidden = (settings.cache_directory.resolve(),)
    limits = Limits(settings.query_memory, settings.query_seconds, settings.query_max_rows, hidden)
    return Sandboxes(
        limits,
        threads=settings.query_threads,
        spill_directory=_spill_directory(settings),
        total_bytes=settings.sandbox_memory,
    )


def open_worker(settings: Settings, store: ObjectStore, sandboxes: Sandboxes | None = None) -> QueryWorker:
    hurried = open_store(replace(store_address(settings), retries=0))
    cache = SegmentCache(HurryingStore(store, hurried), settings.cache_directory / "segments", settings.cache_max_bytes)
    sandboxes = sandboxes or open_sandboxes(settings)
    limits = replace(sandboxes.limits, max_rows=settings.unit_max_rows, rows_setting="unit_max_rows")
    metrics = MetricSegments(cache, keep_bytes=settings.metrics_cache_bytes)
    return QueryWorker(cache, sandboxes, Slots(units_at_once(settings.worker_units)), metrics, limits)


def open_workers(parts: Parts, sandboxes: Sandboxes) -> Workers:
    """Return the query workers that the setting names, or one in this process."""
    settings, runtime = parts.settings, parts.runtime
    if not settings.workers:
        return OneWorker(open_worker(settings, parts.store, sandboxes))
    remote = RemoteWorkers(
        Addresses(lookups(settings.workers)),
        settings.worker_key,
        settings.query_seconds + 90,
        trusting(settings.tls_ca),
    )
    runtime.defer("query workers", remote.close)
    return remote


def work_parts(parts: Parts) -> WorkParts:
    """Return what compaction, rollup and the history of rules work with. Each gets a quarter of Spark's slots, so that
    ingest always finds some; with few slots they take turns."""
    settings = parts.settings
    with parts.spark.use() as session:
        slots = session.sparkContext.defaultParallelism
    retry = Retry(settings.work_max_attempts, settings.work_retry_seconds)
    turn = parts.spark.turn if slots < _SLOTS_FOR_ALL else Lock()
    return WorkParts(parts.index.tending, partial(_probe, parts.spark), retry, max(1, slots // 4), turn)


def _probe(spark: ProcessSpark) -> None:
    with spark.use() as session:
        probe_workers(session)


def open_spark(parts: Parts) -> QuerySpark | None:
    """Return what answers engine=spark; None if that is off."""
    if parts.settings.query_spark == "off":
        return None
    return open_query_spark(parts.settings, parts.runtime, parts.address)


def open_engine(
    settings: Settings, index: Index, workers: Workers, sandboxes: Sandboxes, spark: QuerySpark | None = None
) -> Engine:
    spool = Spool(_spill_directory(settings), settings.query_spool_bytes)
    gathering = GatherOptions(size=UnitSize(bytes=settings.unit_max_bytes), spool=spool)
    results = ResultCache(settings.result_cache_bytes, settings.result_cache_seconds, time.monotonic)
    return Engine(
        KnownSegments(index),
        workers,
        Coordinator(sandboxes),
        gathering,
        results=results,
        seconds=settings.query_seconds,
        spark=spark,
    )


def open_metrics(settings: Settings, engine: Engine) -> MetricQueries:
    limits = SeriesLimits(settings.metrics_max_series, settings.metrics_max_samples)
    return CountedMetricQueries(engine, limits, delayed_names=settings.promql_delayed_name_removal)


def _spill_directory(settings: Settings) -> Path:
    return (settings.cache_directory / "spill").resolve()


def open_key_cache(settings: Settings, index: Index) -> KeyCache:
    """Return the cache of keys. The limits of requests without a key are cached in the same way."""

    def find(hashed: bytes) -> KeyGrant | None:
        if hashed != _KEYLESS:
            return index.keys.find(hashed)
        share = index.organizations.share(DEFAULT_ORGANIZATION.id)
        return KeyGrant(Caller(DEFAULT_ORGANIZATION, None, EVERY_ROLE, share))

    return KeyCache(find, Ages(settings.key_cache_seconds, settings.key_cache_away_seconds), time.monotonic)


def authenticator(keys: KeyCache, host: str, token: str = "") -> Authenticator:
    """Make the authenticator of a server on this host. On loopback a request without a key belongs to the default
    organization; elsewhere a key is needed. The token of our home stands for the default organization everywhere."""

    def keyless_share() -> Share:
        with suppress(Unavailable):  # a request is not refused because its limits cannot be looked up
            if caller := keys.caller_by(_KEYLESS):
                return caller.share
        return Share()

    def caller_of(secret: str) -> Caller | None:
        if token and hmac.compare_digest(secret.encode("utf-8", "surrogatepass"), token.encode()):
            return Caller(DEFAULT_ORGANIZATION, None, EVERY_ROLE, keyless_share())
        return keys.caller(secret)

    keyless = DEFAULT_ORGANIZATION if is_loopback(host) else None
    return Authenticator(caller_of, keyless, keyless_share, own_names(host))


def own_names(host: str) -> frozenset[str]:
    """Return the names by which requests without a key may call a server on this host, besides localhost."""
    return frozenset({host.lower()})


def http_bounds(settings: Settings) -> Bounds:
    """Return the bounds of an HTTP server. Connections take at most half of the files that the process may open: when
    no file is left, a connection cannot even be refused."""
    wanted = settings.http_max_connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(soft, 2 * wanted + 1024)
    if soft != resource.RLIM_INFINITY and needed > soft:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return Bounds(connections=wanted if soft == resource.RLIM_INFINITY else min(wanted, soft // 2))


def web_origins(settings: Settings) -> tuple[str, ...]:
    """Return the origins of the setting `cors_origins`; UserError if one is not an origin."""
    origins = tuple(one.strip() for one in settings.cors_origins.split(",") if one.strip())
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise UserError(
                f"setting cors_origins: {origin!r} is not an origin: write https://host or https://host:port"
            )
    return origins


def open_query_limits(settings: Settings) -> QueryLimits:
    concurrent = settings.query_concurrency
    of_one = settings.org_concurrent_queries or max(1, concurrent * 3 // 4)  # leave some for others
    return CountedLimits(Capacity(concurrent, settings.org_queries_per_second, of_one), time.monotonic)


def refuse_open_worker(settings: Settings, loopback: bool) -> None:
    if not loopback and not settings.worker_key:
        raise UserError(
            "a query worker on other hosts than loopback needs a secret: set "
            "LAKERUNNER_WORKER_KEY to the same value here and on query-api"
        )
