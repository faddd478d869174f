"""The rules of organizations for logs, remembered for some seconds, so that a query does not wait for the index: what a
stream is, and which metrics are made of lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from lakerunner.model.errors import Unavailable
from lakerunner.model.lru import LruCache
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules

SECONDS = 5.0
_MOST = 10_000  # organizations


class LogRules(NamedTuple):
    """What a stream is, and the active rules over logs, which count on that."""

    streams: StreamRules
    versions: tuple[RuleVersion, ...]


class KnownRules:
    """Safe to use from many threads. Rules are at most `seconds` old; older ones only while the index is away.
    `find_versions` finds the active rules over logs."""

    def __init__(
        self,
        find: Callable[[UUID], StreamRules] = lambda _: DEFAULT_RULES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
        find_versions: Callable[[UUID], tuple[RuleVersion, ...]] = lambda _: (),
    ) -> None:
        self._find = find
        self._find_versions = find_versions
        self._seconds = seconds
        self._clock = clock
        self._known: LruCache[tuple[LogRules, float]] = LruCache(_MOST)

    def of(self, organization: UUID) -> StreamRules:
        """Return the rules of an organization for its streams. Blocks on the index."""
        return self.log_rules(organization).streams

    def log_rules(self, organization: UUID) -> LogRules:
        """Return the rules for streams and the rules over logs, of one moment. Blocks on the index."""
        known, now = self._known.get(organization), self._clock()
        if known and now - known[1] < self._seconds:
            return known[0]
        try:
            found = self._read(organization)
        except Unavailable:
            if known:
                return known[0]
            raise
        self._known.put(organization, (found, now), 1)
        return found

    def _read(self, organization: UUID) -> LogRules:
        """Another rule for streams gives all rules over logs new versions: where these are the same before and after,
        the streams are theirs."""
        before = self._find_versions(organization)
        streams = self._find(organization)
        is_same = not before or self._find_versions(organization) == before
        return LogRules(streams, before if is_same else ())
