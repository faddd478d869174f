"""Boxes: arrivals, and segments to merge or roll up, grouped until a group is worth a job.

Comes in: deliveries of ObjectArrived or SegmentsCommitted, one by one, and the time. Goes out: closed boxes, each with
the deliveries that it answers for, so that the boxer can commit them once the box is on the bus. A box closes when it
is old, large or full; when too much is held over all boxes, the oldest close first. The same source or segment twice
stands in a box once.

A delivery of segments may name several groups: it comes out with the last of them. A group of segments that is old and
too small is dropped: its segments are candidates again when the reminder finds them (docs/formats/tending.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID

from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import Candidate, CompactBox, IngestBox, Message, ObjectArrived, RollupBox, SegmentsCommitted
from lakerunner.model.merging import LEVELS, period_of
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import next_tier
from lakerunner.model.time import DAY_NS, HOUR_NS

M_contra = TypeVar("M_contra", contravariant=True)


@dataclass(frozen=True)
class ClosedBox:
    """A box for the bus, None if the group was not worth one, and the deliveries that no open box needs any more once
    this one is on the bus."""

    box: Message | None
    deliveries: tuple[Delivery, ...]


class Boxes(Protocol[M_contra]):
    """What a boxer needs of any kind of boxes. Not thread-safe: one boxer owns it. `now` is monotonic seconds. Every
    delivery that was added comes out with a closed box, once."""

    @property
    def held(self) -> int:
        """Return how many deliveries wait in open boxes."""

    def add(self, delivery: Delivery, message: M_contra, now: float) -> None: ...

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and return every box that is due; when too much is held, the oldest too."""

    def seconds_until_due(self, now: float) -> float:
        """Return for how long nothing will become due by age alone; infinite when nothing is open."""


# ---- arrivals, by organization, collector, signal and hour


@dataclass(frozen=True)
class BoxLimits:
    max_seconds: float
    max_bytes: int
    max_objects: int
    max_held: int


@dataclass(frozen=True)
class _ArrivalGroup:
    organization: UUID
    collector: str
    signal: str
    hour: int


@dataclass
class _ArrivalBox:
    opened: float
    sources: dict[tuple[str, str, str], SourceObject] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    bytes: int = 0


