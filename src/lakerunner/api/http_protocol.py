"""HTTP/1.1 on one connection, with bounds that hold before a client is authenticated.

uvicorn's httptools protocol reads a head of any size into memory, waits for it forever, and drops the body of a request
with an `Upgrade` header. Here the size and time of a head, the rate of a body and the number of connections are
bounded. A GET of a path that the application serves over WebSockets can become one (`socket_protocol.py`). Any other
`Upgrade` is ignored, as RFC 9110 (7.8) allows: the request is served as HTTP/1.1, with its body.

A request that breaks a bound gets its status if the client can still read it, and its connection is closed; the
application gets nothing more of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakerunner.api.socket_protocol import LINE_MAX_BYTES, BoundedSocket
from lakerunner.model.errors import Busy

PIPELINE_MAX = 64
_DROPPED_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """The bounds of one server.

    A body is checked every `body_seconds`: less than `body_min_bytes` in that time is too slow. A body must be complete
    after `body_max_seconds` at any rate, because its bytes are held all the while.

    An idle connection must outlive the interval of a scrape or an export: a client that sends just as it is closed
    reports a broken pipe. A connection that was answered before it sent its whole body is read for `linger_seconds`:
    closing it immediately would reset it, and the client would lose the answer.
    """

    connections: int = 1000
    head_bytes: int = 64 << 10
    headers: int = 100
    url_bytes: int = 32 << 10
    head_seconds: float = 20.0
    body_seconds: float = 15.0
    body_min_bytes: int = 15 << 10
    body_max_seconds: float = 300.0
    idle_seconds: int = 120
    linger_seconds: float = 10.0
    handshake_seconds: float = 20.0


class _BadRequest(Exception):
    """Raised inside the parser's callbacks to stop it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection(Protocol):
    """A connection. `wire` is its TCP transport, below TLS: it buffers bytes that the client does not read, and
    aborting it ends the connection without TLS's close_notify."""

    wire: asyncio.Transport


