"""Tiers of rollups: their buckets, which tier a query reads for which time, and what has expired.

A tier has buckets of a fixed width in ms and is made of the next finer one, the finest of raw points. A bucket is a
left-open, right-closed interval `(end - tier, end]` aligned to the epoch, like the ranges of PromQL. It is named by its
end, which is the `timestamp` of its row. Times are those of samples: whole ms, the rest is cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lakerunner.model.time import MS_NS, SECOND_NS, time_text

RAW = 0
TIERS = (10_000, 60_000, 300_000, 3_600_000, 86_400_000)
TIER_NAMES = {RAW: "raw", 10_000: "10s", 60_000: "1m", 300_000: "5m", 3_600_000: "1h", 86_400_000: "1d"}

TIER_WIDTHS = {10_000: "10 s", 60_000: "1 min", 300_000: "5 min", 3_600_000: "1 h", 86_400_000: "1 d"}


def tier_text(frequency_ms: int) -> str:
    """Return the tier for messages: "raw samples" or "5 min rollups"."""
    return f"{TIER_WIDTHS[frequency_ms]} rollups" if frequency_ms else "raw samples"


def window_end(time_ms: int, tier: int) -> int:
    """Return the end of the bucket that holds this time."""
    return -(-time_ms // tier) * tier


def next_tier(frequency_ms: int) -> int | None:
    """Return the tier that is made of this one; None for the coarsest."""
    return next((tier for tier in TIERS if tier > frequency_ms), None)


def tiers_above(frequency_ms: int) -> tuple[int, ...]:
    """Return all tiers that are coarser than this one."""
    return tuple(tier for tier in TIERS if tier > frequency_ms)


def source_of(tier: int) -> int:
    """Return what this tier is made of: a finer tier, or RAW."""
    return max((finer for finer in TIERS if finer < tier), default=RAW)


# ---- which tier is read where

Interval = tuple[int, int]  # ms, left-open and right-closed, (start, end], as buckets are
Tiles = Mapping[int, tuple[Interval, ...]]  # by frequency_ms, widest first; no tuple is empty
NO_TILES: Tiles = MappingProxyType({})


def tile(
    reach: Interval,
    widest: int,
    unrolled: Mapping[int, Iterable[Interval]],
    expired: Mapping[int, int] = MappingProxyType({}),
) -> Tiles:
    """Cut a time range into tiles, each of one tier or of raw points.

    `reach` begins and ends with buckets of the tier `widest`. `unrolled`: by frequency, the times of the first and last
    row of each segment that is not rolled up. `expired`: by frequency, the last time of a row that may be gone.

    The tiles cover the range and none overlaps another. Where a tier is read, no segment of a finer one that is not
    rolled up has a row in the same bucket, so its buckets are complete, and none of them has expired.
    """
    left = [reach] if reach[0] < reach[1] else []
    found: dict[int, tuple[Interval, ...]] = {}
    for tier in (tier for tier in reversed(TIERS) if tier <= widest):
        touched = [
            (window_end(first, tier) - tier, window_end(last, tier))
            for frequency, times in unrolled.items()
            if frequency < tier
            for first, last in times
        ]
        if tier in expired and expired[tier] > reach[0]:
            touched.append((reach[0] // tier * tier, window_end(expired[tier], tier)))
        touched = join_intervals(touched)
        whole, left = _cut(left, touched)
        if whole:
            found[tier] = tuple(whole)
    if left:
        found[RAW] = tuple(left)
    return found


def clip_tiles(tiles: Tiles, reach: Interval) -> Tiles:
    """Return the parts of the tiles that are inside `reach`."""
    inside = {
        frequency: tuple((max(a, reach[0]), min(b, reach[1])) for a, b in times if a < reach[1] and b > reach[0])
        for frequency, times in tiles.items()
    }
    return {frequency: times for frequency, times in inside.items() if times}


def align_start(reach: Interval, tier: int) -> Interval:
    """Extend the interval to the start of the bucket in which it begins. Its end is already aligned."""
    return reach[0] // tier * tier, reach[1]


def join_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Sort intervals and join those that touch."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _cut(intervals: Sequence[Interval], touched: Sequence[Interval]) -> tuple[list[Interval], list[Interval]]:
    """Return what is outside of `touched`, and what is inside. Both are in order."""
    outside: list[Interval] = []
    inside: list[Interval] = []
    for start, end in intervals:
        at = start
        for low, high in touched:
            if high <= at or low >= end:
                continue
            if at < low:
                outside.append((at, low))
            inside.append((max(at, low), min(high, end)))
            at = min(high, end)
        if at < end:
            outside.append((at, end))
    return outside, inside


# ---- what has expired by retention


@dataclass(frozen=True)
class Expiry:
    """What has expired of one organization's signal, as far as the sweeper has deleted it: a lake that is younger than
    a query has no expiry. `before_ns`: by frequency, rows before this may be gone. `left`: the tiers that have buckets
    where raw rows were to be read and are gone. `unrolled`: by frequency, the times of rows that are gone and that no
    bucket of a coarser tier was made of, (start, end] in ms and in order."""

    before_ns: Mapping[int, int] = field(default_factory=dict)
    left: tuple[int, ...] = ()
    unrolled: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)

    def last_ms(self, frequency_ms: int = RAW) -> int | None:
        """Return the last ms of a row that may be gone; None if no row is."""
        before_ns = self.before_ns.get(frequency_ms)
        return None if before_ns is None else (before_ns - 1) // MS_NS


NOTHING_EXPIRED = Expiry()


def expiry_text(before_ns: int) -> str:
    """Return the time for people, rounded up to a whole second: no row after it has expired."""
    return f"{time_text(-(-(before_ns - 1) // SECOND_NS) * SECOND_NS)} UTC"
