"""`lakerunner sweep`: run the sweeper once (docs/formats/sweeping.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO
from uuid import UUID

import click

from lakerunner.commands.options import EPILOG, home_option, settings_of, store_option
from lakerunner.model.display import escape_controls, plural
from lakerunner.model.time import SECOND_NS
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.index.index import Index
    from lakerunner.services.sweep.finding import Finding
    from lakerunner.services.sweeper import SweepReport

Say = Callable[[str], None]
COLUMNS = ("kind", "org", "signal", "count", "bytes", "oldest", "reason")
_PROGRESS_SECONDS = 5.0
SWEPT, FAILED, BUSY = 0, 1, 3


@click.command(epilog=EPILOG)
@home_option
@store_option
@click.option("--dry-run", is_flag=True, help="List what would be deleted and why; change nothing.")
@click.option("--verbose", is_flag=True, help="List every object.")
@click.option(
    "--force", is_flag=True, help="Delete files that the index does not use even if they are most of the store."
)
def sweep(dry_run: bool, verbose: bool, force: bool, **options: Any) -> None:
    """Delete expired data once, now, as the sweeper does every LAKERUNNER_SWEEP_SECONDS.

    \b
    lakerunner sweep --dry-run            what would be deleted, how much and why
    lakerunner sweep --dry-run --verbose  every object

    \b
    Exit codes: 0 done, 1 error or incomplete, 2 wrong usage, 3 another sweeper is running.
    """
    from lakerunner.model.failpoint import arm

    settings = settings_of(options)
    arm(settings.failpoint)
    progress = Progress(_say, sys.stdout if verbose else None)
    sys.exit(_look(settings, progress, force) if dry_run else _sweep(settings, progress, force))


class Progress:
    """Writes a line to standard error every few seconds; with `keys`, also every found object to that output."""

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
                print(escape_controls(f"{finding.kind}{stays}  {key}"), file=self._keys)


def _sweep(settings: Settings, progress: Progress, force: bool) -> int:
    """Sweep and show the report; return the exit code."""
    from lakerunner.objects.open import open_store
    from lakerunner.services.ground import administered, store_address
    from lakerunner.services.sweeper import chores_of, sweep, this_process, vacuum

    address = store_address(settings)
    with administered(settings) as index:
        chores = chores_of(settings, index, open_store(address), address, force=force)
        with index.sweep.alone(this_process()) as lock:
            if lock is None:
                _say(f"another sweeper is running: {index.sweep.sweeping() or 'it has just finished, try again'}")
                return BUSY
            report = sweep(chores, index.sweep.now_ns(), progress, lock.held)
            if not report.stopped:
                vacuum(index, report.rows)
        show_report(report, _names(index), sys.stdout)
        rows = plural(sum(report.rows.values()), "row")
        _say(f"{plural(report.objects, 'object')} of {plural(report.bytes, 'byte')} deleted, {rows} forgotten")
        return _ended(report)


def _look(settings: Settings, progress: Progress, force: bool) -> int:
    """Show what would be swept; return the exit code. Nothing is created, not even the directory of a store."""
    from lakerunner.objects.open import shared_store
    from lakerunner.services.ground import inspected, store_address
    from lakerunner.services.sweeper import chores_of, findings

    address = store_address(settings)
    with inspected(settings) as index:
        names = _names(index)
        chores = chores_of(settings, index, shared_store(address), address, force=force)
        report = findings(chores, index.sweep.now_ns(), progress)
        show_report(report, names, sys.stdout)
    _say("dry run: nothing was changed")
    return _ended(report)


def _names(index: Index) -> dict[UUID, str]:
    return {one.id: one.name for one in index.organizations.all()}


def _ended(report: SweepReport) -> int:
    for chore, error in report.failures:
        _say(f"error: {chore}: {error}")
    if report.stopped:
        _say("error: the connection to the index was lost, and with it the sweeper's lock: run it again")
    return FAILED if report.failures or report.stopped else SWEPT


def show_report(report: SweepReport, names: Mapping[UUID, str], output: TextIO) -> None:
    from lakerunner.commands.terminal.show import show_rows

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


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
