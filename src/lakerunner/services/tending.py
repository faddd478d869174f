"""Reminders: segments that should have been merged or rolled up long ago are told of again, so that nothing depends
on a bus that loses no message. And gauges of how the lake stands.

Bounded per run, and quiet where all goes well. Several processes may do it: a segment told of twice costs a look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.bus.segment_boxes import rollup_patience
from lakerunner.index.tending import Tending
from lakerunner.model.merging import LEVELS, period_of
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS
from lakerunner.model.time import DAY_NS, TimeRange
from lakerunner.services import meters
from lakerunner.services.follow_up import to_merge, to_roll
from lakerunner.services.logs import Log
from lakerunner.settings import Settings

log = Log("tending")
_SAMPLE_SECONDS = 60.0


@dataclass(frozen=True)
class Overdue:
    """After how many seconds a segment counts as forgotten: what it may have to wait, and `reminder_seconds`. `few`:
    so many are worth a merge of their level in any case."""

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


def remind_merges(tending: Tending, overdue: Overdue) -> int:
    """How many segments were told of. Those of lower levels first: what they make comes to the higher ones. A few that
    are overdue for the next level too are left to it: perhaps something that stands between keeps them apart."""
    told: set[UUID] = set()
    found_at = [
        tending.to_merge(level, overdue.merge * rule.patience + overdue.reminder, overdue.target_bytes)
        for level, rule in enumerate(LEVELS)
    ]
    for level, candidates in enumerate(found_at):
        later = {one.id for one in found_at[level + 1]} if level + 1 < len(LEVELS) else set()
        found = [one for one in candidates if one.id not in told]
        found = [one for group in _groups(found, level) if not _waits(group, later, overdue.few) for one in group]
        tending.remind(to_merge(found, level))
        told.update(one.id for one in found)
    _say("compact", len(told))
    return len(told)


def _groups(segments: Sequence[Segment], level: int) -> list[list[Segment]]:
    groups = defaultdict(list)
    for one in segments:
        place = one.organization, one.collector, one.signal, one.frequency_ms, one.sort_version
        groups[place, period_of(one.time.start_ns, level)].append(one)
    return [group for group in groups.values() if len(group) > 1]


def _waits(group: Sequence[Segment], later: Collection[UUID], few: int) -> bool:
    return len(group) < few and all(one.id in later for one in group)


def remind_rollups(tending: Tending, overdue: Overdue) -> int:
    """How many segments were told of."""
    told = 0
    for frequency_ms in (RAW, *TIERS[:-1]):
        seconds = overdue.roll * rollup_patience(frequency_ms) + overdue.reminder
        found = tending.to_roll(frequency_ms, seconds)
        tending.remind(to_roll(found))
        told += len(found)
    _say("rollup", told)
    return told


def sample(tending: Tending, now_ns: int) -> None:
    """Set the gauges."""
    meters.LIVE_SEGMENTS.clear()
    for one in tending.levels():
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


class Every:
    """A step that does something every so many seconds, the first time after as many, and waits a little else. `clock`
    is monotonic seconds; `wait` sleeps, or is woken when the process stops."""

    def __init__(
        self, seconds: float, do: Callable[[], object], clock: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._seconds = seconds
        self._do = do
        self._clock = clock
        self._wait = wait
        self._next = clock() + seconds

    def step(self) -> None:
        if self._clock() >= self._next:
            self._do()
            self._next = self._clock() + self._seconds
        self._wait(min(1.0, self._seconds))


def sample_seconds(overdue: Overdue) -> float:
    return min(_SAMPLE_SECONDS, overdue.reminder)


def _say(work: str, segments: int) -> None:
    if segments:
        meters.REMINDED.labels(work).inc(segments)
        log.info("segments are overdue and told of again", work=work, segments=segments)
