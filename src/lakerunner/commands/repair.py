"""`lakerunner repair`: restore what fsck finds lost or damaged (docs/guides/operate.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from lakerunner.commands.options import EPILOG, home_option, json_option, settings_of, store_option
from lakerunner.model.display import escape_controls, plural
from lakerunner.model.errors import Unavailable, UserError, full_message
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.services.repair.mend import RepairOutcome

WHOLE, NOT_ALL, USAGE, UNREACHABLE = 0, 1, 2, 3


@click.command(epilog=EPILOG)
@home_option
@store_option
@click.option("--org", help="Only this organization, by id or name; default: all.")
@click.option("--dry-run", is_flag=True, help="Show what would be repaired; change nothing.")
@json_option
def repair(org: str | None, home: Path | None, store: str | None, **options: Any) -> None:
    """Restore lost and damaged segments from raw objects. It may run beside all services.

    Reads every file of every live segment, as `lakerunner fsck --deep` does. For each one that is missing or damaged,
    it ingests the raw objects again and restores exactly the rows that are missing; rollups, text indexes and other
    side files are made again. If it is killed, run it again.

    \b
    lakerunner repair --dry-run           what would be repaired
    lakerunner repair --org acme          one organization

    \b
    Exit codes: 0 all is whole, 1 not all could be repaired (the lines say why), 2 wrong usage, 3 the store or the
    index is unavailable, or another repair is running.
    """
    settings = settings_of({"home": home, "store": store})
    sys.exit(run_repair(settings, RepairRequest(org, **options), sys.stdout, sys.stderr))


@dataclass(frozen=True)
class RepairRequest:
    """The options of the command."""

    organization: str | None = None
    dry_run: bool = False
    json: bool = False


def run_repair(settings: Settings, request: RepairRequest, output: TextIO, errors: TextIO) -> int:
    """Repair the lake and show each result; return the exit code. One repair of a lake runs at a time."""
    from tempfile import TemporaryDirectory

    from lakerunner.model.failpoint import arm
    from lakerunner.objects.open import shared_store
    from lakerunner.services.checks.finding import Lake
    from lakerunner.services.ground import administered, inspected, organization, store_address
    from lakerunner.services.repair.mend import repair_lake
    from lakerunner.services.sweeper import this_process

    arm(settings.failpoint)
    mended: list[RepairOutcome] = []
    opened = inspected if request.dry_run else administered
    try:
        with opened(settings) as index, index.inspect.repairing(this_process()) as alone:
            if not alone:
                raise Unavailable("another repair of this lake is running: wait until it ends")
            with _progress(errors) as say, TemporaryDirectory(prefix="lakerunner-repair-") as at:
                lake = Lake(index, shared_store(store_address(settings)), Path(at), say)
                named = request.organization
                whose = [organization(index, named)] if named else index.organizations.all()
                for one in repair_lake(settings, lake, whose, dry_run=request.dry_run):
                    mended.append(one)
                    if not request.json:
                        output.write(f"{escape_controls(one.line)}\n")
                        output.flush()
    except UserError as error:
        errors.write(f"error: {escape_controls(str(error))}\n")
        return USAGE
    except Unavailable as error:
        errors.write(f"error: not all could be repaired: {escape_controls(full_message(error))}\n")
        return UNREACHABLE
    _show_end(mended, request, output)
    return WHOLE if all(one.whole for one in mended) else NOT_ALL


def _progress(errors: TextIO) -> AbstractContextManager[Callable[[str], None]]:
    """Show progress on a terminal only."""
    from lakerunner.commands.terminal.show import progress

    return progress(errors) if errors.isatty() else nullcontext(lambda _: None)


def _show_end(mended: list[RepairOutcome], request: RepairRequest, output: TextIO) -> None:
    from lakerunner.commands.terminal.show import show_document

    done = [one for one in mended if one.changed]
    segments = sum(len(one.unit.lost) for one in done)
    rows = sum(one.rows for one in done)
    if request.json:
        document = {
            "repaired": segments,
            "rows_restored": rows,
            "not_whole": sum(len(one.unit.lost) for one in mended if not one.whole),
            "dry_run": request.dry_run,
            "segments": [_entry(one) for one in mended],
        }
        show_document(document, output)
        return
    if not mended:
        output.write("nothing to repair\n")
        return
    would = " would be" if request.dry_run else ""
    ended = f"{plural(segments, 'segment')}{would} repaired, {plural(rows, 'row')}{would} restored"
    left = sum(len(one.unit.lost) for one in mended if not one.whole)
    output.write(f"{ended}{f', {left:,} not whole' if left else ''}\n")


def _entry(one: RepairOutcome) -> dict[str, object]:
    unit = one.unit
    return {
        "organization": unit.organization.name,
        "collector": unit.first.collector,
        "signal": unit.first.signal,
        "frequency_ms": unit.first.frequency_ms,
        "start_ns": unit.time.start_ns,
        "end_ns": unit.time.end_ns,
        "segments": [str(id_) for id_ in unit.ids],
        "what": unit.what,
        "findings": [trouble.what for lost in unit.lost for trouble in lost.troubles],
        "did": one.did,
        "rows": unit.rows,
        "restored": one.rows,
        "raw_objects": one.objects,
        "reason": one.reason,
        "repaired": one.changed,
        "whole": one.whole,
    }
