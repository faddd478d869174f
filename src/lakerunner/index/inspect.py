"""The queries of `lakerunner fsck`, `repair` and `status`. Read only.

What always holds: an answer is bounded or a page, except hours and counts, which are few; every query about rows is for
one organization. Ages are seconds by the server's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.index.segments import CollectorTier, Segments
from lakerunner.index.sources import SourceRecord, read_source_record
from lakerunner.index.sweep import singleton
from lakerunner.model.retention_policy import Retention
from lakerunner.model.segment import Segment
from lakerunner.model.time import HOUR_NS, SECOND_NS, TimeRange

PAGE = 500
_LEAST = UUID(int=0)


@dataclass(frozen=True, order=True)
class Hour:
    """An hour, counted from the epoch, in which live segments of raw rows of a collector overlap."""

    collector: str
    signal: str
    hour: int

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.hour * HOUR_NS, (self.hour + 1) * HOUR_NS)


@dataclass(frozen=True)
class SourceCount:
    """Objects of one state; if not done, the oldest and how many were seen too long ago."""

    state: str
    count: int
    oldest: str | None
    age_seconds: float | None
    stale: int


@dataclass(frozen=True)
class FailedWork:
    """Failed boxes of a topic: `waiting` for another try, or set `aside`; the reason is that of the oldest."""

    topic: str
    state: str
    count: int
    age_seconds: float
    reason: str


@dataclass(frozen=True)
class Level:
    """Live segments of one signal, frequency and level; `aside` of them are no longer merged."""

    signal: str
    frequency_ms: int
    level: int
    segments: int
    rows: int
    bytes: int
    aside: int


@dataclass(frozen=True)
class EndedTotals:
    """Segments that are no longer live; `due`: their grace time is over."""

    state: str
    due: bool
    segments: int
    bytes: int


@dataclass(frozen=True)
class PastTotals:
    """Live segments past their retention."""

    signal: str
    frequency_ms: int
    segments: int
    bytes: int


@dataclass(frozen=True)
class Birth:
    """When segments of raw rows came into the index. `exact`: together with their raw objects, else after them, because
    they were merged."""

    born: datetime
    exact: bool


class Inspect:
    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments.query

    def live(self, organization: UUID) -> Iterator[list[Segment]]:
        """Yield all live segments by their ids, page after page; one that is replaced meanwhile may be among them."""
        after = _LEAST
        while page := self._segments("inspect.live", {"organization": organization, "after": after, "limit": PAGE}):
            yield page
            after = page[-1].id

    def tier(self, tier: CollectorTier, time: TimeRange) -> list[Segment]:
        """Return the live segments of the tier with rows in the range, by `ingested`."""
        return self._segments("inspect.tier", vars(tier) | {"start_ns": time.start_ns, "end_ns": time.end_ns})

    def count_live(self, organization: UUID) -> int:
        return self._number("inspect.count_live", {"organization": organization})

    def still_live(self, ids: Iterable[UUID]) -> set[UUID]:
        return {id_ for (id_,) in self._database.rows("inspect.still_live", {"ids": list(ids)})}

    def states(self, ids: Iterable[UUID]) -> dict[UUID, tuple[str, float]]:
        """Return (state, seconds since it is no longer live) of those that the index has."""
        rows = self._database.rows("inspect.states", {"ids": list(ids)})
        return {id_: (state, seconds) for id_, state, seconds in rows}

    def born(self, ids: Iterable[UUID]) -> dict[UUID, datetime]:
        """Return when each of these came into the index."""
        return dict(self._database.rows("inspect.born", {"ids": list(ids)}))

    def sources_until(self, tier: CollectorTier, birth: Birth, limit: int) -> list[SourceRecord]:
        """Return raw objects of the tier's collector and signal whose rows segments of this birth may hold, the latest
        first."""
        values = vars(tier) | vars(birth) | {"limit": limit}
        return [read_source_record(row) for row in self._database.rows("inspect.sources_until", values)]

    def holders(self, tier: CollectorTier, time: TimeRange, birth: Birth, without: Iterable[UUID]) -> list[Segment]:
        """Return live segments with rows in this time that may come from the same raw objects as segments of this
        birth, except `without`."""
        values = vars(tier) | vars(birth) | {"start_ns": time.start_ns, "end_ns": time.end_ns}
        return self._segments("inspect.holders", values | {"without": list(without)})

    @contextmanager
    def repairing(self, holder: str) -> Iterator[bool]:
        """Yield whether no other process repairs this lake until the block ends."""
        with singleton(self._database, "lakerunner repair", holder) as lock:
            yield lock is not None

    def doubled(self, organization: UUID, limit: int = PAGE) -> list[tuple[UUID, str, str, UUID]]:
        """Return (segment, collector, signal, input) of live segments one of whose inputs is live too."""
        rows = self._database.rows("inspect.doubled", {"organization": organization, "limit": limit})
        return [(id_, collector, signal, old) for id_, collector, signal, old in rows]

    def crowded(self, organization: UUID) -> list[Hour]:
        rows = self._database.rows("inspect.crowded", {"organization": organization, "hour_ns": HOUR_NS})
        return [Hour(*row) for row in rows]

    def rolled(self, organization: UUID, last_tier: int, seed: int, limit: int | None) -> list[UUID]:
        """Return live segments that are rolled up: a sample of `limit` by the seed, or all for None."""
        values = {"organization": organization, "last_tier": last_tier, "seed": seed, "limit": limit}
        return [id_ for (id_,) in self._database.rows("inspect.rolled", values)]

    def without_windows(
        self, organization: UUID, frequency_ms: int, target_ms: int, since_ns: int, limit: int = PAGE
    ) -> list[UUID]:
        """Return live segments with rows from `since_ns` on, where nothing has expired, that are marked as rolled up
        but have no bucket at all."""
        values = {"organization": organization, "frequency_ms": frequency_ms, "target_ms": target_ms}
        rows = self._database.rows("inspect.without_windows", values | {"since_ns": since_ns, "limit": limit})
        return [id_ for (id_,) in rows]

    def endless_sources(self, organization: UUID, limit: int = PAGE) -> list[tuple[str, bool]]:
        """Return (key, whether it lacks its end) of objects that are done but whose row lacks the time or the
        organization."""
        rows = self._database.rows("inspect.endless_sources", {"organization": organization, "limit": limit})
        return [(key, endless) for key, endless in rows]

    def count_sources(self, organization: UUID) -> int:
        return self._number("inspect.count_sources", {"organization": organization})

    def unplaced(self) -> int:
        return self._number("inspect.unplaced", {})

    def sources(self, organization: UUID | None, stale_seconds: float) -> dict[str, SourceCount]:
        """Count sources by state; with None of all organizations, including those of none."""
        values = {"organization": organization, "stale_seconds": stale_seconds}
        return {row[0]: SourceCount(*row) for row in self._database.rows("inspect.sources", values)}

    def failed_work(self, organization: UUID | None) -> list[FailedWork]:
        rows = self._database.rows("inspect.failed_work", {"organization": organization})
        return [FailedWork(*row) for row in rows]

    def outbox(self) -> list[tuple[str, int, int]]:
        """Return (topic, messages, the id of the oldest)."""
        return [(topic, count, oldest) for topic, count, oldest in self._database.rows("inspect.outbox")]

    def levels(self, organization: UUID | None) -> list[Level]:
        return [Level(*row) for row in self._database.rows("inspect.levels", {"organization": organization})]

    def unrolled(self, organization: UUID | None, last_tier: int) -> list[tuple[int, int, float]]:
        """Return (frequency_ms, segments, age of the oldest) of segments that wait to be rolled up."""
        rows = self._database.rows("inspect.unrolled", {"organization": organization, "last_tier": last_tier})
        return [(frequency, count, age) for frequency, count, age in rows]

    def unmerged(self, organization: UUID | None, last_tier: int, target_bytes: int) -> list[tuple[str, int, float]]:
        """Return (signal, segments, age of the oldest) of level 0 that have others to be merged with."""
        values = {"organization": organization, "last_tier": last_tier, "target_bytes": target_bytes}
        rows = self._database.rows("inspect.unmerged", values | {"hour_ns": HOUR_NS})
        return [(signal, count, age) for signal, count, age in rows]

    def ended(self, organization: UUID | None, grace_seconds: float) -> list[EndedTotals]:
        values = {"organization": organization, "grace_seconds": grace_seconds}
        return [EndedTotals(*row) for row in self._database.rows("inspect.ended", values)]

    def past_retention(self, organization: UUID | None, default: Retention, now_ns: int) -> list[PastTotals]:
        """Count live segments past their retention. `default` is for organizations without settings of their own."""
        kept = {of: keep_ns for of, keep_ns in default.durations.items() if keep_ns is not None}
        values = {
            "organization": organization,
            "signals": [signal for signal, _ in kept],
            "frequencies": [frequency for _, frequency in kept],
            "seconds": [keep_ns // SECOND_NS for keep_ns in kept.values()],
            "now_ns": now_ns,
        }
        return [PastTotals(*row) for row in self._database.rows("inspect.past_retention", values)]

    def _number(self, query: str, values: Mapping[str, Any]) -> int:
        ((number,),) = self._database.rows(query, values)
        return int(number)
