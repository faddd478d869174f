"""Segments in the index: pick those that a query reads, with rollups in place of raw points.

Every query is for one organization, and one statement or snapshot answers it, so an answer has a compaction's old
segments or its new ones, never both and never neither. The same holds for tiers: a rollup that is committed between two
statements would otherwise show a segment as rolled up without its buckets, or the other way round.

Expiry is read at the moment at which segments are picked, or later. Rows that expire in between are then reported and
read nevertheless, never the other way round.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

from lakerunner.index.database import Database, Rows, Transaction
from lakerunner.model.condition import Condition
from lakerunner.model.segment import Column, Segment, SegmentPick, TierPick
from lakerunner.model.tier import NOTHING_EXPIRED, RAW, TIERS, Expiry, Interval, Tiles, join_intervals, tile, window_end
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS, TimeRange
from lakerunner.plan.scan import Scan, fingerprint_groups

_SETS_KEPT = 1000
# Parameters of queries/segments.sql: at most four groups of fingerprints prune a query; more would not prune better.
_WANTED = ("wanted_1", "wanted_2", "wanted_3", "wanted_4")


@dataclass(frozen=True)
class CollectorTier:
    """The segments of one collector, signal and frequency, which are merged and rolled up together."""

    organization: UUID
    collector: str
    signal: str
    frequency_ms: int


class Segments:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._columns = _Sets("segments.column_sets", _read_columns)
        self._rules = _Sets("segments.rule_sets", tuple)

    def pick(
        self,
        organization: UUID,
        signal: str,
        time: TimeRange,
        *,
        conditions: tuple[Condition, ...] = (),
        frequency_ms: int = 0,
    ) -> SegmentPick:
        """Return the live segments that overlap the range and may hold rows that meet the conditions; without their
        fingerprints, which are many and no longer needed."""
        with self._database.transaction() as transaction:
            return self._pick(transaction, organization, signal, time, conditions, frequency_ms)

    def pick_committed(
        self, organization: UUID, time: TimeRange, after: int
    ) -> tuple[tuple[Segment, ...], frozenset[UUID]]:
        """Return the live log segments that overlap the range, and the ids of those that ingest has committed above
        the number `after`, both of one moment."""
        with self._database.transaction() as transaction:
            transaction.run("segments.one_snapshot")
            picked = self._pick(transaction, organization, "logs", time)
            ids = transaction.rows("segments.committed_ids", {"organization": organization, "after": after})
        return picked.segments, frozenset(id_ for (id_,) in ids)

    def pick_points(
        self, organization: UUID, rows: Scan, points: Scan, collector: str
    ) -> tuple[SegmentPick, SegmentPick]:
        """Pick the segments of rows, and those of the points that a collector has of them, both of one moment: a commit
        in between could show rows as covered without their points, or the other way round."""
        with self._database.transaction() as transaction:
            transaction.run("segments.one_snapshot")
            of_rows, of_points = (
                self._pick(transaction, organization, one.signal, one.time, one.conditions) for one in (rows, points)
            )
        own = tuple(one for one in of_points.segments if one.collector == collector)
        return of_rows, replace(of_points, segments=own, considered=len(own))

    def _pick(
        self,
        transaction: Transaction,
        organization: UUID,
        signal: str,
        time: TimeRange,
        conditions: tuple[Condition, ...] = (),
        frequency_ms: int = 0,
    ) -> SegmentPick:
        values = {
            "organization": organization,
            "signal": signal,
            "frequency_ms": frequency_ms,
            "start_ns": time.start_ns,
            "end_ns": time.end_ns,
        }
        groups = fingerprint_groups(signal, conditions)
        values |= dict.fromkeys(_WANTED) | {name: list(group) for name, group in zip(_WANTED, groups, strict=False)}
        rows = transaction.rows("segments.pick_pruned" if groups else "segments.pick", values)
        held = [row[2:] for row in rows if row[2] is not None]
        segments = self._read(transaction, held)
        before_ns = {int(frequency): ns for frequency, ns in (rows[0][0] or {}).items()}
        expiry = find_expiry(transaction, values, before_ns, [(time.start_ns, time.end_ns)])
        return SegmentPick(tuple(segments), rows[0][1] if groups else len(held), expiry)

    def pick_tiers(
        self, organization: UUID, reach: Interval, tier: int, *, conditions: tuple[Condition, ...] = ()
    ) -> TierPick:
        """Pick segments of metrics for buckets of this tier or finer: which tier is read where in `reach`, (start, end]
        in ms, which begins and ends on bucket boundaries, and the segments with rows there."""
        groups = fingerprint_groups("metrics", conditions)
        scope = {"organization": organization, "signal": "metrics", **dict.fromkeys(_WANTED)}
        scope |= {name: list(group) for name, group in zip(_WANTED, groups, strict=False)}
        with self._database.transaction() as transaction:
            tiles, rows, considered, expiry = pick_tier_rows(transaction, scope, reach, tier)
            segments = self._read(transaction, list({row[0]: row for row in rows}.values()))
        return TierPick(tiles, tuple(segments), considered, expiry)

    def get(self, organization: UUID, ids: Iterable[UUID]) -> list[Segment]:
        """Return the organization's segments of these ids, ordered by start and id. Replaced ones too: a query that
        picked them before a compaction may finish while their files exist."""
        return self.query("segments.get", {"organization": organization, "ids": list(ids)})

    def totals(self, organization: UUID) -> tuple[int, int, int]:
        """Return (segments, rows, bytes) of all live segments."""
        ((segments, rows, size),) = self._database.rows("segments.totals", {"organization": organization})
        return segments, rows, size

    def query(self, query: str, values: Mapping[str, Any]) -> list[Segment]:
        """Return the segments that a named query selects; it has the same columns as `segments.get`."""
        with self._database.transaction() as transaction:
            return self._read(transaction, transaction.rows(query, values))

    def _read(self, transaction: Transaction, rows: Rows) -> list[Segment]:
        """Return the segments of these rows, which end with the ids of their sets of rules and columns."""
        rules = self._rules.load(transaction, {row[-2] for row in rows} - {None})
        columns = self._columns.load(transaction, {row[-1] for row in rows})
        return [_read_segment(row, rules, columns) for row in rows]


T = TypeVar("T")


class _Sets(Generic[T]):
    """A cache of sets that never change and are shared by many segments, by their ids; least recently used out. `query`
    reads (id, content) and `read` makes a value of the content. Safe to use from many threads."""

    def __init__(self, query: str, read: Callable[[Any], T]) -> None:
        self._query = query
        self._read = read
        self._kept: OrderedDict[int, T] = OrderedDict()
        self._lock = Lock()

    def load(self, transaction: Transaction, ids: set[int]) -> dict[int, T]:
        with self._lock:
            known = {id_: self._kept[id_] for id_ in ids if id_ in self._kept}
        new = list(ids - known.keys())
        rows = transaction.rows(self._query, {"ids": new}) if new else []
        read = {id_: self._read(content) for id_, content in rows}
        with self._lock:
            for id_, one in (known | read).items():
                self._kept[id_] = one
                self._kept.move_to_end(id_)
            while len(self._kept) > _SETS_KEPT:
                self._kept.popitem(last=False)
        return known | read


def _read_columns(content: Iterable[tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in content)


def _read_segment(
    row: tuple[Any, ...], rules: Mapping[int, tuple[int, ...]], columns: Mapping[int, tuple[Column, ...]]
) -> Segment:
    """Return the segment of a row: its fields in their order, with two columns for its time."""
    *whose, start_ns, end_ns, rows, size, sort_version = row[:9]
    frequency_ms, level, statistics, fingerprints, *rest, rule_set, column_set = row[9:]
    fields: list[Any] = [*whose, TimeRange(start_ns, end_ns), rows, size, sort_version, columns[column_set]]
    fields += [frequency_ms, level, statistics, tuple(fingerprints), *rest, rules.get(rule_set, ())]
    return Segment(*fields)


def pick_tier_rows(
    transaction: Transaction, scope: Mapping[str, Any], reach: Interval, tier: int
) -> tuple[Tiles, Rows, int, Expiry]:
    """Return tiles, rows of the segments, how many there are before fingerprints prune, and what has expired where raw
    points are read, or expired before it was rolled up. `scope` has organization, signal and the fingerprints. Must be
    the transaction's first statements, since it sets the isolation level."""
    transaction.run("segments.one_snapshot")
    finer = [frequency for frequency in (0, *TIERS) if frequency < tier]
    times = {"frequencies": finer, "start_ns": _first_ns(reach[0]), "end_ns": _first_ns(reach[1])}
    found = transaction.rows("segments.unrolled", {**scope, **times})
    before_ns = load_expired_before(transaction, scope)
    expired = {one: (ns - 1) // MS_NS for one, ns in before_ns.items()}
    unrolled: dict[int, list[Interval]] = {}
    never: dict[int, list[Interval]] = {}
    for frequency, start_ns, end_ns, live in found:
        first, last = start_ns // MS_NS, (end_ns - 1) // MS_NS
        if live or _has_finer(frequency, window_end(first, tier) - tier, expired):
            unrolled.setdefault(frequency, []).append((first, last))
        else:
            never.setdefault(frequency, []).append((first - 1, last))
    tiles = tile(reach, tier, unrolled, expired)
    where = [
        (frequency, _first_ns(start), _first_ns(end))
        for frequency, intervals in tiles.items()
        for start, end in intervals
    ]
    wanted = {
        "frequencies": [frequency for frequency, _, _ in where],
        "starts": [start for _, start, _ in where],
        "ends": [end for _, _, end in where],
    }
    rows = transaction.rows("segments.pick_tiles", {**scope, **wanted})
    ((considered,),) = transaction.rows("segments.count_tiles", {**scope, **wanted})
    raw = [(start, end) for frequency, start, end in where if frequency == RAW]
    expiry = find_expiry(transaction, scope, before_ns, raw)
    if never:
        expiry = replace(
            expiry, before_ns=before_ns, unrolled={one: tuple(join_intervals(own)) for one, own in never.items()}
        )
    return tiles, rows, considered, expiry


def _has_finer(frequency: int, start_ms: int, expired: Mapping[int, int]) -> bool:
    """Return whether the rows that made this frequency are still there from this time on: they can be read instead."""
    return any(expired.get(finer, start_ms) <= start_ms for finer in (RAW, *TIERS) if finer < frequency)


def _first_ns(time_ms: int) -> int:
    """Return the first ns after this ms."""
    return min(max((time_ms + 1) * MS_NS, MIN_NS), MAX_NS)


def load_expired_before(transaction: Transaction, scope: Mapping[str, Any]) -> dict[int, int]:
    """Return by frequency up to when rows have expired. `scope` has organization and signal."""
    return dict(transaction.rows("segments.expired", scope))


def find_expiry(
    transaction: Transaction, scope: Mapping[str, Any], before_ns: Mapping[int, int], raw: Iterable[tuple[int, int]]
) -> Expiry:
    """Return what has expired of `raw`, the times, [start, end) in ns, at which raw rows are read; `scope` has the
    fingerprints too."""
    if RAW not in before_ns:
        return NOTHING_EXPIRED
    gone = [(start, min(end, before_ns[RAW])) for start, end in raw if start < before_ns[RAW]]
    if not gone:
        return NOTHING_EXPIRED
    times = {"starts": [start for start, _ in gone], "ends": [end for _, end in gone]}
    return Expiry(before_ns, tuple(tier for (tier,) in transaction.rows("segments.left", {**scope, **times})))
