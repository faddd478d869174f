"""The queries of merges and rollups: segments to work on, failed work, overdue segments.

What always holds: failed work is one row per box, whichever process fails at it; while one process tries it again no
other does. Work that was given up keeps its segments from being taken again (`aside`) until someone requeues it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database, arrays_of, publish_later
from lakerunner.index.segments import CollectorTier, Segments
from lakerunner.index.sources import storable_text
from lakerunner.model.display import plural
from lakerunner.model.merging import LEVELS
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIERS
from lakerunner.model.time import HOUR_NS, TimeRange

SegmentList = list[Segment]
_LONGEST_PAUSE = 3600.0
_LEASE_SECONDS = 1800.0
_GROUPS = 200
_MOST = 10_000


@dataclass(frozen=True)
class Work:
    """A failed box as it is on the bus."""

    topic: str
    payload: bytes

    @property
    def digest(self) -> bytes:
        return sha256(self.payload).digest()

    @property
    def id(self) -> str:
        """The name of the work for people."""
        return self.digest.hex()[:12]


@dataclass(frozen=True)
class Retry:
    """`seconds` is the first pause, which doubles; after `attempts` the work is set aside."""

    attempts: int
    seconds: float


@dataclass(frozen=True)
class FailedWork:
    """Failed work; `state` is waiting (until next_at) or aside."""

    work: Work
    organization: UUID
    attempts: int
    reason: str
    state: str
    first_at: datetime
    next_at: datetime


class Tending:
    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments

    def live(self, organization: UUID, ids: Iterable[UUID]) -> SegmentList:
        """Return those of these that are live and not set aside, by `ingested`, without their fingerprints."""
        return self._segments.query("tending.live", {"organization": organization, "ids": list(ids)})

    def overlapping(
        self, tier: CollectorTier, time: TimeRange, *, ingested: tuple[int, int] | None = None
    ) -> SegmentList:
        """Return all live segments of the tier with rows in the range, and `ingested` between these, both included; by
        `ingested`, without their fingerprints. Segments that are set aside are included."""
        first, last = ingested or (None, None)
        values = vars(tier) | {"start_ns": time.start_ns, "end_ns": time.end_ns, "first": first, "last": last}
        return self._segments.query("tending.overlapping", values)

    def aside_of(self, organization: UUID, ids: Iterable[UUID]) -> frozenset[UUID]:
        """Return those of these that are set aside."""
        rows = self._database.rows("tending.aside_ids", {"organization": organization, "ids": list(ids)})
        return frozenset(id_ for (id_,) in rows)

    def set_aside(self, organization: UUID, segments: Iterable[UUID], reason: str) -> int:
        """Exclude these from merges and rollups; return how many of them were live."""
        values = {"organization": organization, "ids": list(segments), "reason": storable_text(reason)}
        return self._database.run("tending.set_aside", values)

    def list_aside(self, organization: UUID, *, limit: int = 1000) -> list[tuple[Segment, str]]:
        """Return segments that are set aside, by start, and why."""
        found = self._segments.query("tending.aside", {"organization": organization, "limit": limit})
        values = {"organization": organization, "ids": [one.id for one in found]}
        reasons: dict[UUID, str] = dict(self._database.rows("tending.aside_reasons", values))
        return [(one, reasons[one.id]) for one in found if one.id in reasons]

    def fail(
        self, work: Work, organization: UUID, segments: Iterable[UUID], reason: str, retry: Retry
    ) -> tuple[int, str]:
        """Record one more failure; return (how many by now, waiting or aside). Work that is set aside takes these
        segments with it, so that they are not tried in other combinations forever."""
        values = _work_key(work) | {
            "payload": work.payload,
            "organization": organization,
            "reason": storable_text(reason),
            "max_attempts": retry.attempts,
            "pause": retry.seconds,
            "longest": max(retry.seconds, _LONGEST_PAUSE),
        }
        with self._database.transaction() as transaction:
            ((attempts, state),) = transaction.rows("tending.fail", values)
            if state == "aside":
                named = {"organization": organization, "ids": list(segments)}
                why = f"work {work.id} was set aside after {plural(attempts, 'attempt')}: {reason}"
                transaction.run("tending.set_aside", named | {"reason": storable_text(why)})
        return attempts, state

    def due(self, topics: Sequence[str], limit: int) -> list[Work]:
        """Return failed work of these topics whose pause is over, leased to the caller for half an hour."""
        values = {"topics": list(topics), "limit": limit, "lease": _LEASE_SECONDS}
        return [Work(topic, bytes(payload)) for topic, payload in self._database.rows("tending.due", values)]

    def put_off(self, work: Work, seconds: float) -> None:
        """Make work that was due and could not be tried due again after this time."""
        self._database.run("tending.put_off", _work_key(work) | {"seconds": seconds})

    def done(self, work: Work) -> None:
        """Forget work that succeeded or has nothing left to do. Does nothing if it never failed."""
        self._database.run("tending.done", _work_key(work))

    def failed(self, organization: UUID, *, limit: int = 1000) -> list[FailedWork]:
        """Return failed work, newest first."""
        rows = self._database.rows("tending.list", {"organization": organization, "limit": limit})
        return [FailedWork(Work(topic, bytes(payload)), *rest) for topic, payload, *rest in rows]

    def requeue(
        self,
        organization: UUID,
        works: Sequence[Work],
        segments: Iterable[UUID],
        messages: Sequence[tuple[str, bytes]],
    ) -> tuple[int, int]:
        """Put the works on the bus again and forget them here, take the segments back, and publish the messages about
        them; return (works, segments) of the organization that did."""
        values = arrays_of(works, topics="topic", digests="digest") | {"organization": organization}
        with self._database.transaction() as transaction:
            # Works before segments, the order in which `fail` locks them: otherwise each could wait for the other.
            went = transaction.run("tending.requeue", values)
            back = transaction.run("tending.take_back", {"organization": organization, "ids": list(segments)})
            publish_later(transaction, messages)
            transaction.rows("outbox.notify")  # for the works, even without messages
        return went, back

    def remind(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Put these messages into the outbox."""
        if messages:
            with self._database.transaction() as transaction:
                publish_later(transaction, messages)

    def to_merge(self, level: int, seconds: float, target_bytes: int) -> SegmentList:
        """Return some of the live segments that a merge of this level could take, that are this old, and not alone in
        their hour or day."""
        values = {
            "level": level,
            "period_ns": LEVELS[level].period_ns,
            "seconds": seconds,
            "target_bytes": target_bytes,
            "last_tier": TIERS[-1],
            "limit": _GROUPS,
            "most": _MOST,
        }
        return self._segments.query("tending.to_merge", values)

    def to_roll(self, frequency_ms: int, seconds: float) -> SegmentList:
        """Return some of the live segments of this tier that are this old and not rolled up, the oldest first."""
        values = {"frequency_ms": frequency_ms, "seconds": seconds, "most": _MOST}
        return self._segments.query("tending.to_roll", values)

    def segments_per_hour(self, time: TimeRange) -> dict[tuple[str, int, int], float]:
        """Return the average number of live segments that start in an hour of the range, of hours that have any, by
        (signal, tier, level)."""
        values = {"hour_ns": HOUR_NS, "start_ns": time.start_ns, "end_ns": time.end_ns}
        rows = self._database.rows("tending.per_hour", values)
        return {(signal, frequency_ms, level): float(count) for signal, frequency_ms, level, count in rows}

    def unrolled_seconds(self) -> dict[int, float]:
        """Return by tier how long the oldest segment has waited to be rolled up; tiers without one are absent."""
        return dict(self._database.rows("tending.unrolled_seconds", {"last_tier": TIERS[-1]}))

    def failed_counts(self) -> dict[tuple[str, str], int]:
        """Count failed work by (topic, state)."""
        return {(topic, state): count for topic, state, count in self._database.rows("tending.failed_counts")}


def _work_key(work: Work) -> dict[str, Any]:
    return {"topic": work.topic, "digest": work.digest}
