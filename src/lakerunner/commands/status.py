"""`lakerunner status`: queues, lag and segments of a lake, once or refreshed."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from uuid import UUID

import click

from lakerunner.commands.options import EPILOG, home_option, json_option, settings_of
from lakerunner.model.errors import Unavailable
from lakerunner.model.tier import TIER_NAMES
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.index.index import Index
    from lakerunner.services.status import Status

_PAGE_COLUMNS = 160  # width without a terminal


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
@json_option
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
    if watch and json:
        raise click.UsageError("--watch and --json are both given: --watch is for people, --json for programs")
    run_status(settings_of({"home": home}), org, watch, json, sys.stdout)


def run_status(settings: Settings, org: str | None, watch: float | None, json: bool, output: TextIO) -> None:
    """Show the state once, or refresh it until Ctrl-C."""
    from rich.console import Console

    from lakerunner.commands.terminal.show import show_document
    from lakerunner.commands.terminal.tables import status_view
    from lakerunner.services.ground import inspected, now_ns, organization
    from lakerunner.services.status import collect

    with inspected(settings) as index:
        whose = organization(index, org).id if org else None
        if watch is not None and output.isatty():
            _watch(settings, index, whose, watch, output)
            return
        status = collect(settings, index, whose, now_ns())
    if json:
        show_document(document(status), output)
    else:
        Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS).print(status_view(status))


def _watch(settings: Settings, index: Index, whose: UUID | None, seconds: float, output: TextIO) -> None:
    """Refresh the state until Ctrl-C. While the index is unavailable, show that above the last state."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from lakerunner.commands.terminal.tables import fitting, status_view
    from lakerunner.services.ground import now_ns
    from lakerunner.services.status import collect

    console = Console(file=output)
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            last: Any = Text("")
            while True:
                try:
                    last = status_view(collect(settings, index, whose, now_ns()))
                    live.update(fitting(console, last), refresh=True)
                except Unavailable as error:
                    late = Group(Text(f"not up to date: {error}", style="bold red"), last)
                    live.update(fitting(console, late), refresh=True)
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


def document(status: Status) -> dict[str, Any]:
    """Return the object that --json prints."""
    return {
        "queues": [asdict(one) for one in status.queues],
        "lag": [asdict(one) for one in status.lag],
        "segments": [asdict(one) | {"tier": TIER_NAMES[one.frequency_ms]} for one in status.segments],
        "sweeper": [
            {"what": one.what, "segments": one.count, "bytes": size}
            for one, size in zip(status.sweeper, status.swept_bytes, strict=True)
        ],
        "written_per_stored_byte": status.written,
    }
