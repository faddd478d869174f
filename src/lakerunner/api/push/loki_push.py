"""Loki's push API: POST /loki/api/v1/push, and its older path /api/prom/push.

It accepts what promtail, Alloy, Fluent Bit and Loki's own clients send: protobuf in a snappy block, or JSON. Bodies are
unpacked, stored unchanged and read by the pipeline; a body that the pipeline could not read is refused here. Answers
are those of Loki: 204 without a body, errors as plain text; clients retry after 429 and 5xx, not after other errors.

X-Scope-OrgID, Loki's tenant, is ignored: the API key determines the organization.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import content_encoding, content_type, read_body, setting_limit, unsnappy
from lakerunner.api.errors import retry_after
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Reply
from lakerunner.api.push.receiver import Receiver
from lakerunner.api.schema import TEXT
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.organization import Role

_PATHS = ("/loki/api/v1/push", "/api/prom/push")
_FORMATS = {"application/json": "lokijson", "application/x-protobuf": "lokipb"}
_EXAMPLE = {"streams": [{"stream": {"service_name": "checkout"}, "values": [["1714564800000000000", "paid"]]}]}
PUSH = Operation(
    tag="ingest",
    summary="Receive logs as Loki's clients push them",
    description="JSON, or protobuf in a snappy block. The answer is sent when the data is durable "
    "(docs/formats/push.md).",
    body={JSON: Body({"type": "object"}, _EXAMPLE), "application/x-protobuf": Body()},
    replies={204: Reply("All data was stored.")},
    errors=(400, 401, 403, 413, 429, 503),
    error_content={"text/plain": TEXT},
)


@dataclass(frozen=True)
class LokiPushApi:
    """The endpoint of Loki's push. `max_bytes` limits a request, packed and unpacked."""

    receiver: Receiver
    authenticator: Authenticator
    max_bytes: int

    def routes(self) -> list[Route]:
        return [Endpoint(path, self.push, POST=PUSH) for path in _PATHS]

    async def push(self, request: Request) -> Response:
        try:
            await self._accept(request)
        except LakerunnerError as error:
            return PlainTextResponse(f"{error}\n", error.http_status, retry_after(error))
        return Response(status_code=204)

    async def _accept(self, request: Request) -> None:
        kind = content_type(request)
        if kind not in _FORMATS:
            raise UserError(f"content-type {kind!r} is not one of Loki's: send {' or '.join(_FORMATS)}")
        caller = await self.authenticator.admit(request, Role.WRITE)
        limit = setting_limit(self.max_bytes)
        body = await read_body(request, limit)
        # Some clients send Content-Encoding: snappy, others treat it as a part of the format; the bytes are the same.
        if _FORMATS[kind] == "lokipb" and content_encoding(request) != "snappy":
            body = await to_thread.run_sync(unsnappy, body, limit)
        await self.receiver.accept_soon(caller.organization, "logs", _FORMATS[kind], body)
