"""How many queries run in Spark at once: in all, and of one organization.

What always holds: as long as one organization may run fewer than all may, it cannot keep the others out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from uuid import UUID

from lakerunner.model.errors import Busy, UserError
from lakerunner.model.plural import plural


@dataclass(frozen=True)
class ShareLimits:
    """Queries at once in all, and of one organization; how many seconds one waits for its turn."""

    in_all: int = 2
    of_one: int = 1
    wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.in_all < 1:
            raise UserError(f"query_spark_concurrency must be 1 or more, not {self.in_all}")
        if self.of_one < 1:
            raise UserError(f"org_concurrent_spark_queries must be 1 or more, not {self.of_one}")


class Shares:
    """Safe to use from many threads."""

    def __init__(self, limits: ShareLimits) -> None:
        self._limits = limits
        self._running: Counter[UUID] = Counter()
        self._left = Condition()

    def take(self, organization: UUID) -> Callable[[], None]:
        """Wait for a place and return what gives it back; calling that twice is fine. Busy after the wait."""
        limits = self._limits
        with self._left:
            if not self._left.wait_for(lambda: self._has_room(organization), limits.wait_seconds):
                raise Busy(self._reason(organization))
            self._running[organization] += 1
        held = [organization]

        def give_back() -> None:
            with self._left:
                if held:
                    self._running[held.pop()] -= 1
                    self._running += Counter()  # forget the organizations that run nothing
                    self._left.notify_all()

        return give_back

    def _has_room(self, organization: UUID) -> bool:
        return self._running[organization] < self._limits.of_one and self._running.total() < self._limits.in_all

    def _reason(self, organization: UUID) -> str:
        limits, waited = self._limits, f"and none ended within {self._limits.wait_seconds:g} s: try again later"
        if self._running[organization] >= limits.of_one:
            return f"your organization runs {limits.of_one} in Spark (org_concurrent_spark_queries), {waited}"
        return f"Spark runs {plural(limits.in_all, 'query', 'queries')} (query_spark_concurrency), {waited}"
