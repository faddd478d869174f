"""Prometheus remote-write 1.0 and 2.0: POST /api/v1/write, as the specifications have it.

Comes in: a snappy block with a prometheus.WriteRequest or an io.prometheus.write.v2.Request. Goes out: 204 once all of
it is durable, with what was written in the headers that 2.0 asks for; never a part of a request. 400 and other 4xx mean
that the same request will be refused again, 415 that the sender should try another version, 429 and 5xx that it should
send the same again later.
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
from lakerunner.api.body import BodyLimit, read_sent, setting_limit
from lakerunner.api.openapi import Body, Endpoint, Operation, Reply
from lakerunner.api.receive import Receiver
from lakerunner.model.caller import Role
from lakerunner.model.errors import UserError
from lakerunner.pipeline.read.remote_write_check import Counts
from lakerunner.pipeline.read.remote_write_fields import REQUESTS, V1, V2

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
    receiver: Receiver
    authenticator: Authenticator
    max_bytes: int

    def routes(self) -> list[Route]:
        return [Endpoint(path, self.write, POST=WRITE) for path in PATHS]

    async def write(self, request: Request) -> Response:
        version = version_of(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
        caller = await self.authenticator.admit(request, Role.WRITE)
        limit = setting_limit(self.max_bytes)
        body = await read_sent(request, limit)  # a block is never much larger than what is in it
        message = await to_thread.run_sync(unsnapped, body, limit)
        counts = await self.receiver.accept_soon(caller.organization, "metrics", FORMATS[version], message)
        return Response(status_code=204, headers=written(counts) if version == V2 else {})


def version_of(content_type: str, encoding: str) -> int:
    """Which message these headers announce; 415 for any other. Without a `proto` it is that of 1.0."""
    header = Message()
    header["content-type"] = content_type
    name = header.get_param("proto", REQUESTS[V1])
    if header.get_content_type() != _PROTOBUF or name not in REQUESTS:
        raise HTTPException(415, f"content-type {content_type!r} is not supported: send {_PROTOBUF} with {REQUESTS}")
    # Prometheus takes a request without an encoding for snappy as well.
    if encoding.strip().lower() not in ("snappy", ""):
        raise HTTPException(415, f"content-encoding {encoding!r} is not supported: send snappy")
    return REQUESTS.index(str(name))


def unsnapped(block: bytes, limit: BodyLimit) -> bytes:
    """The content of a snappy block, whose length stands before it and is looked at first."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise UserError("the body is not a snappy block: it does not begin with its length")
    if size > limit.bytes:
        limit.refuse()
    if block == b"\0":
        return b""
    try:
        content: bytes = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowInvalid):
        raise UserError("the body is not a snappy block: it is damaged, or in snappy's framed format") from None
    return content


def written(counts: Counts | None) -> dict[str, str]:
    """Return the headers of 2.0 that say what was written: all of it, as nothing is written in part."""
    return {
        _WRITTEN.format(name): str(getattr(counts, name) if counts else 0)
        for name in ("samples", "histograms", "exemplars")
    }
