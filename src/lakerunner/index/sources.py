"""Source objects: one row for each raw object that was ever announced, with its state and findings.

A row starts as `seen`. The same transaction puts the message that requests its ingest into the outbox, so each new
object is requested exactly once. It ends as `done`, `partial` or `failed` in the commit of its segments (commit.py).
Only a failed one can become seen again (`retry`), or `dismissed`; the row of a done one never changes.

Findings are columns of the row: rejects and notes are JSON, whose size model/source.py bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database, arrays_of
from lakerunner.model.source import Findings, Note, Reject, Rejects, SourceObject, SourceState

Identity = tuple[str, str, str]
_REASON_CHARACTERS = 2000


@dataclass(frozen=True)
class Arrival:
    """A source, its owner, and the message (topic, payload) that requests its ingest."""

    source: SourceObject
    organization: UUID
    collector: str
    signal: str
    topic: str
    payload: bytes


@dataclass(frozen=True)
class SourceRecord:
    """A row. `reason` is why a failed source failed; `ended_at` is when it became done, partial or failed. `rows` is
    how many it gave, None if unknown; `rejected` counts its lines that could not be read."""

    source: SourceObject
    organization: UUID | None
    collector: str | None
    signal: str | None
    state: SourceState
    reason: str | None
    seen_at: datetime
    ended_at: datetime | None
    rows: int | None = None
    rejected: int = 0
    notes: tuple[Note, ...] = ()


SourceRecords = list[SourceRecord]


@dataclass(frozen=True)
class Attempts:
    """How often a source was started (`count`), the last time in a job of `company` objects, without a known end."""

    count: int
    company: int


class Sources:
    def __init__(self, database: Database) -> None:
        self._database = database

    def announce(self, arrivals: Sequence[Arrival]) -> int:
        """Announce these; return how many were new. A known identity changes nothing, in any state."""
        return self._request("source_objects.announce", arrivals)

    def retry(self, arrivals: Sequence[Arrival]) -> int:
        """Make failed sources of this organization, or of none, seen again and request them again; return how many."""
        return self._request("source_objects.retry", arrivals)

    def overdue(self, seconds: float, *, limit: int = 1000) -> SourceRecords:
        """Return sources seen at least this long ago that have not ended, oldest first: their message may be lost."""
        values = {"seconds": seconds, "limit": limit}
        return [read_source_record(row) for row in self._database.rows("source_objects.overdue", values)]

    def remind(self, arrivals: Sequence[Arrival], seconds: float) -> int:
        """Request the overdue ones among these again, as if seen just now; return how many."""
        return self._request("source_objects.remind", arrivals, seconds=seconds)

    def _request(self, query: str, arrivals: Sequence[Arrival], **more: float) -> int:
        if not arrivals:
            return 0
        with self._database.transaction() as transaction:
            requested = transaction.run(query, _arrival_arrays(arrivals) | more)
            if requested:
                transaction.rows("outbox.notify")
        return requested

    def set_aside(
        self,
        source: SourceObject,
        reason: str,
        organization: UUID | None = None,
        collector: str | None = None,
        signal: str | None = None,
    ) -> None:
        """Make an unknown or seen source failed; a done or failed one does not change."""
        values = {"organization": organization, "collector": collector, "signal": signal}
        self._database.run("source_objects.set_aside", vars(source) | values | {"reason": storable_text(reason)})

    def failed_as(self, etag: str, organization: UUID | None, most: int) -> int:
        """Count the failed objects of the organization with this etag, up to `most`."""
        values = {"etag": etag, "organization": organization, "most": most}
        ((count,),) = self._database.rows("source_objects.failed_as", values)
        return int(count)

    def unknown(self, bucket: str, found: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Return those of the (key, size, modified_ns) of a listing that match no row exactly, in their order."""
        if not found:
            return []
        keys, sizes, modified = (list(column) for column in zip(*found, strict=True))
        values = {"bucket": bucket, "keys": keys, "sizes": sizes, "modified": modified}
        return [(key, size, time) for key, size, time in self._database.rows("source_objects.unknown", values)]

    def touch(self, source: SourceObject) -> None:
        """Record that the object was written again with the same content, so that `unknown` no longer names it."""
        self._database.run("source_objects.touch", vars(source))

    def states(self, identities: Sequence[Identity]) -> dict[Identity, SourceState]:
        """Return the states of the known ones among these."""
        rows = self._database.rows("source_objects.states", identity_arrays(identities))
        return {(bucket, key, etag): SourceState(state) for bucket, key, etag, state in rows}

    def settled(self, identities: Sequence[Identity], signal: str) -> set[Identity]:
        """Return those that ingest of this signal must not process: they ended, or belong to another signal."""
        rows = self._database.rows("source_objects.settled", identity_arrays(identities) | {"signal": signal})
        return {(bucket, key, etag) for bucket, key, etag in rows}

    def attempts(self, identities: Sequence[Identity]) -> dict[Identity, Attempts]:
        """Return the attempts of those that were ever started."""
        rows = self._database.rows("source_objects.attempts", identity_arrays(identities))
        return {(bucket, key, etag): Attempts(count, company) for bucket, key, etag, count, company in rows}

    def begin(self, identities: Sequence[Identity]) -> None:
        """Record that a job takes these together. It is counted before the job runs, so that a crash counts too."""
        self._database.run("source_objects.begin", identity_arrays(identities) | {"company": len(identities)})

    def give_back(self, identities: Sequence[Identity]) -> None:
        """Take back an attempt that ended for a reason outside these objects."""
        self._database.run("source_objects.give_back", identity_arrays(identities))

    def list(
        self,
        state: SourceState | None,
        *,
        organization: UUID | None = None,
        unplaced: bool = False,
        key: str | None = None,
        limit: int = 100,
    ) -> SourceRecords:
        """List sources, newest first: of the organization and, with `unplaced`, those of no organization; without an
        organization, all. `key` is a prefix of the keys, or a pattern with `*` and `?`."""
        values = {"state": state, "organization": organization, "unplaced": unplaced, "limit": limit}
        pattern = None if key is None else _like_pattern(key)
        return [
            read_source_record(row) for row in self._database.rows("source_objects.list", values | {"pattern": pattern})
        ]

    def rejects(self, key: str, organization: UUID, *, unplaced: bool = False) -> tuple[str, Rejects] | None:
        """Return (etag, rejects) of the newest version of this object that has rejected lines."""
        values = {"key": key, "organization": organization, "unplaced": unplaced}
        for etag, lines, rejected, first in self._database.rows("source_objects.rejects", values):
            return etag, Rejects(rejected, lines, tuple(Reject(**value) for value in first))
        return None

    def dismiss(self, key: str, organization: UUID, *, unplaced: bool = False) -> int:
        """Dismiss the failed versions of this object and make partial ones done; return how many."""
        values = {"key": key, "organization": organization, "unplaced": unplaced}
        return self._database.run("source_objects.dismiss", values)

    def counts(self, organization: UUID | None = None, *, unplaced: bool = False) -> dict[SourceState, int]:
        """Count what `list` would list, by state; every state is present."""
        values = {"organization": organization, "unplaced": unplaced}
        rows = self._database.rows("source_objects.counts", values)
        return dict.fromkeys(SourceState, 0) | {SourceState(state): count for state, count in rows}


