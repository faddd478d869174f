"""Which tier is read where: a time range as tiles, each of one tier or of raw points.

Comes in: a range, the widest windows that serve, the times of segments whose rows the next tier does not have yet, and
up to when windows of a tier have expired.
Goes out: for each frequency the times for which it is read. What always holds: the tiles cover the range, none overlaps
another; where a tier is read, no segment of a finer one that is not rolled up has a row in the same window, so that its
windows are whole, and none of them has expired.

Times are ms, left-open and right-closed, (start, end], as windows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from lakerunner.model.tier import RAW, TIERS, window_end

Interval = tuple[int, int]
Tiles = Mapping[int, tuple[Interval, ...]]  # by frequency_ms, widest first; none is empty
NO_TILES: Tiles = MappingProxyType({})


def tiled(
    reach: Interval,
    widest: int,
    unrolled: Mapping[int, Iterable[Interval]],
    expired: Mapping[int, int] = MappingProxyType({}),
) -> Tiles:
    """`reach` begins and ends with windows of the widest. `unrolled`: by frequency the first and last row's time of
    each segment that is not rolled up. `expired`: by frequency the last time of a row that may be gone."""
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
        touched = joined(touched)
        whole, left = _cut(left, touched)
        if whole:
            found[tier] = tuple(whole)
    if left:
        found[RAW] = tuple(left)
    return found


def clipped(tiles: Tiles, reach: Interval) -> Tiles:
    """What of them is inside."""
    inside = {
        frequency: tuple((max(a, reach[0]), min(b, reach[1])) for a, b in times if a < reach[1] and b > reach[0])
        for frequency, times in tiles.items()
    }
    return {frequency: times for frequency, times in inside.items() if times}


def aligned(reach: Interval, tier: int) -> Interval:
    """With the whole of the window that it begins in. It ends with one."""
    return reach[0] // tier * tier, reach[1]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, those that touch as one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _cut(intervals: Sequence[Interval], touched: Sequence[Interval]) -> tuple[list[Interval], list[Interval]]:
    """What is outside of `touched`, and what is inside. Both are in order."""
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
