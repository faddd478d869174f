"""OTLP over gRPC (usually port 4317): the Export method of each signal's service, on the same receiver as HTTP.

Requests are taken as bytes and stored as they came; nothing is decoded and encoded again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from lakerunner.api.auth import Authenticator
from lakerunner.api.receive import Receiver
from lakerunner.model.errors import (
    LakerunnerError,
    NotAllowed,
    NotAuthenticated,
    TooLarge,
    Unavailable,
    UserError,
)

_THREADS = 8
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
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)


class OtlpGrpcServer:
    def __init__(self, receiver: Receiver, authenticator: Authenticator, max_bytes: int) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="otlp-grpc"),
            handlers=[_Exports(receiver, authenticator)],
            options=[("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=_THREADS * 8,
        )

    def start(self, host: str, port: int) -> int:
        """The port it listens on; raises RuntimeError when that is taken."""
        bound: int = self._server.add_insecure_port(f"{host}:{port}")
        self._server.start()
        return bound

    def stop(self) -> None:
        self._server.stop(_STOP_SECONDS).wait()


class _Exports(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, receiver: Receiver, authenticator: Authenticator) -> None:
        self._receiver = receiver
        self._authenticator = authenticator

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        signal = _SERVICES.get(call.method)
        if signal is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda data, context: self._export(signal, data, context))

    def _export(self, signal: str, data: bytes, context: grpc.ServicerContext) -> bytes:
        headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            self._receiver.accept(self._authenticator.organization(headers), signal, data)
        except LakerunnerError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
            context.abort(code, str(error))
        return b""
