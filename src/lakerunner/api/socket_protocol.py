"""WebSockets on one connection, within bounds: small messages of the client, pings, and a reason when the server stops.

A client that answers no ping for PONG_SECONDS, because it is gone or reads too slowly, is disconnected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SOCKET_MESSAGE_BYTES = 4096
PING_SECONDS, PONG_SECONDS = 20.0, 60.0
LINE_MAX_BYTES = 8000  # of the head of a request; the library's parser takes 8192
STOPPING = "the server is stopping: connect again"


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's protocol. `wire` is the TCP transport, below TLS."""

    def __init__(self, *given: Any, wire: asyncio.Transport, **named: Any) -> None:
        super().__init__(*given, **named)
        self._wire = wire

    def shutdown(self) -> None:
        """Close the connection with a reason, because the server stops. A client that does not read is cut off."""
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(1012, STOPPING)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012})
        super().shutdown()
        self.loop.call_later(1.0, self._wire.abort)
