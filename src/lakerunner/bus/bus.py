"""The contract of a bus. tests/suites/bus.py holds Kafka, PostgreSQL and memory to it.

Delivery is at least once: a delivery that was taken and not committed when its subscription closed, or its
process died, is delivered again to a member of the group. Each group sees every message; inside a group one
live member at a time holds a message. Order is not promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Delivery:
    """One message in hand. `position` is the bus's own; give it back unchanged to commit."""

    topic: str
    payload: bytes
    position: tuple[int, int]


class Subscription(Protocol):
    """One member of a group, used by one thread at a time.

    After Unavailable what is held stays held, unless another member has got it meanwhile, and the same call may be
    made again. A member that has lost sight of what it holds closes and subscribes anew: all of it comes again.
    """

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Up to limit deliveries; waits up to wait_seconds for the first one, then returns at once.
        Deliveries already held are not given again. Unavailable if the bus is away."""

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """These are finished, in any order; once this returns they never come again after a restart
        (Kafka: once everything before them in their partition is finished too)."""

    def close(self) -> None:
        """Leave the group; what is held and not committed goes to another member. Closing twice is fine."""


class Bus(Protocol):
    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """(topic, payload) pairs; topics.encode makes payloads. Returns once all are durable; raises
        Unavailable otherwise, and then any of them may or may not be there. Any thread may publish."""

    def subscribe(self, topics: Sequence[str], group: str) -> Subscription:
        """Join the group. A group that is new to a topic starts at the oldest message still kept."""

    def close(self) -> None:
        """Close the producer side and all subscriptions. Closing twice is fine."""
