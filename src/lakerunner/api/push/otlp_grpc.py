"""OTLP over gRPC (usually port 4317): the Export method of each signal's service, with the same receiver as HTTP.

Requests are taken as bytes and stored unchanged; nothing is decoded and encoded again. An error after which the client
may send the same request again has a RetryInfo; without it, RESOURCE_EXHAUSTED would mean that the client may not.

A message is read only for a caller that may push, and only a few messages are read at the same time. Calls and messages
are shared between organizations (`api/limits.py`), so that none can take them all. The methods are served as streams of
requests, which is the same on the wire: for a unary method gRPC would read the whole message before our code sees the
call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from uuid import UUID

import grpc
from anyio import to_thread
from starlette.datastructures import Headers

from lakerunner.api.auth import Authenticator, refuse_other_tenant
from lakerunner.api.errors import retry_seconds
from lakerunner.api.key_cache import address_of, client_address
from lakerunner.api.limits import Holdings
from lakerunner.api.push.http_doors import rpc_status
from lakerunner.api.push.receiver import Receiver
from lakerunner.api.tls import Certificate, KeyPair
from lakerunner.model.errors import (
    Busy,
    LakerunnerError,
    NotAllowed,
    NotAuthenticated,
    TooLarge,
    Unavailable,
    UserError,
)
from lakerunner.model.organization import Role

CALLS_MAX = 2000  # at once; most of them wait for their object, which takes push_max_seconds
READS_MAX = 8  # messages that are received at once, each of at most request_max_bytes
READ_SECONDS = 60.0
CONNECTIONS_MAX = 1000
HANDSHAKE_SECONDS = 20.0  # for TLS and for HTTP/2
STREAMS_MAX = 1000  # calls at once on one connection; HTTP/2 makes the client delay further calls
METADATA_MAX_BYTES = 16 << 10
# What a client may send before its message is read.
WINDOW_BYTES = 64 << 10
_STOP_SECONDS = 5
_SERVICES = {
    f"/opentelemetry.proto.collector.{package}.v1.{service}/Export": signal
    for signal, package, service in (
        ("logs", "logs", "LogsService"),
        ("metrics", "metrics", "MetricsService"),
        ("traces", "trace", "TraceService"),
    )
}
_BOUNDS = (
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.max_metadata_size", METADATA_MAX_BYTES // 2),  # from here on calls are refused by chance, ...
    ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),  # ... and from here on all of them
    # By probing, gRPC would let a fast client send megabytes ahead of the reader.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.max_connection_idle_ms", 600_000),
    # A connection whose other end vanished is found and closed.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
_CODES: tuple[tuple[type[LakerunnerError], grpc.StatusCode], ...] = (
    (NotAuthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (NotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (TooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UserError, grpc.StatusCode.INVALID_ARGUMENT),
    (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)


class OtlpGrpcServer:
    """A gRPC server in a thread with its own event loop, so that requests that wait for their object hold no thread."""

    def __init__(
        self,
        receiver: Receiver,
        authenticator: Authenticator,
        max_bytes: int,
        certificate: Certificate | None = None,
    ) -> None:
        """Bind nothing yet; with a certificate the server speaks only TLS."""
        self._exports = _Exports(receiver, authenticator)
        self._certificate = certificate
        self._options = [
            ("grpc.max_receive_message_length", max_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
            ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
            *_BOUNDS,
        ]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._bound: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="otlp-grpc", daemon=True)

    def start(self, host: str, port: int) -> int:
        """Start to listen and return the port; raise UserError if it is in use."""
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread.start()
        try:
            return self._bound.result()
        except RuntimeError as error:
            raise UserError(f"cannot listen on {self._address} for OTLP over gRPC: {error}") from error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(2 * _STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except RuntimeError as error:
                if self._bound.done():
                    raise
                self._bound.set_exception(error)

    async def _serve(self) -> None:
        server = grpc.aio.server(handlers=[self._exports], options=self._options)
        if self._certificate is None:
            port = server.add_insecure_port(self._address)
        else:
            port = server.add_secure_port(self._address, _credentials(self._certificate))
        await server.start()
        self._bound.set_result(port)
        await self._stopping.wait()
        await server.stop(_STOP_SECONDS)


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    """Return credentials that check for a renewed pair at each handshake. gRPC accepts TLS 1.2 and 1.3."""
    served = certificate.pair

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        if certificate.pair is served:
            return None  # gRPC keeps the pair that it has
        served = certificate.pair
        return _configuration(served)

    return grpc.dynamic_ssl_server_credentials(_configuration(served), changed)


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)])


class _Exports(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, receiver: Receiver, authenticator: Authenticator) -> None:
        self._receiver = receiver
        self._authenticator = authenticator
        self._calls = Holdings(CALLS_MAX, "gRPC calls that may be under way")
        self._reads = Holdings(READS_MAX, "messages that may be read at once")
        self._read = asyncio.Event()

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        signal = _SERVICES.get(call.method)
        if signal is None:
            return None

        async def export(messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
            client_address.set(address_of(context.peer()))
            try:
                await self._accept(signal, messages, _headers(context.invocation_metadata() or ()))
            except LakerunnerError as error:
                code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
                retry = retry_seconds(error) if isinstance(error, Unavailable) else 0
                details = rpc_status(code.value[0], str(error), retry)
                await context.abort(code, str(error), (("grpc-status-details-bin", details),))
            return b""

        return grpc.stream_unary_rpc_method_handler(export)

    async def _accept(self, signal: str, messages: AsyncIterator[bytes], headers: Headers) -> None:
        # gRPC's own maximum_concurrent_rpcs refuses calls with a status after which clients drop their data.
        with self._calls.holding(None, 1):
            caller = await to_thread.run_sync(self._authenticator.caller, headers, Role.WRITE)
        refuse_other_tenant(headers, caller.organization)
        with self._calls.holding(caller.organization.id, 1):
            data = await self._message(messages, caller.organization.id)
            await self._receiver.accept_soon(caller.organization, signal, "otlp", data)

    async def _message(self, messages: AsyncIterator[bytes], organization: UUID) -> bytes:
        """Read the one message of the call."""
        try:
            async with asyncio.timeout(READ_SECONDS), self._place_to_read(organization):
                data = await anext(messages, None)
                more = await anext(messages, None) if data is not None else None
        except TimeoutError:
            raise Busy(
                f"the message did not arrive within {READ_SECONDS:g} s, or other messages were read "
                f"first (at most {READS_MAX} at once, and one organization as many as are free): send "
                "it again later"
            ) from None
        if data is None or more is not None:
            raise UserError("an export call must have exactly one message")
        return data

    @asynccontextmanager
    async def _place_to_read(self, organization: UUID) -> AsyncIterator[None]:
        """Wait until this organization may read one more message, and count it for the duration of the block."""
        while self._reads.refusal(organization, 1):
            await self._read.wait()
        try:
            with self._reads.holding(organization, 1):
                yield
        finally:
            self._read.set()  # wakes all waiting calls in their order; each checks whether there is room
            self._read.clear()


def _headers(metadata: Iterable[tuple[str, str | bytes]]) -> Headers:
    """Return metadata as HTTP headers, so that keys are read in the same way as over HTTP."""
    texts = [(name, value) for name, value in metadata if isinstance(value, str)]
    # gRPC does not show the :authority of a call. DNS rebinding is not possible here: browsers do not speak HTTP/2
    # without TLS, and with TLS they require a certificate of that name.
    host = [] if any(name == "host" for name, _ in texts) else [("host", "localhost")]
    return Headers(raw=[(name.encode(), value.encode("latin-1", "replace")) for name, value in texts + host])
