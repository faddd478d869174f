"""Who owns telemetry and who calls: an organization is a UUID with a display name, a collector is a name inside it.

A caller belongs to exactly one organization. Its roles are a set: `read` queries, `write` sends telemetry, `admin`
manages the organization's keys and may do everything the others may. No role reaches beyond its organization.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from lakerunner.model.errors import NotAllowed, UserError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(kind: str, name: str) -> str:
    """Return the name if it can stand in a path; raise a UserError that says what can otherwise."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{kind} name {name!r} is invalid: use 1 to 128 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return name


RULE_PREFIX = "_"  # of collectors in whose name points of rules are stored; no sender has such a name


def is_of_rule(collector: str) -> bool:
    """Return whether a rule made the points of this collector: those of one series and time add up
    (docs/decisions/0030)."""
    return collector.startswith(RULE_PREFIX)


@dataclass(frozen=True)
class Organization:
    id: UUID
    name: str

    def __post_init__(self) -> None:
        checked_name("organization", self.name)


DEFAULT_ORGANIZATION = Organization(UUID("12340000-0000-4000-8000-000000000000"), "default")
DEFAULT_COLLECTOR = "default"


# ---- callers


class Role(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


Roles = frozenset[Role]
EVERY_ROLE: Roles = frozenset(Role)


def parse_roles(names: Iterable[str]) -> Roles:
    """Raise UserError for an unknown role, and for an empty list."""
    roles = set()
    for name in names:
        if name not in list(Role):
            raise UserError(f"unknown role {name!r}: use one of {', '.join(Role)}")
        roles.add(Role(name))
    if not roles:
        raise UserError(f"a key needs at least one role: {', '.join(Role)}")
    return frozenset(roles)


def role_names(roles: Roles) -> list[str]:
    """Return the names of the roles, in the order in which Role lists them."""
    return [role.value for role in Role if role in roles]


@dataclass(frozen=True)
class Share:
    """The share of the query service that one organization may use; None: as the settings say."""

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
    """Who sends a request. `key` is the name of the key that was presented, never its secret; None: no key was
    needed."""

    organization: Organization
    key: str | None
    roles: Roles
    share: Share = Share()

    def may(self, role: Role) -> bool:
        return role in self.roles or Role.ADMIN in self.roles

    def require(self, role: Role) -> None:
        if not self.may(role):
            raise NotAllowed(
                f"this needs role {role}, key {self.key} has {', '.join(role_names(self.roles))}: use "
                "another key, or ask an admin of your organization to create one"
            )
