"""Organizations: who owns telemetry, and what each has of its own. Every other row hangs on one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.caller import Share
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.organization import Organization
from lakerunner.model.retention import Kept
from lakerunner.model.time import SECOND_NS

Rows = dict[Kept, int | None]  # ns; None: for ever


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


class Retentions:
    """How long organizations keep their data; where there is no row, the settings decide."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, organization: UUID) -> Rows:
        rows = self._database.rows("retention.of", {"organization": organization})
        return {(signal, frequency_ms): _ns(seconds) for signal, frequency_ms, seconds in rows}

    def all(self) -> Mapping[UUID, Rows]:
        """Of all organizations that have any."""
        found: dict[UUID, Rows] = defaultdict(dict)
        for organization, signal, frequency_ms, seconds in self._database.rows("retention.all"):
            found[organization][signal, frequency_ms] = _ns(seconds)
        return found

    def set(self, organization: UUID, rows: Mapping[Kept, int | None]) -> None:
        """All of them or none; NotFound if there is no such organization."""
        values = [
            _values(organization, kept) | {"seconds": None if keep_ns is None else keep_ns // SECOND_NS}
            for kept, keep_ns in rows.items()
        ]
        with self._database.transaction() as transaction:
            transaction.run_each("retention.set", values)

    def clear(self, organization: UUID, kept: Iterable[Kept]) -> int:
        """How many there were: the settings decide again."""
        with self._database.transaction() as transaction:
            return sum(transaction.run("retention.clear", _values(organization, one)) for one in kept)


def _values(organization: UUID, kept: Kept) -> dict[str, object]:
    return {"organization": organization, "signal": kept[0], "frequency_ms": kept[1]}


def _ns(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_NS
