"""Segments as the index knows them. Every question is one organization's; one statement answers it, so an
answer shows a compaction's old segments or its new ones, never both and never neither.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database, Transaction
from lakerunner.index.expiry import expiry_of
from lakerunner.index.tiers import picked_rows
from lakerunner.model.condition import Condition
from lakerunner.model.errors import Conflict
from lakerunner.model.fingerprint import digest64
from lakerunner.model.segment import Column, Picked, Segment, TierPicked
from lakerunner.model.tiling import Interval
from lakerunner.model.time import TimeRange
from lakerunner.plan.fingerprints import fingerprint_groups

# So many groups of fingerprints are asked for at once, each in its place in queries/segments.sql; more prune no better.
_SETS_KEPT = 1000
_WANTED = ("wanted_1", "wanted_2", "wanted_3", "wanted_4")


@dataclass(frozen=True)
class Basis:
    """What windows were made of: of a collector's tier, all that was live in the range and could be read. What was left
    out of them is not among it: others may have rolled it up meanwhile."""

    collector: str
    signal: str
    frequency_ms: int
    time: TimeRange
    segments: frozenset[UUID]


class Segments:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sets = _ColumnSets()

    def pick(
        self,
        organization: UUID,
        signal: str,
        time: TimeRange,
        *,
        conditions: tuple[Condition, ...] = (),
        frequency_ms: int = 0,
    ) -> Picked:
        """The live segments that overlap the range and may hold rows that meet the conditions, without their
        fingerprints, which are many and have done their work."""
        values = {
            "organization": organization,
            "signal": signal,
            "frequency_ms": frequency_ms,
            "start_ns": time.start_ns,
            "end_ns": time.end_ns,
        }
        groups = fingerprint_groups(signal, conditions)
        values |= dict.fromkeys(_WANTED) | {name: list(group) for name, group in zip(_WANTED, groups, strict=False)}
        with self._database.transaction() as transaction:
            rows = transaction.rows("segments.pick_pruned" if groups else "segments.pick", values)
            held = [row[2:] for row in rows if row[2] is not None]
            sets = self._sets.of(transaction, {row[-1] for row in held})
            before_ns = {int(frequency): ns for frequency, ns in (rows[0][0] or {}).items()}
            expiry = expiry_of(transaction, values, before_ns, [(time.start_ns, time.end_ns)])
        return Picked(tuple(_segment(row, sets) for row in held), rows[0][1] if groups else len(held), expiry)

    def pick_tiers(
        self, organization: UUID, reach: Interval, tier: int, *, conditions: tuple[Condition, ...] = ()
    ) -> TierPicked:
        """Of metrics, for windows of this tier at most: which tier is read where in `reach`, (start, end] in ms, which
        begins and ends with its windows, and the segments that have rows there. index/tiers.py."""
        groups = fingerprint_groups("metrics", conditions)
        asked = {"organization": organization, "signal": "metrics", **dict.fromkeys(_WANTED)}
        asked |= {name: list(group) for name, group in zip(_WANTED, groups, strict=False)}
        with self._database.transaction() as transaction:
            tiles, rows, considered, expiry = picked_rows(transaction, asked, reach, tier)
            sets = self._sets.of(transaction, {row[-1] for row in rows})
        segments = {row[0]: row for row in rows}
        return TierPicked(tiles, tuple(_segment(row, sets) for row in segments.values()), considered, expiry)

    def get(self, organization: UUID, ids: Iterable[UUID]) -> list[Segment]:
        """Those of these ids that the organization has, ordered by start and id. Replaced ones too: a query
        that picked them before their compaction may finish while their files are there."""
        return self._segments("segments.get", {"organization": organization, "ids": list(ids)})

    def totals(self, organization: UUID) -> tuple[int, int, int]:
        """(segments, rows, bytes) of all that is live."""
        ((segments, rows, size),) = self._database.rows("segments.totals", {"organization": organization})
        return segments, rows, size

    def chosen(self, query: str, values: Mapping[str, Any]) -> list[Segment]:
        """Those that a named query gives; it selects the same columns as `get`."""
        return self._segments(query, values)

    def _segments(self, query: str, values: Mapping[str, Any]) -> list[Segment]:
        with self._database.transaction() as transaction:
            rows = transaction.rows(query, values)
            sets = self._sets.of(transaction, {row[-1] for row in rows})
        return [_segment(row, sets) for row in rows]


def insert(transaction: Transaction, segments: Iterable[Segment], inputs: Iterable[UUID] = ()) -> None:
    """Conflict if one of the ids is there already, live or replaced. These take the place of `inputs`."""
    new = sorted(segments, key=lambda segment: segment.id)
    if not new:
        return
    sets = {_column_set_id(segment.columns): _column_set(segment.columns) for segment in new}
    transaction.run("segments.insert_column_sets", {"ids": list(sets), "columns": list(sets.values())})
    replaced = {"inputs": sorted(inputs) or None}
    if transaction.run_each("segments.insert", [_values(segment) | replaced for segment in new]) < len(new):
        raise Conflict(f"a segment of this work is already in the index: one of {_names(s.id for s in new)}")


def replace(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Conflict if one of them is not a live segment of the organization."""
    old = set(ids)
    if old and transaction.run("segments.replace", {"organization": organization, "ids": list(old)}) < len(old):
        raise Conflict(f"a segment to replace is no longer live: one of {_names(old)}")


