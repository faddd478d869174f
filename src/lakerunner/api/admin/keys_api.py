"""API keys over HTTP, for admins of an organization: GET and POST /api/v1/keys, POST .../{name}/rotate, DELETE
.../{name}.

All keys are those of the caller's organization: no request can name another. A secret is only in the answer to the
request that created it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Parameter, Reply, json_reply
from lakerunner.api.schema import OBJECT, TEXT, array, closed, one_of, record, text
from lakerunner.index.api_keys import ApiKey, Keys
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Role, parse_roles, role_names
from lakerunner.model.time import SECOND_NS, duration_ns

BODY_LIMIT = BodyLimit(64 << 10, "the limit of a request about keys")
GRACE = "24h"
_NO_STORE = {"cache-control": "no-store"}
_ROLES = array(one_of(role.value for role in Role))
_SECRET = record("name roles? secret", roles=_ROLES, secret=text("shown only in this answer"))
_NAME = Parameter("name", "path", TEXT, "name of the key", "grafana")
LIST = Operation(
    "keys",
    "List the keys of the organization, without their secrets",
    json_reply("The keys.", record("keys", keys=array(OBJECT))),
)
CREATE = Operation(
    "keys",
    "Create a key",
    json_reply("The key and its secret.", _SECRET, 201),
    body={JSON: Body(closed(record("name roles", roles=_ROLES)), {"name": "grafana", "roles": ["read"]})},
    errors=(400, 401, 403, 409, 413, 415, 503),
)
ROTATE = Operation(
    "keys",
    "Give a key a new secret; the old secret keeps working for a grace time",
    json_reply("The new secret.", _SECRET),
    parameters=(_NAME,),
    body={JSON: Body(closed(record("grace?")), {"grace": GRACE})},
    errors=(400, 401, 403, 404, 409, 413, 415, 503),
)
REVOKE = Operation(
    "keys",
    "Revoke a key",
    {204: Reply("The key is refused from now on.")},
    parameters=(_NAME,),
    errors=(401, 403, 404, 503),
)


@dataclass(frozen=True)
class KeysApi:
    """The endpoints of keys. `changed` is called with an organization whose keys changed."""

    keys: Keys
    authenticator: Authenticator
    changed: Callable[[UUID], None]

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/keys", self.list, GET=LIST),
            Endpoint("/api/v1/keys", self.create, POST=CREATE),
            Endpoint("/api/v1/keys/{name}/rotate", self.rotate, POST=ROTATE),
            Endpoint("/api/v1/keys/{name}", self.revoke, DELETE=REVOKE),
        ]

    async def list(self, request: Request) -> Response:
        organization = await self._organization(request)
        keys = await to_thread.run_sync(self.keys.list, organization)
        return JSONResponse({"keys": [_key_json(key) for key in keys]})

    async def create(self, request: Request) -> Response:
        organization = await self._organization(request)
        body = await read_json(request, BODY_LIMIT)
        name, names = body.get("name"), body.get("roles")
        if set(body) != {"name", "roles"} or not isinstance(name, str) or not isinstance(names, list):
            raise UserError('the body must be {"name": "...", "roles": ["read", ...]}')
        roles = parse_roles(names)
        secret = await to_thread.run_sync(self.keys.create, organization, name, roles)
        return JSONResponse({"name": name, "roles": role_names(roles), "secret": secret}, 201, _NO_STORE)

    async def rotate(self, request: Request) -> Response:
        organization, name = await self._organization(request), request.path_params["name"]
        body = await read_json(request, BODY_LIMIT, empty={})
        grace = body.get("grace", GRACE)
        if set(body) - {"grace"} or not isinstance(grace, str):
            raise UserError('the body must be {"grace": "24h"}, or empty')
        secret = await to_thread.run_sync(self.keys.rotate, organization, name, parse_grace(grace))
        self.changed(organization)
        return JSONResponse({"name": name, "secret": secret}, headers=_NO_STORE)

    async def revoke(self, request: Request) -> Response:
        organization = await self._organization(request)
        await to_thread.run_sync(self.keys.revoke, organization, request.path_params["name"])
        self.changed(organization)
        return Response(status_code=204)

    async def _organization(self, request: Request) -> UUID:
        caller = await to_thread.run_sync(self.authenticator.caller_with_key, request.headers, Role.ADMIN)
        return caller.organization.id


def parse_grace(text: str) -> timedelta:
    """Parse how long the old secret works after a rotation: `24h`, or `0s` for not at all."""
    grace_ns = duration_ns(text)
    if grace_ns is None:
        raise UserError(f"grace {text!r} is not a duration: write 90s, 15m, 24h or 7d, or 0s for none")
    return timedelta(seconds=grace_ns // SECOND_NS)


def _key_json(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "roles": role_names(key.roles),
        "created_at": _iso(key.created_at),
        "rotated_at": _iso(key.rotated_at),
        "previous_until": _iso(key.previous_until),
        "revoked_at": _iso(key.revoked_at),
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
