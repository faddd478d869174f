"""The stream rules of organizations, remembered for some seconds, so that a query does not wait for the index."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from lakerunner.model.errors import Unavailable
from lakerunner.model.lru import LruCache
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules

SECONDS = 5.0
_MOST = 10_000  # organizations


class KnownRules:
    """Safe to use from many threads. Rules are at most `seconds` old; older ones only while the index is away."""

    def __init__(
        self,
        find: Callable[[UUID], StreamRules] = lambda _: DEFAULT_RULES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._clock = clock
        self._known: LruCache[tuple[StreamRules, float]] = LruCache(_MOST)

    def of(self, organization: UUID) -> StreamRules:
        """Return the rules of an organization. Blocks on the index."""
        known, now = self._known.get(organization), self._clock()
        if known and now - known[1] < self._seconds:
            return known[0]
        try:
            found = self._find(organization)
        except Unavailable:
            if known:
                return known[0]
            raise
        self._known.put(organization, (found, now), 1)
        return found
