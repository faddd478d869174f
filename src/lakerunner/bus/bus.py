"""The contract of a bus. tests/suites/bus.py tests Kafka, PostgreSQL and the bus of the tests against it.

Delivery is at least once: a delivery that was taken and not committed when its subscription closed, or its process
died, is delivered again to a member of the group. Each group sees every message; inside a group one live member at a
time holds a message. Order is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Delivery:
    """One message that a member holds. `position` belongs to the bus; pass it back unchanged to commit."""

    topic: str
    payload: bytes
    position: tuple[int, int]


class Subscription(Protocol):
    """One member of a group, used by one thread at a time.

    After Unavailable what is held stays held, unless another member has taken it meanwhile, and the same call may be
    made again. A member that has lost track of what it holds closes and subscribes again: then all of it is delivered
    again.
    """

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Return up to `limit` deliveries; wait up to `wait_seconds` for the first one, then return at once. Deliveries
        that are held already are not returned again. Raise Unavailable if the bus is down."""

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Finish these deliveries, in any order. Once this returns they are never delivered again after a restart
        (Kafka: once everything before them in their partition is finished too)."""

    def close(self) -> None:
        """Leave the group; what is held and not committed goes to another member. Closing twice is fine."""


class Bus(Protocol):
    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish (topic, payload) pairs; topics.encode makes payloads. Return once all are durable; raise Unavailable
        otherwise, and then any of them may or may not be there. Any thread may publish."""

    def subscribe(self, topics: Sequence[str], group: str) -> Subscription:
        """Join the group. A group that is new to a topic starts at the oldest message that is still kept."""

    def close(self) -> None:
        """Close the producer side and all subscriptions. Closing twice is fine."""
