"""The push doors over HTTP: a sender's request is checked, stored unchanged, and answered when it is durable.

OTLP: POST /v1/{logs,metrics,traces} as protobuf or JSON; plain, gzip or zstd. Answers follow the OTLP specification:
the export response in the request's encoding, errors as a google.rpc.Status. 429 and 503 with Retry-After mean that the
same request may be sent again; after any other error it would fail again.

Prometheus remote-write 1.0 and 2.0: POST /api/v1/write, as the specifications define it. A request is a snappy block
with a prometheus.WriteRequest or an io.prometheus.write.v2.Request. The answer is 204, with the counts in the headers
that 2.0 requires; a request is never stored in part. 400 and other 4xx mean that the same request will be refused
again, 415 that the sender should try another version, 429 and 5xx that it should send the same request again later.

Loki's push API: POST /loki/api/v1/push, and its older path /api/prom/push. It accepts what promtail, Alloy, Fluent Bit
and Loki's own clients send: protobuf in a snappy block, or JSON. A body that the pipeline could not read is refused
here. Answers are those of Loki: 204 without a body, errors as plain text; clients retry after 429 and 5xx, not after
other errors. The API key determines the organization; X-Scope-OrgID, Loki's tenant, may name no other one at any door.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.message import Message

import orjson
import pyarrow as pa
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator, refuse_other_tenant
from lakerunner.api.body import BodyLimit, content_encoding, content_type, read_body, read_sent, snappy_size, unsnappy
from lakerunner.api.errors import retry_after
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Parameter, Reply
from lakerunner.api.push.receiver import Receiver
from lakerunner.api.schema import ANY, OBJECT, TEXT, record
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.organization import Role
from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint
from lakerunner.model.signal import SIGNALS
from lakerunner.pipeline.remote_write.fields import REQUESTS, V1, V2
from lakerunner.pipeline.remote_write.message_check import MessageCounts
from lakerunner.pipeline.transcode.otlp_json import request_from_json

PROTOBUF = "application/x-protobuf"
ReadRequest = Callable[[Request, BodyLimit], Awaitable[bytes]]
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
_OTLP_ROOTS = ("", "/otlp")  # the second is Loki's
_LOKI_PATHS = ("/loki/api/v1/push", "/api/prom/push")
_LOKI_FORMATS = {JSON: "lokijson", PROTOBUF: "lokipb"}
_LOKI_EXAMPLE = {"streams": [{"stream": {"service_name": "checkout"}, "values": [["1714564800000000000", "paid"]]}]}
PUSH = Operation(
    tag="ingest",
    summary="Receive logs as Loki's clients push them",
    description="JSON, or protobuf in a snappy block. The answer is sent when the data is durable "
    "(docs/formats/push.md).",
    body={JSON: Body({"type": "object"}, _LOKI_EXAMPLE), PROTOBUF: Body()},
    replies={204: Reply("All data was stored.")},
    errors=(400, 401, 403, 413, 429, 503),
    error_content={"text/plain": TEXT},
)
WRITE_PATHS = ("/api/v1/write", "/prometheus/api/v1/write", "/api/v1/push")
_WRITE_FORMATS = {V1: "prw1", V2: "prw2"}
_WRITTEN = "x-prometheus-remote-write-{}-written"
WRITE = Operation(
    tag="ingest",
    summary="Receive metrics as Prometheus remote-write, 1.0 or 2.0",
    description="A snappy block of protobuf. The answer is sent when the data is durable "
    "(docs/formats/remote_write.md).",
    body={PROTOBUF: Body()},
    replies={204: Reply("All data was written; for 2.0 the headers have the counts.")},
    errors=(400, 401, 403, 413, 415, 429, 503),
)


@dataclass(frozen=True)
class PushDoor:
    """What the doors of a port share. `max_bytes` limits a request, packed and unpacked."""

    receiver: Receiver
    authenticator: Authenticator
    max_bytes: int

    async def store(self, request: Request, signal: str, form: str, read: ReadRequest) -> MessageCounts | None:
        """Admit the sender, then read the request, and return when it is durable."""
        caller = await self.authenticator.admit(request, Role.WRITE)
        refuse_other_tenant(request.headers, caller.organization)
        data = await read(request, BodyLimit(self.max_bytes, "setting request_max_bytes"))
        return await self.receiver.accept_soon(caller.organization, signal, form, data)


class OtlpApi(PushDoor):
    """The endpoint of OTLP over HTTP."""

    def routes(self) -> list[Route]:
        return [Endpoint(f"{root}/v1/{{signal:str}}", self.export, POST=EXPORT) for root in _OTLP_ROOTS]

    async def export(self, request: Request) -> Response:
        kind = content_type(request)
        try:
            if kind not in _OTLP_READERS:
                raise UserError(f"content-type {kind!r} is not OTLP: send {' or '.join(_OTLP_READERS)}")
            await self.store(request, request.path_params["signal"], "otlp", _OTLP_READERS[kind])
        except LakerunnerError as error:
            return _status(error, kind)
        # An export response without partial_success means that everything was accepted.
        return Response(b"{}", media_type=JSON) if kind == JSON else Response(b"", media_type=PROTOBUF)


async def _read_json(request: Request, limit: BodyLimit) -> bytes:
    body = await read_body(request, limit)
    return await to_thread.run_sync(request_from_json, request.path_params["signal"], body)


_OTLP_READERS: dict[str, ReadRequest] = {PROTOBUF: read_body, JSON: _read_json}


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


class LokiPushApi(PushDoor):
    """The endpoint of Loki's push."""

    def routes(self) -> list[Route]:
        return [Endpoint(path, self.push, POST=PUSH) for path in _LOKI_PATHS]

    async def push(self, request: Request) -> Response:
        kind = content_type(request)
        try:
            if kind not in _LOKI_FORMATS:
                raise UserError(f"content-type {kind!r} is not one of Loki's: send {' or '.join(_LOKI_FORMATS)}")
            await self.store(request, "logs", _LOKI_FORMATS[kind], _read_loki)
        except LakerunnerError as error:
            return PlainTextResponse(f"{error}\n", error.http_status, retry_after(error))
        return Response(status_code=204)


