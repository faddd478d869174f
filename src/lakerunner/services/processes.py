"""Add the parts of a process. A part adds its loops to the runtime and returns the routes that it serves. `up` runs all
parts in one process, and every other service is a process with one part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TypeVar

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from lakerunner.api.admin.keys_api import KeysApi
from lakerunner.api.admin.objects_api import ObjectsApi
from lakerunner.api.admin.rules_api import RulesApi
from lakerunner.api.admin.work_api import WorkApi
from lakerunner.api.app import admin_routes, build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_api import LokiApi
from lakerunner.api.native.logs_api import NativeLogsApi
from lakerunner.api.native.metrics_api import NativeMetricsApi
from lakerunner.api.native.native_api import NativeApi
from lakerunner.api.prometheus.prometheus_api import MetricsLimits, PrometheusApi
from lakerunner.api.push.events import EventsApi, WatchedBucket
from lakerunner.api.push.http_doors import LokiPushApi, OtlpApi, RemoteWriteApi
from lakerunner.api.push.otlp_grpc import OtlpGrpcServer
from lakerunner.api.push.push_store import PushStore
from lakerunner.api.push.receiver import PushLimits, Receiver
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind, is_loopback, numeric_host, parse_address
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.api.tail.line_follower import LineFollower
from lakerunner.api.tail.tail_api import TailApi
from lakerunner.api.tls import Certificate
from lakerunner.api.workers.worker_api import WorkerApi
from lakerunner.logql.log_limits import LogLimits
from lakerunner.model.errors import UserError
from lakerunner.model.merging import MergeLimits
from lakerunner.model.signal import LOGS, SIGNALS
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.materialize import MaterializeLimits
from lakerunner.pipeline.push_check import warm as warm_checks
from lakerunner.pipeline.transcode.columns import read_mapping_file
from lakerunner.query.outgrown import Outgrown
from lakerunner.services.announce import Announcer, Lister, Newcomers
from lakerunner.services.boxer import Boxer, Lane, compact_lane, ingest_lane, rollup_lane
from lakerunner.services.compact import Compaction
from lakerunner.services.ground import Say, key_prefix, now_ns
from lakerunner.services.ingest import Ingest, IngestParts
from lakerunner.services.materialize import Materialize, MaterializeParts
from lakerunner.services.metric_rules import CheckedRules
from lakerunner.services.outbox import Relay
from lakerunner.services.parts import (
    Parts,
    authenticator,
    http_bounds,
    open_engine,
    open_metrics,
    open_query_limits,
    open_sandboxes,
    open_spark,
    open_worker,
    open_workers,
    own_names,
    refuse_open_worker,
    web_origins,
    work_parts,
)
from lakerunner.services.query_counts import CountedSqlQueries, counted_units
from lakerunner.services.queue_door import QueueDoor
from lakerunner.services.queues import open_queues
from lakerunner.services.rollup import Rollup
from lakerunner.services.runtime import Runtime
from lakerunner.services.sweeper import Sweeper, chores_of
from lakerunner.services.tending import (
    SAMPLE_SECONDS,
    Overdue,
    ReminderLog,
    Requeue,
    remind_merges,
    remind_rollups,
    sample,
)
from lakerunner.services.warm import warm_aside, warm_queries_aside
from lakerunner.services.work import B, W, Worker
from lakerunner.settings import Settings, variable_of

Routes = list[BaseRoute]
M = TypeVar("M")
_REMIND_EVERY = 60.0
_SPARE_THREADS = 8


def add_pubsub(parts: Parts, _say: Say) -> Routes:
    """Add every door (the lister, queues, the webhook, OTLP) and the relay of what they announce."""
    settings, runtime = parts.settings, parts.runtime
    announcer = Announcer(parts.index, parts.store, settings.routes.route_of)
    newcomers = Newcomers(parts.index, parts.store)
    lister = Lister(newcomers, announcer, settings.routes.roots, int(settings.settle_seconds * 1e9))
    notified = WatchedBucket(parts.store.bucket, key_prefix(settings.store_url), settings.routes)

    def list_once() -> None:
        if not lister.poll(now_ns()):
            runtime.stopping.wait(settings.lister_seconds)

    remind_seconds = min(settings.reminder_seconds, _REMIND_EVERY)
    remind = partial(announcer.remind, settings.reminder_seconds)
    runtime.loop("lister", list_once)
    runtime.every("reminder", remind_seconds, remind, first=0.0)
    queues = open_queues(settings)
    for queue in queues:
        runtime.loop(queue.name, QueueDoor(queue, announcer.keys, notified, runtime.stopping).step)
    add_relay(parts)
    who = _authenticator(parts)
    index = parts.index.hurried()  # a client waits at these doors
    announcer_of_doors = Announcer(index, parts.store, settings.routes.route_of)
    receiver = _open_receiver(parts, PushStore(parts.store, index.pushes, announcer_of_doors.metas))
    push = (receiver, who, settings.request_max_bytes)
    otlp, loki, prometheus = OtlpApi(*push), LokiPushApi(*push), RemoteWriteApi(*push)
    parts.doors.update(open_otlp_ports(parts, otlp))
    if queues:
        parts.doors["notifications"] = ", ".join(queue.name for queue in queues)
    events = EventsApi(announcer_of_doors.keys, who, notified)
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
    overdue, told = Overdue.of(settings), ReminderLog(settings.reminder_seconds)
    _add_worker(parts, "compact", worker, lambda: remind_merges(parts.index.tending, overdue, told))
    return []


def add_rollup(parts: Parts, _say: Say) -> Routes:
    settings = parts.settings
    limits = CompactLimits(settings.compact_memory, 2 * settings.compact_target_bytes, settings.failpoint)
    rollup = Rollup(parts.index, parts.spark.use, parts.task_address, limits)
    worker = Worker(rollup, parts.bus, work_parts(parts))
    overdue, told = Overdue.of(settings), ReminderLog(settings.reminder_seconds)
    _add_worker(parts, "rollup", worker, lambda: remind_rollups(parts.index.tending, overdue, told))
    return []


def add_materialize(parts: Parts, _say: Say) -> Routes:
    settings, runtime = parts.settings, parts.runtime
    if settings.materialize_history:
        limits = MaterializeLimits(settings.compact_memory, settings.failpoint)
        needs = MaterializeParts(
            parts.index,
            parts.spark.use,
            parts.task_address,
            limits,
            work_parts(parts),
            settings.materialize_rows_per_second,
        )
        runtime.loop("materialize", Materialize(needs, runtime.stopping.wait).step)
        add_relay(parts)
    return []


def _add_worker(parts: Parts, name: str, worker: Worker[B, W], remind: Callable[[], object]) -> None:
    runtime, reminder_seconds = parts.runtime, parts.settings.reminder_seconds
    runtime.defer(name, worker.close)
    runtime.loop(name, worker.step)
    runtime.every(f"{name} reminder", reminder_seconds, remind)
    if "gauges" not in runtime.loops:
        seconds = min(SAMPLE_SECONDS, reminder_seconds)
        runtime.every("gauges", seconds, lambda: sample(parts.index.tending, parts.index.inspect, now_ns()))
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
    spark = open_spark(parts)
    engine = open_engine(settings, index, workers, sandboxes, spark)
    rules = KnownRules(
        index.organizations.stream_rules,
        find_versions=lambda organization: index.metric_rules.active(organization, LOGS.name),
    )
    queries = CountedSqlQueries(engine, sandboxes, Outgrown(spark, sandboxes) if spark else None, rules.of)
    who = _authenticator(parts)
    service = QueryService(who, open_query_limits(settings), now_ns)
    sql = SqlApi(queries, service)
    native = NativeApi(queries, index.segments, service)
    metrics = open_metrics(settings, engine)
    native_metrics = NativeMetricsApi(metrics, service)
    most = MetricsLimits(settings.query_seconds, settings.metrics_max_series)
    prometheus = PrometheusApi(metrics, service, most, lambda: parts.runtime.health.ready)
    held = LogLimits(settings.metrics_max_series, settings.metrics_max_samples)
    loki = LokiApi(engine, service, LokiLimits(query=held), prometheus.ready, rules)
    native_logs = NativeLogsApi(engine, service, loki.most, rules)
    follower = LineFollower(engine, rules, index.commits, now_ns)
    parts.runtime.defer("tails", follower.close)
    tail = TailApi(follower, service, loki.most)
    keys = KeysApi(index.keys, who, parts.keys.forget)
    again = Announcer(index, parts.store, settings.routes.route_of).again
    objects = ObjectsApi(index.sources, who, again)
    work = WorkApi(index.tending, who, Requeue(index.tending))
    metric_rules = RulesApi(index.metric_rules, CheckedRules(index.metric_rules), who, index.rule_history)
    warm_queries_aside(sandboxes, parts.runtime.stopping)
    apis = (sql, native, native_metrics, native_logs, prometheus, loki, tail, keys, objects, work, metric_rules)
    return [route for api in apis for route in api.routes()]


def worker_routes(settings: Settings, store: ObjectStore, stopping: Event) -> Routes:
    host = parse_address(settings.listen)[0]
    refuse_open_worker(settings, is_loopback(host))
    sandboxes = open_sandboxes(settings)
    worker = open_worker(settings, store, sandboxes)
    warm_queries_aside(sandboxes, stopping)
    threads = CapacityLimiter(worker.slots.most + worker.slots.most_in_line + _SPARE_THREADS)
    return [*WorkerApi(counted_units(worker.run), settings.worker_key, threads, own_names(host)).routes()]


def add_relay(parts: Parts) -> None:
    """Add the relay, once per process, however many of its parts leave messages in the outbox."""
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
    "materialize": add_materialize,
    "sweeper": add_sweeper,
    "query-api": add_query_api,
}


def _authenticator(parts: Parts) -> Authenticator:
    return authenticator(parts.keys, parse_address(parts.settings.listen)[0], parts.token)


def _open_receiver(parts: Parts, keeper: PushStore) -> Receiver:
    """Open the receiver of pushed requests. It is started before the doors that use it, and so stopped after they have
    been drained. Requests that wait in it are stored as soon as the process begins to stop."""
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
    warm_aside([warm_checks], parts.runtime.stopping)  # so that the first request does not wait for it
    return receiver


_GRPC, _HTTP = "OTLP gRPC", "OTLP HTTP"


def open_otlp_ports(parts: Parts, otlp: OtlpApi) -> Iterator[tuple[str, str]]:
    """Open the OTLP ports, by default 4317 (gRPC) and 4318 (HTTP), and yield the name of each and where it listens, or
    why it does not. A default port that another program has is left to it; services/preflight.py refuses one that was
    set. UserError if the host is not an address. The HTTP API serves OTLP over HTTP in any case."""
    settings, runtime, certificate = parts.settings, parts.runtime, parts.certificate
    host = settings.otlp_listen
    if not host:
        return
    address = numeric_host(host)[1]
    keyless = otlp.authenticator.keyless if is_loopback(address) else None
    guarded = replace(otlp, authenticator=replace(otlp.authenticator, keyless=keyless, names=own_names(host)))
    grpc = OtlpGrpcServer(guarded.receiver, guarded.authenticator, guarded.max_bytes, certificate)
    yield _GRPC, _open_grpc(address, settings.otlp_grpc_port, runtime, grpc) + (" (TLS)" if certificate else "")
    app = build_app(guarded.routes(), origins=web_origins(settings))
    serve = partial(HttpServer, app, bounds=http_bounds(settings), certificate=certificate)
    yield _HTTP, _open_http(address, settings.otlp_http_port, runtime, serve)


def _open_grpc(host: str, port: int, runtime: Runtime, server: OtlpGrpcServer) -> str:
    try:
        taken = server.start(host, port)
    except UserError:
        return _describe_off(port, "otlp_grpc_port")
    runtime.defer("otlp grpc", server.stop)
    return f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}"


def _open_http(host: str, port: int, runtime: Runtime, serve: Callable[..., HttpServer]) -> str:
    try:
        listener = bind(host, port)
    except UserError:
        return _describe_off(port, "otlp_http_port")
    server = serve(listener=listener, on_death=lambda reason: runtime.fail("otlp http", reason))
    server.start()
    runtime.defer("otlp http", server.stop)
    return server.url


def _describe_off(port: int, setting: str) -> str:
    return f"off: port {port} is in use. Set {variable_of(setting)} to another port"
