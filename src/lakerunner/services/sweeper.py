"""The sweeper: what is past its time goes, and nothing else does.

Comes in: the index and the store. Goes out: fewer files and rows (docs/formats/sweeping.md). A sweep is a tuple of
chores; each finds what is due, page by page, and takes it, files before rows. What always holds: one sweeper at a time,
by a lock of the index, which is asked for before every page that is taken; killed at any point, the next sweep goes on
from what is there. A chore that cannot do its work keeps no other from it.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event

from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.retention import parse_retention
from lakerunner.model.time import SECOND_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.store import ObjectStore
from lakerunner.objects.uploads import open_uploads
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.sweep.ended import EndedSegments
from lakerunner.services.sweep.finding import Chore, Finding, Kind
from lakerunner.services.sweep.orphans import Orphans
from lakerunner.services.sweep.raw import RawObjects, raw_retention_ns
from lakerunner.services.sweep.report import Report
from lakerunner.services.sweep.retention import PastRetention
from lakerunner.services.sweep.rows import OldPushes, VoidWork
from lakerunner.services.sweep.uploads import AbandonedUploads
from lakerunner.settings import Settings

# So many rows of a table must have gone for a vacuum of it: PostgreSQL's own keeps up with fewer.
VACUUM_ROWS = 10_000
_FIRST_SECONDS = 60.0  # what died with the last process is first taken up again by those that start with us

MayGoOn = Callable[[], bool]
Watch = Callable[[str, int, Sequence[Finding]], None]

log = Log("sweeper")


def chores_of(
    settings: Settings, index: Index, store: ObjectStore, address: StoreAddress, *, force: bool = False
) -> tuple[Chore, ...]:
    """All of a sweep, in their order: what expires now has its grace time before it. UserError for settings that make
    no sense."""
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


def findings(chores: Sequence[Chore], now_ns: int, watch: Watch) -> Report:
    """What would go, and what stays although one might think that it goes. Changes nothing."""
    return _gone_through(chores, now_ns, watch, take=False, may_go_on=lambda: True)


def sweep(chores: Sequence[Chore], now_ns: int, watch: Watch, may_go_on: MayGoOn) -> Report:
    """Take what is due. Stops before the next page when it may not go on."""
    return _gone_through(chores, now_ns, watch, take=True, may_go_on=may_go_on)


def _gone_through(chores: Sequence[Chore], now_ns: int, watch: Watch, *, take: bool, may_go_on: MayGoOn) -> Report:
    report = Report()
    for chore in chores:
        try:
            for found in chore.find(now_ns):
                watch(chore.name, found.looked, found.findings)
                if take and not may_go_on():
                    report.stopped = True
                    return report
                report.add(finding for finding in found.findings if not (take and finding.goes))
                for kind in Kind if take else ():
                    _take(chore, [one for one in found.findings if one.goes and one.kind == kind], now_ns, report)
        except LakerunnerError as error:
            report.failures.append((chore.name, str(error)))
            log.warning("part of the sweep failed", chore=chore.name, error=str(error))
    return report


def _take(chore: Chore, going: list[Finding], now_ns: int, report: Report) -> None:
    if not going:
        return
    gone = chore.take(going, now_ns)
    report.add(going)
    report.took(gone)
    kind = going[0].kind.value
    meters.SWEPT_OBJECTS.labels(kind).inc(gone.objects)
    meters.SWEPT_BYTES.labels(kind).inc(gone.bytes)


def vacuum(index: Index, rows: Counter[str]) -> list[str]:
    """Of the tables that many rows went from; which."""
    tables = sorted(table for table, count in rows.items() if count >= VACUUM_ROWS)
    if tables:
        index.sweep.vacuum(tables)
    return tables


def this_process() -> str:
    return f"on {socket.gethostname()[:30]} pid {os.getpid()}"


class Sweeper:
    """The loop of a service; `clock` counts seconds."""

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
