"""HTTP servers in threads: bound before anything else starts, drained before anything else stops."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from lakerunner.api.handshake import Handshake
from lakerunner.api.http_protocol import BoundedProtocol, Bounds, Waiting
from lakerunner.api.keyless import is_loopback_ip
from lakerunner.api.stopping import Requests
from lakerunner.api.tls import Certificate
from lakerunner.model.errors import Unavailable, UserError

_START_SECONDS = 20.0
_DRAIN_SECONDS = 5  # for requests to end
_CUT_SECONDS = 3  # for those that are cut off then to say so


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn is about more than an answer that was cut off: because the server stops, or by its
    source, which has logged why (`Broken` in api/stream.py)."""
    error = record.exc_info[1] if record.exc_info else None
    cut_off = str(record.msg).startswith(("Cancel ", "ASGI callable returned without completing response"))
    return not isinstance(error, asyncio.CancelledError) and not cut_off


logging.getLogger("uvicorn.error").addFilter(_is_news)


def parse_address(listen: str) -> tuple[str, int]:
    """`host:port` as a pair; port 0 asks for a free one."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f"{listen!r} is not an address: write host:port, for example 127.0.0.1:7080")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a socket bound to this host can be reached from this machine only.

    The resolver that binding uses decides: `127.1` is loopback, and `0`, which means every address, is not. A name is
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
    """Listen on this address. AddressInUse if another program does, UserError if it cannot be used at all."""
    family, address = numeric_host(host)
    # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named: else each waits 40 ms for the
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
        """With a certificate it speaks TLS and nothing else."""
        self._listener = listener
        self._scheme = "https" if certificate else "http"
        self._on_death = on_death
        waiting = Waiting()
        http = partial(BoundedProtocol, bounds=bounds, waiting=waiting)
        tls = certificate and partial(Handshake, certificate=certificate, bounds=bounds, waiting=waiting, http=http)
        self._requests = Requests(app)
        config = uvicorn.Config(
            self._requests,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=cast(type[asyncio.Protocol], tls or http),
            ws="none",
            loop="asyncio",
            timeout_graceful_shutdown=_DRAIN_SECONDS + _CUT_SECONDS,
            timeout_keep_alive=bounds.idle_seconds,
            proxy_headers=False,  # who the client is matters nowhere, and anybody could claim it
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
