"""What a fragment of a PromQL question does not find because it has expired, and how to ask so that rollups answer.

Comes in: what was to be read (tiles), up to when it has expired, what the guard said. Goes out: warnings. What always
holds: there is one only where raw points were to be read at a time of which they have expired, or rollups at a time of
which points expired before they were rolled up; where all of them were, nothing is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakerunner.model.expiry import Expiry, expiry_text
from lakerunner.model.tier import RAW, TIER_NAMES, TIER_WIDTHS, window_end
from lakerunner.model.tiling import Interval, Tiles, clipped, joined
from lakerunner.model.time import HOUR_NS, MS_NS, SECOND_NS, time_text
from lakerunner.series.evaluation.tiers import Guarded
from lakerunner.series.expression import Selector
from lakerunner.series.notes import Note

_NOT_YET = "late samples there are not rolled up yet"
_HOUR_MS = HOUR_NS // MS_NS
_STRETCHES = 3  # that a warning names


@dataclass(frozen=True)
class Gone:
    """From `start` on, all that could be read up to `end` (ms, left-open and right-closed). `left`: tiers with windows
    there, and up to when each has expired itself; `why` none of them serves; `how` one of them would, with {tier} in
    the place of its name."""

    start: int
    end: int
    left: tuple[tuple[int, int], ...] = ()
    why: str = ""
    how: str = ""

    @property
    def until(self) -> str:
        return expiry_text(self.end * MS_NS + 1)

    def __add__(self, other: Gone) -> Gone:
        """Of the same fragment, at other times."""
        told = self if self.left and not other.left else other
        both = tuple(sorted({*self.left, *other.left}))
        return replace(told, start=min(self.start, other.start), end=max(self.end, other.end), left=both)

    def text(self, fragment: str) -> str:
        if not self.left:
            return f"{fragment}: points up to {self.until} have expired by retention, and no rollups of them are left"
        # The one that reaches back furthest, of several the finest: it asks for the least.
        tier, _ = min(self.left, key=lambda one: (max(one[1], self.start), one[0]))
        how = self.how.format(tier=TIER_WIDTHS[tier])
        return (
            f"{fragment}: raw points up to {self.until} have expired by retention and are not in this answer; "
            f"rollups of them are left, but cannot answer it: {self.why}" + (f"; {how}" if how else "")
        )


@dataclass(frozen=True)
class Unrolled:
    """Of points up to `last` (ms), which have expired, those of these times, (start, end] in order, were in no window
    that was read in their place."""

    last: int
    times: tuple[Interval, ...]

    def __add__(self, other: Unrolled) -> Unrolled:
        """Of the same fragment, at other times."""
        return Unrolled(max(self.last, other.last), tuple(joined((*self.times, *other.times))))

    def text(self) -> str:
        first = [f"{_floor_text(start + 1)} to {_ceiling_text(end)} UTC" for start, end in _together(self.times)]
        more = [f"{len(first) - _STRETCHES} more such times"] if len(first) > _STRETCHES else []
        return (
            f"raw points up to {expiry_text(self.last * MS_NS + 1)} have expired by retention, those of "
            f"{', of '.join([*first[:_STRETCHES], *more])} before they were rolled up: they are not in this answer"
        )


def unrolled(tiles: Tiles, expiry: Expiry) -> Unrolled | None:
    """None: the windows that are to be read were made of all there was."""
    times = [
        inside
        for frequency, missing in expiry.unrolled.items()
        for interval in missing
        for tier, read in clipped(tiles, interval).items()
        if tier > frequency
        for inside in read
    ]
    last = expiry.last_ms(RAW)
    return Unrolled(last, tuple(joined(times))) if times and last is not None else None


def gone(tiles: Tiles, expiry: Expiry, guarded: Guarded) -> Gone | None:
    """None: what is to be read is there, as far as it ever was."""
    last, start = expiry.last_ms(RAW), min((start for start, _ in tiles.get(RAW, ())), default=0)
    if last is None or RAW not in tiles or start >= last:
        return None
    expired = {tier: expiry.last_ms(tier) for tier in TIER_NAMES}
    serving = [window_end(ms, tier) for tier, ms in expired.items() if ms is not None and RAW < tier <= guarded.tier]
    left = tuple((tier, _or(expired[tier], start)) for tier in expiry.left)
    if any(tier <= guarded.tier for tier in expiry.left):
        return Gone(start, min([last, *serving]), left, _NOT_YET, "ask again in a few minutes")
    return Gone(start, min([last, *serving]), left, guarded.reason, _how(guarded))


def expiry_notes(found: Sequence[tuple[str, Gone | None, Unrolled | None]]) -> tuple[Note, ...]:
    """Of fragments, by their text."""
    texts = [one.text(fragment) for fragment, one, _ in found if one is not None]
    texts += [f"{fragment}: {one.text()}" for fragment, _, one in found if one is not None]
    return tuple(Note("warning", text) for text in texts)


def _how(guarded: Guarded) -> str:
    """For a fragment that does not fit the windows; "": however it is asked, they do not serve it."""
    heart = guarded.heart
    if heart is None or heart.steps is None:
        return ""
    times = ["the time"] if len(heart.steps) == 1 else ["start", "step"]
    times = ["the time of @"] if heart.selector.at is not None else times
    times += ["offset"] if heart.selector.offset else []
    aligned = f"align {' and '.join(times)} to {{tier}}"
    return aligned if isinstance(heart.node, Selector) else f"{aligned} and take a range that is a multiple of it"


def _together(times: Sequence[Interval]) -> list[Interval]:
    """Those with less than an hour between them as one: they are known by hours."""
    return [(start, end - _HOUR_MS) for start, end in joined((start, end + _HOUR_MS) for start, end in times)]


def _floor_text(time_ms: int) -> str:
    return time_text(time_ms * MS_NS // SECOND_NS * SECOND_NS)


def _ceiling_text(time_ms: int) -> str:
    return time_text(-(-time_ms * MS_NS // SECOND_NS) * SECOND_NS)


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
