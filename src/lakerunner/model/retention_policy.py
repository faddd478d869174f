"""Retention: how long rows are kept, by signal and tier.

Comes in: names and durations as people write them (`logs=30d`, `metrics.1h=2y`, `all=forever`). Goes out: for a given
time, the cutoffs before which segments expire. What always holds: what is not named is kept forever; rows that a rollup
still has to read stay for it (`Cutoff`); a tier is kept for at least two buckets of the tier that is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lakerunner.model.errors import UserError
from lakerunner.model.source import SIGNAL_NAMES
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, next_tier, tiers_above
from lakerunner.model.time import DAY_NS, HOUR_NS, MIN_NS, duration_ns

RetentionKey = tuple[str, int]  # signal, frequency_ms

# What a retention can be set for, by name.
NAMES: Mapping[str, RetentionKey] = MappingProxyType(
    {signal: (signal, RAW) for signal in sorted(SIGNAL_NAMES)}
    | {f"metrics.{TIER_NAMES[tier]}": ("metrics", tier) for tier in TIERS}
)
ALL = "all"
FOREVER = "forever"
SHORTEST_NS = HOUR_NS
LONGEST_NS = 100 * 365 * DAY_NS
# How long a segment past its retention waits for its rollup: time to repair a rollup that was set aside.
WAIT_NS = 7 * DAY_NS


@dataclass(frozen=True)
class Cutoff:
    """Segments of this signal and tier that end at or before `before_ns` are past their retention. Of those that are
    not rolled up, only these expire: the ones that end at or before `unneeded_ns`, when the tiers above do not keep
    their time either; and the ones that have waited in vain, ending at or before `waited_ns` and created at or before
    `born_ns`."""

    signal: str
    frequency_ms: int
    before_ns: int
    unneeded_ns: int
    waited_ns: int
    born_ns: int

    def is_due(self, end_ns: int, created_ns: int, *, rolled: bool) -> bool:
        """Decide as the index does (queries/sweep.sql)."""
        if end_ns > self.before_ns:
            return False
        waited = end_ns <= self.waited_ns and created_ns <= self.born_ns
        return rolled or end_ns <= self.unneeded_ns or waited


@dataclass(frozen=True)
class Retention:
    """Durations in ns by signal and frequency; None, like an absent entry, means forever."""

    durations: Mapping[RetentionKey, int | None] = field(default_factory=dict)

    def with_rows(self, rows: Mapping[RetentionKey, int | None]) -> Retention:
        """Return this retention with an organization's own entries in place."""
        return Retention({**self.durations, **rows})

    def cutoffs(self, now_ns: int) -> list[Cutoff]:
        """Return the cutoffs of everything that is not kept forever."""
        return [
            self._cutoff(kept, keep_ns, now_ns)
            for kept in NAMES.values()
            if (keep_ns := self.durations.get(kept)) is not None
        ]

    def _cutoff(self, kept: RetentionKey, keep_ns: int, now_ns: int) -> Cutoff:
        before_ns = now_ns - keep_ns
        longest = self._longest_above(kept)
        unneeded_ns = MIN_NS if longest is None else min(before_ns, now_ns - longest)
        return Cutoff(*kept, before_ns, unneeded_ns, before_ns - WAIT_NS, now_ns - WAIT_NS)

    def _longest_above(self, kept: RetentionKey) -> int | None:
        """Return how long the tiers that are made of this one are kept; 0 if there are none, None if forever."""
        signal, frequency_ms = kept
        above = [self.durations.get((signal, tier)) for tier in tiers_above(frequency_ms) if signal == "metrics"]
        return None if None in above else max((ns for ns in above if ns is not None), default=0)


def retention_name(signal: str, frequency_ms: int) -> str:
    """Return the name under which people set this retention."""
    return signal if frequency_ms == RAW else f"{signal}.{TIER_NAMES.get(frequency_ms, f'{frequency_ms}ms')}"


def parse_retention_name(name: str) -> list[RetentionKey]:
    """Return the signals and tiers that the name stands for; raise UserError for an unknown name."""
    if name == ALL:
        return list(NAMES.values())
    if name not in NAMES:
        raise UserError(f"{name!r} has no retention: use one of {', '.join(NAMES)}, {ALL}")
    return [NAMES[name]]


def parse_retention(pairs: Iterable[tuple[str, str]]) -> Retention:
    """Parse names and durations. A name takes precedence over `all`, in any order. Under `all` a tier is kept as long
    as it must be."""
    found: dict[RetentionKey, int | None] = {}
    for name, text in sorted(pairs, key=lambda pair: pair[0] != ALL):
        keep_ns = parse_keep_duration(name, text)
        for kept in parse_retention_name(name):
            least = shortest_retention(kept)
            if keep_ns is not None and keep_ns < least and name != ALL:
                raise UserError(
                    f"retention {name}={text} is too short: the next tier is computed from it, keep it "
                    f"for at least {least // HOUR_NS}h"
                )
            found[kept] = None if keep_ns is None else max(keep_ns, least)
    return Retention(found)


def parse_keep_duration(name: str, text: str) -> int | None:
    """Return ns; None for `forever`."""
    if text == FOREVER:
        return None
    found = duration_ns(text)
    if found is None:
        raise UserError(f"retention {name}={text} is not a duration: write 12h, 30d, 4w, 2y or {FOREVER}")
    if not SHORTEST_NS <= found <= LONGEST_NS:
        raise UserError(f"retention {name}={text} is out of range: use 1h to 100y, or {FOREVER}")
    return found


def shortest_retention(kept: RetentionKey) -> int:
    """Return the shortest allowed retention: two buckets of the next tier, because a bucket is made again from all of
    its rows when late rows come."""
    signal, frequency_ms = kept
    above = next_tier(frequency_ms) if signal == "metrics" else None
    return max(SHORTEST_NS, 2 * (above or 0) * 1_000_000)


def duration_text(keep_ns: int | None) -> str:
    """Return the duration as people would write it."""
    if keep_ns is None:
        return FOREVER
    for unit, ns in (("y", 365 * DAY_NS), ("d", DAY_NS), ("h", HOUR_NS)):
        if keep_ns % ns == 0:
            return f"{keep_ns // ns}{unit}"
    return f"{keep_ns // 1_000_000_000}s"
