"""Source objects: one row per raw object ever announced, and what became of it.

A row is born `seen`, with the message that asks for its ingest in the outbox, in one transaction: an object
is asked for exactly as often as it is new. It ends as `done`, `partial` or `failed` in the commit of its segments
(commit.py). Only a failed one can be seen again (`retry`), or is `dismissed`; the rows of a done one never change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.index.findings import notes_of, rejects_of
from lakerunner.model.findings import Note, Rejects
from lakerunner.model.source import SourceObject, SourceState

Identity = tuple[str, str, str]
_REASON_CHARACTERS = 2000


@dataclass(frozen=True)
class Arrival:
    """A source, whose it is, and the message (topic, payload) that asks for its ingest."""

    source: SourceObject
    organization: UUID
    collector: str
    signal: str
    topic: str
    payload: bytes


@dataclass(frozen=True)
class SourceRecord:
    """`reason` says why a failed one failed; `ended_at` is when it became done, partial or failed. `rows` are those it
    gave, None if that is not known; `rejected` is the count of its lines that could not be read."""

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
    """A source was begun `count` times in a job of `company` objects, and no end of it is known."""

    count: int
    company: int


class Sources:
    def __init__(self, database: Database) -> None:
        self._database = database

    def announce(self, arrivals: Sequence[Arrival]) -> int:
        """How many were new. A known identity changes nothing, whatever its state."""
        return self._ask("source_objects.announce", arrivals)

    def retry(self, arrivals: Sequence[Arrival]) -> int:
        """How many were failed, and of this organization or of none: they are seen again, and asked for
        again."""
        return self._ask("source_objects.retry", arrivals)

    def overdue(self, seconds: float, *, limit: int = 1000) -> SourceRecords:
        """Seen so long ago and still not ended, oldest first: their message may have been lost on the bus."""
        values = {"seconds": seconds, "limit": limit}
        return [record_of(row) for row in self._database.rows("source_objects.overdue", values)]

    def remind(self, arrivals: Sequence[Arrival], seconds: float) -> int:
        """How many of these are overdue: they are asked for again, and count as seen just now."""
        return self._ask("source_objects.remind", arrivals, seconds=seconds)

    def _ask(self, query: str, arrivals: Sequence[Arrival], **more: float) -> int:
        if not arrivals:
            return 0
        with self._database.transaction() as transaction:
            asked = transaction.run(query, _arrays(arrivals) | more)
            if asked:
                transaction.rows("outbox.notify")
        return asked

    def set_aside(
        self,
        source: SourceObject,
        reason: str,
        organization: UUID | None = None,
        collector: str | None = None,
        signal: str | None = None,
    ) -> None:
        """An unknown or seen one becomes failed; a done or failed one stays as it is."""
        values = {
            "bucket": source.bucket,
            "key": source.key,
            "etag": source.etag,
            "size": source.size,
            "modified_ns": source.modified_ns,
            "organization": organization,
            "collector": collector,
            "signal": signal,
            "reason": storable(reason),
        }
        self._database.run("source_objects.set_aside", values)

    def failed_as(self, etag: str, organization: UUID | None, most: int) -> int:
        """How many failed objects of the organization have this etag, counted up to `most`."""
        values = {"etag": etag, "organization": organization, "most": most}
        ((count,),) = self._database.rows("source_objects.failed_as", values)
        return int(count)

    def unknown(self, bucket: str, found: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Of the (key, size, modified_ns) found in a listing, those that no row matches exactly, in their
        order."""
        if not found:
            return []
        keys, sizes, modified = (list(column) for column in zip(*found, strict=True))
        values = {"bucket": bucket, "keys": keys, "sizes": sizes, "modified": modified}
        return [(key, size, time) for key, size, time in self._database.rows("source_objects.unknown", values)]

    def touch(self, source: SourceObject) -> None:
        """The object was written again with the same content: `unknown` will not name it any more."""
        values = {
            "bucket": source.bucket,
            "key": source.key,
            "etag": source.etag,
            "modified_ns": source.modified_ns,
        }
        self._database.run("source_objects.touch", values)

    def states(self, identities: Sequence[Identity]) -> dict[Identity, SourceState]:
        """Of those that are known."""
        rows = self._database.rows("source_objects.states", identity_arrays(identities))
        return {(bucket, key, etag): SourceState(state) for bucket, key, etag, state in rows}

    def settled(self, identities: Sequence[Identity], signal: str) -> set[Identity]:
        """Those that ingest of this signal has nothing to do with any more: they ended, or are of another signal."""
        rows = self._database.rows("source_objects.settled", identity_arrays(identities) | {"signal": signal})
        return {(bucket, key, etag) for bucket, key, etag in rows}

    def attempts(self, identities: Sequence[Identity]) -> dict[Identity, Attempts]:
        """Of those that were ever begun."""
        rows = self._database.rows("source_objects.attempts", identity_arrays(identities))
        return {(bucket, key, etag): Attempts(count, company) for bucket, key, etag, count, company in rows}

    def begin(self, identities: Sequence[Identity]) -> None:
        """A job takes these together. Counted before it runs, so that it counts whatever dies of it."""
        self._database.run("source_objects.begin", identity_arrays(identities) | {"company": len(identities)})

    def give_back(self, identities: Sequence[Identity]) -> None:
        """The job that was begun ended for a reason that is none of theirs: it does not count."""
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
        """Newest first: of the organization and, if `unplaced`, those of none; without an organization, all. `key` is
        what their keys begin with, or a pattern with `*` and `?`."""
        values = {"state": state, "organization": organization, "unplaced": unplaced, "limit": limit}
        pattern = None if key is None else _like(key)
        return [record_of(row) for row in self._database.rows("source_objects.list", values | {"pattern": pattern})]

    def rejects(self, key: str, organization: UUID, *, unplaced: bool = False) -> tuple[str, Rejects] | None:
        """(etag, rejects) of the newest version of this object that has rejected lines."""
        values = {"key": key, "organization": organization, "unplaced": unplaced}
        for etag, lines, rejected, first in self._database.rows("source_objects.rejects", values):
            return etag, rejects_of(lines, rejected, first)
        return None

    def dismiss(self, key: str, organization: UUID, *, unplaced: bool = False) -> int:
        """How many versions of this object were failed, and are dismissed, or were partial, and are done."""
        values = {"key": key, "organization": organization, "unplaced": unplaced}
        return self._database.run("source_objects.dismiss", values)

    def counts(self, organization: UUID | None = None, *, unplaced: bool = False) -> dict[SourceState, int]:
        """Of what `list` would list. Every state, also those that nothing is in."""
        values = {"organization": organization, "unplaced": unplaced}
        rows = self._database.rows("source_objects.counts", values)
        return dict.fromkeys(SourceState, 0) | {SourceState(state): count for state, count in rows}


