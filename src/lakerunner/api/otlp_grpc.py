"""OTLP over gRPC (usually port 4317): the Export method of each signal's service, on the same receiver as HTTP.

Requests are taken as bytes and stored as they came; nothing is decoded and encoded again. An error that a client may
answer by sending the same again carries a RetryInfo; without one, RESOURCE_EXHAUSTED would mean that it may not.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import grpc
from anyio import to_thread

from lakerunner.api.auth import Authenticator
from lakerunner.api.errors import retry_seconds
from lakerunner.api.guesses import address_of, client_address
from lakerunner.api.receive import Receiver
from lakerunner.api.rpc_status import rpc_status
from lakerunner.model.caller import Role
from lakerunner.model.errors import (
    Busy,
    LakerunnerError,
    NotAllowed,
    NotAuthenticated,
    TooLarge,
    Unavailable,
    UserError,
)

_STOP_SECONDS = 5
_SERVICES = {
    f"/opentelemetry.proto.collector.{package}.v1.{service}/Export": signal
    for signal, package, service in (
        ("logs", "logs", "LogsService"),
        ("metrics", "metrics", "MetricsService"),
        ("traces", "trace", "TraceService"),
    )
}
_CODES: tuple[tuple[type[LakerunnerError], grpc.StatusCode], ...] = (
    (NotAuthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (NotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (TooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UserError, grpc.StatusCode.INVALID_ARGUMENT),
    (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)


class OtlpGrpcServer:
    """In a thread with an event loop of its own, so that requests that wait for their object hold no thread."""

    def __init__(self, receiver: Receiver, authenticator: Authenticator, max_bytes: int) -> None:
        self._exports = _Exports(receiver, authenticator)
        self._options = [("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0)]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._bound: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="otlp-grpc", daemon=True)

    def start(self, host: str, port: int) -> int:
        """The port it listens on; raises RuntimeError when that is taken."""
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread.start()
        return self._bound.result()

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
        port = server.add_insecure_port(self._address)
        await server.start()
        self._bound.set_result(port)
        await self._stopping.wait()
        await server.stop(_STOP_SECONDS)


class _Exports(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, receiver: Receiver, authenticator: Authenticator) -> None:
        self._receiver = receiver
        self._authenticator = authenticator

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        signal = _SERVICES.get(call.method)
        if signal is None:
            return None

        async def export(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
            return await self._export(signal, data, context)

        return grpc.unary_unary_rpc_method_handler(export)

    async def _export(self, signal: str, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        headers = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        client_address.set(address_of(context.peer()))
        try:
            caller = await to_thread.run_sync(self._authenticator.caller, headers, Role.WRITE)
            await self._receiver.accept_soon(caller.organization, signal, "otlp", data)
        except LakerunnerError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
            retry = retry_seconds(error) if isinstance(error, Unavailable) else 0
            details = rpc_status(code.value[0], str(error), retry)
            await context.abort(code, str(error), (("grpc-status-details-bin", details),))
        return b""
