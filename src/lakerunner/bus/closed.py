"""What a boxer needs of any kind of boxes, and gets from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import Message

M_contra = TypeVar("M_contra", contravariant=True)


@dataclass(frozen=True)
class ClosedBox:
    """A box for the bus, None where the group was not worth one, and the deliveries that no open box needs any
    more once this one is on the bus."""

    box: Message | None
    deliveries: tuple[Delivery, ...]


class AnyBoxes(Protocol[M_contra]):
    """Not thread-safe: one boxer owns it. `now` is monotonic seconds. Every delivery that was added comes out with a
    closed box, once."""

    @property
    def held(self) -> int:
        """How many deliveries wait in open boxes."""

    def add(self, delivery: Delivery, message: M_contra, now: float) -> None: ...

    def take_due(self, now: float) -> list[ClosedBox]:
        """Close and give every box that is due; when too much is held, the oldest too."""

    def seconds_until_due(self, now: float) -> float:
        """How long nothing will become due by age alone; infinite when nothing is open."""
