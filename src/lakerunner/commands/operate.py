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
@click.option("--sample", type=click.IntRange(0), default=24, show_default=True, help="Hours and rollups to compare.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Draw the same sample again.")
@click.option("--json", "json", is_flag=True, help="Findings and counts as one JSON object.")
def fsck(org: str | None, home: Path | None, store: str | None, **options: Any) -> None:
    """Check that the lake is what its index says; reads only, beside running services too.

    Every live segment has its files, with the size, rows, columns and times that the index states; no object below db/
    is unknown; no row is in two live segments; rollups are what their source gives. Notes are for people (things that
    wait, were set aside, or will be swept), errors break an invariant. docs/guides/operate.md says what to do.

    \b
    lakerunner fsck                       all files by their footers, 24 hours and rollups compared
    lakerunner fsck --org acme --deep     one organization, everything read
    lakerunner fsck --json | jq '.findings[] | select(.severity == "error")'

    \b
    Exit codes: 0 no errors, 1 errors found, 2 wrong usage, 3 not all could be checked (store or index away).
    """
    from lakerunner.services.fsck import Asked, run_fsck

    settings = settings_of({"home": home, "store": store})
    sys.exit(run_fsck(settings, Asked(org, **options), sys.stdout, sys.stderr))


@click.command(epilog=EPILOG)
@home_option
@click.option("--org", help="Only this organization's objects and segments, by id or name; default: all.")
@click.option(
    "--watch",
    type=click.FloatRange(0.2),
    is_flag=False,
    flag_value=2.0,
    metavar="SECONDS",
    help="Show it again every so often, on a terminal, until Ctrl-C; 2 without a number.",
)
@click.option("--json", "json", is_flag=True, help="One JSON object.")
def status(org: str | None, home: Path | None, watch: float | None, json: bool) -> None:
    """How the lake is doing, once: queues, lag, segments, failed work, what the sweeper is to take.

    Asks the index only (and Kafka for its lag, where that is the bus). `waiting` is on the bus and nobody's yet,
    `claimed` is being worked on. Lag is the age of the oldest that is still to be done: seconds are usual, hours
    are not.

    \b
    lakerunner status
    lakerunner status --watch             the same, again every 2 s
    lakerunner status --org acme --json | jq .lag

    \b
    Exit codes: 0 shown, 1 the index or the bus cannot be asked, 2 wrong usage.
    """
    from lakerunner.services.status import run_status

    if watch and json:
        raise click.UsageError("--watch is for people, --json for programs: give one of them")
    sys.exit(run_status(settings_of({"home": home}), org, watch, json, sys.stdout))
