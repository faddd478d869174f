"""Log lines that no request causes: what pods write by the clock, and what the incident's deploy leaves behind.

Comes in: a schedule and a time range. Goes out: when each pod writes which line, laid out as lines of requests are
(sites.py) but without trace and visitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lakerunner.model.time import HOUR_NS, SECOND_NS, TimeRange
from lakerunner_demo.flows import State
from lakerunner_demo.lines import Line, debug, error, info, number, warn
from lakerunner_demo.noise import I64, U64, below, draw
from lakerunner_demo.schedule import Schedule
from lakerunner_demo.services import BAD_PAYMENT_VERSION, SERVICE_INDEX, SERVICES, resource_codes, service_named
from lakerunner_demo.sites import Site
from lakerunner_demo.wire import Value

_GOOD = service_named("payment").version
_MOST_PODS = 8
_DB: dict[str, Value] = {
    "db.system.name": "postgresql",
    "db.client.connection.pool.name": "payments-db",
    "db.client.connection.max": 50,
}


@dataclass(frozen=True, eq=False)
class Chore:
    """Each pod of the services writes the line every so often. `when` ERROR: only while payment's incident is on; OK:
    only while it is not; None: always."""

    services: tuple[str, ...]
    every_s: int
    line: Line
    when: State | None = None


@dataclass(frozen=True, eq=False)
class Moment:
    """The first pod of a service writes the line once an hour, so long after a turn of the incident."""

    service: str
    turn: str  # deploy_ns, begin_ns, rollback_ns or end_ns
    after_s: float
    line: Line


@dataclass(frozen=True)
class Written:
    """Rows of one chore's line in one service."""

    site: Site
    ids: U64
    time_ns: I64
    resource: I64


def _deployment(version: str, replaces: str) -> dict[str, Value]:
    return {
        "k8s.deployment.name": "payment",
        "deployment.id": number("order"),
        "service.version.new": version,
        "service.version.old": replaces,
        "deployment.replicas": 3,
    }


_ALL = tuple(service.name for service in SERVICES)
_JVM = tuple(service.name for service in SERVICES if service.language == "java")

# fmt: off
CHORES = (
    Chore(_ALL, 15, debug("healthz", "GET /healthz 200 from kubelet, {heap} MiB in use",
        {"http.route": "/healthz", "http.response.status_code": 200, "user_agent.original": "kube-probe/1.31"})),
    Chore(_JVM, 20, info("gc", "GC(young) pause {pause} ms, heap {heap}M of 512M",
        {"jvm.gc.name": "G1 Young Generation", "jvm.gc.pause_ms": number("pause"), "jvm.memory.used": number("heap")})),
    Chore(("currency",), 60, info("rates", "refreshed {hits} exchange rates from the bank's feed",
        {"currency.rates": number("hits"), "currency.feed": "daily-reference"})),
    Chore(("catalog",), 300, info("reindex", "search index rebuilt: {offset} documents, {stock} changed",
        {"catalog.documents": number("offset"), "catalog.changed": number("stock")})),
    Chore(("ad",), 120, warn("budget", "campaign {campaign} reaches its daily budget within the hour",
        {"ad.campaign": "{campaign}"})),
    Chore(("email",), 30, debug("poll", "consumer group email at offset {offset} of orders-{partition}",
        {"messaging.system": "kafka", "messaging.destination.name": "orders",
        "messaging.kafka.offset": number("offset"), "messaging.destination.partition.id": "{partition}"})),
    Chore(("payment",), 10, debug("pool", "pool payments-db: {idle} idle of 50, none waiting",
        {**_DB, "db.client.connection.idle": number("idle")}), State.OK),
    Chore(("payment",), 5, warn("pool", "connection pool exhausted: payments-db 50/50 in use, {waiting} waiting",
        {**_DB, "db.client.connection.pending_requests": number("waiting")}), State.ERROR),
    Chore(("payment",), 30, error("leak", "possible connection leak: a connection has been out for 60 s, taken in "
        "com.shop.payment.LedgerWriter.append", {**_DB, "exception.type": "LeakedConnection",
        "exception.stacktrace": "LeakedConnection: taken at\n\tat com.shop.payment.LedgerWriter.append"
        "(LedgerWriter.java:88)\n\tat com.shop.payment.ChargeHandler.charge(ChargeHandler.java:41)"}), State.ERROR),
)
MOMENTS = (
    Moment("payment", "deploy_ns", 1.2, info("deploy", {"message": f"deploy started: payment {BAD_PAYMENT_VERSION} "
        f"replaces {_GOOD}", "strategy": "RollingUpdate", "surge": 1, "images": ["payment", "payment-migrate"]},
        _deployment(BAD_PAYMENT_VERSION, _GOOD), event="deployment.started")),
    Moment("payment", "deploy_ns", 42.7, info("deploy", f"deploy finished: payment {BAD_PAYMENT_VERSION}, "
        "3 of 3 replicas ready", _deployment(BAD_PAYMENT_VERSION, _GOOD), event="deployment.finished")),
    Moment("checkout", "begin_ns", 48.3, error("breaker", "circuit breaker payment opened after {hits} failures",
        {"breaker.name": "payment", "breaker.state": "open", "breaker.failures": number("hits")})),
    Moment("payment", "rollback_ns", 0.4, warn("deploy", f"rollback started: payment {_GOOD} replaces "
        f"{BAD_PAYMENT_VERSION}", _deployment(_GOOD, BAD_PAYMENT_VERSION), event="deployment.rollback")),
    Moment("checkout", "end_ns", 3.1, info("breaker", "circuit breaker payment closed",
        {"breaker.name": "payment", "breaker.state": "closed"})),
)
# fmt: on


