"""Organizations: who owns telemetry. Every other row hangs on one."""

from __future__ import annotations

from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.caller import Share
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.organization import Organization


class Organizations:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Organization]:
        """By name."""
        return [Organization(*row) for row in self._database.rows("organizations.all")]

    def find(self, id_or_name: str) -> Organization | None:
        """An id, written as ids are written, goes before a name that looks like it."""
        rows = self._database.rows("organizations.find", {"id": _id_in(id_or_name), "name": id_or_name})
        return Organization(*rows[0]) if rows else None

    def create(self, organization: Organization) -> None:
        """Conflict if its id or its name is taken."""
        values = {"id": organization.id, "name": organization.name}
        if not self._database.run("organizations.create", values):
            raise Conflict(f"an organization {organization.name} or {organization.id} exists already")

    def share(self, organization: UUID) -> Share:
        """What it may take of the query service; as the settings say, for one that we do not know."""
        rows = self._database.rows("organizations.share", {"id": organization})
        return Share(*rows[0]) if rows else Share()

    def limit(self, organization: UUID, share: Share) -> None:
        values = {
            "id": organization,
            "queries_per_second": share.queries_per_second,
            "concurrent_queries": share.concurrent_queries,
        }
        if not self._database.run("organizations.limit", values):
            raise NotFound(f"organization {organization} not found")


def _id_in(text: str) -> UUID | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None
