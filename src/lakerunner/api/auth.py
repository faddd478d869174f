"""Authenticate requests: an API key in the headers stands for one organization, and for roles in it.

There is no other way to name an organization. If the server listens on loopback only, a request without a key belongs
to the server's own organization and may do everything except manage keys, if it comes from this machine. A wrong key is
always refused, and so is a request with two different keys.

A server on loopback trusts every program on this machine, and a browser is one: any web page can send requests to
127.0.0.1, and by DNS rebinding (its own name, resolved to 127.0.0.1) also read the answers. The Host header then has
the page's name, which the page cannot change, and Origin or Sec-Fetch-Site show where the request came from. A proxy on
this machine forwards requests of others, and adds a header that shows it. Such requests need a key.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.types import Scope

from lakerunner.model.errors import NotAllowed, NotAuthenticated
from lakerunner.model.organization import EVERY_ROLE, Caller, Organization, Role, Share

KEY_HEADERS = ("x-cardinalhq-api-key", "api-key", "x-api-key")
TENANT_HEADER = "x-scope-orgid"  # Loki's
_HOW = "send it as `Authorization: Bearer KEY`"
_HINT = "send an API key (`lakerunner keys create NAME`)"
_PLAIN = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Authenticator:
    """`caller_of` finds the caller of a secret. `keyless` is the organization of requests without a key, with
    `keyless_share` of the query service; None if every request needs a key. `names` has the host of the setting
    `listen`, in lower case."""

    caller_of: Callable[[str], Caller | None]
    keyless: Organization | None
    keyless_share: Callable[[], Share] = Share
    names: frozenset[str] = frozenset()

    async def admit(self, request: HTTPConnection, role: Role) -> Caller:
        """Return the caller, as `caller` does, without blocking the event loop.

        From then on the request's body counts towards its organization (`BodyBudget` in `api/app.py`): call this
        before the body is read.
        """
        caller = await to_thread.run_sync(self.caller, request.headers, role)
        request.state.organization = caller.organization.id
        return caller

    def caller(self, headers: Mapping[str, str], role: Role) -> Caller:
        """Return the caller if it has this role. Blocks on the index. `headers` has lower-case names; its `items`
        must list repeated headers too."""
        secret = api_key(headers.items())
        if secret is not None:
            return self._caller_by(secret, role)
        if self.keyless is None:
            raise NotAuthenticated(f"API key required: {_HOW}")
        refuse_foreign(headers.items(), self.names)
        return Caller(self.keyless, None, EVERY_ROLE, self.keyless_share())

    def caller_with_key(self, headers: Mapping[str, str], role: Role) -> Caller:
        """Return the caller of an operation that always needs a key."""
        secret = api_key(headers.items())
        if secret is None:
            raise NotAuthenticated(f"API key, or the token in HOME/token, required: {_HOW}")
        return self._caller_by(secret, role)

    def _caller_by(self, secret: str, role: Role) -> Caller:
        found = self.caller_of(secret)
        if found is None:
            raise NotAuthenticated("API key is unknown or revoked")
        found.require(role)
        return found


def refuse_other_tenant(headers: Mapping[str, str], organization: Organization) -> None:
    """Raise NotAllowed if Loki's tenant header names another organization than that of the caller, by name or id."""
    named = headers.get(TENANT_HEADER, "").strip()
    if named and named not in (organization.name, str(organization.id)):
        raise NotAllowed(
            f"X-Scope-OrgID {named[:200]!r} is not the organization of the request ({organization.name}): leave the "
            "header out, or send a key of that organization"
        )


def organization_of(scope: Scope) -> UUID | None:
    """Return the organization of this request; None before a caller was admitted."""
    found: UUID | None = scope.get("state", {}).get("organization")
    return found


def api_key(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the API key from any of the headers that clients use; raise NotAuthenticated if there are several."""
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


def refuse_foreign(headers: Iterable[tuple[str, str]], names: frozenset[str]) -> None:
    """Raise NotAllowed unless a request with these headers (names in lower case) may go without a key.

    `names` are further names of this server, in lower case: the host of its setting `listen`.
    """
    hosts, origins = [], []
    for name, value in headers:
        if name == "host":
            hosts.append(value)
        elif name == "origin":
            origins.append(value)
        elif name == "sec-fetch-site" and value.strip().lower() == "cross-site":
            raise NotAllowed(f"this request was sent by a web page of another site without a key: {_HINT}")
        elif name == "forwarded" or name.startswith("x-forwarded-"):
            raise NotAllowed(f"header {name} shows that a proxy sent this request: {_HINT}")
    if len(hosts) != 1 or not _is_own(hosts[0], names):
        raise NotAllowed(f"Host {', '.join(hosts)!r} is not localhost: {_HINT}")
    for origin in origins:
        if _authority(origin) != hosts[0].strip().lower():
            raise NotAllowed(f"this request was sent by a web page of {origin!r} without a key: {_HINT}")


def _authority(origin: str) -> str | None:
    """Return host and port of an origin; None if it has no host, such as `null`."""
    try:
        found = urlsplit(origin.strip().lower())
    except ValueError:
        return None
    return found.netloc or None


def _is_own(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names this machine, with any port, since ports may be forwarded.

    Addresses may have any spelling. Names are never resolved, because an attacker may control what they resolve to.
    """
    name = host.strip().lower()
    bare, colon, port = name.rpartition(":")
    if colon and (port.isdigit() or not port) and not (name.startswith("[") and name.endswith("]")):
        name = bare
    name = name.removeprefix("[").removesuffix("]").removesuffix(".")
    if name in _PLAIN or name in names:
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return all(is_loopback_ip(str(address[0])) for *_, address in found)


def is_loopback_ip(text: str) -> bool:
    """Return whether an address in its usual spelling is loopback; IPv4 mapped into IPv6 counts as IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