_PLACES = (
    *((service, chore.line) for chore in CHORES for service in chore.services),
    *((moment.service, moment.line) for moment in MOMENTS),
)
_SITES = {(service, line): Site.of(service, line, traced=False) for service, line in _PLACES}


def written(schedule: Schedule, time: TimeRange) -> Iterator[Written]:
    """Yield all lines that are written in the time range."""
    for index, chore in enumerate(CHORES):
        for service in chore.services:
            yield _by_the_clock(schedule, time, (index, chore), service)
    for index, moment in enumerate(MOMENTS):
        yield _once_an_hour(schedule, time, index, moment)


def _by_the_clock(schedule: Schedule, time: TimeRange, numbered: tuple[int, Chore], service: str) -> Written:
    index, chore = numbered
    every = chore.every_s * SECOND_NS
    pods = np.arange(service_named(service).pods)
    first = max(0, (time.start_ns - schedule.start_ns) // every - 1)
    ticks = np.arange(first, max(first, (time.end_ns - schedule.start_ns) // every + 1))
    tick, pod = np.repeat(ticks, len(pods)), np.tile(pods, len(ticks))
    ids = ((tick * _MOST_PODS + pod) << 16 | SERVICE_INDEX[service] << 8 | index).astype(np.uint64)
    at = schedule.start_ns + tick * every + below(draw(schedule.world, f"{service} chore", ids), every // 1000) * 1000
    keep = (at >= time.start_ns) & (at < time.end_ns)
    if chore.when is not None:
        keep &= (schedule.intensity(at) > 0) == (chore.when == State.ERROR)
    resource = resource_codes(service, schedule.releases(service, at), pod)
    return Written(_SITES[service, chore.line], ids[keep], at[keep], resource[keep])


def _once_an_hour(schedule: Schedule, time: TimeRange, index: int, moment: Moment) -> Written:
    hours = range(
        max(0, (time.start_ns - schedule.start_ns) // HOUR_NS), (time.end_ns - schedule.start_ns) // HOUR_NS + 1
    )
    after = round(moment.after_s * SECOND_NS)
    turns = ((hour, getattr(schedule.incident(hour), moment.turn) + after) for hour in hours)
    kept = [(hour, at) for hour, at in turns if time.start_ns <= at < time.end_ns]
    at_ns = np.array([at for _, at in kept], np.int64)
    ids = np.array([hour << 8 | len(CHORES) + index for hour, _ in kept], np.uint64)
    releases = schedule.releases(moment.service, at_ns)
    return Written(
        _SITES[moment.service, moment.line], ids, at_ns, resource_codes(moment.service, releases, releases * 0)
    )
