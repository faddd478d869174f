"""Notifications by webhook: S3-style event records, as S3 and MinIO send them, to POST /api/v1/events/s3.

An event only points at an object; what the object is, its size and etag, is asked of the store, so a late, repeated or
forged event can do no more than point at what is there. Keys are URL-decoded. Our own segments are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import read_json
from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.source import route_of

EVENTS_MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class EventsApi:
    """`announce` takes keys and says how many were new. `bucket` is the one store we read, below `prefix` of it."""

    announce: Callable[[list[str]], int]
    authenticator: Authenticator
    bucket: str
    prefix: str

    def routes(self) -> list[Route]:
        return [Route("/api/v1/events/s3", self.receive, methods=["POST"])]

    async def receive(self, request: Request) -> Response:
        organization = await to_thread.run_sync(self.authenticator.organization, request.headers)
        keys = keys_of(await read_json(request, EVENTS_MAX_BYTES), self.bucket, self.prefix)
        if self.authenticator.keyless is None:
            _refuse_others(organization, keys)
        new = await to_thread.run_sync(self.announce, keys)
        return JSONResponse({"objects": len(keys), "new": new})


def keys_of(event: dict[str, Any], bucket: str, prefix: str = "") -> list[str]:
    """The keys, below prefix, of raw objects that an S3 event names as created, each once, in order."""
    records = event.get("Records")
    if event.get("Event") == "s3:TestEvent":
        return []
    if not isinstance(records, list):
        raise UserError('an S3 event has a list "Records"')
    keys: dict[str, None] = {}
    for number, record in enumerate(records):
        try:
            name, key = record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])
            created = "ObjectCreated" in record.get("eventName", "ObjectCreated")
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"Records[{number}] lacks s3.bucket.name or s3.object.key") from None
        if name != bucket:
            raise UserError(f"Records[{number}] is of bucket {name!r}; this lake reads {bucket!r}")
        if created and key.startswith(prefix) and route_of(key.removeprefix(prefix)) is not None:
            keys[key.removeprefix(prefix)] = None
    return list(keys)


def _refuse_others(organization: Organization, keys: list[str]) -> None:
    for key in keys:
        route = route_of(key)
        if route and route.organization not in (str(organization.id), organization.name):
            raise NotAllowed(f"{key} is not of organization {organization.name}, which this key belongs to")
