"""`lakerunner objects`: what became of raw objects, which lines of them were rejected, and how one ends by hand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lakerunner.commands.options import EPILOG, settings_of
from lakerunner.commands.options import home as home_option
from lakerunner.model.errors import NotFound
from lakerunner.model.plural import plural
from lakerunner.services.drawn import drawn

if TYPE_CHECKING:
    from lakerunner.services.client import Client

STATES = ["seen", "done", "partial", "failed", "dismissed"]
_url = click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
_key = click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one.")
_format = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group(epilog=EPILOG, invoke_without_command=True)
@home_option
@_url
@_key
@click.option("--state", type=click.Choice(STATES), help="Only objects in this state.")
@click.option(
    "--path",
    metavar="PREFIX",
    help="Only objects whose key starts with this text, or matches it if it contains * or ?.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@_format
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
    from lakerunner.services.show_objects import show_objects

    if context.invoked_subcommand:
        return
    client = _client(context)
    if options["retry"]:
        click.echo(f"queued again: {plural(client.retry(), 'object')}")
        return
    params = {"state": options["state"], "key": options["path"], "limit": options["limit"]}
    show_objects(client.objects(params), options["form"], sys.stdout)


def _client(context: click.Context) -> Client:
    """By the options of the command or, where it has none, of the group."""
    from lakerunner.services.client import Client

    given = (context.parent.params if context.parent else {}) | {k: v for k, v in context.params.items() if v}
    return Client.find(settings_of({"home": given.get("home")}), given.get("url"), given.get("key"))


@objects.command(epilog=EPILOG)
@click.argument("object_key", metavar="KEY")
@home_option
@_url
@_key
@_format
@click.pass_context
def rejects(context: click.Context, /, object_key: str, form: str, **_connection: Any) -> None:
    """Show the lines of the object KEY that could not be read: the first 100, with number, offset, reason and start."""
    from lakerunner.services.show_objects import show_rejects

    client = _client(context)
    answer = client.rejects(object_key)
    if not answer["rejects"]:
        _require(client, object_key)
    show_rejects(answer, form, sys.stdout)


@objects.command(epilog=EPILOG)
@click.argument("object_key", metavar="KEY")
@home_option
@_url
@_key
@click.pass_context
def dismiss(context: click.Context, /, object_key: str, **_connection: Any) -> None:
    """End the object KEY by hand: failed becomes dismissed, partial becomes done. Nothing is deleted."""
    client = _client(context)
    if client.dismiss(object_key):
        click.echo(drawn(f"dismissed {object_key}"))
        return
    _require(client, object_key)
    click.echo(drawn(f"nothing to dismiss: {object_key} is neither failed nor partial"))


def _require(client: Client, key: str) -> None:
    """NotFound if no object has this key, with the key of one that ends so."""
    ending = [one["key"] for one in client.objects({"key": f"*{key}", "limit": 100})["objects"]]
    if key not in ending:
        advice = f"did you mean {ending[0]}?" if ending else "`lakerunner objects` lists keys"
        raise NotFound(f"no object has the key {key}: {advice}")
