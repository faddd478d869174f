"""Find the rows of lost segments in raw objects.

Comes in: a unit of lost segments of raw rows. Goes out: segments in the scratch directory that together have the rows
to restore, the number of their raw objects, and the raw objects that could not be used.

The index names the candidates: a segment that was never merged was committed with its raw objects, in one transaction;
those of a merged segment came before it, and the latest are read first. The code of ingest converts one object at a
time to rows, and rows that live segments hold are subtracted. Once all rows are found, no further object is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from lakerunner.index.inspect import Birth
from lakerunner.index.sources import SourceRecord
from lakerunner.model.errors import Absent, Corrupt, UserError
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.pipeline.ingest import read_object
from lakerunner.pipeline.restore import ScratchStore, copy_groups, keep_rows, make_again
from lakerunner.services.checks.files import Harm
from lakerunner.services.checks.row_digest import Digests, Identities, identities
from lakerunner.services.checks.segment_reading import local_file, sound_groups
from lakerunner.services.repair.choice import HeldRows, Marks, RowCounts, RowTable, choose
from lakerunner.services.repair.lost import LostSegment, RepairUnit, Tools, Unrepairable

MOST_OBJECTS = 10_000


class Moved(Exception):
    """Raised if a segment was replaced while it was read: search again."""


@dataclass(frozen=True)
class CandidateRows:
    """A segment in the scratch directory: of one raw object, or of the intact part of a damaged file. `rows` are the
    positions of its rows in the time of the lost segments."""

    segment: Segment
    rows: npt.NDArray[np.int64]
    digests: Digests
    held: RowCounts
    beside: RowCounts
    source: SourceRecord | None = None


@dataclass(frozen=True)
class Rejected:
    """A raw object that cannot be used, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class SearchResult:
    """`segments` have the rows to restore, in the order of their raw objects. `complete`: all raw objects that may have
    had lost rows were read, including `rejected` ones. `elsewhere` is how many of their rows live segments hold."""

    segments: tuple[Segment, ...]
    objects: int
    salvaged: int
    rejected: tuple[Rejected, ...]
    complete: bool
    elsewhere: int

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.segments)


