"""OTLP over HTTP: POST /v1/{logs,metrics,traces} as protobuf or JSON; plain, gzip or zstd.

Answers follow the OTLP specification: the export response in the request's encoding, errors as a google.rpc.Status. 429
and 503 with Retry-After mean that the same request may be sent again; after any other error it would fail again.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import content_type, read_body, setting_limit
from lakerunner.api.errors import retry_after
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Parameter, Reply
from lakerunner.api.push.receiver import Receiver
from lakerunner.api.schema import ANY, OBJECT, record
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.organization import Role
from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint
from lakerunner.model.signal import SIGNALS
from lakerunner.pipeline.transcode.otlp_json import request_from_json

PROTOBUF = "application/x-protobuf"
_EXAMPLE = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "checkout"}}]},
            "scopeLogs": [
                {"logRecords": [{"timeUnixNano": "1714564800000000000", "body": {"stringValue": "paid"}}]},
            ],
        }
    ]
}
EXPORT = Operation(
    tag="ingest",
    summary="Receive telemetry as OTLP",
    description="Plain, gzip or zstd. The answer is sent when the data is durable (docs/formats/push.md).",
    parameters=(Parameter("signal", "path", {"enum": list(SIGNALS)}, "signal of the request", "logs"),),
    body={JSON: Body(OBJECT, _EXAMPLE), PROTOBUF: Body()},
    replies={200: Reply("All data was stored.", {JSON: OBJECT, PROTOBUF: ANY})},
    errors=(400, 401, 403, 404, 413, 429, 503),
    error_content={JSON: record("message"), PROTOBUF: ANY},
)

_MESSAGE_BYTES = 2000
_CODE, _MESSAGE, _DETAILS = tag(1, VARINT), tag(2, DELIMITED), tag(3, DELIMITED)
_TYPE, _VALUE = tag(1, DELIMITED), tag(2, DELIMITED)  # fields of google.protobuf.Any, the type of a detail
_DELAY, _SECONDS = tag(1, DELIMITED), tag(1, VARINT)  # RetryInfo.retry_delay, a Duration
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


@dataclass(frozen=True)
class OtlpApi:
    """The endpoint of OTLP over HTTP. `max_bytes` limits a request, packed and unpacked."""

    receiver: Receiver
    authenticator: Authenticator
    max_bytes: int

    def routes(self) -> list[Route]:
        return [Endpoint("/v1/{signal:str}", self.export, POST=EXPORT)]

    async def export(self, request: Request) -> Response:
        kind = content_type(request)
        try:
            await self._accept(request, kind)
        except LakerunnerError as error:
            return _status(error, kind)
        # An export response without partial_success means that everything was accepted.
        return Response(b"{}", media_type=JSON) if kind == JSON else Response(b"", media_type=PROTOBUF)

    async def _accept(self, request: Request, kind: str) -> None:
        if kind not in (PROTOBUF, JSON):
            raise UserError(f"content-type {kind!r} is not OTLP: send {PROTOBUF} or {JSON}")
        signal = request.path_params["signal"]
        caller = await self.authenticator.admit(request, Role.WRITE)
        body = await read_body(request, setting_limit(self.max_bytes))
        if kind == JSON:
            body = await to_thread.run_sync(request_from_json, signal, body)
        await self.receiver.accept_soon(caller.organization, signal, "otlp", body)


def _status(error: LakerunnerError, kind: str) -> Response:
    headers = retry_after(error)
    if kind == JSON:
        return Response(orjson.dumps({"message": str(error)}), error.http_status, headers, JSON)
    return Response(rpc_status(0, str(error)), error.http_status, headers, PROTOBUF)


def rpc_status(code: int, message: str, retry_seconds: int = 0) -> bytes:
    """Encode a google.rpc.Status, in which OTLP reports errors; with three fields it is not worth a dependency.
    `retry_seconds` adds a RetryInfo, which allows the client to send the same request again."""
    text = message.encode()[:_MESSAGE_BYTES].decode(errors="ignore").encode()
    status = (_CODE + varint(code) if code else b"") + delimited(_MESSAGE, text)
    if not retry_seconds:
        return status
    delay = delimited(_DELAY, _SECONDS + varint(retry_seconds))
    return status + delimited(_DETAILS, delimited(_TYPE, _RETRY_INFO) + delimited(_VALUE, delay))
