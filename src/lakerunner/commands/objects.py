"""`lakerunner objects`: list raw objects with their state and rejected lines; retry or dismiss them. `lakerunner work`:
list merges and rollups that failed, and retry them (docs/formats/tending.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import click

from lakerunner.commands.options import (
    EPILOG,
    client_of,
    connection_options,
    format_option,
    home_option,
    url_option,
)
from lakerunner.model.display import escape_controls, plural
from lakerunner.model.errors import NotFound

if TYPE_CHECKING:
    from lakerunner.commands.terminal.client import Client

STATES = ["seen", "done", "partial", "failed", "dismissed"]
_PAGE_COLUMNS = 200  # width without a terminal
_FIXED = ("state", "time", "rows", "bytes", "line", "offset")
_NUMBERS = ("rows", "bytes", "line", "offset")


@click.group(epilog=EPILOG, invoke_without_command=True)
@connection_options
@click.option("--state", type=click.Choice(STATES), help="Only objects in this state.")
@click.option(
    "--path",
    metavar="PREFIX",
    help="Only objects whose key starts with this text, or matches it if it contains * or ?.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@format_option
@click.option("--retry", is_flag=True, help="Ingest all failed objects again.")
@click.pass_context
def objects(context: click.Context, /, **options: Any) -> None:
    """List raw objects and their state, newest first.

    \b
    seen       announced, not ingested yet
    done       ingested completely, perhaps with notes on guessed or improbable values
    partial    ingested except for lines that could not be read
    failed     not ingested, with the reason
    dismissed  failed, then closed: a newer version was ingested, or by hand

    \b
    lakerunner objects --state failed                failed objects with the reason
    lakerunner objects --path 'otel-raw/acme/*.csv'  objects by their key
    lakerunner objects rejects KEY                   lines that could not be read
    lakerunner objects dismiss KEY                   close a failed or partial object
    """
    if context.invoked_subcommand:
        return
    client = _client(context)
    if options["retry"]:
        click.echo(f"queued again: {plural(client.retry(), 'object')}")
        return
    params = {"state": options["state"], "key": options["path"], "limit": options["limit"]}
    show_objects(client.objects(params), options["form"], sys.stdout)


def _client(context: click.Context) -> Client:
    """Return a client by the options of the subcommand or, if it has none, of the group."""
    return client_of((context.parent.params if context.parent else {}) | {k: v for k, v in context.params.items() if v})


@objects.command(epilog=EPILOG)
@click.argument("object_key", metavar="KEY")
@connection_options
@format_option
@click.pass_context
def rejects(context: click.Context, /, object_key: str, form: str, **_connection: Any) -> None:
    """Show the lines of the object KEY that could not be read: the first 100, with number, offset, reason and start."""
    client = _client(context)
    answer = client.rejects(object_key)
    if not answer["rejects"]:
        _require(client, object_key)
    show_rejects(answer, form, sys.stdout)


@objects.command(epilog=EPILOG)
@click.argument("object_key", metavar="KEY")
@connection_options
@click.pass_context
def dismiss(context: click.Context, /, object_key: str, **_connection: Any) -> None:
    """Close the object KEY: failed becomes dismissed, partial becomes done. Nothing is deleted."""
    client = _client(context)
    if client.dismiss(object_key):
        click.echo(escape_controls(f"dismissed {object_key}"))
        return
    _require(client, object_key)
    click.echo(escape_controls(f"nothing to dismiss: {object_key} is neither failed nor partial"))


def _require(client: Client, key: str) -> None:
    """Raise NotFound if no object has this key; suggest a key that ends with it."""
    ending = [one["key"] for one in client.objects({"key": f"*{key}", "limit": 100})["objects"]]
    if key not in ending:
        advice = f"did you mean {ending[0]}?" if ending else "`lakerunner objects` lists keys"
        raise NotFound(f"no object has the key {key}: {advice}")


def show_objects(answer: Mapping[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        from lakerunner.commands.terminal.show import show_document

        show_document(answer, output)
        return
    _show_table(("state", "time", "rows", "bytes", "key", "what"), map(_object_cells, answer["objects"]), output)
    counts = answer["counts"].items()
    output.write(", ".join(f"{count} {state}" for state, count in counts) + "; times are UTC\n")


def show_rejects(answer: Mapping[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        from lakerunner.commands.terminal.show import show_document

        show_document(answer, output)
        return
    rejects = answer["rejects"]
    if not rejects:
        output.write(escape_controls(f"no line of {answer['key']} was rejected") + "\n")
        return
    rows = ([str(one["line"]), str(one["offset"]), one["reason"], one["excerpt"]] for one in rejects)
    _show_table(("line", "offset", "reason", "begins with"), rows, output)
    rejected, shown = answer["rejected"], len(rejects)
    first = "" if shown == rejected else f"; the first {shown} are shown"
    output.write(f"{rejected} of {plural(answer['lines'], 'line')} rejected{first}\n")


def _object_cells(one: Mapping[str, Any]) -> list[str]:
    rows = one.get("rows")
    return [
        one["state"],
        _moment(one.get("ended_at") or one.get("seen_at")),
        "" if rows is None else str(rows),
        str(one["size"]),
        one["key"],
        "\n".join(_remarks(one)),
    ]


def _remarks(one: Mapping[str, Any]) -> Iterable[str]:
    """Yield the reason of a failure, the number of rejected lines, and notes."""
    if one.get("reason"):
        yield one["reason"]
    if one.get("rejected"):
        yield f"{plural(one['rejected'], 'line')} rejected: see `lakerunner objects rejects KEY`"
    for note in one.get("notes", ()):
        where = f"{plural(note['count'], 'record')}, first in line {note['line']}"
        yield f"note: {note['kind']} ({where}): {note['text']}"


def _moment(text: str | None) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M}" if text else ""


def _show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], output: TextIO) -> None:
    """Print a table. On a terminal, columns in _FIXED keep their width, and keys and reasons share the rest."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS)
    table = Table()
    for name in columns:
        fixed = name in _FIXED
        justify: Any = "right" if name in _NUMBERS else "left"
        table.add_column(name, overflow="fold", no_wrap=fixed, justify=justify, min_width=None if fixed else 12)
    for row in rows:
        table.add_row(*(Text(escape_controls(cell)) for cell in row))
    console.print(table)


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
