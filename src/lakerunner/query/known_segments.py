"""Picks segments from the index, and remembers the picks for when the index is unreachable; warns about expired rows.

Input: one scan of one organization. Output: the segments to read, and an account of how they were picked. While the
index answers, its answer counts. While it is unreachable, an earlier pick for the same organization and signal that
covers the whole scan is used again and marked `degraded`, with the time at which it was made. Picks are never combined:
two that were made at different times may show a compaction's old segments as well as its new ones. A scan that no pick
covers is Unavailable.

Bounded by the segments of all picks; the least recently used go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol
from uuid import UUID

from lakerunner.model.condition import Condition
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment, SegmentPick, TierPick
from lakerunner.model.tier import NOTHING_EXPIRED, RAW, Expiry, Interval, Tiles, clip_tiles, expiry_text
from lakerunner.model.time import MIN_NS, SECOND_NS, TimeRange, time_text
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan
from lakerunner.query.contract.account import Account

MAX_SEGMENTS = 50_000  # about 50 MB
_PICK = 50  # segments that a pick itself counts as, which bounds the number of picks to search


class Segments(Protocol):
    def pick(
        self, organization: UUID, signal: str, time: TimeRange, *, conditions: tuple[Condition, ...] = ()
    ) -> SegmentPick:
        """Return the organization's live segments of raw rows that overlap the range and may hold rows that meet the
        conditions, in a fixed order."""

    def pick_tiers(
        self, organization: UUID, reach: Interval, tier: int, *, conditions: tuple[Condition, ...] = ()
    ) -> TierPick:
        """Return which tier of metrics, this one at most, is read where in `reach`, and the live segments with rows
        there, all from one snapshot."""

    def pick_points(
        self, organization: UUID, rows: Scan, points: Scan, collector: str
    ) -> tuple[SegmentPick, SegmentPick]:
        """Return what `pick` returns for rows, and for the points that a collector has of them, from one snapshot."""


class SegmentIndex(Protocol):
    @property
    def segments(self) -> Segments: ...


@dataclass(frozen=True)
class Pick:
    """The segments to read for a scan. `account` counts those that were considered and pruned. `tiles`: where each tier
    is read, if there are several. `expiry`: what of it has expired."""

    segments: tuple[Segment, ...]
    account: Account
    tiles: Tiles = field(default_factory=dict)
    expiry: Expiry = NOTHING_EXPIRED


@dataclass(frozen=True)
class PointsPick:
    """The segments of each part of a leaf's points (plan/plan.py). `saved` are the bytes that need not be read."""

    once: Pick
    made: Pick
    rows: Pick
    edges: tuple[Pick, ...]
    saved: int

    @property
    def covered(self) -> int:
        """Return how many segments the points stand for."""
        return len(self.once.segments) - len(self.rows.segments)


@dataclass(frozen=True)
class _PickKey:
    organization: UUID
    signal: str
    time: TimeRange
    conditions: frozenset[Condition]
    tier: int = RAW

    def covers(self, other: _PickKey) -> bool:
        """Return whether this pick has every segment that the other needs: fewer conditions pick more segments."""
        return (
            (self.organization, self.signal, self.tier) == (other.organization, other.signal, other.tier)
            and self.time.start_ns <= other.time.start_ns
            and other.time.end_ns <= self.time.end_ns
            and self.conditions <= other.conditions
        )


