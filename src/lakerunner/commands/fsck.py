"""`lakerunner fsck`: check that files and index agree; `lakerunner repair`: restore what fsck finds lost or damaged
(docs/guides/operate.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from lakerunner.commands.options import EPILOG, home_option, json_option, settings_of, store_option
from lakerunner.model.display import escape_controls, plural
from lakerunner.model.errors import Unavailable, UserError, full_message
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.services.checks.finding import Finding, Findings
    from lakerunner.services.repair.mend import RepairOutcome

WELL, NOT_WELL, USAGE, UNREACHABLE = 0, 1, 2, 3
_COLUMNS = ("severity", "check", "organization", "what", "where", "to_do")


@click.command(epilog=EPILOG)
@home_option
@store_option
@click.option("--org", help="Only this organization, by id or name; default: all.")
@click.option("--deep", is_flag=True, help="Read every page, verify its checksum, compare all rows and windows.")
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=24,
    show_default=True,
    help="Number of hours and rollups that are compared row by row.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), help="Seed of an earlier run, to compare the same sample again."
)
@click.option("--json", "json", is_flag=True, help="Findings and counts as one JSON object.")
def fsck(org: str | None, home: Path | None, store: str | None, **options: Any) -> None:
    """Check that files and index agree. It only reads, and may run beside all services.

    Checks that every live segment has its files, with the size, rows, columns and times of the index; that the index
    knows every object below db/; that no row is in two live segments; that rollups match their source. An error is a
    damaged lake, a note is for information (work that waits, was set aside, or will be swept). docs/guides/operate.md
    explains what to do.

    \b
    lakerunner fsck                       footers of all files, 24 hours and rollups compared
    lakerunner fsck --org acme --deep     one organization, all pages
    lakerunner fsck --json | jq '.findings[] | select(.severity == "error")'

    \b
    Exit codes: 0 no errors, 1 errors found, 2 wrong usage, 3 check incomplete (store or index unavailable).
    """
    settings = settings_of({"home": home, "store": store})
    sys.exit(run_fsck(settings, FsckRequest(org, **options), sys.stdout, sys.stderr))


@dataclass(frozen=True)
class FsckRequest:
    """The options of the command. Without a seed, each run compares a different sample."""

    organization: str | None = None
    deep: bool = False
    sample: int = 24
    seed: int | None = None
    json: bool = False


def run_fsck(settings: Settings, request: FsckRequest, output: TextIO, errors: TextIO) -> int:
    """Check the lake and show the findings; return the exit code."""
    import secrets
    from tempfile import TemporaryDirectory

    from lakerunner.commands.terminal.show import progress
    from lakerunner.objects.open import shared_store
    from lakerunner.services.checks.finding import ERROR, Lake
    from lakerunner.services.fsck import Thoroughness, check_lake
    from lakerunner.services.ground import inspected, organization, store_address

    seed = secrets.randbelow(1 << 31) if request.seed is None else request.seed
    try:
        with inspected(settings) as index, progress(errors) as say, TemporaryDirectory(prefix="lakerunner-fsck-") as at:
            whose = [organization(index, request.organization)] if request.organization else None
            lake = Lake(index, shared_store(store_address(settings)), Path(at), say)
            found = check_lake(settings, lake, whose, Thoroughness(request.deep, request.sample, seed))
    except UserError as error:
        errors.write(f"error: {escape_controls(str(error))}\n")
        return USAGE
    except Unavailable as error:
        errors.write(f"error: nothing could be checked: {escape_controls(full_message(error))}\n")
        return UNREACHABLE
    show(found, seed, request, output)
    return NOT_WELL if found.counts[ERROR] else UNREACHABLE if found.unchecked else WELL


def show(found: Findings, seed: int, request: FsckRequest, output: TextIO) -> None:
    from lakerunner.commands.terminal.show import show_document, show_rows
    from lakerunner.services.checks.finding import ERROR, NOTE

    if request.json:
        show_document(_document(found, seed, request), output)
        return
    if found.kept:
        show_rows(_COLUMNS, [asdict(one) for one in in_order(found)], output)
    if (left_out := found.counts.total() - len(found.kept)) > 0:
        output.write(f"{plural(left_out, 'more finding')} not shown\n")
    output.write("looked at: " + ", ".join(f"{what} {count}" for what, count in found.looked_at.items()) + "\n")
    if not request.deep:
        output.write(f"the sample was drawn with --seed {seed}; --deep checks everything\n")
    for reason in found.unchecked:
        output.write(f"NOT CHECKED: {escape_controls(reason)}\n")
    errors, notes = found.counts[ERROR], found.counts[NOTE]
    verdict = f"{errors} error{'' if errors == 1 else 's'}" if errors else "no errors"
    output.write(f"{verdict}, {notes} note{'' if notes == 1 else 's'}")
    output.write("; the check is incomplete\n" if found.unchecked else "\n")


def in_order(found: Findings) -> list[Finding]:
    """Return the findings, errors first."""
    from lakerunner.services.checks.finding import ERROR

    return sorted(found.kept, key=lambda one: one.severity != ERROR)


def _document(found: Findings, seed: int, request: FsckRequest) -> dict[str, object]:
    from lakerunner.services.checks.finding import ERROR, NOTE

    return {
        "errors": found.counts[ERROR],
        "notes": found.counts[NOTE],
        "complete": not found.unchecked,
        "findings": [asdict(one) for one in in_order(found)],
        "looked_at": dict(found.looked_at),
        "not_checked": found.unchecked,
        "deep": request.deep,
        "seed": seed,
    }


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
    return WELL if all(one.whole for one in mended) else NOT_WELL


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
