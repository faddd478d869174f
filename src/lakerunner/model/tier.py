"""Tiers of rollups: each has windows of so many ms, and is made of the one before it, the first of raw points.

Windows are left-open and right-closed, `(end - tier, end]`, aligned to the epoch, as the ranges of PromQL are. A time
is that of a sample: whole ms, the rest cut off. A window is named by its end, which is the `timestamp` of its row.
"""

from __future__ import annotations

RAW = 0
TIERS = (10_000, 60_000, 300_000, 3_600_000, 86_400_000)
TIER_NAMES = {RAW: "raw", 10_000: "10s", 60_000: "1m", 300_000: "5m", 3_600_000: "1h", 86_400_000: "1d"}

TIER_WIDTHS = {10_000: "10 s", 60_000: "1 min", 300_000: "5 min", 3_600_000: "1 h", 86_400_000: "1 d"}


def tier_text(frequency_ms: int) -> str:
    """For messages: "raw samples" or "5 min rollups"."""
    return f"{TIER_WIDTHS[frequency_ms]} rollups" if frequency_ms else "raw samples"


def window_end(time_ms: int, tier: int) -> int:
    """The end of the window that holds this time."""
    return -(-time_ms // tier) * tier


def next_tier(frequency_ms: int) -> int | None:
    """The tier that is made of this one; None: of the last, no other is."""
    return next((tier for tier in TIERS if tier > frequency_ms), None)


def tiers_above(frequency_ms: int) -> tuple[int, ...]:
    """The tiers that are made of this one, and of those."""
    return tuple(tier for tier in TIERS if tier > frequency_ms)


def source_of(tier: int) -> int:
    """What this tier is made of: a finer tier, or RAW."""
    return max((finer for finer in TIERS if finer < tier), default=RAW)
