"""The usual OTLP ports, 4317 (gRPC) and 4318 (HTTP), where they are free; the HTTP API serves OTLP in any case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lakerunner.api.app import build_app
from lakerunner.api.otlp import OtlpApi
from lakerunner.api.otlp_grpc import OtlpGrpcServer
from lakerunner.api.server import HttpServer, bind, is_loopback, numeric_host
from lakerunner.model.errors import UserError
from lakerunner.services.ground import Say
from lakerunner.services.parts import http_bounds, own_names, web_origins
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

GRPC_PORT = 4317
HTTP_PORT = 4318


def open_otlp_ports(settings: Settings, runtime: Runtime, otlp: OtlpApi, say: Say) -> None:
    """UserError where the host is no address; a port that is taken is left to whoever has it."""
    host = settings.otlp_listen
    if not host:
        return
    address = numeric_host(host)[1]
    keyless = otlp.authenticator.keyless if is_loopback(address) else None
    guarded = replace(otlp, authenticator=replace(otlp.authenticator, keyless=keyless, names=own_names(host)))
    _open_grpc(address, runtime, guarded, say)
    app = build_app(guarded.routes(), origins=web_origins(settings))
    _open_http(address, runtime, partial(HttpServer, app, bounds=http_bounds(settings)), say)


def _open_grpc(host: str, runtime: Runtime, otlp: OtlpApi, say: Say) -> None:
    server = OtlpGrpcServer(otlp.receiver, otlp.authenticator, otlp.max_bytes)
    try:
        server.start(host, GRPC_PORT)
    except RuntimeError:
        say(f"port {GRPC_PORT} is taken: no OTLP/gRPC there")
        return
    runtime.defer("otlp grpc", server.stop)
    say(f"OTLP/gRPC on {host}:{GRPC_PORT}")


def _open_http(host: str, runtime: Runtime, serve: Callable[..., HttpServer], say: Say) -> None:
    try:
        listener = bind(host, HTTP_PORT)
    except UserError:
        say(f"port {HTTP_PORT} is taken: no OTLP/HTTP there")
        return
    server = serve(listener=listener, on_death=lambda reason: runtime.fail("otlp http", reason))
    server.start()
    runtime.defer("otlp http", server.stop)
    say(f"OTLP/HTTP on {host}:{HTTP_PORT}")
