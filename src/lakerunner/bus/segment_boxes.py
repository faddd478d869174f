"""Boxes of segments: candidates for a merge or a rollup, grouped until the group is worth a task.

Comes in: deliveries of SegmentsCommitted, one by one, and the time. Goes out: closed boxes. A delivery may name
segments of several groups: it comes out with the last of them. A group closes when it is old, large or full; one that
is old and has too few segments is dropped: they are candidates again when the reminder finds them
(docs/formats/tending.md). The same segment twice stands in a box once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from lakerunner.bus.bus import Delivery
from lakerunner.bus.closed import ClosedBox
from lakerunner.bus.topics import Candidate, CompactBox, RollupBox, SegmentsCommitted
from lakerunner.model.merging import LEVELS, period_of
from lakerunner.model.tier import next_tier
from lakerunner.model.time import DAY_NS, HOUR_NS

_SLOW_TIER = 3_600_000  # windows of this size and more wait longer: they change slowly, and are read much later
_SLOW_PATIENCE = 60


@dataclass(frozen=True)
class SegmentBoxLimits:
    """`max_seconds` of a group without more patience; `max_held` deliveries over all boxes."""

    max_seconds: float
    max_bytes: int
    max_segments: int
    max_held: int


@dataclass(frozen=True)
class Group:
    """`period`: an hour or a day since the epoch. Rollups have no level."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    period: int


@dataclass(frozen=True)
class Boxing:
    """How candidates become boxes. `group` gives None for what is no candidate; `patience` multiplies `max_seconds`;
    `least`: fewer segments are not worth a box."""

    group: Callable[[SegmentsCommitted, Candidate], Group | None]
    patience: Callable[[Group], int]
    least: int
    box: Callable[[Group, tuple[UUID, ...]], CompactBox | RollupBox]


def _merged_with(message: SegmentsCommitted, one: Candidate) -> Group | None:
    if message.level >= len(LEVELS):
        return None
    return _group(message, message.level, period_of(one.start_ns, message.level))


def _rolled_with(message: SegmentsCommitted, one: Candidate) -> Group | None:
    target = next_tier(message.frequency_ms)
    if target is None:
        return None
    return _group(message, 0, one.start_ns // (DAY_NS if target >= _SLOW_TIER else HOUR_NS))


def _group(message: SegmentsCommitted, level: int, period: int) -> Group:
    return Group(message.organization, message.collector, message.signal, message.frequency_ms, level, period)


def _compact_box(group: Group, segments: tuple[UUID, ...]) -> CompactBox:
    return CompactBox(group.organization, group.collector, group.signal, group.frequency_ms, group.level, segments)


def _rollup_box(group: Group, segments: tuple[UUID, ...]) -> RollupBox:
    target = next_tier(group.frequency_ms) or 0
    return RollupBox(group.organization, group.collector, group.frequency_ms, target, segments)


def rollup_patience(frequency_ms: int) -> int:
    """Of segments of this frequency, on their way to the next tier."""
    return _SLOW_PATIENCE if (next_tier(frequency_ms) or 0) >= _SLOW_TIER else 1


COMPACTION = Boxing(_merged_with, lambda group: LEVELS[group.level].patience, 2, _compact_box)
ROLLUP = Boxing(_rolled_with, lambda group: rollup_patience(group.frequency_ms), 1, _rollup_box)


@dataclass
class _OpenBox:
    opened: float
    bytes: int = 0
    segments: set[UUID] = field(default_factory=set)
    deliveries: list[Delivery] = field(default_factory=list)


class SegmentBoxes:
    """Not thread-safe: one boxer owns it. `now` is monotonic seconds."""

    def __init__(self, boxing: Boxing, limits: SegmentBoxLimits) -> None:
        self._boxing = boxing
        self._limits = limits
        self._open: dict[Group, _OpenBox] = {}
        self._waiting: Counter[Delivery] = Counter()  # in how many open boxes each is
        self._closed: list[ClosedBox] = []  # by count and size, until they are taken

    @property
    def held(self) -> int:
        """How many deliveries wait in open boxes."""
        return len(self._waiting)

    def add(self, delivery: Delivery, message: SegmentsCommitted, now: float) -> None:
        placed = [(self._boxing.group(message, one), one) for one in message.segments]
        wanted = [(group, one) for group, one in placed if group and self._is_wanted(one)]
        # One more until all are placed: it must not come out with the first box that its own segments fill.
        self._waiting[delivery] += 1
        for group, one in wanted:
            self._place(group, one, delivery, now)
        self._waiting[delivery] -= 1
        if not self._waiting[delivery]:
            del self._waiting[delivery]
            self._closed.append(ClosedBox(None, (delivery,)))

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and give every box that is due; when too much is held, the oldest too."""
        for group in [group for group in self._open if self._due_at(group) <= now]:
            self._close(group)
        for group in sorted(self._open, key=lambda group: self._open[group].opened):
            if self.held <= self._limits.max_held:
                break
            self._close(group)
        closed, self._closed = self._closed, []
        return closed

    def seconds_until_due(self, now: float) -> float:
        """How long nothing will become due by age alone; infinite when nothing is open."""
        if self._closed:
            return 0.0
        return max(0.0, min(map(self._due_at, self._open), default=float("inf")) - now)

    def _is_wanted(self, one: Candidate) -> bool:
        """A rollup takes a segment of any size; a full one is merged no more."""
        return self._boxing.least == 1 or one.bytes < self._limits.max_bytes

    def _place(self, group: Group, one: Candidate, delivery: Delivery, now: float) -> None:
        box = self._open.setdefault(group, _OpenBox(now))
        if delivery not in box.deliveries[-1:]:  # the segments of a delivery are placed one after the other
            box.deliveries.append(delivery)
            self._waiting[delivery] += 1
        if one.id not in box.segments:
            box.segments.add(one.id)
            box.bytes += one.bytes
        limits = self._limits
        if len(box.segments) >= limits.max_segments or box.bytes >= limits.max_bytes:
            self._close(group)

    def _due_at(self, group: Group) -> float:
        return self._open[group].opened + self._limits.max_seconds * self._boxing.patience(group)

    def _close(self, group: Group) -> None:
        box = self._open.pop(group)
        free = []
        for delivery in box.deliveries:
            self._waiting[delivery] -= 1
            if not self._waiting[delivery]:
                del self._waiting[delivery]
                free.append(delivery)
        # Sorted, so that the same segments make the same box whatever their order was.
        made = self._boxing.box(group, tuple(sorted(box.segments))) if len(box.segments) >= self._boxing.least else None
        self._closed.append(ClosedBox(made, tuple(free)))
