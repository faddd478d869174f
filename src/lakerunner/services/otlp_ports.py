"""The usual OTLP ports, 4317 (gRPC) and 4318 (HTTP), where they are free; the HTTP API serves OTLP in any case."""

from __future__ import annotations

from dataclasses import replace

from starlette.routing import Route

from lakerunner.api.app import build_app
from lakerunner.api.otlp import OtlpApi
from lakerunner.api.otlp_grpc import OtlpGrpcServer
from lakerunner.api.server import HttpServer, bind, is_loopback
from lakerunner.model.errors import UserError
from lakerunner.services.ground import Say
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

GRPC_PORT = 4317
HTTP_PORT = 4318


def open_otlp_ports(settings: Settings, runtime: Runtime, otlp: OtlpApi, say: Say) -> None:
    host = settings.otlp_listen
    if not host:
        return
    keyless = otlp.authenticator.keyless if is_loopback(host) else None
    guarded = replace(otlp, authenticator=replace(otlp.authenticator, keyless=keyless))
    _open_grpc(host, runtime, guarded, say)
    _open_http(host, runtime, guarded.routes(), say)


def _open_grpc(host: str, runtime: Runtime, otlp: OtlpApi, say: Say) -> None:
    server = OtlpGrpcServer(otlp.receiver, otlp.authenticator, otlp.max_bytes)
    try:
        server.start(host, GRPC_PORT)
    except RuntimeError:
        say(f"port {GRPC_PORT} is taken: no OTLP/gRPC there")
        return
    runtime.defer("otlp grpc", server.stop)
    say(f"OTLP/gRPC on {host}:{GRPC_PORT}")


def _open_http(host: str, runtime: Runtime, routes: list[Route], say: Say) -> None:
    try:
        listener = bind(host, HTTP_PORT)
    except UserError:
        say(f"port {HTTP_PORT} is taken: no OTLP/HTTP there")
        return
    server = HttpServer(build_app(routes), listener, lambda reason: runtime.fail("otlp http", reason))
    server.start()
    runtime.defer("otlp http", server.stop)
    say(f"OTLP/HTTP on {host}:{HTTP_PORT}")
