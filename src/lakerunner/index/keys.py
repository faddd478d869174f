"""API keys: a secret that stands for one organization. It is shown once, at birth; only its SHA-256 is kept.

A secret has 256 random bits, so a plain digest cannot be searched and can be looked up by an index.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from secrets import token_urlsafe
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.organization import Organization, checked_name

_PREFIX = "lrk_"  # by which a key is known when one is found where it should not be


@dataclass(frozen=True)
class ApiKey:
    organization: UUID
    name: str
    created_at: datetime
    revoked_at: datetime | None


ApiKeys = list[ApiKey]


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, organization: UUID, name: str) -> str:
        """The secret. Conflict if the organization has, or had, a key of this name; NotFound without the
        organization."""
        secret = _PREFIX + token_urlsafe(32)
        values = {
            "organization": organization,
            "name": checked_name("key", name),
            "hash": _digest(secret),
        }
        if not self._database.run("api_keys.create", values):
            raise Conflict(f"organization {organization} has or had a key named {name}: take another name")
        return secret

    def list(self, organization: UUID) -> ApiKeys:
        """Oldest first, the revoked ones too."""
        return [ApiKey(*row) for row in self._database.rows("api_keys.list", {"organization": organization})]

    def revoke(self, organization: UUID, name: str) -> None:
        """From now on the key stands for nobody. Revoking twice is fine."""
        if not self._database.run("api_keys.revoke", {"organization": organization, "name": name}):
            raise NotFound(f"organization {organization} has no key named {name}")

    def organization_of(self, secret: str) -> Organization | None:
        """Whom the secret stands for; None if it is unknown or revoked."""
        rows = self._database.rows("api_keys.organization_of", {"hash": _digest(secret)})
        return Organization(*rows[0]) if rows else None


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