def identity_arrays(identities: Iterable[Identity]) -> dict[str, Any]:
    """Identities as the three arrays that queries take."""
    named = list(identities)
    return {
        "buckets": [bucket for bucket, _, _ in named],
        "keys": [key for _, key, _ in named],
        "etags": [etag for _, _, etag in named],
    }


def source_arrays(sources: Sequence[SourceObject]) -> dict[str, Any]:
    return identity_arrays(source.identity for source in sources) | {
        "sizes": [source.size for source in sources],
        "modified": [source.modified_ns for source in sources],
    }


def storable(reason: str) -> str:
    """A reason may quote damaged input: what PostgreSQL's text cannot hold is replaced, and its length
    bounded."""
    text = reason.encode("utf-8", "replace").decode().replace("\0", "�")
    return text[:_REASON_CHARACTERS]


def _like(key: str) -> str:
    """The SQL pattern of keys that begin so, or match where it holds `*` or `?`."""
    glob = key if "*" in key or "?" in key else key + "*"
    return re.sub(r"[\\%_]", r"\\\g<0>", glob).replace("*", "%").replace("?", "_")


def _arrays(arrivals: Sequence[Arrival]) -> dict[str, Any]:
    return source_arrays([arrival.source for arrival in arrivals]) | {
        "organizations": [arrival.organization for arrival in arrivals],
        "collectors": [arrival.collector for arrival in arrivals],
        "signals": [arrival.signal for arrival in arrivals],
        "topics": [arrival.topic for arrival in arrivals],
        "payloads": [arrival.payload for arrival in arrivals],
    }


def record_of(row: tuple[Any, ...]) -> SourceRecord:
    """Return the record of a row that `source_objects.list` selects."""
    (
        bucket,
        key,
        etag,
        size,
        modified_ns,
        organization,
        collector,
        signal,
        state,
        reason,
        seen_at,
        ended_at,
        rows,
        rejected,
        notes,
    ) = row
    return SourceRecord(
        SourceObject(bucket, key, etag, size, modified_ns),
        organization,
        collector,
        signal,
        SourceState(state),
        reason,
        seen_at,
        ended_at,
        rows,
        rejected,
        notes_of(notes),
    )
