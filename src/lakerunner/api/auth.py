"""Who asks: an API key from the headers to the one organization it may see, and what it may do there.

There is no other way to name an organization. Where the server listens on loopback only, a request without a key
belongs to the organization the server was opened for and may do everything but manage keys, if it comes from this
machine itself (`api/keyless.py`); a wrong key is refused everywhere, and so is a request with two different ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Scope

from lakerunner.api.keyless import refuse_foreign
from lakerunner.model.caller import EVERY_ROLE, Caller, Role, Share
from lakerunner.model.errors import NotAuthenticated
from lakerunner.model.organization import Organization

KEY_HEADERS = ("x-cardinalhq-api-key", "api-key", "x-api-key")
_HOW = "send it as `Authorization: Bearer KEY`"


@dataclass(frozen=True)
class Authenticator:
    """`caller_of` a secret; `keyless` is whose requests without a key are, with `keyless_share` of the query service;
    None: there are none such. `names`: the host of the setting `listen`, in lower case."""

    caller_of: Callable[[str], Caller | None]
    keyless: Organization | None
    keyless_share: Callable[[], Share] = Share
    names: frozenset[str] = frozenset()

    async def admit(self, request: Request, role: Role) -> Caller:
        """Return who asks, as `caller` does, without blocking. From then on the request's body counts as its
        organization's (`api/body_budget.py`): call this before the body is read."""
        caller = await to_thread.run_sync(self.caller, request.headers, role)
        request.state.organization = caller.organization.id
        return caller

    def caller(self, headers: Mapping[str, str], role: Role) -> Caller:
        """Who asks, if they may do what needs this role. Blocks on the index. `headers` has lower-case names; its
        `items` are all headers, also those of one name."""
        secret = key_in(headers.items())
        if secret is not None:
            return self._caller_by(secret, role)
        if self.keyless is None:
            raise NotAuthenticated(f"API key required: {_HOW}")
        refuse_foreign(headers.items(), self.names)
        return Caller(self.keyless, None, EVERY_ROLE, self.keyless_share())

    def caller_with_key(self, headers: Mapping[str, str], role: Role) -> Caller:
        """Return who asks, for operations that always need a key."""
        secret = key_in(headers.items())
        if secret is None:
            raise NotAuthenticated(f"API key, or the token in HOME/token, required: {_HOW}")
        return self._caller_by(secret, role)

    def _caller_by(self, secret: str, role: Role) -> Caller:
        found = self.caller_of(secret)
        if found is None:
            raise NotAuthenticated("API key is unknown or revoked")
        found.require(role)
        return found


def organization_of(scope: Scope) -> UUID | None:
    """Return whose request this is, None where nobody was admitted yet."""
    found: UUID | None = scope.get("state", {}).get("organization")
    return found


def key_in(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the key that a request shows, in any of the headers that clients use; NotAuthenticated if keys differ."""
    keys = {key for name, value in headers if (key := _key_of(name, value))}
    if len(keys) > 1:
        raise NotAuthenticated(f"the request has {len(keys)} different API keys: send one")
    return keys.pop() if keys else None


def _key_of(name: str, value: str) -> str | None:
    if name in KEY_HEADERS:
        return value
    if name != "authorization":
        return None
    scheme, _, shown = value.partition(" ")
    if scheme.lower() == "bearer":
        return shown.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(shown, validate=True).decode().partition(":")[2]
        except ValueError:  # not base64, or not UTF-8
            raise NotAuthenticated("Basic credentials are not base64 of user:key") from None
    return None
