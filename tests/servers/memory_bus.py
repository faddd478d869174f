"""A bus inside one process: threads share it, and it is lost with the process.

Every message is kept. A topic is a list; per group and topic there is a cursor, before which everything was handed out,
and the offsets that were returned when a member closed without finishing them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Condition

from lakerunner.bus.bus import Delivery
from lakerunner.model.errors import Unavailable


@dataclass
class _Cursor:
    """The position of a group in one topic."""

    position: int = 0
    returned: list[int] = field(default_factory=list)

    def ready(self, end: int) -> bool:
        return bool(self.returned) or self.position < end

    def take(self, end: int, limit: int) -> list[int]:
        """Return up to `limit` offsets before `end`, returned ones first."""
        again, self.returned = self.returned[:limit], self.returned[limit:]
        fresh = range(self.position, min(end, self.position + limit - len(again)))
        self.position += len(fresh)
        return [*again, *fresh]


class MemoryBus:
    def __init__(self) -> None:
        self.changed = Condition()  # guards everything below
        self.topics: dict[str, list[bytes]] = defaultdict(list)
        self.cursors: dict[tuple[str, str], _Cursor] = defaultdict(_Cursor)
        self._subscriptions: list[_MemorySubscription] = []
        self._closed = False

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        with self.changed:
            if self._closed:
                raise Unavailable("the bus is closed")
            for topic, payload in messages:
                self.topics[topic].append(payload)
            self.changed.notify_all()

    def subscribe(self, topics: Sequence[str], group: str) -> _MemorySubscription:
        with self.changed:
            if self._closed:
                raise Unavailable("the bus is closed")
            subscription = _MemorySubscription(self, topics, group)
            self._subscriptions.append(subscription)
        return subscription

    def close(self) -> None:
        with self.changed:
            self._closed = True
        for subscription in self._subscriptions:
            subscription.close()


class _MemorySubscription:
    def __init__(self, bus: MemoryBus, topics: Iterable[str], group: str) -> None:
        self._bus = bus
        self._topics = sorted(set(topics))
        self._group = group
        self._held: set[tuple[str, int]] = set()
        self._closed = False

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        with self._bus.changed:
            self._bus.changed.wait_for(lambda: self._closed or self._ready(), wait_seconds)
            if self._closed:
                raise Unavailable("the subscription is closed")
            return self._next(limit)

    def _ready(self) -> bool:
        return any(self._cursor(topic).ready(len(self._bus.topics[topic])) for topic in self._topics)

    def _next(self, limit: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for topic in self._topics:
            log = self._bus.topics[topic]
            for offset in self._cursor(topic).take(len(log), limit - len(deliveries)):
                deliveries.append(Delivery(topic, log[offset], (0, offset)))
                self._held.add((topic, offset))
        return deliveries

    def _cursor(self, topic: str) -> _Cursor:
        return self._bus.cursors[self._group, topic]

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        with self._bus.changed:
            if self._closed:
                raise Unavailable("the subscription is closed")
            self._held.difference_update((delivery.topic, delivery.position[1]) for delivery in deliveries)

    def close(self) -> None:
        with self._bus.changed:
            self._closed = True
            for topic, offset in self._held:
                self._cursor(topic).returned.append(offset)
            self._held.clear()
            self._bus.changed.notify_all()