def keep_birth(transaction: Transaction, segments: Iterable[Segment], lost: Iterable[UUID]) -> None:
    """Give the segments the time of birth of the lost ones whose rows they have."""
    transaction.run("segments.keep_birth", {"ids": [one.id for one in segments], "lost": list(lost)})


def roll(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Conflict if one of them is not a live segment of the organization."""
    old = set(ids)
    if old and transaction.run("segments.roll", {"organization": organization, "ids": list(old)}) < len(old):
        raise Conflict(f"a segment that was rolled up is no longer live: one of {_names(old)}")


def check_basis(transaction: Transaction, organization: UUID, basis: Basis) -> None:
    """Conflict if there is a segment that other windows were made of and these were not. Until the transaction ends
    no other commits windows of this collector's tier: so what is committed last was made of all that those before it
    were made of. What came meanwhile and is not rolled up is no conflict: its own windows come later."""
    of_tier = {
        "organization": organization,
        "collector": basis.collector,
        "signal": basis.signal,
        "frequency_ms": basis.frequency_ms,
    }
    transaction.rows("segments.lock_tier", {"tier": "/".join(map(str, of_tier.values()))})
    between = {"start_ns": basis.time.start_ns, "end_ns": basis.time.end_ns}
    there = {id_ for (id_,) in transaction.rows("segments.rolled_ids", of_tier | between)}
    if not there <= basis.segments:
        raise Conflict("segments were rolled up after these were read: look again")


def check_contiguous(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Conflict if a live segment of their place, that shares their time, stands between them in the order of
    `ingested`."""
    if transaction.rows("segments.between", {"organization": organization, "ids": list(ids)}):
        raise Conflict("a segment was added between those that were merged: look again")


class _ColumnSets:
    """Sets never change and are shared by many segments: each is read once, and the last used are kept. Safe to use
    from many threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Column, ...]] = OrderedDict()
        self._lock = Lock()

    def of(self, transaction: Transaction, ids: set[int]) -> dict[int, tuple[Column, ...]]:
        with self._lock:
            known = {id_: self._kept[id_] for id_ in ids if id_ in self._kept}
        new = list(ids - known.keys())
        rows = transaction.rows("segments.column_sets", {"ids": new}) if new else []
        read = {id_: tuple(Column(name, type_) for name, type_ in columns) for id_, columns in rows}
        with self._lock:
            for id_, columns in (known | read).items():
                self._kept[id_] = columns
                self._kept.move_to_end(id_)
            while len(self._kept) > _SETS_KEPT:
                self._kept.popitem(last=False)
        return known | read


def _column_set_id(columns: tuple[Column, ...]) -> int:
    return digest64(*(part for column in columns for part in (column.name, column.type)))


def _column_set(columns: tuple[Column, ...]) -> str:
    """ASCII JSON: attribute names may hold what PostgreSQL's text cannot."""
    return json.dumps([[column.name, column.type] for column in columns], separators=(",", ":"))


def _values(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "organization": segment.organization,
        "collector": segment.collector,
        "signal": segment.signal,
        "start_ns": segment.time.start_ns,
        "end_ns": segment.time.end_ns,
        "frequency_ms": segment.frequency_ms,
        "level": segment.level,
        "sort_version": segment.sort_version,
        "rows": segment.rows,
        "bytes": segment.bytes,
        "column_set": _column_set_id(segment.columns),
        "statistics": json.dumps(dict(segment.statistics), allow_nan=False),
        "fingerprints": list(segment.fingerprints),
        "ingested": segment.ingested,
        "rolled": segment.rolled,
    }


def _segment(row: tuple[Any, ...], sets: Mapping[int, tuple[Column, ...]]) -> Segment:
    (id_, organization, collector, signal, start_ns, end_ns, rows, size, sort_version) = row[:9]
    (frequency_ms, level, statistics, fingerprints, ingested, rolled, column_set) = row[9:]
    return Segment(
        id=id_,
        organization=organization,
        collector=collector,
        signal=signal,
        time=TimeRange(start_ns, end_ns),
        rows=rows,
        bytes=size,
        sort_version=sort_version,
        columns=sets[column_set],
        frequency_ms=frequency_ms,
        level=level,
        statistics=statistics,
        fingerprints=tuple(fingerprints),
        ingested=ingested,
        rolled=rolled,
    )


def _names(ids: Iterable[UUID]) -> str:
    names = sorted(str(id_) for id_ in ids)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
