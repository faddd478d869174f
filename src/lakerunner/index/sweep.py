"""The queries of the sweeper, and the rows that it ends.

What always holds: a live segment becomes `expired` only by its retention; up to when, and which of its rows no rollup
has read, is recorded in the same transaction. A row is deleted only if it is not live, and no row becomes live again.
Every list comes in pages, from a position on.

A sweep, and a repair, is one at a time: a lock of the server that its holder keeps by a connection of its own. When the
holder's process, machine or connection is gone, so is the lock. A holder that checks `held` before each step continues
no longer than the server knows it. The server is reached directly, or through a pooler that keeps sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg import sql

from lakerunner.index.database import Connection, Database, arrays_of, load_queries
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import INCOMPLETE, MAX_FINGERPRINTS, segment_path
from lakerunner.model.tier import tiers_above
from lakerunner.model.time import HOUR_NS, MIN_NS

_NIL = UUID(int=0)
_LOCK = "lakerunner sweeper"
_NAME_BYTES = 63  # PostgreSQL truncates longer names


class Singleton:
    """A lock that is held. For one thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def held(self) -> bool:
        """Ask the server whether the lock is held. False for good once it does not answer."""
        try:
            self.connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


@contextmanager
def singleton(database: Database, name: str, holder: str) -> Iterator[Singleton | None]:
    """Hold the lock of this name until the block ends; None if another process has it. `holder` names us for people."""
    with database.errors():
        connection = database.connect()
    try:
        with database.errors():
            queries = load_queries()
            shown = f"{name} {holder}".encode()[:_NAME_BYTES].decode(errors="ignore")
            connection.execute(queries["singleton.introduce"], {"holder": shown})
            row = connection.execute(queries["singleton.take"], {"name": name}).fetchone()
        yield Singleton(connection) if row and row[0] else None
    finally:
        connection.close()


def holder_of(database: Database, name: str) -> str:
    """Return who holds it and since when they are connected; "" if nobody does."""
    rows = database.rows("singleton.holder", {"name": name})
    return " ".join(str(part) for part in rows[0] if part) if rows else ""


@dataclass(frozen=True)
class PastSegment:
    """A live segment past its retention. Not `due`: its rollup has still to read it. `unrolled`: rollups are kept that
    have not read it. `bytes` includes its side files."""

    id: UUID
    organization: UUID
    path: str
    signal: str
    frequency_ms: int
    end_ns: int
    bytes: int
    due: bool
    unrolled: bool


@dataclass(frozen=True)
class EndedSegment:
    """A segment that was replaced, or expired, at `ended_ns`. `place` is where the page after it starts."""

    id: UUID
    organization: UUID
    path: str
    signal: str
    frequency_ms: int
    state: str
    ended_ns: int
    place: datetime


@dataclass(frozen=True)
class FailedBox:
    topic: str
    digest: bytes
    payload: bytes
    organization: UUID
    first_ns: int


@dataclass(frozen=True)
class ListedObject:
    """A raw object as the store lists it; `etag` is "" if a listing does not have it."""

    key: str
    etag: str
    size: int
    modified_ns: int


