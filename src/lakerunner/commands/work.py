"""`lakerunner work`: merges and rollups that failed, and how they go again. (docs/formats/tending.md)"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakerunner.commands.options import EPILOG, settings_of
from lakerunner.commands.options import home as home_option


@click.command(epilog=EPILOG)
@home_option
@click.option("--url", help="Base URL of the API, instead of the one in HOME/address.")
@click.option(
    "--key", envvar="LAKERUNNER_API_KEY", help="API key, where the API wants one; --requeue needs role admin."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--requeue", is_flag=True, help="Try it again: all of it, or what --id names.")
@click.option("--id", "ids", multiple=True, help="With --requeue: a work or a segment; more than once for more.")
def work(home: Path | None, url: str | None, key: str | None, form: str, requeue: bool, ids: tuple[str, ...]) -> None:
    """Merges and rollups that failed, and why.

    waiting: it is tried again, after pauses that double. aside: it failed LAKERUNNER_WORK_MAX_ATTEMPTS times, or a
    segment of it cannot be read. Nothing is lost by it: queries read the segments as they are. Mend what the reason
    says, then --requeue.

    \b
    lakerunner work                                  what failed, and segments set aside
    lakerunner work --requeue                        all of it again
    lakerunner work --requeue --id 3f2a9c01d7be      one of it
    """
    from lakerunner.services.client import Client
    from lakerunner.services.show import show_work

    if ids and not requeue:
        raise click.UsageError("--id goes with --requeue")
    client = Client.find(settings_of({"home": home}), url, key)
    if requeue:
        went = client.requeue(ids)
        click.echo(f"{went['work']} works and {went['segments']} segments go again")
    else:
        show_work(client.work(), form, sys.stdout)
