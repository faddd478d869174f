"""API keys: a secret that stands for one organization, with the roles it has there.

A secret is shown once, at birth; only its SHA-256 is kept. It has 256 random bits, so a plain digest cannot be searched
and can be looked up by an index. A key has at most two secrets: its own and, for a time after a rotation, the one
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.caller import Caller, Roles, Share, in_order, roles_named
from lakerunner.model.errors import Conflict, NotFound, TooLarge, UserError
from lakerunner.model.organization import Organization, checked_name

KEYS_MAX = 1000  # of one organization, the revoked ones too, as their names stay taken
GRACE_MAX = timedelta(days=90)
_PREFIX = "lrk_"  # by which a key is known when one is found where it should not be


@dataclass(frozen=True)
class ApiKey:
    """`previous_until` is when the secret before the last rotation dies, or died."""

    organization: UUID
    name: str
    roles: Roles
    created_at: datetime
    rotated_at: datetime | None
    previous_until: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class Known:
    """Whom a secret stands for, and for how many seconds more; None: until someone ends it."""

    caller: Caller
    seconds: float | None = None


ApiKeys = list[ApiKey]


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, organization: UUID, name: str, roles: Roles) -> str:
        """The secret. Conflict if the organization has, or had, a key of this name; NotFound without the
        organization; TooLarge if it has KEYS_MAX already."""
        secret = _new_secret()
        values = {
            "organization": organization,
            "name": checked_name("key", name),
            "hash": digest(secret),
            "roles": in_order(roles),
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
        """Oldest first, the revoked ones too."""
        rows = self._database.rows("api_keys.list", {"organization": organization})
        return [ApiKey(owner, name, roles_named(roles), *times) for owner, name, roles, *times in rows]

    def rotate(self, organization: UUID, name: str, grace: timedelta) -> str:
        """A new secret; the one until now is good for the grace time, any before it is dead at once."""
        if not timedelta(0) <= grace <= GRACE_MAX:
            raise UserError(f"grace must be between 0 and {GRACE_MAX.days} days, not {grace}")
        secret = _new_secret()
        values = {"organization": organization, "name": name, "hash": digest(secret), "grace": grace}
        if not self._database.run("api_keys.rotate", values):
            raise NotFound(f"cannot rotate key {name!r}: it does not exist, or is revoked")
        return secret

    def revoke(self, organization: UUID, name: str) -> None:
        """From now on the key stands for nobody. Revoking twice is fine."""
        if not self._database.run("api_keys.revoke", {"organization": organization, "name": name}):
            raise NotFound(f"key {name!r} not found")

    def find(self, hashed: bytes) -> Known | None:
        """Whom the secret with this digest stands for; None if it is unknown, revoked or past its grace."""
        rows = self._database.rows("api_keys.find", {"hash": hashed})
        if not rows:
            return None
        id_, organization, name, roles, rate, concurrent, seconds = rows[0]
        caller = Caller(Organization(id_, organization), name, roles_named(roles), Share(rate, concurrent))
        return Known(caller, seconds)


def digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _new_secret() -> str:
    return _PREFIX + token_urlsafe(32)
