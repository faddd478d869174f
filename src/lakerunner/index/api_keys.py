"""API keys: secrets of an organization, with the roles they have there.

A secret is shown once, when it is created; only its SHA-256 is stored. It has 256 random bits, so a plain digest cannot
be brute-forced and can be looked up by an index. A key has at most two secrets: its own and, for a time after a
rotation, the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.errors import Conflict, NotFound, TooLarge, UserError
from lakerunner.model.organization import Caller, Organization, Roles, Share, checked_name, parse_roles, role_names

KEYS_MAX = 1000  # of one organization, including revoked ones, whose names stay taken
GRACE_MAX = timedelta(days=90)
_PREFIX = "lrk_"  # identifies a leaked key as one of ours


@dataclass(frozen=True)
class ApiKey:
    """`previous_until` is when the secret before the last rotation expires, or expired."""

    organization: UUID
    name: str
    roles: Roles
    created_at: datetime
    rotated_at: datetime | None
    previous_until: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class KeyGrant:
    """The caller that a secret belongs to, and for how many more seconds; None: until the key is revoked or rotated."""

    caller: Caller
    seconds: float | None = None


ApiKeys = list[ApiKey]


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, organization: UUID, name: str, roles: Roles) -> str:
        """Create a key; return its secret. Conflict if the organization has, or had, a key of this name; NotFound
        without the organization; TooLarge if it has KEYS_MAX already."""
        secret = _new_secret()
        values = {
            "organization": organization,
            "name": checked_name("key", name),
            "hash": digest(secret),
            "roles": role_names(roles),
        }
        with self._database.transaction() as transaction:
            if transaction.rows("api_keys.count", values)[0][0] >= KEYS_MAX:
                raise TooLarge(
                    f"the organization has {KEYS_MAX} keys, including revoked ones, which is the limit: "
                    "rotate an existing key"
                )
            if not transaction.run("api_keys.create", values):
                raise Conflict(f"a key named {name} exists or existed: choose another name, or rotate it")
        return secret

    def list(self, organization: UUID) -> ApiKeys:
        """List the keys, oldest first, including revoked ones."""
        rows = self._database.rows("api_keys.list", {"organization": organization})
        return [ApiKey(owner, name, parse_roles(roles), *times) for owner, name, roles, *times in rows]

    def rotate(self, organization: UUID, name: str, grace: timedelta) -> str:
        """Return a new secret; the current one stays valid for the grace time, any older one ends at once."""
        if not timedelta(0) <= grace <= GRACE_MAX:
            raise UserError(f"grace must be between 0 and {GRACE_MAX.days} days, not {grace}")
        secret = _new_secret()
        values = {"organization": organization, "name": name, "hash": digest(secret), "grace": grace}
        if not self._database.run("api_keys.rotate", values):
            raise NotFound(f"cannot rotate key {name!r}: it does not exist, or is revoked")
        return secret

    def revoke(self, organization: UUID, name: str) -> None:
        """Revoke the key at once. Revoking twice is fine."""
        if not self._database.run("api_keys.revoke", {"organization": organization, "name": name}):
            raise NotFound(f"key {name!r} not found")

    def find(self, hashed: bytes) -> KeyGrant | None:
        """Return the grant of the secret with this digest; None if it is unknown, revoked or past its grace time."""
        rows = self._database.rows("api_keys.find", {"hash": hashed})
        if not rows:
            return None
        id_, organization, name, roles, rate, concurrent, seconds = rows[0]
        caller = Caller(Organization(id_, organization), name, parse_roles(roles), Share(rate, concurrent))
        return KeyGrant(caller, seconds)


def digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _new_secret() -> str:
    return _PREFIX + token_urlsafe(32)
