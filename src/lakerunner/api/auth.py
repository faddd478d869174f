"""Who asks: an API key from the headers to the one organization it may see, and what it may do there.

There is no other way to name an organization. Where the server listens on loopback only, a request without a key
belongs to the organization the server was opened for and may do everything; a wrong key is refused everywhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakerunner.model.caller import EVERY_ROLE, Caller, Role, Share
from lakerunner.model.errors import NotAuthenticated
from lakerunner.model.organization import Organization

_KEY_HEADERS = ("x-cardinalhq-api-key", "api-key", "x-api-key")


@dataclass(frozen=True)
class Authenticator:
    """`caller_of` a secret; `keyless` is whose requests without a key are, with `keyless_share` of the query service;
    None: there are none such."""

    caller_of: Callable[[str], Caller | None]
    keyless: Organization | None
    keyless_share: Callable[[], Share] = Share

    def caller(self, headers: Mapping[str, str], role: Role) -> Caller:
        """Who asks, if they may do what needs this role. Blocks on the index. `headers` has lower-case names."""
        secret = key_in(headers)
        if secret is None:
            if self.keyless is None:
                raise NotAuthenticated("an API key is needed: send it as `Authorization: Bearer KEY`")
            return Caller(self.keyless, None, EVERY_ROLE, self.keyless_share())
        found = self.caller_of(secret)
        if found is None:
            raise NotAuthenticated("this API key is not known, or was revoked")
        found.require(role)
        return found


def key_in(headers: Mapping[str, str]) -> str | None:
    """The key a request shows, from any header that clients of this field use."""
    for name in _KEY_HEADERS:
        if headers.get(name):
            return headers[name]
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2] or None
        except (binascii.Error, UnicodeDecodeError):
            raise NotAuthenticated("the Basic credentials are not base64 of user:key") from None
    return None