class Search:
    """The search for one unit. Damaged segments are in `without`: they cannot be read, so their rows are not
    subtracted."""

    def __init__(self, tools: Tools, unit: RepairUnit, without: frozenset[UUID], directory: Path) -> None:
        self._tools = tools
        self._unit = unit
        self._without = without
        self._directory = directory
        self._scratch = ScratchStore(directory / "scratch", tools.put_file)
        self._parts: list[CandidateRows] = []
        self._rejected: list[Rejected] = []
        self._missing: list[Digests] = []
        self._count = 0
        self._elsewhere = 0

    @property
    def scratch(self) -> ScratchStore:
        return self._scratch

    def run(self) -> SearchResult:
        """Search. Unrepairable if rows cannot be compared, Moved if segments were replaced meanwhile."""
        version, now = self._unit.first.sort_version, SIGNALS[self._unit.first.signal].sort_version
        if version != now:
            raise Unrepairable(f"it was written with sort version {version}, and this release writes {now}")
        candidates, exact = self._candidates()
        held = self._held_rows(exact)
        read = 0
        for read, candidate in enumerate(candidates[:MOST_OBJECTS], 1):
            self._tools.lake.say(f"{self._unit.name}: {self._count:,} rows found in {read:,} raw objects")
            try:
                self._take(candidate, held, exact)
            except (Corrupt, UserError) as error:
                self._rejected.append(Rejected(candidate.source.key, _reason(error)))
            if self._count >= self._unit.rows:
                break
        chosen = self._choose(exact)
        salvaged = self._salvage(chosen) if sum(marks.sum() for _, marks in chosen) < self._unit.rows else []
        complete = read == len(candidates)
        return self._build_result(chosen, salvaged, complete)

    def _candidates(self) -> tuple[list[SourceRecord], bool]:
        """Return the raw objects that may hold the rows, and whether they are exactly those of the commit."""
        inspect, born = self._tools.lake.index.inspect, self._unit.lost[0].born
        for exact in (True, False) if not self._unit.first.level else (False,):
            if found := inspect.sources_until(self._unit.tier, Birth(born, exact), MOST_OBJECTS + 1):
                return found, exact
        return [], False

    def _held_rows(self, exact: bool) -> tuple[HeldRows, HeldRows]:
        """Return the rows of live segments, and the rows of those that were committed with the lost ones."""
        unit = self._unit
        birth = Birth(unit.lost[0].born, exact)
        holders = self._tools.lake.index.inspect.holders(unit.tier, unit.time, birth, {*self._without, *unit.ids})
        beside = [one for one in holders if exact and one.level == 0]
        return (
            HeldRows(self._directory / "held", self._digests(holders)),
            HeldRows(self._directory / "beside", self._digests(beside)),
        )

    def _digests(self, segments: Iterable[Segment]) -> Iterator[Digests]:
        lake, unit = self._tools.lake, self._unit
        for segment in segments:
            try:
                for some in identities(lake.store, segment, unit.time, lake.directory):
                    if not some.known.all():
                        raise Unrepairable(
                            f"segment {segment.id} is of an earlier release, and its rows cannot be compared"
                        )
                    yield some.digests
            except Corrupt as error:
                if not lake.index.inspect.still_live([segment.id]):
                    raise Moved from error
                raise Unrepairable(f"segment {segment.id}, which may hold its rows, cannot be read: {error}") from error

    def _take(self, candidate: SourceRecord, held: tuple[HeldRows, HeldRows], exact: bool) -> None:
        """Convert one raw object to rows, and keep those that may have been lost."""
        tools, unit = self._tools, self._unit
        source, of = candidate.source, unit.first
        if source.bucket != tools.lake.store.bucket:
            raise Corrupt(f"it is in bucket {source.bucket}, which is not this lake's store")
        raw = read_object(tools.lake.store, source, of.signal, tools.ingest, tools.mappings)
        segments, rows = make_again(raw, of.signal, of.organization, of.collector, self._scratch)
        if candidate.rows is not None and candidate.rows != rows:
            for segment in segments:
                self._scratch.remove(segment)
            raise Corrupt(
                f"it gave {candidate.rows:,} rows when it was ingested and gives {rows:,} now: settings (mapping_file) "
                "have changed"
            )
        for segment in segments:
            part = self._part(segment, held, candidate) if segment.time.overlaps(unit.time) else None
            self._elsewhere += int((part.held > 0).sum()) if part else 0
            if part is None or not (exact or (part.held == 0).any()):
                self._scratch.remove(segment)
                continue
            self._parts.append(part)
            self._count_missing(part, exact)

    def _part(self, segment: Segment, held: tuple[HeldRows, HeldRows], candidate: SourceRecord) -> CandidateRows | None:
        rows, digests = _join_identities(list(identities(self._scratch, segment, self._unit.time, self._directory)))
        all_held, beside = (some.counts(digests) for some in held)
        return CandidateRows(segment, rows, digests, all_held, beside, candidate) if len(rows) else None

    def _count_missing(self, part: CandidateRows, exact: bool) -> None:
        """Count the missing rows. In a merged segment equal rows count once; they are made unique only when the count
        may be reached, since that takes time."""
        self._missing.append(part.digests[part.held == 0])
        self._count += len(self._missing[-1])
        if not exact and self._count >= self._unit.rows:
            self._missing = [np.unique(np.concatenate(self._missing))]
            self._count = len(self._missing[0])

    def _choose(self, exact: bool) -> list[tuple[CandidateRows, Marks]]:
        if not self._parts:
            return []
        objects = {key: number for number, key in enumerate(dict.fromkeys(_key(part) for part in self._parts))}
        rows = RowTable(
            np.concatenate([part.digests for part in self._parts]),
            np.concatenate([part.held for part in self._parts]),
            np.concatenate([part.beside for part in self._parts]),
            np.concatenate([np.full(len(part.rows), objects[_key(part)]) for part in self._parts]),
            merged=not exact,
        )
        marks = choose(rows, self._unit.rows)
        ends = np.cumsum([len(part.rows) for part in self._parts])
        return list(zip(self._parts, np.split(marks, ends[:-1]), strict=True))

    def _salvage(self, chosen: list[tuple[CandidateRows, Marks]]) -> list[tuple[CandidateRows, Marks]]:
        """Return the rows of the intact parts of damaged files, except those that were found in raw objects."""
        found = np.concatenate([np.zeros(0, np.uint64), *(part.digests[marks] for part, marks in chosen)])
        room = self._unit.rows - len(found)
        kept = []
        for lost in self._unit.lost:
            with suppress(Absent, Corrupt):
                if (part := self._read_intact_part(lost)) is not None:
                    marks = ~np.isin(part.digests, found)
                    marks &= np.cumsum(marks) <= room
                    room -= int(marks.sum())
                    kept.append((part, marks))
        return kept

    def _read_intact_part(self, lost: LostSegment) -> CandidateRows | None:
        """Return the intact part of a damaged file; None if the file is not the one that the index describes."""
        lake, segment = self._tools.lake, lost.segment
        if any(one.harm is not Harm.FILE_DAMAGED for one in lost.troubles if one.where == segment.path):
            return None
        with local_file(lake.store, segment.path, segment.bytes, lake.directory) as path:
            groups = sound_groups(path, segment.path)
            if not groups:
                return None
            copied = copy_groups(lake.store, path, segment, groups, self._scratch)
        rows, digests = _join_identities(list(identities(self._scratch, copied, self._unit.time, self._directory)))
        nothing = np.zeros(len(rows), np.int64)
        return CandidateRows(copied, rows, digests, nothing, nothing)

    def _build_result(
        self, chosen: list[tuple[CandidateRows, Marks]], salvaged: list[tuple[CandidateRows, Marks]], complete: bool
    ) -> SearchResult:
        segments = []
        objects = set()
        for part, marks in (*sorted(chosen, key=lambda pair: _ingest_order(pair[0])), *salvaged):
            if marks.any():
                keep = np.zeros(part.segment.rows, np.bool_)
                keep[part.rows[marks]] = True
                segments.append(keep_rows(self._scratch, part.segment, keep))
                if part.source is not None:
                    objects.add(_key(part))
        left = sum(int(marks.sum()) for _, marks in salvaged)
        return SearchResult(tuple(segments), len(objects), left, tuple(self._rejected), complete, self._elsewhere)


def _join_identities(parts: list[Identities]) -> tuple[npt.NDArray[np.int64], Digests]:
    rows = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in parts)])
    return rows, np.concatenate([np.zeros(0, np.uint64), *(part.digests for part in parts)])


def _key(part: CandidateRows) -> object:
    return part.source.source.identity if part.source else None


def _ingest_order(part: CandidateRows) -> tuple[Any, ...]:
    """Return the order of a raw object: rows with equal sort keys are in the order of ingest."""
    assert part.source is not None  # noqa: S101 - of a raw object
    return part.source.ended_at, part.source.source.identity


def _reason(error: Exception) -> str:
    if isinstance(error, Absent):
        return "it is gone: deleted, or past raw_retention"
    return str(error)
