"""The OTLP ports, usually 4317 (gRPC) and 4318 (HTTP); the HTTP API serves OTLP over HTTP in any case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from lakerunner.api.app import build_app
from lakerunner.api.otlp.otlp_grpc import OtlpGrpcServer
from lakerunner.api.otlp.otlp_http import OtlpApi
from lakerunner.api.server import HttpServer, bind, is_loopback, numeric_host
from lakerunner.model.errors import UserError
from lakerunner.services.parts import Parts, http_bounds, own_names, web_origins
from lakerunner.services.runtime import Runtime
from lakerunner.settings import variable_of

_GRPC, _HTTP = "OTLP gRPC", "OTLP HTTP"


def open_otlp_ports(parts: Parts, otlp: OtlpApi) -> Iterator[tuple[str, str]]:
    """Yield what each port is and where it listens, or why it does not. A port that another program has is left to it:
    services/preflight.py refuses one that was chosen. UserError where the host is not an address."""
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
        return _left(port, "otlp_grpc_port")
    runtime.defer("otlp grpc", server.stop)
    return f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}"


def _open_http(host: str, port: int, runtime: Runtime, serve: Callable[..., HttpServer]) -> str:
    try:
        listener = bind(host, port)
    except UserError:
        return _left(port, "otlp_http_port")
    server = serve(listener=listener, on_death=lambda reason: runtime.fail("otlp http", reason))
    server.start()
    runtime.defer("otlp http", server.stop)
    return server.url


def _left(port: int, setting: str) -> str:
    return f"off: port {port} is in use. Set {variable_of(setting)} to another port"
