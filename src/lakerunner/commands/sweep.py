"""`lakerunner sweep` and `lakerunner retention`: what goes, and when."""

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
@click.option("--dry-run", is_flag=True, help="List what would be deleted and why; change nothing.")
@click.option("--verbose", is_flag=True, help="List every object.")
@click.option(
    "--force", is_flag=True, help="Delete files that the index does not use even if they are most of the store."
)
def sweep(dry_run: bool, verbose: bool, force: bool, **options: Any) -> None:
    """Delete expired data once, now, as the sweeper does every LAKERUNNER_SWEEP_SECONDS.

    \b
    lakerunner sweep --dry-run            what would be deleted, how much and why
    lakerunner sweep --dry-run --verbose  every object

    \b
    Exit codes: 0 done, 1 error or incomplete, 2 wrong usage, 3 another sweeper is running.
    """
    from lakerunner.services.sweep.command import run_sweep

    settings = settings_of(options)
    told = lambda sentence: click.echo(sentence, err=True)  # noqa: E731
    sys.exit(run_sweep(settings, told, dry_run=dry_run, verbose=verbose, force=force))


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
    from lakerunner.services.admin import inspected, organization
    from lakerunner.services.sweep.command import show_retention as show

    settings = settings_of({"home": home})
    with inspected(settings) as index:
        show(settings, index, organization(index, org), sys.stdout)


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
    from lakerunner.services.sweep.command import set_retention as set_

    with administered(settings_of({"home": home}), create=True) as index:
        set_(index, organization(index, org), pairs)


@retention.command("clear")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_whose
@home_option
def clear_retention(names: tuple[str, ...], org: str, home: Path | None) -> None:
    """Remove the organization's own values, so that LAKERUNNER_RETENTION applies again."""
    from lakerunner.services.admin import administered, organization
    from lakerunner.services.sweep.command import clear_retention as clear

    with administered(settings_of({"home": home})) as index:
        click.echo(f"{clear(index, organization(index, org), names)} cleared")
