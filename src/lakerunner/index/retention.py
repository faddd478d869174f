"""What organizations have of their own in the way of retention; where there is no row, the settings say it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.model.retention import Kept
from lakerunner.model.time import SECOND_NS

Rows = dict[Kept, int | None]  # ns; None: for ever


class Retentions:
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
