"""What each process consists of. A part adds its loops to the runtime and gives the routes it serves; `up` is all
parts in one process, and every other process is one of them alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from lakerunner.api.admin.keys_api import KeysApi
from lakerunner.api.admin.objects_api import ObjectsApi
from lakerunner.api.admin.work_api import WorkApi
from lakerunner.api.app import admin_routes, build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.events import EventsApi, Notified
from lakerunner.api.keep import Keeper
from lakerunner.api.loki.loki_push import LokiPushApi
from lakerunner.api.native.metrics_api import NativeMetricsApi
from lakerunner.api.native.native_api import NativeApi
from lakerunner.api.otlp.otlp_http import OtlpApi
from lakerunner.api.prometheus.prometheus_api import MetricsLimits, PrometheusApi
from lakerunner.api.prometheus.remote_write import RemoteWriteApi
from lakerunner.api.receive import PushLimits, Receiver
from lakerunner.api.server import HttpServer, bind, is_loopback, parse_address
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.api.tls import Certificate
from lakerunner.api.workers.worker_api import WorkerApi
from lakerunner.model.errors import UserError
from lakerunner.model.merging import MergeLimits
from lakerunner.model.signal import SIGNALS
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.push_check import warm
from lakerunner.pipeline.transcode.mapping_file import read_mapping_file
from lakerunner.services.announce import Announcer
from lakerunner.services.boxer import Boxer, Lane, compact_lane, ingest_lane, rollup_lane
from lakerunner.services.compact import Compaction
from lakerunner.services.ground import Say, key_prefix, now_ns
from lakerunner.services.ingest import Ingest, IngestParts
from lakerunner.services.lister import Lister, Newcomers
from lakerunner.services.otlp_ports import open_otlp_ports
from lakerunner.services.parts import (
    Parts,
    authenticator,
    http_bounds,
    open_engine,
    open_metrics,
    open_outgrown,
    open_query_limits,
    open_sandboxes,
    open_sql,
    open_worker,
    open_workers,
    own_names,
    refuse_open_worker,
    web_origins,
    work_parts,
)
from lakerunner.services.query_counts import counted_units
from lakerunner.services.queue_door import QueueDoor
from lakerunner.services.queues import open_queues
from lakerunner.services.relay import Relay
from lakerunner.services.requeue import Requeue
from lakerunner.services.rollup import Rollup
from lakerunner.services.runtime import Runtime
from lakerunner.services.sweeper import Sweeper, chores_of
from lakerunner.services.tending import Every, Overdue, Told, remind_merges, remind_rollups, sample, sample_seconds
from lakerunner.services.warm import warm_queries_aside
from lakerunner.services.work import B, W, Worker
from lakerunner.settings import Settings

Routes = list[BaseRoute]
M = TypeVar("M")
_REMIND_EVERY = 60.0
_SPARE_THREADS = 8


def add_pubsub(parts: Parts, _say: Say) -> Routes:
    """Every door: the lister, queues, the webhook, OTLP; and the relay of what they announce."""
    settings, runtime = parts.settings, parts.runtime
    announcer = Announcer(parts.index, parts.store, settings.routes.route_of)
    newcomers = Newcomers(parts.index, parts.store)
    lister = Lister(newcomers, announcer, settings.routes.roots, int(settings.settle_seconds * 1e9))
    notified = Notified(parts.store.bucket, key_prefix(settings.store_url), settings.routes)

    def list_once() -> None:
        if not lister.poll(now_ns()):
            runtime.stopping.wait(settings.lister_seconds)

    next_reminder = [time.monotonic()]

    def remind_once() -> None:
        if time.monotonic() >= next_reminder[0]:
            announcer.remind(settings.reminder_seconds)
            next_reminder[0] = time.monotonic() + min(settings.reminder_seconds, _REMIND_EVERY)
        runtime.stopping.wait(1.0)

    runtime.loop("lister", list_once)
    runtime.loop("reminder", remind_once)
    queues = open_queues(settings)
    for queue in queues:
        runtime.loop(queue.name, QueueDoor(queue, announcer.keys, notified, runtime.stopping).step)
    add_relay(parts)
    who = _authenticator(parts)
    index = parts.index.hurried()  # at these doors a client waits
    announcer_of_doors = Announcer(index, parts.store, settings.routes.route_of)
    receiver = _open_receiver(parts, Keeper(parts.store, index.pushes, announcer_of_doors.metas))
    otlp = OtlpApi(receiver, who, settings.request_max_bytes)
    loki = LokiPushApi(receiver, who, settings.request_max_bytes)
    parts.doors.update(open_otlp_ports(parts, otlp))
    if queues:
        parts.doors["notifications"] = ", ".join(queue.name for queue in queues)
    events = EventsApi(announcer_of_doors.keys, who, notified)
    prometheus = RemoteWriteApi(receiver, who, settings.request_max_bytes)
    return [*events.routes(), *otlp.routes(), *loki.routes(), *prometheus.routes()]


def add_boxer(parts: Parts, _say: Say) -> Routes:
    settings = parts.settings
    for signal in SIGNALS:
        _add_boxer(parts, ingest_lane(signal, settings))
        _add_boxer(parts, compact_lane(signal, settings))
    _add_boxer(parts, rollup_lane(settings))
    return []


def _add_boxer(parts: Parts, lane: Lane[M]) -> None:
    boxer = Boxer(lane, parts.bus, time.monotonic)
    parts.runtime.defer(lane.name, boxer.close)
    parts.runtime.loop(lane.name, boxer.step)


def add_ingest(parts: Parts, say: Say) -> Routes:
    settings = parts.settings
    mappings = read_mapping_file(settings.mapping_file)
    say("starting Spark")
    with parts.spark.use():
        pass
    limits = IngestLimits(
        settings.object_max_bytes, settings.task_max_bytes, settings.failpoint, settings.bad_lines_max_share
    )
    attempts = settings.box_max_attempts
    ingest_parts = IngestParts(parts.index, parts.spark.use, parts.task_address, limits, attempts, mappings)
    for spec in SIGNALS.values():
        ingest = Ingest(spec, parts.bus, ingest_parts)
        parts.runtime.defer(f"ingest {spec.name}", ingest.close)
        parts.runtime.loop(f"ingest {spec.name}", ingest.step)
    add_relay(parts)
    return []


def add_compact(parts: Parts, _say: Say) -> Routes:
    settings = parts.settings
    merge = MergeLimits(settings.compact_max_segments, settings.compact_target_bytes)
    limits = CompactLimits(settings.compact_memory, 2 * settings.compact_target_bytes, settings.failpoint)
    compaction = Compaction(parts.index, parts.spark.use, parts.task_address, merge, limits)
    worker = Worker(compaction, parts.bus, work_parts(parts))
    overdue, told = Overdue.of(settings), Told(settings.reminder_seconds)
    _add_worker(parts, "compact", worker, lambda: remind_merges(parts.index.tending, overdue, told))
    return []


def add_rollup(parts: Parts, _say: Say) -> Routes:
    settings = parts.settings
    limits = CompactLimits(settings.compact_memory, 2 * settings.compact_target_bytes, settings.failpoint)
    rollup = Rollup(parts.index, parts.spark.use, parts.task_address, limits)
    worker = Worker(rollup, parts.bus, work_parts(parts))
    overdue, told = Overdue.of(settings), Told(settings.reminder_seconds)
    _add_worker(parts, "rollup", worker, lambda: remind_rollups(parts.index.tending, overdue, told))
    return []


def _add_worker(parts: Parts, name: str, worker: Worker[B, W], remind: Callable[[], object]) -> None:
    runtime, overdue = parts.runtime, Overdue.of(parts.settings)
    runtime.defer(name, worker.close)
    runtime.loop(name, worker.step)
    reminder = Every(overdue.reminder, remind, time.monotonic, runtime.stopping.wait)
    runtime.loop(f"{name} reminder", reminder.step)
    if "gauges" not in runtime.loops:
        gauges = Every(
            sample_seconds(overdue),
            lambda: sample(parts.index.tending, now_ns()),
            time.monotonic,
            runtime.stopping.wait,
        )
        runtime.loop("gauges", gauges.step)
    add_relay(parts)


def add_sweeper(parts: Parts, _say: Say) -> Routes:
    settings, runtime = parts.settings, parts.runtime
    chores = chores_of(settings, parts.index, parts.store, parts.address)
    sweeper = Sweeper(parts.index, chores, settings.sweep_seconds, runtime.stopping, time.monotonic)
    runtime.loop("sweeper", sweeper.step)
    return []


def add_query_api(parts: Parts, _say: Say) -> Routes:
    settings = parts.settings
    index = parts.index.hurried()  # a client waits for every answer
    sandboxes = open_sandboxes(settings)
    parts.runtime.defer("sandboxes", sandboxes.close)
    workers = open_workers(parts, sandboxes)
    engine = open_engine(settings, index, workers, sandboxes)
    queries = open_sql(engine, sandboxes, open_outgrown(parts, sandboxes))
    who = _authenticator(parts)
    limits = open_query_limits(settings)
    sql = SqlApi(queries, who, now_ns, limits)
    native = NativeApi(queries, index.segments, who, now_ns, limits)
    metrics = open_metrics(settings, engine)
    native_metrics = NativeMetricsApi(metrics, who, now_ns, limits)
    most = MetricsLimits(settings.query_seconds, settings.metrics_max_series)
    prometheus = PrometheusApi(metrics, who, now_ns, limits, most, lambda: parts.runtime.health.ready)
    keys = KeysApi(index.keys, who, parts.keys.forget)
    again = Announcer(index, parts.store, settings.routes.route_of).again
    objects = ObjectsApi(index.sources, who, again)
    work = WorkApi(index.tending, who, Requeue(index.tending))
    warm_queries_aside(sandboxes)
    apis = (sql, native, native_metrics, prometheus, keys, objects, work)
    return [route for api in apis for route in api.routes()]


def worker_routes(settings: Settings, store: ObjectStore) -> Routes:
    host = parse_address(settings.listen)[0]
    refuse_open_worker(settings, is_loopback(host))
    sandboxes = open_sandboxes(settings)
    worker = open_worker(settings, store, sandboxes)
    warm_queries_aside(sandboxes)
    threads = CapacityLimiter(worker.slots.most + worker.slots.most_in_line + _SPARE_THREADS)
    return [*WorkerApi(counted_units(worker.run), settings.worker_key, threads, own_names(host)).routes()]


def add_relay(parts: Parts) -> None:
    """Once per process, however many of its parts leave messages in the outbox."""
    if "relay" not in parts.runtime.loops:
        parts.runtime.loop("relay", Relay(parts.index, parts.bus).step)


def serve(settings: Settings, runtime: Runtime, routes: Routes, certificate: Certificate | None = None) -> HttpServer:
    """Start the process's HTTP server."""
    host, port = parse_address(settings.listen)
    app = build_app(admin_routes(runtime.health), routes, origins=web_origins(settings))
    listener = bind(host, port)
    if is_loopback(host) and not is_loopback(listener.getsockname()[0]):
        listener.close()
        raise UserError(f"{host} no longer resolves to loopback: set `listen` to a numeric address")
    server = HttpServer(app, listener, lambda reason: runtime.fail("http", reason), http_bounds(settings), certificate)
    server.start()
    runtime.defer("http", server.stop)
    return server


AddPart = Callable[[Parts, Say], Routes]
PARTS: dict[str, AddPart] = {
    "pubsub": add_pubsub,
    "boxer": add_boxer,
    "ingest": add_ingest,
    "compact": add_compact,
    "rollup": add_rollup,
    "sweeper": add_sweeper,
    "query-api": add_query_api,
}


def _authenticator(parts: Parts) -> Authenticator:
    return authenticator(parts.keys, parse_address(parts.settings.listen)[0], parts.token)


def _open_receiver(parts: Parts, keeper: Keeper) -> Receiver:
    """Started before the doors that use it, and so stopped after they have been drained; what waits in it is stored as
    soon as the process begins to stop."""
    settings = parts.settings
    limits = PushLimits(
        settings.push_max_seconds,
        settings.push_max_bytes,
        settings.push_max_waiting_bytes,
        settings.push_max_waiting_requests,
    )
    receiver = Receiver(keeper, limits, lambda reason: parts.runtime.fail("push", reason))
    receiver.start()
    parts.runtime.on_stop(receiver.drain)
    parts.runtime.defer("push", receiver.stop)
    # So that the first request does not wait for it longer than it must.
    threading.Thread(target=warm, name="push-warm", daemon=True).start()
    return receiver