def identity_arrays(identities: Iterable[Identity]) -> dict[str, Any]:
    """Return the identities as the three arrays that queries take."""
    named = list(identities)
    return {
        "buckets": [bucket for bucket, _, _ in named],
        "keys": [key for _, key, _ in named],
        "etags": [etag for _, _, etag in named],
    }


def source_arrays(sources: Sequence[SourceObject]) -> dict[str, Any]:
    return arrays_of(sources, buckets="bucket", keys="key", etags="etag", sizes="size", modified="modified_ns")


def storable_text(reason: str) -> str:
    """Replace what PostgreSQL's text cannot hold, since a reason may quote damaged input, and bound the length."""
    text = reason.encode("utf-8", "replace").decode().replace("\0", "�")
    return text[:_REASON_CHARACTERS]


def _like_pattern(key: str) -> str:
    """Return the SQL pattern of keys with this prefix, or that match it if it has `*` or `?`."""
    glob = key if "*" in key or "?" in key else key + "*"
    return re.sub(r"[\\%_]", r"\\\g<0>", glob).replace("*", "%").replace("?", "_")


def _arrival_arrays(arrivals: Sequence[Arrival]) -> dict[str, Any]:
    owners = arrays_of(arrivals, organizations="organization", collectors="collector", signals="signal")
    messages = arrays_of(arrivals, topics="topic", payloads="payload")
    return source_arrays([arrival.source for arrival in arrivals]) | owners | messages


def read_source_record(row: tuple[Any, ...]) -> SourceRecord:
    """Return the record of a row that `source_objects.list` selects."""
    *whose, state = row[5:9]
    notes = tuple(Note(**value) for value in row[-1] or ())
    fields: list[Any] = [SourceObject(*row[:5]), *whose, SourceState(state), *row[9:-1], notes]
    return SourceRecord(*fields)


def finding_arrays(findings: Sequence[Findings]) -> dict[str, list[Any]]:
    """Return the arrays of the columns `rows`, `lines`, `rejected`, `rejects` and `notes`; null if there is nothing."""
    return {
        "rows": [one.rows for one in findings],
        "lines": [one.rejects.lines or None for one in findings],
        "rejected": [one.rejects.count or None for one in findings],
        "rejects": [_json_text([vars(reject) for reject in one.rejects.first]) for one in findings],
        "notes": [_json_text([vars(note) for note in one.notes]) for one in findings],
    }


def _json_text(values: list[dict[str, Any]]) -> str | None:
    """Write ASCII JSON with escapes, so that PostgreSQL takes whatever a damaged line holds."""
    return json.dumps(values, separators=(",", ":")) if values else None
