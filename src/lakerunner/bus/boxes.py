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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import CompactBox, IngestBox, Message, ObjectArrived, RollupBox, SegmentsCommitted
from lakerunner.model.merging import LEVELS, period_of
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import next_tier
from lakerunner.model.time import DAY_NS, HOUR_NS

M = TypeVar("M")
_SLOW_TIER = 3_600_000  # buckets of this width and more wait longer: they change slowly, and are read much later
_SLOW_PATIENCE = 60


@dataclass(frozen=True)
class ClosedBox:
    """A box for the bus, None if the group was not worth one, and the deliveries that no open box needs any more once
    this one is on the bus."""

    box: Message | None
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True)
class BoxLimits:
    """`max_seconds` holds for a group without more patience; `max_items` for one box, `max_held` deliveries over all
    boxes."""

    max_seconds: float
    max_bytes: int
    max_items: int
    max_held: int


@dataclass(frozen=True)
class Group:
    """What a box holds together. `period`: an hour or a day since the epoch. Arrivals and rollups have no level."""

    organization: UUID
    collector: str
    signal: str
    period: int
    frequency_ms: int = 0
    level: int = 0


class BoxItem(NamedTuple):
    """A source or the id of a segment. Of items with the same key a box has the first."""

    group: Group
    key: Any
    value: Any
    bytes: int


@dataclass(frozen=True)
class Boxing(Generic[M]):
    """How messages become boxes. `items` leaves out what is not a candidate; `patience` multiplies `max_seconds`;
    `least` is the smallest number of items that is worth a box. `at_once`: a box closes as soon as it is full, so one
    message can fill several."""

    items: Callable[[M], Iterator[BoxItem]]
    box: Callable[[Group, tuple[Any, ...]], Message]
    patience: Callable[[Group], int]
    least: int = 1
    at_once: bool = True


def _arrivals(message: ObjectArrived) -> Iterator[BoxItem]:
    source = message.source
    group = Group(message.organization, message.collector, message.signal, source.modified_ns // HOUR_NS)
    yield BoxItem(group, source.identity, source, source.size)


def _to_merge(message: SegmentsCommitted) -> Iterator[BoxItem]:
    if message.level < len(LEVELS):
        yield from _candidates(message, message.level, lambda start_ns: period_of(start_ns, message.level))


def _to_roll(message: SegmentsCommitted) -> Iterator[BoxItem]:
    target = next_tier(message.frequency_ms)
    if target is not None:
        period_ns = DAY_NS if target >= _SLOW_TIER else HOUR_NS
        yield from _candidates(message, 0, lambda start_ns: start_ns // period_ns)


def _candidates(message: SegmentsCommitted, level: int, period: Callable[[int], int]) -> Iterator[BoxItem]:
    for one in message.segments:
        whose = message.organization, message.collector, message.signal, period(one.start_ns)
        yield BoxItem(Group(*whose, message.frequency_ms, level), one.id, one.id, one.bytes)


def _ingest_box(group: Group, sources: tuple[SourceObject, ...]) -> IngestBox:
    return IngestBox(group.organization, group.collector, group.signal, sources)


def _compact_box(group: Group, segments: tuple[UUID, ...]) -> CompactBox:
    return CompactBox(group.organization, group.collector, group.signal, group.frequency_ms, group.level, segments)


def _rollup_box(group: Group, segments: tuple[UUID, ...]) -> RollupBox:
    target = next_tier(group.frequency_ms) or 0
    return RollupBox(group.organization, group.collector, group.frequency_ms, target, segments)


def rollup_patience(frequency_ms: int) -> int:
    """Return the patience for segments of this frequency, on their way to the next tier."""
    return _SLOW_PATIENCE if (next_tier(frequency_ms) or 0) >= _SLOW_TIER else 1


ARRIVALS = Boxing(_arrivals, _ingest_box, lambda _: 1, at_once=False)
COMPACTION = Boxing(_to_merge, _compact_box, lambda group: LEVELS[group.level].patience, least=2)
ROLLUP = Boxing(_to_roll, _rollup_box, lambda group: rollup_patience(group.frequency_ms))


@dataclass
class _OpenBox:
    opened: float
    bytes: int = 0
    items: dict[Any, Any] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)


class Boxes(Generic[M]):
    """The boxes of a boxer. Not thread-safe: one boxer owns it. `now` is monotonic seconds. Every delivery that was
    added comes out with a closed box, once."""

    def __init__(self, boxing: Boxing[M], limits: BoxLimits) -> None:
        self._boxing = boxing
        self._limits = limits
        self._open: dict[Group, _OpenBox] = {}
        self._waiting: Counter[Delivery] = Counter()  # in how many open boxes each is
        self._closed: list[ClosedBox] = []  # by count and size, until they are taken

    @property
    def held(self) -> int:
        """Return how many deliveries wait in open boxes."""
        return len(self._waiting)

    def add(self, delivery: Delivery, message: M, now: float) -> None:
        # One more until all are placed: the delivery must not come out with the first box that its own items fill.
        self._waiting[delivery] += 1
        for item in self._boxing.items(message):
            # A rollup takes a segment of any size; a full one is not merged any more.
            if self._boxing.least == 1 or item.bytes < self._limits.max_bytes:
                self._place(item, delivery, now)
        if self._release(delivery):
            self._closed.append(ClosedBox(None, (delivery,)))

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and return every box that is due; when too much is held, the oldest too."""
        for group in [group for group in self._open if self._due_at(group) <= now or self._is_full(group)]:
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

    def _place(self, item: BoxItem, delivery: Delivery, now: float) -> None:
        box = self._open.setdefault(item.group, _OpenBox(now))
        if delivery not in box.deliveries[-1:]:  # the items of a delivery are placed one after the other
            box.deliveries.append(delivery)
            self._waiting[delivery] += 1
        if item.key not in box.items:
            box.items[item.key] = item.value
            box.bytes += item.bytes
        if self._boxing.at_once and self._is_full(item.group):
            self._close(item.group)

    def _is_full(self, group: Group) -> bool:
        box, limits = self._open[group], self._limits
        return len(box.items) >= limits.max_items or box.bytes >= limits.max_bytes

    def _due_at(self, group: Group) -> float:
        return self._open[group].opened + self._limits.max_seconds * self._boxing.patience(group)

    def _release(self, delivery: Delivery) -> bool:
        """Count one box less for this delivery; return whether none is left."""
        self._waiting[delivery] -= 1
        if self._waiting[delivery]:
            return False
        del self._waiting[delivery]
        return True

    def _close(self, group: Group) -> None:
        box = self._open.pop(group)
        free = tuple(delivery for delivery in box.deliveries if self._release(delivery))
        # Sorted, so that the same items make the same box whatever their order was.
        items = tuple(sorted(box.items.values()))
        made = self._boxing.box(group, items) if len(items) >= self._boxing.least else None
        self._closed.append(ClosedBox(made, free))
