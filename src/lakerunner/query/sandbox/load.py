"""How much work each organization had sandboxes do of late, so that a greedy one yields the cores to others.

What always holds: an organization that is alone never yields; of several, one that did more than HEAVY_SECONDS of late
does. What is older counts half as much every HALF_LIFE seconds, and what counts next to nothing is forgotten.
"""

from __future__ import annotations

from uuid import UUID

HALF_LIFE = 5.0
HEAVY_SECONDS = 1.0
_FORGOTTEN = 0.001


class RecentLoad:
    """Times are those of one clock, in seconds. For one thread at a time."""

    def __init__(self) -> None:
        self._load: dict[UUID, tuple[float, float]] = {}  # seconds of work, and when that was

    def add(self, organization: UUID, seconds: float, now: float) -> None:
        self._load[organization] = self._of(organization, now) + seconds, now
        for one in [one for one in self._load if self._of(one, now) < _FORGOTTEN]:
            del self._load[one]

    def is_heavy(self, organization: UUID, now: float) -> bool:
        """Whether it did much, while others did something too."""
        others = any(one != organization for one in self._load)
        return others and self._of(organization, now) > HEAVY_SECONDS

    def _of(self, organization: UUID, now: float) -> float:
        seconds, then = self._load.get(organization, (0.0, now))
        return float(seconds * 0.5 ** ((now - then) / HALF_LIFE))