class IdleConnections:
    """The connections of a server that serve no request now, those that are idle for longest first."""

    def __init__(self) -> None:
        self._waiting: dict[Connection, None] = {}

    def add(self, one: Connection) -> None:
        self._waiting[one] = None

    def remove(self, one: Connection) -> None:
        self._waiting.pop(one, None)

    def close_oldest(self) -> bool:
        """Close one connection to make room for another; return False if all serve requests or still send answers."""
        idle = (one for one in self._waiting if not one.wire.get_write_buffer_size())
        if (oldest := next(idle, None)) is None:
            return False
        self.remove(oldest)
        oldest.wire.abort()
        return True


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol within bounds. One timer at a time watches a connection: for the head, for the body, or for
    the rest of an answered request. uvicorn's own timer watches an idle connection."""

    wire: asyncio.Transport

    def __init__(
        self,
        *given: Any,
        bounds: Bounds,
        waiting: IdleConnections,
        wire: asyncio.Transport | None = None,
        sockets: Collection[str] = (),
        **named: Any,
    ) -> None:
        """`wire` is the TCP transport of a connection with TLS; without TLS it is the only transport. `sockets` are
        the paths that are served over WebSockets."""
        super().__init__(*given, **named)
        self._named = named
        self._sockets = sockets
        self._below = wire
        self._bounds = bounds
        self._waiting = waiting
        self._in_head = False
        self._in_body = False
        self._progress = False  # the bytes being parsed contained a part of a body, or began a head
        self._collected = 0  # bytes since the last progress, which the parser may be holding as one name or value
        self._ignored = False  # the current message has Upgrade and will be parsed again without that header
        self._closing = False  # the request was refused: further bytes are dropped
        self._dropped = 0
        self._head_bytes = 0
        self._header_count = 0
        self._host_count = 0
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watched = ""

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.wire = self._below or transport
        if len(self.connections) > self._bounds.connections and not self._waiting.close_oldest():
            transport.write(_answer(503, "too many connections (setting http_max_connections)"))
            transport.close()  # without reading what the client sends: many connections may have to be refused
            self._closing = True
            return
        self._waiting.add(self)
        self._watch("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.remove(self)
        self._watch("")
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, because the server stops. An idle one is aborted: TLS would wait for the client's
        close_notify."""
        super().shutdown()
        if self.transport.is_closing() and not self.wire.get_write_buffer_size():
            self.wire.abort()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            self._dropped += len(data)
            if self._dropped > _DROPPED_MAX_BYTES:
                self.wire.abort()
            return
        self._unset_keepalive_if_required()
        self._progress = False
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            bad = cause if isinstance(cause, _BadRequest) else _BadRequest(400, f"not a valid HTTP request: {error}")
            self._refuse(bad.status, str(bad))
            return
        if self.transport.get_protocol() is not self:
            return
        self._collected = 0 if self._progress else self._collected + len(data)
        if (self._in_head or self._in_body) and self._collected > self._bounds.head_bytes:
            self._refuse(431, self._head_too_large())
            return
        self._watch(self._awaited())

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stopped:
                if self._is_socket():
                    self._become_socket(data[stopped.args[0] :])
                    return
                # httptools skips the body of such a request, and its parser accepts no more data. So a new parser
                # gets the same head without the Upgrade header, and then the body.
                data = self._head_without_upgrade() + data[stopped.args[0] :]
                self._ignored = False
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        lines = [line for line in self._head_lines() if not line.startswith(b"upgrade:")]
        return b"\r\n".join((*lines, b"", b""))

    def _head_lines(self) -> list[bytes]:
        first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        return [first, *(b"%s: %s" % header for header in self.headers)]

    def _is_socket(self) -> bool:
        """Return whether the request asks for a WebSocket on one of our paths, and nothing else is going on."""
        return (
            self.url.partition(b"?")[0].decode("latin-1") in self._sockets
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and self._host_count == 1
            and [value.lower() for name, value in self.headers if name == b"upgrade"] == [b"websocket"]
            and (self.cycle is None or self.cycle.response_complete)
            and max(map(len, self._head_lines())) <= LINE_MAX_BYTES
        )

    def _become_socket(self, rest: bytes) -> None:
        """Hand the connection over to the protocol of WebSockets, with its request and what came behind it."""
        self._waiting.remove(self)
        self._watch("")
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        socket = BoundedSocket(wire=self.wire, **self._named)
        self.transport.set_protocol(socket)
        socket.connection_made(self.transport)
        socket.data_received(b"\r\n".join((*self._head_lines(), b"", b"")) + rest)

    # What the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._progress = True
        self._head_bytes = self._header_count = self._host_count = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._bounds.url_bytes:
            raise _BadRequest(414, f"the URL is longer than {self._bounds.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._head_bytes + len(self.url) > self._bounds.head_bytes:
            raise _BadRequest(431, self._head_too_large())
        if self._header_count > self._bounds.headers:
            raise _BadRequest(431, f"the request has more than {self._bounds.headers} headers")
        # Trailers come here too. The application already has the head, which must not change later.
        if self._in_head:
            super().on_header(name, value)
            self._host_count += self.headers[-1][0] == b"host"

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._head_bytes = self._header_count = 0  # from now on they count the trailers
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _BadRequest(405, "CONNECT is not supported")
            self._ignored = True
            return
        if self._host_count != 1 and self.parser.get_http_version() == "1.1":
            raise _BadRequest(400, "an HTTP/1.1 request must have exactly one Host header")
        if len(self.pipeline) >= PIPELINE_MAX:
            raise _BadRequest(503, f"more than {PIPELINE_MAX} requests wait on this connection")
        self._waiting.remove(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._ignored:
            return
        super().on_message_complete()
        if self.cycle.response_complete:  # the request was answered before its body ended; now the connection is idle
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._waiting.add(self)
            if self._in_body or self._in_head:
                self._unset_keepalive_if_required()
                self._watch(self._awaited())

    # Time

    def _awaited(self) -> str:
        """Return what the client has to send next; "" while it waits for an answer."""
        answered = self.cycle is None or self.cycle.response_complete
        if self._in_body:
            return "rest" if answered else "body"
        return "head" if self._in_head or (answered and self.timeout_keep_alive_task is None) else ""

    def _watch(self, awaited: str) -> None:
        if awaited == self._watched:
            return
        self._watched = awaited
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited == "head":
            self._timer = self.loop.call_later(self._bounds.head_seconds, self._on_slow_head)
        elif awaited == "body":
            self._timer = self.loop.call_later(self._bounds.body_seconds, self._judge_body, 0, self.loop.time())
        elif awaited == "rest":
            self._timer = self.loop.call_later(self._bounds.linger_seconds, self.wire.abort)

    def _on_slow_head(self) -> None:
        if not self._in_head:  # no request has begun: a client would take our answer for that of its next request
            self.transport.close()
            return
        self._refuse(408, f"the head of the request did not arrive within {self._bounds.head_seconds:g} s")

    def _judge_body(self, bytes_before: int, began: float, was_held: bool = False) -> None:
        bounds = self._bounds
        # A client that we do not read from, or that waits for our `100 Continue`, is not slow. Nor is it in the
        # interval in which that ended, of which little may be left for it.
        held = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if not held and not was_held and self._body_bytes - bytes_before < bounds.body_min_bytes:
            least = bounds.body_min_bytes / bounds.body_seconds
            self._refuse(408, f"the body arrives too slowly: send at least {least:.0f} bytes per second")
        elif not held and self.loop.time() - began >= bounds.body_max_seconds:
            self._refuse(408, f"the body did not arrive within {bounds.body_max_seconds:g} s: send smaller requests")
        else:
            self._timer = self.loop.call_later(bounds.body_seconds, self._judge_body, self._body_bytes, began, held)

    # Refusals

    def _head_too_large(self) -> str:
        return f"the head of the request is larger than {self._bounds.head_bytes} bytes"

    def _refuse(self, status: int, message: str) -> None:
        """Answer unless another answer is being sent, and close. What the client still sends meanwhile is dropped."""
        own, self._closing = self._in_body, True
        self._in_head = self._in_body = False
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # ends the application's reads, and discards what it still sends
            self.cycle.message_event.set()
            if not own or self.cycle.response_started or self.pipeline:  # the client waits for another answer
                self.transport.close()
                return
        self._waiting.add(self)
        self.flow.resume_reading()
        self.transport.write(_answer(status, message))
        if self.transport.can_write_eof():  # TLS cannot: its close_notify is an error to a client that still sends
            self.transport.write_eof()
        self._watch("rest")


def _answer(status: int, message: str) -> bytes:
    body = f"{message}\n".encode(errors="replace")
    retry = f"retry-after: {Busy.retry_seconds:.0f}\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
    ).encode() + body
