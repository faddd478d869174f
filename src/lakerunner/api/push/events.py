"""Notifications of new raw objects over HTTP: POST /api/v1/events/{s3,gcp,azure}.

An event only names an object; its size and etag are read from the store, so a late, repeated or forged event can do no
more than name an object that exists. Our own segments and keys without a route are ignored; an object of another bucket
is refused by name, so that a wrong configuration of the sender is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, content_type, read_body, require_json
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Parameter, json_reply
from lakerunner.api.schema import COUNT, record
from lakerunner.model.errors import NotAllowed, NotFound, TooLarge, UserError
from lakerunner.model.notification import PROVIDERS, CreatedObject, created_objects, parse_json, validation_code
from lakerunner.model.organization import Organization, Role
from lakerunner.model.source import Routes
from lakerunner.objects.store import is_key

EVENTS_LIMIT = BodyLimit(4 << 20, "the limit of one notification")
EVENTS_MAX_OBJECTS = 5_000  # the maximum that a provider (Event Grid) sends in one request
UNUSABLE_MAX = 100  # invalid keys in one request; real events of a provider have almost none
_SNS = "text/plain"
_EXAMPLE = {
    "Records": [
        {
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "local"}, "object": {"key": "otel-raw/default/edge/logs.binpb.gz"}},
        }
    ]
}
RECEIVE = Operation(
    tag="ingest",
    summary="Receive a notification of new raw objects",
    description="In the form that S3, Google Cloud Storage or Azure sends (docs/formats/notifications.md).",
    parameters=(
        Parameter("provider", "path", {"enum": list(PROVIDERS)}, "provider whose form the notification has", "s3"),
    ),
    body={JSON: Body({"type": ["object", "array"]}, _EXAMPLE)},
    replies=json_reply(
        "Number of raw objects in the notification, and how many of them were new; or the answer to Azure's handshake.",
        record("objects? new? validationResponse?", objects=COUNT, new=COUNT),
    ),
    errors=(400, 401, 403, 404, 413, 415, 503),
)


@dataclass(frozen=True)
class WatchedBucket:
    """The bucket that this lake reads, below `prefix`, and the routes of its keys."""

    bucket: str
    prefix: str
    routes: Routes

    def is_foreign(self, created: CreatedObject) -> bool:
        return created.bucket != self.bucket

    def key_of(self, created: CreatedObject) -> str | None:
        """Return the key below our prefix; None if the object is not raw telemetry of this lake."""
        if self.is_foreign(created) or not created.key.startswith(self.prefix):
            return None
        key = created.key.removeprefix(self.prefix)
        return key if self.routes.route_of(key) else None


@dataclass(frozen=True)
class EventsApi:
    """The endpoint of notifications. `announce` records keys and returns how many were new."""

    announce: Callable[[list[str]], int]
    authenticator: Authenticator
    notified: WatchedBucket

    def routes(self) -> list[Route]:
        return [Endpoint("/api/v1/events/{provider}", self.receive, POST=RECEIVE)]

    async def receive(self, request: Request) -> Response:
        caller = await self.authenticator.admit(request, Role.WRITE)
        provider = request.path_params["provider"]
        if provider not in PROVIDERS:
            raise NotFound(f"unknown provider of events {provider!r}: use one of {', '.join(PROVIDERS)}")
        # SNS sends its JSON as text/plain, as a web page could; but no web page can send a key with it.
        if caller.key is None or content_type(request) != _SNS:
            require_json(request)
        event = parse_json(await read_body(request, EVENTS_LIMIT))
        code = validation_code(event) if provider == "azure" else None
        if code is not None:
            return JSONResponse({"validationResponse": code})
        keys = self.keys_of(provider, event)
        if caller.key is not None:
            keys = self._own(caller.organization, keys)
        new = await to_thread.run_sync(self.announce, keys)
        return JSONResponse({"objects": len(keys), "new": new})

    def keys_of(self, provider: str, event: object) -> list[str]:
        """Return the keys of the raw objects that the event names as created, in order."""
        created = created_objects(provider, event)
        if len(created) > EVENTS_MAX_OBJECTS:
            raise TooLarge(f"the event has {len(created)} objects, the limit is {EVENTS_MAX_OBJECTS}")
        for one in created:
            if self.notified.is_foreign(one):
                raise UserError(f"{one.key!r} is in bucket {one.bucket!r}, which this lake does not read")
        unusable = [one.key for one in created if not is_key(one.key)]
        if len(unusable) > UNUSABLE_MAX:
            raise UserError(
                f"{len(unusable)} of {len(created)} keys are not valid keys of objects, for example {unusable[0]!r}"
            )
        return [key for one in created if (key := self.notified.key_of(one)) is not None]

    def _own(self, organization: Organization, keys: list[str]) -> list[str]:
        """Return the keys of this organization, without those that name no organization; raise NotAllowed if one
        names another organization."""
        routed = [(key, self.notified.routes.route_of(key)) for key in keys]
        own = [(key, route) for key, route in routed if route and route.organization]
        for key, route in own:
            if route.organization not in (str(organization.id), organization.name):
                raise NotAllowed(
                    f"{key} does not belong to organization {organization.name}, the owner of this API key"
                )
        return [key for key, _ in own]