async def _read_loki(request: Request, limit: BodyLimit) -> bytes:
    body = await read_body(request, limit)
    # Some clients send Content-Encoding: snappy, others treat it as a part of the format; the bytes are the same.
    if content_type(request) == PROTOBUF and content_encoding(request) != "snappy":
        return await to_thread.run_sync(unsnappy, body, limit)
    return body


class RemoteWriteApi(PushDoor):
    """The endpoint of remote write."""

    def routes(self) -> list[Route]:
        return [Endpoint(path, self.write, POST=WRITE) for path in WRITE_PATHS]

    async def write(self, request: Request) -> Response:
        version = version_of(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
        counts = await self.store(request, "metrics", _WRITE_FORMATS[version], _read_block)
        return Response(status_code=204, headers=written(counts) if version == V2 else {})


async def _read_block(request: Request, limit: BodyLimit) -> bytes:
    body = await read_sent(request, limit)  # a block is never much larger than its content
    return await to_thread.run_sync(unsnapped, body, limit)


def version_of(content_type: str, encoding: str) -> int:
    """Return the version of the message that these headers announce; 415 for any other. Without `proto` it is 1.0."""
    header = Message()
    header["content-type"] = content_type
    name = header.get_param("proto", REQUESTS[V1])
    if header.get_content_type() != PROTOBUF or name not in REQUESTS:
        raise HTTPException(415, f"content-type {content_type!r} is not supported: send {PROTOBUF} with {REQUESTS}")
    # Prometheus also accepts a request without Content-Encoding as snappy.
    if encoding.strip().lower() not in ("snappy", ""):
        raise HTTPException(415, f"content-encoding {encoding!r} is not supported: send snappy")
    return REQUESTS.index(str(name))


def unsnapped(block: bytes, limit: BodyLimit) -> bytes:
    """Return the content of a snappy block, whose stated size is checked before it is unpacked."""
    size = snappy_size(block, limit)
    if block == b"\0":
        return b""
    try:
        content: bytes = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowInvalid):
        raise UserError("the body is not a snappy block: it is damaged, or in snappy's framed format") from None
    return content


def written(counts: MessageCounts | None) -> dict[str, str]:
    """Return the headers of 2.0 with the number of written samples: always all, because nothing is written in part."""
    return {
        _WRITTEN.format(name): str(getattr(counts, name) if counts else 0)
        for name in ("samples", "histograms", "exemplars")
    }
