"""The push doors on free ports, in front of a real index and store; what may wait there is little."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.push.http_doors import LokiPushApi, OtlpApi, RemoteWriteApi
from lakerunner.api.push.otlp_grpc import OtlpGrpcServer
from lakerunner.api.push.push_store import PushStore
from lakerunner.api.push.receiver import PushLimits, Receiver
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.tls import Certificate
from lakerunner.index.index import Index
from lakerunner.model.organization import Caller, Role
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.remote_write.message_check import MessageCounts
from suites.pushed import ACME, OTHER
from suites.requests import request_of

MAX_BYTES = 100_000
LIMITS = PushLimits(max_seconds=0.05, max_bytes=1 << 20, max_waiting_bytes=1 << 24, max_waiting_requests=4)
_WRITE, _READ = frozenset({Role.WRITE}), frozenset({Role.READ})
KEYS = {
    "lrk_acme": Caller(ACME, "pusher", _WRITE),
    "lrk_other": Caller(OTHER, "pusher", _WRITE),
    "lrk_reader": Caller(ACME, "grafana", _READ),
}


class Gate:
    """A store whose writes for ACME can be held up."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self.open = store, Event()
        self.open.set()

    def put(self, key: str, *arguments: Any, **named: Any) -> Any:
        assert str(ACME.id) not in key or self.open.wait(30)
        return self._store.put(key, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@dataclass(frozen=True)
class Doors:
    index: Index
    store: ObjectStore
    receiver: Receiver
    gate: Gate
    url: str
    grpc_address: str

    def hold(self) -> None:
        """Let nothing of ACME, which may have two requests waiting, be stored until `release`."""
        self.gate.open.clear()

    def release(self) -> None:
        self.gate.open.set()

    def offer(self, line: str) -> Future[MessageCounts | None]:
        """A request that waits."""
        return self.receiver.offer(ACME, "logs", "otlp", request_of(line))


@contextmanager
def open_doors(index: Index, keeper: PushStore, certificate: Certificate | None = None) -> Iterator[Doors]:
    gate, bugs = Gate(keeper.store), list[str]()
    receiver = Receiver(replace(keeper, store=gate), LIMITS, bugs.append)
    receiver.start()
    who = Authenticator(KEYS.get, None)
    otlp, loki = OtlpApi(receiver, who, MAX_BYTES), LokiPushApi(receiver, who, MAX_BYTES)
    prometheus = RemoteWriteApi(receiver, who, MAX_BYTES)
    app = build_app(otlp.routes(), loki.routes(), prometheus.routes(), bodies_max_bytes=4 * MAX_BYTES)
    http = HttpServer(app, bind("127.0.0.1", 0), bugs.append, certificate=certificate)
    http.start()
    grpc_server = OtlpGrpcServer(receiver, who, MAX_BYTES, certificate)
    port = grpc_server.start("127.0.0.1", 0)
    try:
        yield Doors(index, keeper.store, receiver, gate, http.url, f"127.0.0.1:{port}")
    finally:
        gate.open.set()
        grpc_server.stop()
        http.stop()
        receiver.stop()
    assert bugs == []
