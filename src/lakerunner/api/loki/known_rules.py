"""The rules of organizations for logs, remembered for some seconds, so that a query does not wait for the index: what a
stream is, and which metrics are made of lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from lakerunner.model.errors import Unavailable
from lakerunner.model.lru import LruCache
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules

SECONDS = 5.0
_MOST = 10_000  # organizations
T = TypeVar("T")
Versions = tuple[RuleVersion, ...]


class KnownRules:
    """Safe to use from many threads. Rules are at most `seconds` old; older ones only while the index is away.
    `find_versions` finds the active rules over logs."""

    def __init__(
        self,
        find: Callable[[UUID], StreamRules] = lambda _: DEFAULT_RULES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
        find_versions: Callable[[UUID], Versions] = lambda _: (),
    ) -> None:
        self._find = find
        self._find_versions = find_versions
        self._seconds = seconds
        self._clock = clock
        self._known: LruCache[tuple[StreamRules, float]] = LruCache(_MOST)
        self._versions: LruCache[tuple[Versions, float]] = LruCache(_MOST)

    def of(self, organization: UUID) -> StreamRules:
        """Return the rules of an organization for its streams. Blocks on the index."""
        return self._remembered(self._known, self._find, organization)

    def versions(self, organization: UUID) -> Versions:
        """Return the active rules of an organization over logs. Blocks on the index."""
        return self._remembered(self._versions, self._find_versions, organization)

    def _remembered(self, cache: LruCache[tuple[T, float]], find: Callable[[UUID], T], organization: UUID) -> T:
        known, now = cache.get(organization), self._clock()
        if known and now - known[1] < self._seconds:
            return known[0]
        try:
            found = find(organization)
        except Unavailable:
            if known:
                return known[0]
            raise
        cache.put(organization, (found, now), 1)
        return found
