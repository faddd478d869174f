"""What merges and rollups ask of the index: segments to work on, work that failed, what was forgotten.

What always holds: failed work is one row per box, whoever fails at it; while one process tries it again no other does.
Work that was given up keeps its segments from being taken again (`aside`) until someone requeues it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.index.segments import Segments
from lakerunner.index.sources import storable
from lakerunner.model.merging import LEVELS
from lakerunner.model.plural import plural
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
    """A box of failed work as it stands on the bus."""

    topic: str
    payload: bytes

    @property
    def digest(self) -> bytes:
        return sha256(self.payload).digest()

    @property
    def id(self) -> str:
        """How people name it."""
        return self.digest.hex()[:12]


@dataclass(frozen=True)
class Retry:
    """`seconds` is the first pause, which doubles; after `attempts` the work is set aside."""

    attempts: int
    seconds: float


@dataclass(frozen=True)
class FailedWork:
    """`state`: waiting until next_at, or aside."""

    work: Work
    organization: UUID
    attempts: int
    reason: str
    state: str
    first_at: datetime
    next_at: datetime


@dataclass(frozen=True)
class Place:
    """One collector's tier, where segments are merged and rolled up."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int


@dataclass(frozen=True)
class LevelCount:
    signal: str
    frequency_ms: int
    level: int
    segments: int
    bytes: int
    rows: int


