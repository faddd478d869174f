"""What was read for a PromQL query, fragment by fragment: which tier, where, why no wider one, and what has expired.

Shown by `lakerunner promql --explain` (read_lines.py) and in Prometheus' `stats`. A fragment is listed once, however
many groups of steps it was computed in; its times are those of all of them.

There is a warning about expiry only where raw points were to be read at a time for which they have expired, or rollups
at a time for which points expired before they were rolled up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakerunner.model.tier import (
    RAW,
    TIER_NAMES,
    TIER_WIDTHS,
    Expiry,
    Interval,
    Tiles,
    clip_tiles,
    expiry_text,
    join_intervals,
    window_end,
)
from lakerunner.model.time import HOUR_NS, MS_NS, SECOND_NS, time_text
from lakerunner.series.evaluation.tiers import TierChoice
from lakerunner.series.expression import Selector
from lakerunner.series.notes import Note

_NOT_YET = "late samples there are not rolled up yet"
_HOUR_MS = HOUR_NS // MS_NS
_NAMED_TIMES = 3  # intervals that a warning names


@dataclass(frozen=True)
class ExpiredPoints:
    """Points from `start` up to `end` (ms, left-open and right-closed) that could be read but have expired. `left`:
    tiers with windows there, and up to when each has expired itself; `why`: why none of them serves; `how`: how to
    change the query so that one would, with {tier} in place of its name."""

    start: int
    end: int
    left: tuple[tuple[int, int], ...] = ()
    why: str = ""
    how: str = ""

    @property
    def until(self) -> str:
        return expiry_text(self.end * MS_NS + 1)

    def __add__(self, other: ExpiredPoints) -> ExpiredPoints:
        """Join two of the same fragment, at different times."""
        one = self if self.left and not other.left else other
        both = tuple(sorted({*self.left, *other.left}))
        return replace(one, start=min(self.start, other.start), end=max(self.end, other.end), left=both)

    def text(self, fragment: str) -> str:
        if not self.left:
            return f"{fragment}: points up to {self.until} have expired by retention, and no rollups of them are left"
        # The tier that reaches back furthest; among several the finest, which needs the least alignment.
        tier, _ = min(self.left, key=lambda one: (max(one[1], self.start), one[0]))
        how = self.how.format(tier=TIER_WIDTHS[tier])
        return (
            f"{fragment}: raw points up to {self.until} have expired by retention and are not in this answer; "
            f"rollups of them are left, but cannot answer it: {self.why}" + (f"; {how}" if how else "")
        )


@dataclass(frozen=True)
class UnrolledPoints:
    """Times, (start, end] in order, whose points have expired (up to `last`, in ms) without being in any window that
    was read in their place."""

    last: int
    times: tuple[Interval, ...]

    def __add__(self, other: UnrolledPoints) -> UnrolledPoints:
        """Join two of the same fragment, at different times."""
        return UnrolledPoints(max(self.last, other.last), tuple(join_intervals((*self.times, *other.times))))

    def text(self) -> str:
        first = [f"{_floor_text(start + 1)} to {_ceiling_text(end)} UTC" for start, end in _join_near(self.times)]
        more = [f"{len(first) - _NAMED_TIMES} more such times"] if len(first) > _NAMED_TIMES else []
        return (
            f"raw points up to {expiry_text(self.last * MS_NS + 1)} have expired by retention, those of "
            f"{', of '.join([*first[:_NAMED_TIMES], *more])} before they were rolled up: they are not in this answer"
        )


@dataclass(frozen=True)
class Read:
    """`tier`: the widest that serves the fragment, RAW if none does. `reason`: why no wider one does, "" for the
    widest. `tiles`: (start, end] in ms. `gone`: points of it that have expired; `unrolled`: those that expired before
    they were rolled up."""

    fragment: str
    tier: int
    reason: str
    tiles: Tiles = field(default_factory=dict)
    gone: ExpiredPoints | None = None
    unrolled: UnrolledPoints | None = None

    def to_json(self) -> dict[str, Any]:
        read = [
            {"tier": TIER_NAMES[frequency], "start": _text(start), "end": _text(end)}
            for frequency, times in self.tiles.items()
            for start, end in times
        ]
        found = {"fragment": self.fragment, "tier": TIER_NAMES[self.tier], "reason": self.reason, "read": read}
        found |= {"expired": self.gone.until} if self.gone else {}
        never = self.unrolled.times if self.unrolled else ()
        return found | ({"unrolled": [{"start": _text(a), "end": _text(b)} for a, b in never]} if never else {})


class Reads:
    def __init__(self) -> None:
        self._found: dict[str, Read] = {}

    def add(self, read: Read) -> None:
        known = self._found.get(read.fragment)
        self._found[read.fragment] = read if known is None else _merged(known, read)

    def all(self) -> tuple[Read, ...]:
        return tuple(self._found.values())


def _merged(known: Read, new: Read) -> Read:
    frequencies = sorted({*known.tiles, *new.tiles}, reverse=True)
    tiles = {one: tuple(join_intervals((*known.tiles.get(one, ()), *new.tiles.get(one, ())))) for one in frequencies}
    last = new if new.tier == RAW or known.tier != RAW else known  # report the fallback to raw points
    gone = known.gone + new.gone if known.gone and new.gone else known.gone or new.gone
    never = known.unrolled + new.unrolled if known.unrolled and new.unrolled else known.unrolled or new.unrolled
    return replace(last, tiles=tiles, gone=gone, unrolled=never)


def to_json(reads: Sequence[Read]) -> list[dict[str, Any]]:
    return [read.to_json() for read in reads]


def _text(time_ms: int) -> str:
    return time_text(time_ms * MS_NS)


def unrolled_points(tiles: Tiles, expiry: Expiry) -> UnrolledPoints | None:
    """Return None if the windows that are read were made of all points there were."""
    times = [
        inside
        for frequency, missing in expiry.unrolled.items()
        for interval in missing
        for tier, read in clip_tiles(tiles, interval).items()
        if tier > frequency
        for inside in read
    ]
    last = expiry.last_ms(RAW)
    return UnrolledPoints(last, tuple(join_intervals(times))) if times and last is not None else None


def expired_points(tiles: Tiles, expiry: Expiry, guarded: TierChoice) -> ExpiredPoints | None:
    """Return None if nothing that is read has expired."""
    last, start = expiry.last_ms(RAW), min((start for start, _ in tiles.get(RAW, ())), default=0)
    if last is None or RAW not in tiles or start >= last:
        return None
    expired = {tier: expiry.last_ms(tier) for tier in TIER_NAMES}
    serving = [window_end(ms, tier) for tier, ms in expired.items() if ms is not None and RAW < tier <= guarded.tier]
    left = tuple((tier, start if (ms := expired[tier]) is None else ms) for tier in expiry.left)
    if any(tier <= guarded.tier for tier in expiry.left):
        return ExpiredPoints(start, min([last, *serving]), left, _NOT_YET, "ask again in a few minutes")
    return ExpiredPoints(start, min([last, *serving]), left, guarded.reason, _how(guarded))


def expiry_notes(reads: Sequence[Read]) -> tuple[Note, ...]:
    """Return warnings for what has expired."""
    texts = [read.gone.text(read.fragment) for read in reads if read.gone is not None]
    texts += [f"{read.fragment}: {read.unrolled.text()}" for read in reads if read.unrolled is not None]
    return tuple(Note("warning", text) for text in texts)


def _how(guarded: TierChoice) -> str:
    """Return how to align a fragment to the windows; "" if no alignment helps."""
    candidate = guarded.candidate
    if candidate is None or candidate.steps is None:
        return ""
    times = ["the time"] if len(candidate.steps) == 1 else ["start", "step"]
    times = ["the time of @"] if candidate.selector.at is not None else times
    times += ["offset"] if candidate.selector.offset else []
    aligned = f"align {' and '.join(times)} to {{tier}}"
    return aligned if isinstance(candidate.node, Selector) else f"{aligned} and take a range that is a multiple of it"


def _join_near(times: Sequence[Interval]) -> list[Interval]:
    """Join intervals with less than an hour between them, because expiry is known by hours."""
    return [(start, end - _HOUR_MS) for start, end in join_intervals((start, end + _HOUR_MS) for start, end in times)]


def _floor_text(time_ms: int) -> str:
    return time_text(time_ms * MS_NS // SECOND_NS * SECOND_NS)


def _ceiling_text(time_ms: int) -> str:
    return time_text(-(-time_ms * MS_NS // SECOND_NS) * SECOND_NS)