class Sweep:
    def __init__(self, database: Database) -> None:
        self._database = database

    def now_ns(self) -> int:
        """Return the server's clock, which gives rows their times."""
        ((now_ns,),) = self._database.rows("sweep.now")
        return int(now_ns)

    @contextmanager
    def alone(self, holder: str) -> Iterator[Singleton | None]:
        """Hold the right to sweep until the block ends; None if another sweeper has it."""
        with singleton(self._database, _LOCK, holder) as lock:
            yield lock

    def sweeping(self) -> str:
        """Return who has that right now, for people; "" if nobody."""
        return holder_of(self._database, _LOCK)

    def past(self, organization: UUID, cutoff: Cutoff, after: PastSegment | None, limit: int) -> list[PastSegment]:
        """Return live segments past this cutoff, by their ends."""
        place = (after.end_ns, after.id) if after else (MIN_NS, _NIL)
        values = asdict(cutoff) | {"organization": organization, "limit": limit}
        rows = self._database.rows("sweep.past", values | {"after_end": place[0], "after_id": place[1]})
        return [
            PastSegment(id_, owner, segment_path(owner, collector, signal, start_ns, id_), signal, frequency_ms, *rest)
            for id_, owner, collector, signal, frequency_ms, start_ns, *rest in rows
        ]

    def expire(self, organization: UUID, cutoff: Cutoff, ids: Iterable[UUID], now_ns: int) -> set[UUID]:
        """Expire those of them that are still live and due, in one transaction; return them. From now on no query sees
        them."""
        coarser = list(tiers_above(cutoff.frequency_ms)) if cutoff.signal == "metrics" else []
        values = asdict(cutoff) | {"organization": organization, "ids": list(ids), "now_ns": now_ns, "coarser": coarser}
        kept = {"hour": HOUR_NS, "most": MAX_FINGERPRINTS, "incomplete": INCOMPLETE}
        with self._database.transaction() as transaction:
            expired = {id_ for (id_,) in transaction.rows("sweep.expire", values | kept)}
            transaction.run("sweep.settle_unrolled", values)
        return expired

    def expired_before(self, organization: UUID, collector: str, frequency_ms: int) -> int:
        """Return up to when segments of these metrics have expired, MIN_NS if none has."""
        values = {"organization": organization, "collector": collector, "frequency_ms": frequency_ms}
        rows = self._database.rows("sweep.expired_before", values)
        return int(rows[0][0]) if rows else MIN_NS

    def ended(self, before_ns: int, after: EndedSegment | None, limit: int) -> list[EndedSegment]:
        """Return segments replaced or expired at or before this time, oldest first."""
        place = (after.place, after.id) if after else (None, None)
        values = {"before_ns": before_ns, "after_time": place[0], "after_id": place[1], "limit": limit}
        rows = self._database.rows("sweep.ended", values)
        return [
            EndedSegment(id_, owner, segment_path(owner, collector, signal, start_ns, id_), signal, frequency_ms, *rest)
            for id_, owner, collector, signal, frequency_ms, start_ns, *rest in rows
        ]

    def forget(self, ids: Iterable[UUID]) -> int:
        """Delete the rows of segments whose files are gone; return how many there were. Live ones always stay."""
        return self._database.run("sweep.forget", {"ids": list(ids)})

    def known(self, ids: Iterable[UUID]) -> set[UUID]:
        """Return those of them that have a row, in any state."""
        return {id_ for (id_,) in self._database.rows("sweep.known", {"ids": list(ids)})}

    def live(self, ids: Iterable[UUID]) -> dict[UUID, bool]:
        """Return those of them that are live, and whether they are rolled up."""
        return dict(self._database.rows("sweep.live", {"ids": list(ids)}))

    def done_sources(self, bucket: str, listed: Sequence[ListedObject], before_ns: int) -> list[ListedObject]:
        """Return those of them that were ingested in exactly this version, at or before this time."""
        arrays = arrays_of(listed, keys="key", etags="etag", sizes="size", modified="modified_ns")
        rows = self._database.rows("sweep.done_sources", arrays | {"bucket": bucket, "before_ns": before_ns})
        return [listed[place - 1] for (place,) in rows]

    def old_pushes(self, before_ns: int) -> tuple[int, int | None]:
        """Return how many push objects are older than this, and the time of the oldest."""
        ((count, oldest),) = self._database.rows("sweep.old_pushes", {"before_ns": before_ns})
        return count, oldest

    def forget_pushes(self, before_ns: int, limit: int) -> int:
        """Delete old push objects with their requests; return how many. Fewer than the limit means that none is
        left."""
        return self._database.run("sweep.forget_pushes", {"before_ns": before_ns, "limit": limit})

    def failed_work(self, after: FailedBox | None, limit: int) -> list[FailedBox]:
        place = (after.topic, after.digest) if after else ("", b"")
        values = {"after_topic": place[0], "after_digest": place[1], "limit": limit}
        return [FailedBox(*row) for row in self._database.rows("sweep.failed_work", values)]

    def forget_work(self, boxes: Sequence[FailedBox]) -> int:
        return self._database.run("sweep.forget_work", arrays_of(boxes, topics="topic", digests="digest"))

    def vacuum(self, tables: Iterable[str]) -> None:
        """Free the space of deleted rows and renew the planner's statistics. VACUUM must run outside a transaction; the
        sweeper is alone, so only one runs at a time."""
        with self._database.errors(), self._database.connect() as connection:
            for table in tables:
                connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier("lrdb", table)))
