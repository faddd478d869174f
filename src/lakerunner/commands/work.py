"""`lakerunner work`: list merges and rollups that failed, and retry them (docs/formats/tending.md)."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click

from lakerunner.commands.options import EPILOG, client_of, format_option, home_option, url_option
from lakerunner.model.display import plural


@click.command(epilog=EPILOG)
@home_option
@url_option
@click.option(
    "--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one; --requeue needs the role admin."
)
@format_option
@click.option("--requeue", is_flag=True, help="Try failed work again: all of it, or that of --id.")
@click.option(
    "--id", "ids", multiple=True, help="With --requeue: id of a work or of a segment; repeat the option for several."
)
def work(form: str, requeue: bool, ids: tuple[str, ...], **options: Any) -> None:
    """List merges and rollups that failed, and why.

    `waiting` work is tried again, after pauses that double. Work is set `aside` if it failed
    LAKERUNNER_WORK_MAX_ATTEMPTS times, or if one of its segments cannot be read. No data is lost: queries read the
    segments as they are. Fix the cause, then use --requeue.

    \b
    lakerunner work                                  what failed, and segments set aside
    lakerunner work --requeue                        retry all of it
    lakerunner work --requeue --id 3f2a9c01d7be      one of them
    """
    if ids and not requeue:
        raise click.UsageError("--id needs --requeue")
    client = client_of(options)
    if requeue:
        went = client.requeue(ids)
        click.echo(f"queued again: {plural(went['work'], 'work')} and {plural(went['segments'], 'segment')}")
    else:
        show_work(client.work(), form, sys.stdout)


def show_work(answer: dict[str, Any], form: str, output: TextIO) -> None:
    from lakerunner.commands.terminal.show import show_document, show_rows

    if form == "json":
        show_document(answer, output)
        return
    works = [{**one, "segments": len(one["segments"])} for one in answer["work"]]
    if works:
        shown = ["id", "work", "state", "attempts", "signal", "tier", "collector", "segments", "next_at", "reason"]
        show_rows(shown, works, output)
    if answer["segments"]:
        show_rows(["id", "signal", "tier", "collector", "start", "rows", "reason"], answer["segments"], output)
    waiting = sum(one["state"] == "waiting" for one in works)
    segments = plural(len(answer["segments"]), "segment")
    output.write(f"{waiting} waiting, {len(works) - waiting} set aside, {segments} set aside\n")
