"""Reminders, gauges and requeueing of compaction and rollup.

Segments that should have been merged or rolled up long ago are announced again, so that nothing depends on the bus
losing no message. A run is bounded, and does nothing if all goes well. Several processes may do it: a segment that is
announced twice costs a lookup. What is still not done is announced at growing intervals, so that the backlog of the bus
stays bounded too. `Requeue` is what `lakerunner work --requeue` does.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.bus.boxes import rollup_patience
from lakerunner.bus.topics import CompactBox, RollupBox, decode
from lakerunner.index.inspect import Inspect
from lakerunner.index.tending import Tending, Work
from lakerunner.model.errors import Corrupt, NotFound
from lakerunner.model.merging import LEVELS, period_of
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS
from lakerunner.model.time import DAY_NS, TimeRange
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.outbox import commit_messages, to_merge, to_roll
from lakerunner.settings import Settings

log = Log("tending")
SAMPLE_SECONDS = 60.0
_LONGEST_PAUSE = 86_400.0


@dataclass(frozen=True)
class Overdue:
    """After how many seconds a segment counts as forgotten: the time that it may have to wait, and `reminder_seconds`.
    `few` segments are worth a merge of their level in any case."""

    reminder: float
    merge: float
    roll: float
    target_bytes: int
    few: int = 16

    @classmethod
    def of(cls, settings: Settings) -> Overdue:
        return cls(
            settings.reminder_seconds,
            settings.compact_max_seconds,
            settings.rollup_max_seconds,
            settings.compact_target_bytes,
            settings.compact_max_segments // 2,
        )


@dataclass(frozen=True)
class ReminderGroup:
    """Segments that are announced together: those of one merge to a level above this one, or one to be rolled up."""

    segments: Sequence[Segment]
    level: int = 0

    @property
    def keys(self) -> list[tuple[UUID, int]]:
        return [(one.id, self.level) for one in self.segments]


class ReminderLog:
    """When each segment is to be announced again. The pause doubles each time: a backlog of hours is not done sooner if
    all of it is announced every few minutes. It is kept in memory, so after a restart all are announced once more."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next: dict[tuple[UUID, int], tuple[float, float]] = {}  # when it is due again, and the pause after that

    def due(self, found: Sequence[ReminderGroup]) -> list[ReminderGroup]:
        """Return those of all overdue groups that are to be announced now. A group is announced as a whole."""
        now = self._clock()
        known = {key: self._next.get(key, (now, self._seconds)) for group in found for key in group.keys}
        due = [group for group in found if any(known[key][0] <= now for key in group.keys)]
        for key in (key for group in due for key in group.keys):
            _, pause = known[key]
            known[key] = now + pause, min(2 * pause, _LONGEST_PAUSE)
        self._next = known
        return due


def remind_merges(tending: Tending, overdue: Overdue, told: ReminderLog) -> int:
    """Announce segments that are overdue for a merge and return how many. Lower levels come first: their results go to
    the higher ones. A few segments that are overdue for the next level too are left to it: a segment between them may
    keep them apart on this one."""
    seen: set[UUID] = set()
    groups: list[ReminderGroup] = []
    found_at = [
        tending.to_merge(level, overdue.merge * rule.patience + overdue.reminder, overdue.target_bytes)
        for level, rule in enumerate(LEVELS)
    ]
    for level, candidates in enumerate(found_at):
        later = {one.id for one in found_at[level + 1]} if level + 1 < len(LEVELS) else set()
        found = _groups([one for one in candidates if one.id not in seen], level)
        found = [group for group in found if not _waits(group, later, overdue.few)]
        seen.update(one.id for group in found for one in group.segments)
        groups += found
    due = told.due(groups)
    for level in range(len(LEVELS)):
        tending.remind(to_merge([one for group in due if group.level == level for one in group.segments], level))
    return _say("compact", due)


def _groups(segments: Sequence[Segment], level: int) -> list[ReminderGroup]:
    groups = defaultdict(list)
    for one in segments:
        place = one.organization, one.collector, one.signal, one.frequency_ms, one.sort_version
        groups[place, period_of(one.time.start_ns, level)].append(one)
    return [ReminderGroup(group, level) for group in groups.values() if len(group) > 1]


def _waits(group: ReminderGroup, later: Collection[UUID], few: int) -> bool:
    return len(group.segments) < few and all(one.id in later for one in group.segments)


def remind_rollups(tending: Tending, overdue: Overdue, told: ReminderLog) -> int:
    """Announce segments that are overdue for a rollup and return how many."""
    groups = []
    for frequency_ms in (RAW, *TIERS[:-1]):
        seconds = overdue.roll * rollup_patience(frequency_ms) + overdue.reminder
        groups += [ReminderGroup([one]) for one in tending.to_roll(frequency_ms, seconds)]
    due = told.due(groups)
    tending.remind(to_roll([one for group in due for one in group.segments]))
    return _say("rollup", due)


def sample(tending: Tending, inspect: Inspect, now_ns: int) -> None:
    """Set the gauges that describe the lake."""
    meters.LIVE_SEGMENTS.clear()
    for one in inspect.levels(None):
        meters.LIVE_SEGMENTS.labels(one.signal, TIER_NAMES[one.frequency_ms], one.level).set(one.segments)
    meters.SEGMENTS_PER_HOUR.clear()
    hours = tending.segments_per_hour(TimeRange(now_ns - DAY_NS, now_ns))
    for (signal, frequency_ms, level), count in hours.items():
        meters.SEGMENTS_PER_HOUR.labels(signal, TIER_NAMES[frequency_ms], level).set(count)
    meters.FAILED_WORK.clear()
    for (topic, state), count in tending.failed_counts().items():
        meters.FAILED_WORK.labels(topic, state).set(count)
    waiting = tending.unrolled_seconds()
    for frequency_ms in (RAW, *TIERS[:-1]):
        meters.ROLLUP_LAG.labels(TIER_NAMES[frequency_ms]).set(waiting.get(frequency_ms, 0.0))


def _say(work: str, told: Sequence[ReminderGroup]) -> int:
    segments = sum(len(group.segments) for group in told)
    if segments:
        meters.REMINDED.labels(work).inc(segments)
        log.info("overdue segments queued again", work=work, segments=segments)
    return segments


_MOST = 10_000


@dataclass(frozen=True)
class Requeue:
    tending: Tending

    def __call__(self, organization: UUID, ids: Collection[str]) -> tuple[int, int]:
        """Queue failed works and segments that were set aside again: those with these ids, or all if no ids are given.
        A work includes its segments. Return (works, segments). NotFound if an id belongs to neither."""
        works = [one.work for one in self.tending.failed(organization, limit=_MOST)]
        aside = [one for one, _ in self.tending.list_aside(organization, limit=_MOST)]
        if ids:
            unknown = set(ids) - {work.id for work in works} - {str(one.id) for one in aside}
            if unknown:
                raise NotFound(f"no failed work and no segment set aside has the id {min(unknown)!r}")
            works = [work for work in works if work.id in ids]
        of_works = {id_ for work in works for id_ in _segments_of(work)}
        back = [one for one in aside if not ids or str(one.id) in ids or one.id in of_works]
        messages = commit_messages([one for one in back if one.id not in of_works])
        return self.tending.requeue(organization, works, [one.id for one in back], messages)


def _segments_of(work: Work) -> tuple[UUID, ...]:
    try:
        box = decode(work.payload)
    except Corrupt:  # written by another version: it is dropped when it is taken
        return ()
    return box.segments if isinstance(box, CompactBox | RollupBox) else ()