class ArrivalBoxes:
    """Boxes of raw objects to ingest."""

    def __init__(self, limits: BoxLimits) -> None:
        self._limits = limits
        self._open: dict[_ArrivalGroup, _ArrivalBox] = {}

    @property
    def held(self) -> int:
        """Return how many deliveries wait in open boxes."""
        return sum(len(box.deliveries) for box in self._open.values())

    def add(self, delivery: Delivery, arrival: ObjectArrived, now: float) -> None:
        source = arrival.source
        group = _ArrivalGroup(arrival.organization, arrival.collector, arrival.signal, source.modified_ns // HOUR_NS)
        box = self._open.setdefault(group, _ArrivalBox(now))
        box.deliveries.append(delivery)
        if source.identity not in box.sources:
            box.sources[source.identity] = source
            box.bytes += source.size

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and return every box that is due."""
        due = [group for group, box in self._open.items() if self._is_due(box, now)]
        excess = self.held - sum(len(self._open[group].deliveries) for group in due) - self._limits.max_held
        for group, box in sorted(self._open.items(), key=lambda item: item[1].opened):
            if excess <= 0:
                break
            if group not in due:
                due.append(group)
                excess -= len(box.deliveries)
        return [self._close(group) for group in due]

    def seconds_until_due(self, now: float) -> float:
        """Return for how long nothing will become due by age alone; infinite when nothing is open."""
        oldest = min((box.opened for box in self._open.values()), default=float("inf"))
        return max(0.0, oldest + self._limits.max_seconds - now)

    def _is_due(self, box: _ArrivalBox, now: float) -> bool:
        limits = self._limits
        return (
            now - box.opened >= limits.max_seconds
            or box.bytes >= limits.max_bytes
            or len(box.sources) >= limits.max_objects
        )

    def _close(self, group: _ArrivalGroup) -> ClosedBox:
        box = self._open.pop(group)
        # Sorted, so that the same arrivals make the same box whatever their order was.
        sources = tuple(sorted(box.sources.values()))
        return ClosedBox(IngestBox(group.organization, group.collector, group.signal, sources), tuple(box.deliveries))


# ---- segments to merge or roll up

_SLOW_TIER = 3_600_000  # buckets of this width and more wait longer: they change slowly, and are read much later
_SLOW_PATIENCE = 60


@dataclass(frozen=True)
class SegmentBoxLimits:
    """`max_seconds` holds for a group without more patience; `max_held` deliveries over all boxes."""

    max_seconds: float
    max_bytes: int
    max_segments: int
    max_held: int


@dataclass(frozen=True)
class SegmentGroup:
    """`period`: an hour or a day since the epoch. Rollups have no level."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int
    level: int
    period: int


@dataclass(frozen=True)
class Boxing:
    """How candidates become boxes. `group` returns None for what is not a candidate; `patience` multiplies
    `max_seconds`; `least` is the smallest number of segments that is worth a box."""

    group: Callable[[SegmentsCommitted, Candidate], SegmentGroup | None]
    patience: Callable[[SegmentGroup], int]
    least: int
    box: Callable[[SegmentGroup, tuple[UUID, ...]], CompactBox | RollupBox]


def _compact_group(message: SegmentsCommitted, one: Candidate) -> SegmentGroup | None:
    if message.level >= len(LEVELS):
        return None
    return _group(message, message.level, period_of(one.start_ns, message.level))


def _rollup_group(message: SegmentsCommitted, one: Candidate) -> SegmentGroup | None:
    target = next_tier(message.frequency_ms)
    if target is None:
        return None
    return _group(message, 0, one.start_ns // (DAY_NS if target >= _SLOW_TIER else HOUR_NS))


def _group(message: SegmentsCommitted, level: int, period: int) -> SegmentGroup:
    return SegmentGroup(message.organization, message.collector, message.signal, message.frequency_ms, level, period)


def _compact_box(group: SegmentGroup, segments: tuple[UUID, ...]) -> CompactBox:
    return CompactBox(group.organization, group.collector, group.signal, group.frequency_ms, group.level, segments)


def _rollup_box(group: SegmentGroup, segments: tuple[UUID, ...]) -> RollupBox:
    target = next_tier(group.frequency_ms) or 0
    return RollupBox(group.organization, group.collector, group.frequency_ms, target, segments)


def rollup_patience(frequency_ms: int) -> int:
    """Return the patience for segments of this frequency, on their way to the next tier."""
    return _SLOW_PATIENCE if (next_tier(frequency_ms) or 0) >= _SLOW_TIER else 1


COMPACTION = Boxing(_compact_group, lambda group: LEVELS[group.level].patience, 2, _compact_box)
ROLLUP = Boxing(_rollup_group, lambda group: rollup_patience(group.frequency_ms), 1, _rollup_box)


@dataclass
class _SegmentBox:
    opened: float
    bytes: int = 0
    segments: set[UUID] = field(default_factory=set)
    deliveries: list[Delivery] = field(default_factory=list)


class SegmentBoxes:
    """Boxes of segments to merge or roll up."""

    def __init__(self, boxing: Boxing, limits: SegmentBoxLimits) -> None:
        self._boxing = boxing
        self._limits = limits
        self._open: dict[SegmentGroup, _SegmentBox] = {}
        self._waiting: Counter[Delivery] = Counter()  # in how many open boxes each is
        self._closed: list[ClosedBox] = []  # by count and size, until they are taken

    @property
    def held(self) -> int:
        """Return how many deliveries wait in open boxes."""
        return len(self._waiting)

    def add(self, delivery: Delivery, message: SegmentsCommitted, now: float) -> None:
        placed = [(self._boxing.group(message, one), one) for one in message.segments]
        wanted = [(group, one) for group, one in placed if group and self._is_wanted(one)]
        # One more until all are placed: the delivery must not come out with the first box that its own segments fill.
        self._waiting[delivery] += 1
        for group, one in wanted:
            self._place(group, one, delivery, now)
        self._waiting[delivery] -= 1
        if not self._waiting[delivery]:
            del self._waiting[delivery]
            self._closed.append(ClosedBox(None, (delivery,)))

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and return every box that is due; when too much is held, the oldest too."""
        for group in [group for group in self._open if self._due_at(group) <= now]:
            self._close(group)
        for group in sorted(self._open, key=lambda group: self._open[group].opened):
            if self.held <= self._limits.max_held:
                break
            self._close(group)
        closed, self._closed = self._closed, []
        return closed

    def seconds_until_due(self, now: float) -> float:
        """Return for how long nothing will become due by age alone; infinite when nothing is open."""
        if self._closed:
            return 0.0
        return max(0.0, min(map(self._due_at, self._open), default=float("inf")) - now)

    def _is_wanted(self, one: Candidate) -> bool:
        """Whether a segment goes into a box. A rollup takes a segment of any size; a full one is not merged any
        more."""
        return self._boxing.least == 1 or one.bytes < self._limits.max_bytes

    def _place(self, group: SegmentGroup, one: Candidate, delivery: Delivery, now: float) -> None:
        box = self._open.setdefault(group, _SegmentBox(now))
        if delivery not in box.deliveries[-1:]:  # the segments of a delivery are placed one after the other
            box.deliveries.append(delivery)
            self._waiting[delivery] += 1
        if one.id not in box.segments:
            box.segments.add(one.id)
            box.bytes += one.bytes
        limits = self._limits
        if len(box.segments) >= limits.max_segments or box.bytes >= limits.max_bytes:
            self._close(group)

    def _due_at(self, group: SegmentGroup) -> float:
        return self._open[group].opened + self._limits.max_seconds * self._boxing.patience(group)

    def _close(self, group: SegmentGroup) -> None:
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
