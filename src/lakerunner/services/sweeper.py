"""The sweeper deletes what is past its time, and nothing else.

Comes in: the index and the store. Goes out: fewer files and rows (docs/formats/sweeping.md), and a report with one line
for findings that are alike. A sweep is a tuple of chores; each finds what is due, page by page, and deletes it, files
before rows. What always holds: one sweeper works at a time, by a lock of the index that is checked before every page is
deleted. If it is killed at any point, the next sweep continues with what is there. A chore that fails does not keep the
others from their work.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.retention_policy import parse_retention
from lakerunner.model.time import SECOND_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.store import ObjectStore
from lakerunner.objects.uploads import open_uploads
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.sweep.finding import Chore, Finding, Removal, SweepKind
from lakerunner.services.sweep.other_chores import AbandonedUploads, OldPushes, RawObjects, VoidWork, raw_retention_ns
from lakerunner.services.sweep.segment_chores import EndedSegments, Orphans, PastRetention
from lakerunner.settings import Settings

# A table is vacuumed after this many deleted rows; PostgreSQL's own vacuum keeps up with fewer.
VACUUM_ROWS = 10_000
_FIRST_SECONDS = 60.0  # other services that start now first resume what the last process left

MayGoOn = Callable[[], bool]
Watch = Callable[[str, int, Sequence[Finding]], None]

log = Log("sweeper")


def chores_of(
    settings: Settings, index: Index, store: ObjectStore, address: StoreAddress, *, force: bool = False
) -> tuple[Chore, ...]:
    """Return the chores of a sweep, in order: a segment that expires in this sweep still gets its grace time. UserError
    for invalid settings."""
    if settings.sweep_grace_seconds < 0 or settings.sweep_seconds <= 0:
        raise UserError("sweep_grace_seconds must be 0 or more, and sweep_seconds more than 0")
    grace_ns = int(settings.sweep_grace_seconds * SECOND_NS)
    raw_ns = raw_retention_ns(settings.raw_retention)
    raw = () if raw_ns is None else (RawObjects(index, store, settings.routes, raw_ns),)
    return (
        PastRetention(index, parse_retention(settings.retention.items())),
        EndedSegments(index, store, grace_ns),
        Orphans(index, store, grace_ns, force=force),
        AbandonedUploads(open_uploads(address, store), grace_ns),
        *raw,
        OldPushes(index),
        VoidWork(index),
    )


def findings(chores: Sequence[Chore], now_ns: int, watch: Watch) -> SweepReport:
    """Report what a sweep would delete, and what stays although one might expect it to be deleted. Changes nothing."""
    return _run_chores(chores, now_ns, watch, take=False, may_go_on=lambda: True)


def sweep(chores: Sequence[Chore], now_ns: int, watch: Watch, may_go_on: MayGoOn) -> SweepReport:
    """Delete what is due. Stops before the next page if `may_go_on` returns False."""
    return _run_chores(chores, now_ns, watch, take=True, may_go_on=may_go_on)


def _run_chores(chores: Sequence[Chore], now_ns: int, watch: Watch, *, take: bool, may_go_on: MayGoOn) -> SweepReport:
    report = SweepReport()
    for chore in chores:
        try:
            for found in chore.find(now_ns):
                watch(chore.name, found.looked, found.findings)
                if take and not may_go_on():
                    report.stopped = True
                    return report
                report.add(finding for finding in found.findings if not (take and finding.goes))
                for kind in SweepKind if take else ():
                    _take(chore, [one for one in found.findings if one.goes and one.kind == kind], now_ns, report)
        except LakerunnerError as error:
            report.failures.append((chore.name, str(error)))
            log.warning("part of the sweep failed", chore=chore.name, error=str(error))
    return report


def _take(chore: Chore, going: list[Finding], now_ns: int, report: SweepReport) -> None:
    if not going:
        return
    gone = chore.take(going, now_ns)
    report.add(going)
    report.took(gone)
    kind = going[0].kind.value
    meters.SWEPT_OBJECTS.labels(kind).inc(gone.objects)
    meters.SWEPT_BYTES.labels(kind).inc(gone.bytes)


def vacuum(index: Index, rows: Counter[str]) -> list[str]:
    """Vacuum the tables that many rows were deleted from; return their names."""
    tables = sorted(table for table, count in rows.items() if count >= VACUUM_ROWS)
    if tables:
        index.sweep.vacuum(tables)
    return tables


def this_process() -> str:
    return f"on {socket.gethostname()[:30]} pid {os.getpid()}"


class Sweeper:
    """The loop of the sweeper. `clock` returns monotonic seconds."""

    def __init__(
        self, index: Index, chores: Sequence[Chore], pause_seconds: float, stopping: Event, clock: Callable[[], float]
    ) -> None:
        self._index = index
        self._chores = chores
        self._pause = pause_seconds
        self._stopping = stopping
        self._clock = clock
        self._next = clock() + min(pause_seconds, _FIRST_SECONDS)

    def step(self) -> None:
        wait = self._next - self._clock()
        if wait > 0:
            self._stopping.wait(min(wait, 1.0))
            return
        self._sweep()
        self._next = self._clock() + self._pause

    def _sweep(self) -> None:
        with self._index.sweep.alone(this_process()) as lock:
            if lock is None:
                log.debug("another sweeper is running", who=self._index.sweep.sweeping())
                return
            report = sweep(
                self._chores,
                self._index.sweep.now_ns(),
                lambda *_: None,
                lambda: not self._stopping.is_set() and lock.held(),
            )
            if not report.stopped:
                vacuum(self._index, report.rows)
        meters.SWEEPS.inc()
        log.debug("swept", objects=report.objects, bytes=report.bytes, stopped=report.stopped, **report.counts())


@dataclass(frozen=True)
class ReportLine:
    """The findings of one kind, organization, signal or tier, and reason. `goes` as in Finding."""

    kind: SweepKind
    organization: UUID | None
    what: str
    reason: str
    goes: bool
    count: int = 0
    bytes: int = 0
    oldest_ns: int = 0


@dataclass
class SweepReport:
    """What was found and, in a sweep, what was deleted: `objects`, `bytes`, and `rows` by table."""

    objects: int = 0
    bytes: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    stopped: bool = False
    _lines: dict[tuple[object, ...], ReportLine] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        for one in findings:
            alike = (one.kind, one.organization, one.what, one.reason, one.goes)
            line = self._lines.get(alike) or ReportLine(*alike, oldest_ns=one.since_ns)
            self._lines[alike] = replace(
                line,
                count=line.count + one.count,
                bytes=line.bytes + one.bytes,
                oldest_ns=min(line.oldest_ns, one.since_ns),
            )

    def took(self, gone: Removal) -> None:
        self.objects += gone.objects
        self.bytes += gone.bytes
        self.rows.update(dict(gone.rows))

    def lines(self) -> list[ReportLine]:
        order = list(SweepKind)
        return sorted(
            self._lines.values(),
            key=lambda line: (order.index(line.kind), str(line.organization), line.what, not line.goes, line.reason),
        )

    def counts(self) -> dict[str, int]:
        """Return how many findings are to be deleted, by kind."""
        found: Counter[str] = Counter()
        for line in self._lines.values():
            if line.goes:
                found[line.kind.value.replace(" ", "_")] += line.count
        return dict(found)
