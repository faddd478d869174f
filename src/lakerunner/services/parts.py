"""The parts that processes are put together from, each opened from settings and closed by the runtime, in order."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

from lakerunner.api.addresses import Addresses, lookups
from lakerunner.api.auth import Authenticator
from lakerunner.api.key_cache import Ages, KeyCache
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.worker_client import RemoteWorkers
from lakerunner.bus.bus import Bus
from lakerunner.bus.open import open_bus
from lakerunner.index.index import Index
from lakerunner.index.keys import Known
from lakerunner.index.tending import Retry
from lakerunner.model.caller import EVERY_ROLE, Caller, Share
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.objects.hurrying import HurryingStore
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.ask.run import AskLimits, SparkQueries
from lakerunner.pipeline.job import probe
from lakerunner.query.assign import UnitSize
from lakerunner.query.cache import SegmentCache
from lakerunner.query.coordinate import Coordinator
from lakerunner.query.engine import Engine
from lakerunner.query.failures import Limits
from lakerunner.query.gather import Gathering
from lakerunner.query.inflow import Spool
from lakerunner.query.instance import Instances
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.metrics.engine import MetricsEngine, MetricsLimits
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.slots import Slots
from lakerunner.query.worker import QueryWorker, units_at_once
from lakerunner.query.workers import OneWorker, Workers
from lakerunner.services.ground import Say, open_index, store_address, without_secrets
from lakerunner.services.runtime import Runtime
from lakerunner.services.spark import ProcessSpark
from lakerunner.services.work import WorkParts
from lakerunner.settings import Settings

_SLOTS_FOR_BOTH = 4  # with a quarter of so many, compaction and rollup have one each
_KEYLESS = b""  # no digest of any secret
_QUERY_SPARK = ("shared", "own", "off")


@dataclass(frozen=True)
class Parts:
    """What nearly every process has: settings, index, store, bus; and Spark, for those that ask for it."""

    settings: Settings
    runtime: Runtime
    index: Index
    store: ObjectStore
    address: StoreAddress
    bus: Bus
    keys: KeyCache
    spark: ProcessSpark


def open_parts(settings: Settings, runtime: Runtime, say: Say) -> Parts:
    index = open_index(settings, runtime, say)
    address = store_address(settings)
    store = open_store(address)
    say(f"object store {without_secrets(settings.store_url)}")
    bus = open_bus(settings.bus, pool=index.pool, url=index.url, topic_prefix=settings.bus_topic_prefix)
    runtime.defer("bus", bus.close)
    say(f"bus on {without_secrets(settings.bus)}")
    return Parts(
        settings,
        runtime,
        index,
        store,
        address,
        bus,
        open_key_cache(settings, index.hurried()),
        ProcessSpark(settings, runtime),
    )


def open_worker(settings: Settings, store: ObjectStore) -> QueryWorker:
    hurried = open_store(replace(store_address(settings), retries=0))
    cache = SegmentCache(HurryingStore(store, hurried), settings.cache_directory / "segments", settings.cache_max_bytes)
    limits = replace(_limits(settings, cache.directory), max_rows=settings.unit_max_rows, rows_setting="unit_max_rows")
    metrics = MetricSegments(cache, keep_bytes=settings.metrics_cache_bytes)
    return QueryWorker(cache, _open_instances(settings, limits), Slots(units_at_once(settings.worker_units)), metrics)


def open_workers(settings: Settings, runtime: Runtime, store: ObjectStore, say: Say) -> Workers:
    """Those that the setting names, or one in this process."""
    if not settings.workers:
        return OneWorker(open_worker(settings, store))
    remote = RemoteWorkers(Addresses(lookups(settings.workers)), settings.worker_key, settings.query_seconds + 90)
    runtime.defer("query workers", remote.close)
    say(f"query workers: {settings.workers}")
    return remote


def work_parts(parts: Parts) -> WorkParts:
    """Compaction and rollup have a quarter of Spark's slots each, so that ingest always finds some; where there are few
    they take turns."""
    settings, spark = parts.settings, parts.spark.session()
    slots = spark.sparkContext.defaultParallelism
    retry = Retry(settings.work_max_attempts, settings.work_retry_seconds)
    turn = parts.spark.turn if slots < _SLOTS_FOR_BOTH else Lock()
    return WorkParts(parts.index.tending, partial(probe, spark), retry, max(1, slots // 4), turn)


def open_outgrown(parts: Parts) -> Outgrown | None:
    """What answers engine=spark, where this process may: by the session it has, or by one opened at the first such
    question."""
    settings = parts.settings
    if settings.query_spark not in _QUERY_SPARK:
        raise UserError(f"setting query_spark is {settings.query_spark!r}: it is one of {', '.join(_QUERY_SPARK)}")
    if settings.query_spark == "off" or (settings.query_spark == "shared" and not parts.spark.is_open):
        return None
    queries = SparkQueries(
        parts.spark.session, parts.address, AskLimits(settings.query_seconds, settings.query_max_rows)
    )
    return Outgrown(queries, _open_instances(settings, _limits(settings)))


def open_engine(settings: Settings, index: Index, workers: Workers, outgrown: Outgrown | None = None) -> Engine:
    coordinator = Coordinator(_open_instances(settings, _limits(settings)))
    spool = Spool(_spill_directory(settings), settings.query_spool_bytes)
    gathering = Gathering(size=UnitSize(bytes=settings.unit_max_bytes), spool=spool)
    results = ResultCache(settings.result_cache_bytes, settings.result_cache_seconds, time.monotonic)
    return Engine(index, workers, coordinator, gathering, results=results, outgrown=outgrown)


def open_metrics_engine(settings: Settings, index: Index, workers: Workers) -> MetricsEngine:
    limits = MetricsLimits(settings.metrics_max_series, settings.metrics_max_samples, settings.query_seconds)
    return MetricsEngine(KnownSegments(index), workers, limits)


def _spill_directory(settings: Settings) -> Path:
    return (settings.cache_directory / "spill").resolve()


def _limits(settings: Settings, *hidden: Path) -> Limits:
    """`hidden` are directories that no message may show."""
    hidden = (*hidden, _spill_directory(settings))
    return Limits(settings.query_memory, settings.query_seconds, settings.query_max_rows, hidden)


def _open_instances(settings: Settings, limits: Limits) -> Instances:
    return Instances(limits, threads=settings.query_threads, spill_directory=_spill_directory(settings))


def open_key_cache(settings: Settings, index: Index) -> KeyCache:
    """What requests without a key may take of the query service is remembered in the same way."""

    def find(hashed: bytes) -> Known | None:
        if hashed != _KEYLESS:
            return index.keys.find(hashed)
        share = index.organizations.share(DEFAULT_ORGANIZATION.id)
        return Known(Caller(DEFAULT_ORGANIZATION, None, EVERY_ROLE, share))

    return KeyCache(find, Ages(settings.key_cache_seconds, settings.key_cache_away_seconds), time.monotonic)


def authenticator(keys: KeyCache, loopback: bool) -> Authenticator:
    """On loopback a request without a key is of the default organization; elsewhere a key is needed."""

    def keyless_share() -> Share:
        with suppress(Unavailable):  # nobody is kept out because limits cannot be looked up
            if caller := keys.caller_by(_KEYLESS):
                return caller.share
        return Share()

    return Authenticator(keys.caller, DEFAULT_ORGANIZATION if loopback else None, keyless_share)


def open_query_limits(settings: Settings) -> QueryLimits:
    concurrent = settings.query_concurrency
    of_one = settings.org_concurrent_queries or max(1, concurrent * 3 // 4)  # so that something is left for others
    return QueryLimits(Capacity(concurrent, settings.org_queries_per_second, of_one), time.monotonic)


def refuse_open_worker(settings: Settings, loopback: bool) -> None:
    if not loopback and not settings.worker_key:
        raise UserError(
            "a query worker beyond loopback needs a secret: set LAKERUNNER_WORKER_KEY, the same on query-api"
        )