@dataclass(frozen=True)
class _StoredPick:
    picked: SegmentPick
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
        self._picks: OrderedDict[_PickKey, _StoredPick] = OrderedDict()  # the least recently used first
        self._size = 0

    def pick(self, organization: UUID, scan: Scan, now_ns: int) -> Pick:
        """Pick the segments of a scan; `now_ns` is the time of the query. Unavailable if the index is unreachable and
        no earlier pick covers the scan."""
        key = _PickKey(organization, scan.signal, scan.time, frozenset(scan.conditions))
        pick = self._index.segments.pick
        return self._pick(key, lambda: pick(organization, scan.signal, scan.time, conditions=scan.conditions), now_ns)

    def pick_points(self, organization: UUID, leaf: Leaf) -> PointsPick | None:
        """Pick what the points of a leaf need; None if its rows must be read: the index is unreachable, rows of its
        time have expired, or the version covers none of them."""
        points = leaf.points
        if points is None:
            return None
        try:
            rows, made = self._index.segments.pick_points(organization, leaf.scan, points.made.scan, points.collector)
        except Unavailable:
            return None
        inside = _overlapping(rows.segments, points.rows.scan.time)
        covered = tuple(one for one in inside if points.version in one.rule_set)
        if not covered or _has_expired(rows, leaf.scan.time) or _has_expired(made, points.made.scan.time):
            return None
        edges = (_counted(_overlapping(rows.segments, edge.scan.time)) for edge in points.edges)
        return PointsPick(
            Pick(inside, _account(len(inside), rows.considered - len(rows.segments) + len(inside))),
            _counted(made.segments),
            _counted(tuple(one for one in inside if one not in covered)),
            tuple(edges),
            sum(one.bytes for one in covered) - sum(one.bytes for one in made.segments),
        )

    def pick_tiers(self, organization: UUID, reach: Interval, tier: int, scan: Scan, now_ns: int) -> Pick:
        """Pick as `pick` does, for metrics in windows of this tier at most (Segments.pick_tiers); the scan's time is
        that of `reach`. Only a pick for the same tier is used again."""
        key = _PickKey(organization, scan.signal, scan.time, frozenset(scan.conditions), tier)
        pick = self._index.segments.pick_tiers
        found = self._pick(key, lambda: pick(organization, reach, tier, conditions=scan.conditions), now_ns)
        return replace(found, tiles=clip_tiles(found.tiles, reach)) if found.account.degraded else found

    def _pick(self, key: _PickKey, pick: Callable[[], SegmentPick | TierPick], now_ns: int) -> Pick:
        try:
            picked = pick()
        except Unavailable:
            known = self._find(key)
            if known is None:
                raise
            return known
        tiles = picked.tiles if isinstance(picked, TierPick) else {}
        if tuple(tiles) == (RAW,):
            key = replace(key, tier=RAW)
        stored = SegmentPick(_without_fingerprints(picked.segments), picked.considered, picked.expiry)
        self._remember(key, _StoredPick(stored, now_ns, tiles))
        return Pick(picked.segments, _account(len(picked.segments), picked.considered), tiles, picked.expiry)

    def _find(self, key: _PickKey) -> Pick | None:
        """Return the newest pick that covers the scan, without segments outside its time."""
        with self._lock:
            covering = [other for other in self._picks if other.covers(key)]
            if not covering:
                return None
            best = max(covering, key=lambda other: self._picks[other].made_ns)
            self._picks.move_to_end(best)
            pick = self._picks[best]
        segments = tuple(one for one in pick.picked.segments if one.time.overlaps(key.time))
        considered = pick.picked.considered if best.time == key.time else len(segments)
        as_of = time_text(pick.made_ns // SECOND_NS * SECOND_NS)
        degraded = f"the index is unreachable: segments as of {as_of} UTC"
        account = replace(_account(len(segments), considered), degraded=degraded)
        return Pick(segments, account, pick.tiles, pick.picked.expiry)

    def _remember(self, key: _PickKey, pick: _StoredPick) -> None:
        """Store the pick in place of all that it covers."""
        if pick.size > self._max:
            return
        with self._lock:
            for old in [other for other in self._picks if key.covers(other)]:
                self._size -= self._picks.pop(old).size
            self._picks[key] = pick
            self._size += pick.size
            while self._size > self._max:
                self._size -= self._picks.popitem(last=False)[1].size


def _has_expired(picked: SegmentPick, time: TimeRange) -> bool:
    return picked.expiry.before_ns.get(RAW, MIN_NS) > time.start_ns


def _overlapping(segments: Sequence[Segment], time: TimeRange) -> tuple[Segment, ...]:
    return tuple(one for one in segments if one.time.overlaps(time))


def _counted(segments: tuple[Segment, ...]) -> Pick:
    return Pick(segments, _account(len(segments), len(segments)))


def _account(to_read: int, considered: int) -> Account:
    pruned = considered - to_read
    return Account(considered=considered, pruned={"fingerprints": pruned} if pruned else {})


def _without_fingerprints(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Drop the fingerprints, which are no longer needed and are the largest part of a segment's row."""
    return tuple(replace(one, fingerprints=()) if one.fingerprints else one for one in segments)


def expiry_warnings(picked: Iterable[tuple[Scan, Pick]]) -> frozenset[str]:
    """Return a warning for each signal whose rows were requested but have expired by retention."""
    return frozenset().union(*(expiry_warning(scan.signal, scan.time, pick.expiry) for scan, pick in picked))


def expiry_warning(signal: str, time: TimeRange, expiry: Expiry) -> frozenset[str]:
    """Return one warning or none. A scan without a start requests whatever there is: it gets a warning only if its
    whole time is past retention."""
    before_ns = expiry.before_ns.get(RAW, MIN_NS)
    if not MIN_NS < time.start_ns < before_ns and time.end_ns > before_ns:
        return frozenset()
    left = "; rollups of them are left, which PromQL reads" if expiry.left else ""
    return frozenset({f"{signal}: rows up to {expiry_text(before_ns)} have expired by retention{left}"})
