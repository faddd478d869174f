"""Prometheus remote-write 1.0 and 2.0: POST /api/v1/write, as the specifications define it.

A request is a snappy block with a prometheus.WriteRequest or an io.prometheus.write.v2.Request. The answer is 204 once
all of it is durable, with the counts in the headers that 2.0 requires; a request is never stored in part. 400 and other
4xx mean that the same request will be refused again, 415 that the sender should try another version, 429 and 5xx that
it should send the same request again later.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

import pyarrow as pa
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_sent, setting_limit, snappy_size
from lakerunner.api.openapi import Body, Endpoint, Operation, Reply
from lakerunner.api.push.receiver import Receiver
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Role
from lakerunner.pipeline.remote_write.fields import REQUESTS, V1, V2
from lakerunner.pipeline.remote_write.message_check import MessageCounts

PATHS = ("/api/v1/write", "/prometheus/api/v1/write", "/api/v1/push")
FORMATS = {V1: "prw1", V2: "prw2"}
_PROTOBUF = "application/x-protobuf"
_WRITTEN = "x-prometheus-remote-write-{}-written"
WRITE = Operation(
    tag="ingest",
    summary="Receive metrics as Prometheus remote-write, 1.0 or 2.0",
    description="A snappy block of protobuf. The answer is sent when the data is durable "
    "(docs/formats/remote_write.md).",
    body={_PROTOBUF: Body()},
    replies={204: Reply("All data was written; for 2.0 the headers have the counts.")},
    errors=(400, 401, 403, 413, 415, 429, 503),
)


@dataclass(frozen=True)
class RemoteWriteApi:
    """The endpoint of remote write. `max_bytes` limits a request, packed and unpacked."""

    receiver: Receiver
    authenticator: Authenticator
    max_bytes: int

    def routes(self) -> list[Route]:
        return [Endpoint(path, self.write, POST=WRITE) for path in PATHS]

    async def write(self, request: Request) -> Response:
        version = version_of(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
        caller = await self.authenticator.admit(request, Role.WRITE)
        limit = setting_limit(self.max_bytes)
        body = await read_sent(request, limit)  # a block is never much larger than its content
        message = await to_thread.run_sync(unsnapped, body, limit)
        counts = await self.receiver.accept_soon(caller.organization, "metrics", FORMATS[version], message)
        return Response(status_code=204, headers=written(counts) if version == V2 else {})


def version_of(content_type: str, encoding: str) -> int:
    """Return the version of the message that these headers announce; 415 for any other. Without `proto` it is 1.0."""
    header = Message()
    header["content-type"] = content_type
    name = header.get_param("proto", REQUESTS[V1])
    if header.get_content_type() != _PROTOBUF or name not in REQUESTS:
        raise HTTPException(415, f"content-type {content_type!r} is not supported: send {_PROTOBUF} with {REQUESTS}")
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
