"""The TLS handshake of one HTTP connection, within bounds: then HTTP takes the connection over.

asyncio's own servers tell nobody of a connection before its handshake has ended, so that any number of clients could
hold a connection for a minute each. Here a connection counts, and can make room for another, from its first moment.
What always holds: a client that speaks no TLS, or none that we accept, is cut off without a word, here and in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.server import ServerState

from lakerunner.api.http_protocol import BoundedProtocol, Bounds, Waiting
from lakerunner.api.tls import Certificate


class Handshake(asyncio.Protocol):
    """What `http` makes gets the connection, once it is encrypted. `named` is what uvicorn gives every protocol."""

    wire: asyncio.Transport

    def __init__(
        self,
        *,
        certificate: Certificate,
        bounds: Bounds,
        waiting: Waiting,
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
        transport.pause_reading()  # the first bytes are for TLS, which is not there yet
        self._connections.add(self)
        self._waiting.add(self)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def connection_lost(self, _error: Exception | None) -> None:
        """Before the handshake has begun."""
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """The client's first request can come with the last bytes of its handshake."""
        self._early.append(data)

    def shutdown(self) -> None:
        """The server stops."""
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
        except OSError:  # whatever the client did; errors of TLS and of time are among them
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
