"""Organizations: the owners of telemetry, their limits, stream rules and retention. Every other row belongs to one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.organization import Organization, Share
from lakerunner.model.retention_policy import RetentionKey
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import SECOND_NS

RetentionRows = dict[RetentionKey, int | None]  # ns; None: forever


class Organizations:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Organization]:
        """Return all organizations by name."""
        return [Organization(*row) for row in self._database.rows("organizations.all")]

    def find(self, id_or_name: str) -> Organization | None:
        """Find an organization by id or name; an id in its usual form wins over a name that looks like it."""
        rows = self._database.rows("organizations.find", {"id": _parse_id(id_or_name), "name": id_or_name})
        return Organization(*rows[0]) if rows else None

    def create(self, organization: Organization) -> None:
        """Create it. Conflict if its id or its name is taken."""
        values = {"id": organization.id, "name": organization.name}
        if not self._database.run("organizations.create", values):
            raise Conflict(f"an organization {organization.name} or {organization.id} exists already")

    def share(self, organization: UUID) -> Share:
        """Return the organization's share of the query service; that of the settings for an unknown one."""
        rows = self._database.rows("organizations.share", {"id": organization})
        return Share(*rows[0]) if rows else Share()

    def limit(self, organization: UUID, share: Share) -> None:
        if not self._database.run("organizations.limit", vars(share) | {"id": organization}):
            raise NotFound(f"organization {organization} not found")

    def stream_rules(self, organization: UUID) -> StreamRules:
        """Return the rules for its log streams; Loki's for an organization without its own, or an unknown one."""
        rows = self._database.rows("organizations.stream_rules", {"id": organization})
        return _parse_stream_rules(rows[0][0]) if rows else DEFAULT_RULES

    def set_stream_rules(self, organization: UUID, rules: StreamRules | None) -> None:
        """Set the rules for its log streams; None: Loki's again. Where they differ from those before, labels of lines
        change, and so what rules make of them (docs/decisions/0030): new versions of these begin."""
        stored = None if rules is None else json.dumps(rules.to_json())
        with self._database.transaction() as transaction:
            before = transaction.rows("organizations.lock_stream_rules", {"id": organization})
            if not before:
                raise NotFound(f"organization {organization} not found")
            if _parse_stream_rules(before[0][0]) != (rules or DEFAULT_RULES):
                transaction.rows("metric_rules.renew", {"organization": organization, "ids": [], "signal": "logs"})
            transaction.run("organizations.set_stream_rules", {"id": organization, "rules": stored})


def _parse_stream_rules(stored: Any) -> StreamRules:
    return DEFAULT_RULES if stored is None else StreamRules.from_json(stored)


def _parse_id(text: str) -> UUID | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None


class Retentions:
    """How long organizations keep their data; without a row, the settings decide."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, organization: UUID) -> RetentionRows:
        rows = self._database.rows("retention.of", {"organization": organization})
        return {(signal, frequency_ms): _to_ns(seconds) for signal, frequency_ms, seconds in rows}

    def all(self) -> Mapping[UUID, RetentionRows]:
        """Return the rows of all organizations that have any."""
        found: dict[UUID, RetentionRows] = defaultdict(dict)
        for organization, signal, frequency_ms, seconds in self._database.rows("retention.all"):
            found[organization][signal, frequency_ms] = _to_ns(seconds)
        return found

    def set(self, organization: UUID, rows: Mapping[RetentionKey, int | None]) -> None:
        """Set all of these or none; NotFound if there is no such organization."""
        values = [
            _retention_key(organization, kept) | {"seconds": None if keep_ns is None else keep_ns // SECOND_NS}
            for kept, keep_ns in rows.items()
        ]
        with self._database.transaction() as transaction:
            transaction.run_each("retention.set", values)

    def clear(self, organization: UUID, kept: Iterable[RetentionKey]) -> int:
        """Remove these rows, so that the settings decide again; return how many there were."""
        with self._database.transaction() as transaction:
            return sum(transaction.run("retention.clear", _retention_key(organization, one)) for one in kept)


def _retention_key(organization: UUID, kept: RetentionKey) -> dict[str, object]:
    return {"organization": organization, "signal": kept[0], "frequency_ms": kept[1]}


def _to_ns(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_NS
