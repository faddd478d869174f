"""Share one bound of a server between organizations, so that none of them can take all of it.

The rule: an organization may hold as much as it leaves free. Alone it gets half of the bound, one of n gets the
(n + 1)th part, and each further organization finds room. One that holds nothing needs only that what it brings fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from lakerunner.model.errors import Busy


class Holdings:
    """What each organization holds of `limit`. Not safe between threads. `what` names the things and the limit in
    messages. Holders that are not known (None) are bound by the whole limit only."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._held: Counter[UUID | None] = Counter()
        self._total = 0

    def refusal(self, holder: UUID | None, size: int) -> str | None:
        """Return why the holder cannot take this much more; None if it can, or if nothing is held by anybody."""
        total, own = self._total, self._held[holder]
        if total and total + size > self._limit:
            return f"all organizations together use {total} of the {self._limit} {self._what}: send it again later"
        if holder is not None and own and own + size > self._limit - total - size:
            return (
                f"your organization uses {own} of the {self._limit} {self._what}, and may use as many "
                "as are free: send it again later"
            )
        return None

    def take(self, holder: UUID | None, size: int) -> None:
        """Take this much for the holder, or raise Busy."""
        if reason := self.refusal(holder, size):
            raise Busy(reason)
        self._held[holder] += size
        self._total += size

    def give_back(self, holder: UUID | None, size: int) -> None:
        self._held[holder] -= size
        self._total -= size
        if not self._held[holder]:  # else organizations that are gone would be remembered
            del self._held[holder]

    @contextmanager
    def holding(self, holder: UUID | None, size: int) -> Iterator[None]:
        """Take this much and give it back in the end."""
        self.take(holder, size)
        try:
            yield
        finally:
            self.give_back(holder, size)
