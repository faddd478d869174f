"""Who asks: an API key from the headers to the one organization it may see.

There is no other way to name an organization. Where the server listens on loopback only, a request without a key
belongs to the organization the server was opened for; a wrong key is refused everywhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakerunner.model.errors import NotAuthenticated
from lakerunner.model.organization import Organization

_KEY_HEADERS = ("x-cardinalhq-api-key", "api-key", "x-api-key")


@dataclass(frozen=True)
class Authenticator:
    """`keyless` is whose requests without a key are; None: there are none such."""

    organization_of: Callable[[str], Organization | None]
    keyless: Organization | None

    def organization(self, headers: Mapping[str, str]) -> Organization:
        """Blocks on the index. `headers` has lower-case names."""
        key = key_in(headers)
        if key is None:
            if self.keyless is None:
                raise NotAuthenticated("an API key is needed: send it as `Authorization: Bearer KEY`")
            return self.keyless
        found = self.organization_of(key)
        if found is None:
            raise NotAuthenticated("this API key is not known, or was revoked")
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
