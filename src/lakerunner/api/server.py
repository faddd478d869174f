"""HTTP servers in threads: bound before anything else starts, drained before anything else stops.

With TLS, a connection counts, and can be closed in favour of another, from its first byte: asyncio's own servers report
a connection only after its handshake, so any number of clients could hold a connection for a minute each. A client that
does not speak TLS, or no version that we accept, is cut off without an answer or a log line.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from lakerunner.api.auth import is_loopback_ip
from lakerunner.api.http_protocol import BoundedProtocol, Bounds, IdleConnections
from lakerunner.api.socket_protocol import PING_SECONDS, PONG_SECONDS, SOCKET_MESSAGE_BYTES
from lakerunner.api.stream import RunningRequests
from lakerunner.api.tls import Certificate
from lakerunner.model.errors import Unavailable, UserError

_START_SECONDS = 20.0
_DRAIN_SECONDS = 5  # for running requests to end
_CUT_SECONDS = 3  # for requests that are cut off after that to report it to their clients


def _is_news(record: logging.LogRecord) -> bool:
    """Filter uvicorn's log lines about answers that were cut off: the server stops, or the source of the answer has
    logged the reason already (`Broken` in api/stream.py). Those about WebSockets are an access log."""
    error = record.exc_info[1] if record.exc_info else None
    cut_off = str(record.msg).startswith(("Cancel ", "ASGI callable returned without completing response"))
    accessed = str(record.msg).startswith('%s - "WebSocket')
    return not isinstance(error, asyncio.CancelledError) and not cut_off and not accessed


logging.getLogger("uvicorn.error").addFilter(_is_news)


def parse_address(listen: str) -> tuple[str, int]:
    """Split `host:port`; port 0 means a free one."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f"{listen!r} is not an address: write host:port, for example 127.0.0.1:7080")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a socket bound to this host can be reached from this machine only.

    It uses the resolver that `bind` uses: `127.1` is loopback, and `0`, which means every address, is not. A name is
    loopback if all its addresses are.
    """
    found = _resolved(host)
    return bool(found) and all(is_loopback_ip(address) for _, address in found)


def numeric_host(host: str) -> tuple[socket.AddressFamily, str]:
    """Resolve a host to the family and address that a socket is bound to."""
    found = sorted(_resolved(host), key=lambda one: one[0] != socket.AF_INET)  # IPv4 first, as clients of localhost do
    if not found:
        raise UserError(f"cannot listen on {host}: it is not an address or a known name")
    return found[0]


def _resolved(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return []
    return [(family, str(address[0])) for family, _, _, _, address in found]


class AddressInUse(UserError):
    """Another program listens on this address."""


def bind(host: str, port: int) -> socket.socket:
    """Listen on this address; raise AddressInUse if another program does, UserError if it cannot be used at all."""
    family, address = numeric_host(host)
    # asyncio sets TCP_NODELAY only if the socket names its protocol. Without it a small answer waits 40 ms for the
    # client's delayed acknowledgement of its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"another program listens on {host}:{port}") from error
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


class HttpServer:
    """One app on one socket, within bounds (`api/http_protocol.py`)."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        on_death: Callable[[str], None],
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
        certificate: Certificate | None = None,
    ) -> None:
        """Serve `app` on `listener`; with a certificate only by TLS. `on_death` is called if it ends by itself."""
        self._listener = listener
        self._scheme = "https" if certificate else "http"
        self._on_death = on_death
        waiting = IdleConnections()
        sockets = {route.path for route in getattr(app, "routes", ()) if isinstance(route, WebSocketRoute)}
        http = partial(BoundedProtocol, bounds=bounds, waiting=waiting, sockets=sockets)
        tls = certificate and partial(Handshake, certificate=certificate, bounds=bounds, waiting=waiting, http=http)
        self._requests = RunningRequests(app)
        config = uvicorn.Config(
            self._requests,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=cast(type[asyncio.Protocol], tls or http),
            ws="none",  # BoundedProtocol chooses the protocol of WebSockets
            ws_max_size=SOCKET_MESSAGE_BYTES,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PONG_SECONDS,
            ws_per_message_deflate=False,
            loop="asyncio",
            timeout_graceful_shutdown=_DRAIN_SECONDS + _CUT_SECONDS,
            timeout_keep_alive=bounds.idle_seconds,
            proxy_headers=False,  # anybody could send them, so no decision may depend on them
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise Unavailable(f"the HTTP server on {self.url} did not start")
            self._thread.join(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_DRAIN_SECONDS)
            self._requests.cut_off()
            self._thread.join(_CUT_SECONDS + 2)
        self._listener.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        finally:
            if not self._server.should_exit:
                self._on_death("the HTTP server stopped unexpectedly")


class Handshake(asyncio.Protocol):
    """The TLS handshake of one connection, within bounds; then the protocol that `http` returns takes it over.
    `named` are the arguments that uvicorn passes to every protocol."""

    wire: asyncio.Transport

    def __init__(
        self,
        *,
        certificate: Certificate,
        bounds: Bounds,
        waiting: IdleConnections,
        http: Callable[..., BoundedProtocol],
        server_state: ServerState,
        **named: Any,
    ) -> None:
        self._certificate = certificate
        self._bounds = bounds
        self._waiting = waiting
        self._make_http = partial(http, server_state=server_state, **named)
        self._connections: set[Any] = server_state.connections
        self._early: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.wire = transport
        if len(self._connections) >= self._bounds.connections and not self._waiting.close_oldest():
            transport.abort()
            return
        transport.pause_reading()  # the first bytes are for TLS, which start_tls has not set up yet
        self._connections.add(self)
        self._waiting.add(self)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def connection_lost(self, _error: Exception | None) -> None:
        """End a connection that the client closed before its handshake began."""
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Keep the first bytes of a request, which can arrive with the last bytes of the handshake."""
        self._early.append(data)

    def shutdown(self) -> None:
        """Abort the connection, because the server stops."""
        self.wire.abort()

    async def _shake_hands(self) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                self.wire,
                self,
                self._certificate.pair.context,
                server_side=True,
                ssl_handshake_timeout=self._bounds.handshake_seconds,
            )
        except OSError:  # any fault of the client; errors of TLS and timeouts are OSErrors too
            return
        finally:
            self._connections.discard(self)
            self._waiting.remove(self)
        if encrypted is None:  # aborted meanwhile
            return
        http = self._make_http(wire=self.wire)
        encrypted.set_protocol(http)
        http.connection_made(encrypted)
        for data in self._early:
            http.data_received(data)
