"""`lakerunner streams`: which attributes of an organization's logs are labels in LogQL, and how lines get their level.

docs/formats/streams.md describes the rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import click

from lakerunner.commands.options import home_option, settings_of
from lakerunner.model.errors import UserError

_org = click.option("--org", default="default", show_default=True, help="Organization, by id or name.")


@click.group()
def streams() -> None:
    """Manage what a log stream is for an organization: labels, metadata, service_name and detected_level in LogQL.

    The rules apply to all rows, also to those that were stored before.
    """


@streams.command("show")
@_org
@home_option
def show_streams(org: str, home: Path | None) -> None:
    """Print the rules as JSON, in the form that `set` reads."""
    from lakerunner.services.ground import inspected, organization

    with inspected(settings_of({"home": home})) as index:
        rules = index.organizations.stream_rules(organization(index, org).id)
    click.echo(json.dumps(rules.to_json(), indent=2, ensure_ascii=False))


@streams.command("set")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@_org
@home_option
def set_streams(file: IO[str], org: str, home: Path | None) -> None:
    """Set the rules to the JSON of FILE; - is standard input. What it does not name is as in Loki.

    \b
    echo '{"discover_service_name": [], "discover_log_levels": false}' | lakerunner streams set - --org acme
    """
    from lakerunner.model.streams.stream_rules import StreamRules
    from lakerunner.services.ground import administered, organization

    try:
        rules = StreamRules.from_json(json.load(file))
    except (ValueError, RecursionError) as error:
        raise UserError(f"stream rules are not JSON: {error}") from error
    with administered(settings_of({"home": home}), create=True) as index:
        index.organizations.set_stream_rules(organization(index, org).id, rules)


@streams.command("clear")
@_org
@home_option
def clear_streams(org: str, home: Path | None) -> None:
    """Remove the organization's own rules, so that Loki's defaults apply again."""
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        index.organizations.set_stream_rules(organization(index, org).id, None)
