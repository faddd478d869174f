"""The index's answers to "which segments", remembered for while it is away.

Comes in: one scan of one organization. Goes out: the segments to read, and an account of how they were picked. What
always holds: while the index answers, its answer is what counts. While it cannot be reached, a pick that was made for
the same organization and signal, and that covers all the scan asks for, is used again and says so: `degraded`, with the
time it was made. Picks are never put together from parts: two made at different times may show a compaction's old
segments and its new ones. What no pick covers is Unavailable.

Bounded by the segments of all picks; those used longest ago go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol
from uuid import UUID

from lakerunner.model.condition import Condition
from lakerunner.model.errors import Unavailable
from lakerunner.model.expiry import NOTHING_EXPIRED, Expiry
from lakerunner.model.segment import Picked, Segment, TierPicked
from lakerunner.model.tier import RAW
from lakerunner.model.tiling import Interval, Tiles, clipped
from lakerunner.model.time import SECOND_NS, TimeRange, time_text
from lakerunner.plan.scan import Scan
from lakerunner.query.account import Account

MAX_SEGMENTS = 50_000  # about 50 MB
_PICK = 50  # segments that a pick itself counts as, so that there are never many picks to look through


class Segments(Protocol):
    def pick(
        self, organization: UUID, signal: str, time: TimeRange, *, conditions: tuple[Condition, ...] = ()
    ) -> Picked:
        """The organization's live segments of raw rows that overlap the range and may hold rows that meet the
        conditions, in a fixed order."""

    def pick_tiers(
        self, organization: UUID, reach: Interval, tier: int, *, conditions: tuple[Condition, ...] = ()
    ) -> TierPicked:
        """Which tier of metrics, this one at most, is read where in `reach`, and the live segments that have rows
        there, all in one snapshot."""


class SegmentIndex(Protocol):
    @property
    def segments(self) -> Segments: ...


@dataclass(frozen=True)
class Pick:
    """The segments to read for a scan; `account` has those that were considered, and by what others were left out.
    `tiles`: where each tier is read, if these are of several. `expiry`: what of it has expired."""

    segments: tuple[Segment, ...]
    account: Account
    tiles: Tiles = field(default_factory=dict)
    expiry: Expiry = NOTHING_EXPIRED


@dataclass(frozen=True)
class _Asked:
    organization: UUID
    signal: str
    time: TimeRange
    conditions: frozenset[Condition]
    tier: int = RAW

    def covers(self, other: _Asked) -> bool:
        """Whether no segment that the other asks for can be missing: the fewer conditions, the more segments."""
        return (
            (self.organization, self.signal, self.tier) == (other.organization, other.signal, other.tier)
            and self.time.start_ns <= other.time.start_ns
            and other.time.end_ns <= self.time.end_ns
            and self.conditions <= other.conditions
        )


@dataclass(frozen=True)
class _Remembered:
    picked: Picked
    made_ns: int
    tiles: Tiles = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.picked.segments) + _PICK


class KnownSegments:
    """Safe to use from many threads."""

    def __init__(self, index: SegmentIndex, max_segments: int = MAX_SEGMENTS) -> None:
        self._index = index
        self._max = max_segments
        self._lock = Lock()
        self._picks: OrderedDict[_Asked, _Remembered] = OrderedDict()  # the least recently used first
        self._size = 0

    def pick(self, organization: UUID, scan: Scan, now_ns: int) -> Pick:
        """`now_ns` is when it is asked. Unavailable if the index is away and nothing that is known covers the scan."""
        asked = _Asked(organization, scan.signal, scan.time, frozenset(scan.conditions))
        try:
            picked = self._index.segments.pick(organization, scan.signal, scan.time, conditions=scan.conditions)
        except Unavailable:
            known = self._known(asked)
            if known is None:
                raise
            return known
        self._remember(asked, _Remembered(replace(picked, segments=_bare(picked.segments)), now_ns))
        return Pick(picked.segments, _account(len(picked.segments), picked.considered), expiry=picked.expiry)

    def pick_tiers(self, organization: UUID, reach: Interval, tier: int, scan: Scan, now_ns: int) -> Pick:
        """Likewise, for a scan of metrics in windows of this tier at most (Segments.pick_tiers); the scan's time is
        that of `reach`. Only a pick that was made for the same tier is used again."""
        asked = _Asked(organization, scan.signal, scan.time, frozenset(scan.conditions), tier)
        try:
            picked = self._index.segments.pick_tiers(organization, reach, tier, conditions=scan.conditions)
        except Unavailable:
            known = self._known(asked)
            if known is None:
                raise
            return replace(known, tiles=clipped(known.tiles, reach))
        all_raw = tuple(picked.tiles) == (RAW,)
        made = _Remembered(Picked(_bare(picked.segments), picked.considered, picked.expiry), now_ns, picked.tiles)
        self._remember(replace(asked, tier=RAW) if all_raw else asked, made)
        account = _account(len(picked.segments), picked.considered)
        return Pick(picked.segments, account, picked.tiles, picked.expiry)

    def _known(self, asked: _Asked) -> Pick | None:
        """The newest pick that covers what is asked, but for the segments that lie outside its time."""
        with self._lock:
            covering = [key for key in self._picks if key.covers(asked)]
            if not covering:
                return None
            best = max(covering, key=lambda key: self._picks[key].made_ns)
            self._picks.move_to_end(best)
            pick = self._picks[best]
        segments = tuple(one for one in pick.picked.segments if one.time.overlaps(asked.time))
        considered = pick.picked.considered if best.time == asked.time else len(segments)
        as_of = time_text(pick.made_ns // SECOND_NS * SECOND_NS)
        degraded = f"the index is unreachable: segments as of {as_of} UTC"
        account = replace(_account(len(segments), considered), degraded=degraded)
        return Pick(segments, account, pick.tiles, pick.picked.expiry)

    def _remember(self, asked: _Asked, pick: _Remembered) -> None:
        """In the place of all that it covers."""
        if pick.size > self._max:
            return
        with self._lock:
            for old in [key for key in self._picks if asked.covers(key)]:
                self._size -= self._picks.pop(old).size
            self._picks[asked] = pick
            self._size += pick.size
            while self._size > self._max:
                self._size -= self._picks.popitem(last=False)[1].size


def _account(to_read: int, considered: int) -> Account:
    left_out = considered - to_read
    return Account(considered=considered, pruned={"fingerprints": left_out} if left_out else {})


def _bare(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Fingerprints have done their work, and are the largest part of a segment's row."""
    return tuple(replace(one, fingerprints=()) if one.fingerprints else one for one in segments)
