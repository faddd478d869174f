"""Who owns telemetry: an organization is a UUID with a display name; a collector is a name inside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from lakerunner.model.errors import UserError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(kind: str, name: str) -> str:
    """The name itself if it can stand in a path, else a UserError that says what can."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{kind} name {name!r} is invalid: use 1 to 128 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class Organization:
    id: UUID
    name: str

    def __post_init__(self) -> None:
        checked_name("organization", self.name)


DEFAULT_ORGANIZATION = Organization(UUID("12340000-0000-4000-8000-000000000000"), "default")
DEFAULT_COLLECTOR = "default"
