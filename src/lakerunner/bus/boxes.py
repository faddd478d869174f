"""Boxes: arrivals grouped by organization, collector, signal and hour until the group is worth a job.

Comes in: deliveries of ObjectArrived, one by one, and the time. Goes out: closed boxes, each with the deliveries it
answers for, so that the boxer can commit them once the box is on the bus. A box closes when it is old, large or
full; when too much is held over all boxes, the oldest close first. The same source twice stands in a box once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from lakerunner.bus.bus import Delivery
from lakerunner.bus.closed import ClosedBox
from lakerunner.bus.topics import IngestBox, ObjectArrived
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS


@dataclass(frozen=True)
class BoxLimits:
    max_seconds: float
    max_bytes: int
    max_objects: int
    max_held: int


@dataclass(frozen=True)
class _Group:
    organization: UUID
    collector: str
    signal: str
    hour: int


@dataclass
class _OpenBox:
    opened: float
    sources: dict[tuple[str, str, str], SourceObject] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    bytes: int = 0


class Boxes:
    """Not thread-safe: one boxer owns it. `now` is monotonic seconds."""

    def __init__(self, limits: BoxLimits) -> None:
        self._limits = limits
        self._open: dict[_Group, _OpenBox] = {}

    @property
    def held(self) -> int:
        """How many deliveries wait in open boxes."""
        return sum(len(box.deliveries) for box in self._open.values())

    def add(self, delivery: Delivery, arrival: ObjectArrived, now: float) -> None:
        source = arrival.source
        group = _Group(arrival.organization, arrival.collector, arrival.signal, source.modified_ns // HOUR_NS)
        box = self._open.setdefault(group, _OpenBox(now))
        box.deliveries.append(delivery)
        if source.identity not in box.sources:
            box.sources[source.identity] = source
            box.bytes += source.size

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and give every box that is due."""
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
        """How long nothing will become due by age alone; infinite when nothing is open."""
        oldest = min((box.opened for box in self._open.values()), default=float("inf"))
        return max(0.0, oldest + self._limits.max_seconds - now)

    def _is_due(self, box: _OpenBox, now: float) -> bool:
        limits = self._limits
        return (
            now - box.opened >= limits.max_seconds
            or box.bytes >= limits.max_bytes
            or len(box.sources) >= limits.max_objects
        )

    def _close(self, group: _Group) -> ClosedBox:
        box = self._open.pop(group)
        # Sorted, so that the same arrivals make the same box whatever their order was.
        sources = tuple(sorted(box.sources.values()))
        return ClosedBox(IngestBox(group.organization, group.collector, group.signal, sources), tuple(box.deliveries))
