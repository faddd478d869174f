"""`lakerunner retention`: how long an organization keeps its data. (docs/formats/sweeping.md)"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakerunner.commands.options import home_option, settings_of
from lakerunner.model.errors import UserError
from lakerunner.model.retention import NAMES, duration_text, kept_named, parse_retention


@click.group()
def retention() -> None:
    """Manage how long an organization keeps its data. Without a value here, LAKERUNNER_RETENTION applies.

    \b
    logs, traces      their rows
    metrics           points as they were sent
    metrics.10s ...   rollups: 10s, 1m, 5m, 1h, 1d
    all               everything that is not named in the same command
    """


_whose = click.option("--org", default="default", show_default=True, help="Organization, by id or name.")


@retention.command("show")
@_whose
@home_option
def show_retention(org: str, home: Path | None) -> None:
    """Show how long each signal and tier is kept, and whether the organization or the setting decides it."""
    from lakerunner.commands.terminal.show import show_rows
    from lakerunner.services.admin import inspected, organization

    settings = settings_of({"home": home})
    default = parse_retention(settings.retention.items())
    with inspected(settings) as index:
        own = index.retention.of(organization(index, org).id)
    rows = [
        {
            "signal": name,
            "kept": duration_text(own[kept] if kept in own else default.of.get(kept)),
            "by": "the organization" if kept in own else "the setting retention" if kept in default.of else "",
        }
        for name, kept in NAMES.items()
    ]
    show_rows(("signal", "kept", "by"), rows, sys.stdout)


@retention.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=DURATION...")
@_whose
@home_option
def set_retention(pairs: tuple[str, ...], org: str, home: Path | None) -> None:
    """Set how long to keep data: 12h, 30d, 4w, 2y or forever.

    \b
    lakerunner retention set logs=30d traces=7d metrics=15d metrics.1h=2y --org acme
    """
    from lakerunner.services.admin import administered, organization

    with administered(settings_of({"home": home}), create=True) as index:
        whose = organization(index, org)
        index.retention.set(whose.id, parse_retention(map(_named, pairs)).of)


@retention.command("clear")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_whose
@home_option
def clear_retention(names: tuple[str, ...], org: str, home: Path | None) -> None:
    """Remove the organization's own values, so that LAKERUNNER_RETENTION applies again."""
    from lakerunner.services.admin import administered, organization

    with administered(settings_of({"home": home})) as index:
        whose = organization(index, org)
        kept = {one for name in names for one in kept_named(name)}
        click.echo(f"{index.retention.clear(whose.id, sorted(kept))} cleared")


def _named(pair: str) -> tuple[str, str]:
    name, separator, text = pair.partition("=")
    if not separator:
        raise UserError(f"{pair!r} is not NAME=DURATION: write logs=30d, metrics.1h=2y or all=forever")
    return name, text