class Tending:
    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments

    def live(self, organization: UUID, ids: Iterable[UUID]) -> SegmentList:
        """Those of these that are live and not set aside, by `ingested`, without their fingerprints."""
        return self._segments.chosen("tending.live", {"organization": organization, "ids": list(ids)})

    def overlapping(self, place: Place, time: TimeRange, *, ingested: tuple[int, int] | None = None) -> SegmentList:
        """All live segments of the place with rows in the range, and `ingested` between these, both included; by
        `ingested`, without their fingerprints. Those that are set aside too."""
        first, last = ingested or (None, None)
        values = _of(place) | {"start_ns": time.start_ns, "end_ns": time.end_ns, "first": first, "last": last}
        return self._segments.chosen("tending.overlapping", values)

    def aside_of(self, organization: UUID, ids: Iterable[UUID]) -> frozenset[UUID]:
        """Those of these that are set aside."""
        rows = self._database.rows("tending.aside_ids", {"organization": organization, "ids": list(ids)})
        return frozenset(id_ for (id_,) in rows)

    def set_aside(self, organization: UUID, segments: Iterable[UUID], reason: str) -> int:
        """They are taken for merges and rollups no more; how many of them were live."""
        values = {"organization": organization, "ids": list(segments), "reason": storable(reason)}
        return self._database.run("tending.set_aside", values)

    def list_aside(self, organization: UUID, *, limit: int = 1000) -> list[tuple[Segment, str]]:
        """Segments that are set aside, by start, and why."""
        found = self._segments.chosen("tending.aside", {"organization": organization, "limit": limit})
        values = {"organization": organization, "ids": [one.id for one in found]}
        reasons: dict[UUID, str] = dict(self._database.rows("tending.aside_reasons", values))
        return [(one, reasons[one.id]) for one in found if one.id in reasons]

    def fail(
        self, work: Work, organization: UUID, segments: Iterable[UUID], reason: str, retry: Retry
    ) -> tuple[int, str]:
        """Record that it failed once more: (how often by now, waiting or aside). Set aside, it takes these segments
        with it, so that they are not tried in other company for ever."""
        values = _of_work(work) | {
            "payload": work.payload,
            "organization": organization,
            "reason": storable(reason),
            "max_attempts": retry.attempts,
            "pause": retry.seconds,
            "longest": max(retry.seconds, _LONGEST_PAUSE),
        }
        with self._database.transaction() as transaction:
            ((attempts, state),) = transaction.rows("tending.fail", values)
            if state == "aside":
                named = {"organization": organization, "ids": list(segments)}
                why = f"work {work.id} was set aside after {plural(attempts, 'attempt')}: {reason}"
                transaction.run("tending.set_aside", named | {"reason": storable(why)})
        return attempts, state

    def due(self, topics: Sequence[str], limit: int) -> list[Work]:
        """Failed work of these topics whose pause is over. For half an hour it is the caller's."""
        values = {"topics": list(topics), "limit": limit, "lease": _LEASE_SECONDS}
        return [Work(topic, bytes(payload)) for topic, payload in self._database.rows("tending.due", values)]

    def put_off(self, work: Work, seconds: float) -> None:
        """It was due and could not be tried: it is due again then."""
        self._database.run("tending.put_off", _of_work(work) | {"seconds": seconds})

    def done(self, work: Work) -> None:
        """It went well, or there is nothing of it left to do. Quiet if it never failed."""
        self._database.run("tending.done", _of_work(work))

    def failed(self, organization: UUID, *, limit: int = 1000) -> list[FailedWork]:
        """Newest first."""
        rows = self._database.rows("tending.list", {"organization": organization, "limit": limit})
        return [FailedWork(Work(topic, bytes(payload)), *rest) for topic, payload, *rest in rows]

    def requeue(
        self,
        organization: UUID,
        works: Sequence[Work],
        segments: Iterable[UUID],
        messages: Sequence[tuple[str, bytes]],
    ) -> tuple[int, int]:
        """The works go to the bus again and are forgotten here, the segments are no more set aside, and the messages
        go out that tell of them; (works, segments) of the organization that did."""
        values = {
            "organization": organization,
            "topics": [work.topic for work in works],
            "digests": [work.digest for work in works],
        }
        with self._database.transaction() as transaction:
            # Works before segments, as where work that fails sets them aside: else each could wait for the other.
            went = transaction.run("tending.requeue", values)
            back = transaction.run("tending.take_back", {"organization": organization, "ids": list(segments)})
            if messages:
                topics, payloads = (list(column) for column in zip(*messages, strict=True))
                transaction.run("outbox.insert", {"topics": topics, "payloads": payloads})
            transaction.rows("outbox.notify")
        return went, back

    def remind(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Put these in the outbox."""
        if not messages:
            return
        topics, payloads = (list(column) for column in zip(*messages, strict=True))
        with self._database.transaction() as transaction:
            transaction.run("outbox.insert", {"topics": topics, "payloads": payloads})
            transaction.rows("outbox.notify")

    def to_merge(self, level: int, seconds: float, target_bytes: int) -> SegmentList:
        """Some of the live segments that a merge of this level could take, that are so old, and not alone in their
        hour or day."""
        values = {
            "level": level,
            "period_ns": LEVELS[level].period_ns,
            "seconds": seconds,
            "target_bytes": target_bytes,
            "last_tier": TIERS[-1],
            "limit": _GROUPS,
            "most": _MOST,
        }
        return self._segments.chosen("tending.to_merge", values)

    def to_roll(self, frequency_ms: int, seconds: float) -> SegmentList:
        """Some of the live segments of this tier that are so old and not rolled up, the oldest first."""
        values = {"frequency_ms": frequency_ms, "seconds": seconds, "most": _MOST}
        return self._segments.chosen("tending.to_roll", values)

    def levels(self, organization: UUID | None = None) -> list[LevelCount]:
        """How much is live, by signal, tier and level; of all organizations unless one is named."""
        rows = self._database.rows("tending.levels", {"organization": organization})
        return [LevelCount(*row) for row in rows]

    def segments_per_hour(self, time: TimeRange) -> dict[tuple[str, int, int], float]:
        """Live segments that start in an hour of the range, on the average of those that have any, by (signal, tier,
        level)."""
        values = {"hour_ns": HOUR_NS, "start_ns": time.start_ns, "end_ns": time.end_ns}
        rows = self._database.rows("tending.per_hour", values)
        return {(signal, frequency_ms, level): float(count) for signal, frequency_ms, level, count in rows}

    def unrolled_seconds(self) -> dict[int, float]:
        """By tier: how long the oldest segment waits to be rolled up; tiers that none waits in are absent."""
        return dict(self._database.rows("tending.unrolled_seconds", {"last_tier": TIERS[-1]}))

    def failed_counts(self) -> dict[tuple[str, str], int]:
        """Failed work by (topic, state)."""
        return {(topic, state): count for topic, state, count in self._database.rows("tending.failed_counts")}


def _of(place: Place) -> dict[str, Any]:
    return {
        "organization": place.organization,
        "collector": place.collector,
        "signal": place.signal,
        "frequency_ms": place.frequency_ms,
    }


def _of_work(work: Work) -> dict[str, Any]:
    return {"topic": work.topic, "digest": work.digest}
