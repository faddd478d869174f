"""`lakerunner work`: merges and rollups that failed, and how they go again. (docs/formats/tending.md)"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakerunner.commands.options import EPILOG, settings_of
from lakerunner.commands.options import home as home_option
from lakerunner.model.plural import plural


@click.command(epilog=EPILOG)
@home_option
@click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
@click.option(
    "--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one; --requeue needs the role admin."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--requeue", is_flag=True, help="Try failed work again: all of it, or that of --id.")
@click.option(
    "--id", "ids", multiple=True, help="With --requeue: id of a work or of a segment; repeat the option for several."
)
def work(home: Path | None, url: str | None, key: str | None, form: str, requeue: bool, ids: tuple[str, ...]) -> None:
    """List merges and rollups that failed, and why.

    `waiting` work is tried again, after pauses that double. Work is set `aside` if it failed
    LAKERUNNER_WORK_MAX_ATTEMPTS times, or if one of its segments cannot be read. No data is lost: queries read the
    segments as they are. Fix the cause, then use --requeue.

    \b
    lakerunner work                                  what failed, and segments set aside
    lakerunner work --requeue                        retry all of it
    lakerunner work --requeue --id 3f2a9c01d7be      one of them
    """
    from lakerunner.services.client import Client
    from lakerunner.services.show import show_work

    if ids and not requeue:
        raise click.UsageError("--id needs --requeue")
    client = Client.find(settings_of({"home": home}), url, key)
    if requeue:
        went = client.requeue(ids)
        click.echo(f"queued again: {plural(went['work'], 'work')} and {plural(went['segments'], 'segment')}")
    else:
        show_work(client.work(), form, sys.stdout)
