"""The commands of those who look after a lake: is it whole, and how is it doing? (docs/guides/operate.md)"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lakerunner.commands.options import EPILOG, settings_of
from lakerunner.commands.options import home as home_option
from lakerunner.commands.options import store as store_option


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
    from lakerunner.services.fsck import Asked, run_fsck

    settings = settings_of({"home": home, "store": store})
    sys.exit(run_fsck(settings, Asked(org, **options), sys.stdout, sys.stderr))


@click.command(epilog=EPILOG)
@home_option
@store_option
@click.option("--org", help="Only this organization, by id or name; default: all.")
@click.option("--dry-run", is_flag=True, help="Show what would be repaired; change nothing.")
@click.option("--json", "json", is_flag=True, help="One JSON object.")
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
    index is away, or another repair is running.
    """
    from lakerunner.services.repair.command import RepairRequest, run_repair

    settings = settings_of({"home": home, "store": store})
    sys.exit(run_repair(settings, RepairRequest(org, **options), sys.stdout, sys.stderr))


@click.command(epilog=EPILOG)
@home_option
@click.option("--org", help="Only this organization's objects and segments, by id or name; default: all.")
@click.option(
    "--watch",
    type=click.FloatRange(0.2),
    is_flag=False,
    flag_value=2.0,
    metavar="SECONDS",
    help="Refresh after this many seconds until Ctrl-C, on a terminal; default: 2.",
)
@click.option("--json", "json", is_flag=True, help="One JSON object.")
def status(org: str | None, home: Path | None, watch: float | None, json: bool) -> None:
    """Show the state of the lake: queues, lag, segments, failed work, what the sweeper will delete.

    It reads the index only (and the lag of Kafka, if that is the bus). Messages are `waiting` on the bus until a
    service takes them, then `claimed`. Lag is the age of the oldest unprocessed item: seconds are normal, hours are
    not.

    \b
    lakerunner status
    lakerunner status --watch             the same, again every 2 s
    lakerunner status --org acme --json | jq .lag

    \b
    Exit codes: 0 shown, 1 index or bus unavailable, 2 wrong usage or no lake found.
    """
    from lakerunner.services.status import run_status

    if watch and json:
        raise click.UsageError("--watch and --json are both given: --watch is for people, --json for programs")
    sys.exit(run_status(settings_of({"home": home}), org, watch, json, sys.stdout))
