"""`lakerunner backfill`: announce objects that are already below a prefix of the store."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from lakerunner.commands.options import EPILOG, home_option, settings_of, store_option
from lakerunner.model.errors import Unavailable, full_message
from lakerunner.model.source import SIGNAL_NAMES
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.services.backfill import Backfill, BackfillCounts


@click.command(epilog=EPILOG)
@click.argument("url")
@home_option
@store_option
@click.option(
    "--since",
    metavar="TIME",
    help="Only objects changed at this time or later: 2026-01-31T12:00:00Z, or an age: 6h, 7d.",
)
@click.option("--until", metavar="TIME", help="Only objects changed before this time.")
@click.option("--org", help="Organization that owns the objects, by id or name; default: read from their paths.")
@click.option("--collector", help="Collector that wrote the objects; default: read from their paths.")
@click.option(
    "--signal", type=click.Choice(SIGNAL_NAMES), help="Signal that the objects contain; default: read from their names."
)
@click.option("--follow", is_flag=True, help="Continue with new objects until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Only count the objects; announce none.")
def backfill(url: str, org: str | None, collector: str | None, signal: str | None, **options: Any) -> None:
    """Ingest objects that are in the store already, below URL: s3://bucket/prefix, or a prefix of the lake's store.

    Objects that are ingested already are skipped, so an interrupted backfill can be run again. Exit code 1 if
    objects were set aside; `lakerunner objects --state failed` shows why.

    \b
    lakerunner backfill otel-raw/ --since 7d
    lakerunner backfill s3://lake/archive/2025/ --org acme --collector edge --signal logs
    """
    from lakerunner.objects.open import open_store
    from lakerunner.services.announce import Announcer, Newcomers
    from lakerunner.services.backfill import Backfill, RouteOverride, changed_between, prefix_of
    from lakerunner.services.ground import administered, now_ns, organization, store_address

    settings = settings_of({"home": options["home"], "store": options["store"]})
    said, dry_run = RouteOverride(org, collector, signal), options["dry_run"]
    prefix = prefix_of(url, settings.store_url)
    changed = changed_between(options["since"], options["until"], now_ns())
    set_aside = 0
    with administered(settings) as index:
        store = open_store(store_address(settings))
        if org is not None:
            organization(index, org)
        announcer = Announcer(index, store, said.route_of(settings.routes))
        run = Backfill(Newcomers(index, store), announcer, prefix, changed, dry_run=dry_run)
        with suppress(KeyboardInterrupt):  # how --follow ends
            for counts in _rounds(run, settings, options["follow"]):
                set_aside += counts.set_aside
                click.echo(counts.sentence(dry_run=dry_run))
    sys.exit(1 if set_aside else 0)


def _rounds(backfill: Backfill, settings: Settings, follow: bool) -> Iterator[BackfillCounts]:
    """Yield the counts of each listing; after the first, only of listings that found something."""
    from lakerunner.services.ground import now_ns
    from lakerunner.services.logs import Log

    log = Log("backfill")
    settle_ns = int(settings.settle_seconds * 1e9)
    yield _show_progress(backfill.run(now_ns(), settle_ns))
    while follow:
        time.sleep(settings.lister_seconds)
        try:
            counts = _show_progress(backfill.run(now_ns(), settle_ns))
        except Unavailable as error:
            log.warning("waiting for a dependency", error=full_message(error))
            continue
        if counts.new or counts.set_aside:
            yield counts


def _show_progress(progress: Iterator[BackfillCounts]) -> BackfillCounts:
    """Show the counts on a terminal as they grow; return the last."""
    from rich.console import Console

    from lakerunner.services.backfill import BackfillCounts

    counts = BackfillCounts()
    with Console(stderr=True).status("listing") as status:
        for counts in progress:
            status.update(counts.sentence(dry_run=False))
    return counts
