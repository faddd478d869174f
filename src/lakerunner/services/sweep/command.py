"""`lakerunner sweep` and `lakerunner retention`: by hand what the sweeper does by itself, and what it goes by."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import arm
from lakerunner.model.organization import Organization
from lakerunner.model.plural import plural
from lakerunner.model.retention import NAMES, Kept, duration_text, kept_named, parse_retention
from lakerunner.model.time import SECOND_NS
from lakerunner.objects.open import open_store, shared_store
from lakerunner.services.admin import administered, inspected
from lakerunner.services.drawn import drawn
from lakerunner.services.ground import store_address
from lakerunner.services.show import show_rows
from lakerunner.services.sweep.finding import Finding
from lakerunner.services.sweep.report import Report
from lakerunner.services.sweeper import chores_of, findings, sweep, this_process, vacuum
from lakerunner.settings import Settings

Say = Callable[[str], None]
COLUMNS = ("kind", "org", "signal", "count", "bytes", "oldest", "reason")
_PROGRESS_SECONDS = 5.0
SWEPT, FAILED, BUSY = 0, 1, 3


class Progress:
    """A line on standard error every few seconds; with `keys`, every object that is found, on standard output."""

    def __init__(self, say: Say, keys: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._keys = keys
        self._clock = clock
        self._next = clock() + _PROGRESS_SECONDS
        self._chore = ""
        self._looked = self._found = 0

    def __call__(self, chore: str, looked: int, found: Sequence[Finding]) -> None:
        if chore != self._chore:
            self._chore, self._looked, self._found = chore, 0, 0
        self._looked += looked
        self._found += len(found)
        if self._clock() >= self._next:
            self._next = self._clock() + _PROGRESS_SECONDS
            self._say(f"{chore}: {self._looked} checked, {self._found} found")
        for finding in found if self._keys else ():
            stays = "" if finding.goes else " stays"
            for key in finding.keys:
                print(drawn(f"{finding.kind}{stays}  {key}"), file=self._keys)


def run_sweep(settings: Settings, say: Say, *, dry_run: bool, verbose: bool, force: bool) -> int:
    """The exit code."""
    arm(settings.failpoint)
    progress = Progress(say, sys.stdout if verbose else None)
    if dry_run:
        return _look(settings, say, progress, force=force)
    address = store_address(settings)
    with administered(settings) as index:
        chores = chores_of(settings, index, open_store(address), address, force=force)
        with index.sweep.alone(this_process()) as lock:
            if lock is None:
                say(f"another sweeper is running: {index.sweep.sweeping() or 'it has just finished, try again'}")
                return BUSY
            report = sweep(chores, index.sweep.now_ns(), progress, lock.held)
            if not report.stopped:
                vacuum(index, report.rows)
        show_report(report, _names(index), sys.stdout)
        rows = plural(sum(report.rows.values()), "row")
        say(f"{plural(report.objects, 'object')} of {plural(report.bytes, 'byte')} deleted, {rows} forgotten")
        return _ended(report, say)


def _look(settings: Settings, say: Say, progress: Progress, *, force: bool) -> int:
    """A dry run makes nothing, not even the directory of a store."""
    address = store_address(settings)
    with inspected(settings) as index:
        names = _names(index)
        chores = chores_of(settings, index, shared_store(address), address, force=force)
        report = findings(chores, index.sweep.now_ns(), progress)
        show_report(report, names, sys.stdout)
    say("dry run: nothing was changed")
    return _ended(report, say)


def _names(index: Index) -> dict[UUID, str]:
    return {one.id: one.name for one in index.organizations.all()}


def _ended(report: Report, say: Say) -> int:
    for chore, error in report.failures:
        say(f"error: {chore}: {error}")
    if report.stopped:
        say("error: the connection to the index was lost, and with it the sweeper's lock: run it again")
    return FAILED if report.failures or report.stopped else SWEPT


def show_report(report: Report, names: Mapping[UUID, str], output: TextIO) -> None:
    rows = [
        {
            "kind": line.kind.value if line.goes else f"{line.kind} (stays)",
            "org": names.get(line.organization, str(line.organization)) if line.organization else "",
            "signal": line.what,
            "count": line.count,
            "bytes": line.bytes,
            "oldest": _moment(line.oldest_ns),
            "reason": line.reason,
        }
        for line in report.lines()
    ]
    show_rows(COLUMNS, rows, output)


def _moment(time_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ns // SECOND_NS, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return str(time_ns)


def show_retention(settings: Settings, index: Index, organization: Organization, output: TextIO) -> None:
    """Of each signal and tier, how long it is kept, and who says so."""
    default = parse_retention(settings.retention.items())
    own = index.retention.of(organization.id)
    rows = [
        {
            "signal": name,
            "kept": duration_text(own[kept] if kept in own else default.of.get(kept)),
            "by": "the organization" if kept in own else "the setting retention" if kept in default.of else "",
        }
        for name, kept in NAMES.items()
    ]
    show_rows(("signal", "kept", "by"), rows, output)


def set_retention(index: Index, organization: Organization, pairs: Sequence[str]) -> None:
    named = []
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise UserError(f"{pair!r} is not NAME=DURATION: write logs=30d, metrics.1h=2y or all=forever")
        named.append((name, text))
    index.retention.set(organization.id, parse_retention(named).of)


def clear_retention(index: Index, organization: Organization, names: Sequence[str]) -> int:
    kept: set[Kept] = {one for name in names for one in kept_named(name)}
    return index.retention.clear(organization.id, sorted(kept))
