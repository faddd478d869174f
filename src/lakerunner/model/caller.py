"""Who asks: the one organization that a request belongs to, what it may do there, and how much of it.

Roles are a set. `read` asks, `write` brings telemetry, `admin` manages the organization's keys and may do all the
others do. None reaches beyond its organization.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.organization import Organization


class Role(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


Roles = frozenset[Role]
EVERY_ROLE: Roles = frozenset(Role)


def roles_named(names: Iterable[str]) -> Roles:
    """UserError for a name that is no role, and for no name at all."""
    roles = set()
    for name in names:
        if name not in list(Role):
            raise UserError(f"unknown role {name!r}: use one of {', '.join(Role)}")
        roles.add(Role(name))
    if not roles:
        raise UserError(f"a key needs at least one role: {', '.join(Role)}")
    return frozenset(roles)


def in_order(roles: Roles) -> list[str]:
    return [role.value for role in Role if role in roles]


@dataclass(frozen=True)
class Share:
    """Of the query service, for one organization; None: as the settings say."""

    queries_per_second: float | None = None
    concurrent_queries: int | None = None

    def __post_init__(self) -> None:
        rate, concurrent = self.queries_per_second, self.concurrent_queries
        if rate is not None and not 0 < rate < float("inf"):
            raise UserError(f"rate limit must be greater than 0, not {rate:g} queries per second")
        if concurrent is not None and not 0 < concurrent < 1 << 31:
            raise UserError(f"limit of concurrent queries must be 1 or more, not {concurrent}")


@dataclass(frozen=True)
class Caller:
    """`key` is the name of the key that was shown, never its secret; None: none was needed."""

    organization: Organization
    key: str | None
    roles: Roles
    share: Share = Share()

    def may(self, role: Role) -> bool:
        return role in self.roles or Role.ADMIN in self.roles

    def require(self, role: Role) -> None:
        if not self.may(role):
            raise NotAllowed(
                f"this needs role {role}, key {self.key} has {', '.join(in_order(self.roles))}: use "
                "another key, or ask an admin of your organization to create one"
            )
