"""`lakerunner backup` and `lakerunner restore`: copy a lake elsewhere, and create one from a copy
(docs/guides/backup.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakerunner.commands.options import EPILOG, home_option, settings_of, store_option
from lakerunner.model.display import plural
from lakerunner.model.errors import UserError
from lakerunner.settings import Settings

if TYPE_CHECKING:
    from lakerunner.objects.open import StoreAddress

_options = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the object store at this URL, as in store_options; default: "
    "store_options, if it is the same kind of store.",
)


@click.command(epilog=EPILOG)
@click.argument("dest")
@home_option
@store_option
@_options
@click.option("--without-raw", is_flag=True, help="Copy only those raw objects that are not ingested yet.")
@click.option(
    "--index-only", is_flag=True, help="Copy no objects, if the bucket keeps versions or is copied by other means."
)
@click.option(
    "--prune", is_flag=True, help="Afterwards remove earlier backups, and objects that this backup does not use."
)
def backup(dest: str, options: tuple[str, ...], home: Path | None, store: str | None, **request: bool) -> None:
    """Back up the lake to DEST, a directory or an object store URL, while it runs or not.

    The index is dumped in one snapshot, then every object that it uses is copied. Objects never change, so the next
    backup to the same DEST copies only new ones; earlier backups stay. A backup is complete once its manifest is
    written, as the last step.

    \b
    lakerunner backup /mnt/backups/lake
    lakerunner backup s3://backups/lake --option region=eu-west-1
    lakerunner backup s3://backups/lake --prune       keep the newest only

    \b
    Exit codes: 0 complete backup, 1 error and no backup, 2 wrong usage.
    """
    from lakerunner.commands.terminal.show import progress
    from lakerunner.objects.open import open_store
    from lakerunner.services.backup.take import BackupRequest, run_backup

    if request["index_only"] and (request["prune"] or request["without_raw"]):
        raise click.UsageError("--index-only copies no objects: leave out --prune and --without-raw")
    settings = settings_of({"home": home, "store": store})
    address = _address(settings, dest, options)
    if address.url == settings.store_url:
        raise UserError(f"{address.url} is the lake's own store: back up to a different place")
    with progress(sys.stderr) as say:
        made = run_backup(settings, open_store(address), BackupRequest(**request), say)
    click.echo(
        f"backup {made.name}: index of {made.dump_bytes} bytes, {plural(made.files, 'file')} of segments "
        f"({made.file_bytes} bytes), {plural(made.raw_objects, 'raw object')} ({made.raw_bytes} bytes)"
    )
    if made.lost:
        click.echo(
            f"{made.lost} raw objects that wait to be ingested are missing from the store: see `lakerunner objects`",
            err=True,
        )


@click.command(epilog=EPILOG)
@click.argument("source")
@home_option
@store_option
@_options
@click.option(
    "--backup", "name", metavar="NAME", help="Name of the backup to restore; default: the newest complete one."
)
def restore(source: str, name: str | None, options: tuple[str, ...], home: Path | None, store: str | None) -> None:
    """Create a new lake from a backup at SOURCE, in an empty --home, or an empty --store and DATABASE_URL.

    Every object is compared with its digest in the backup. Keys, organizations and retentions are those of the
    backup. Raw objects that were not ingested yet are ingested when the lake is up.

    \b
    lakerunner restore /mnt/backups/lake --home ./lake2
    lakerunner restore s3://backups/lake --home ./lake2 --backup 20260131T020000000Z

    \b
    Exit codes: 0 restored, 1 error and no lake, 2 wrong usage.
    """
    from lakerunner.commands.terminal.show import progress
    from lakerunner.objects.open import shared_store
    from lakerunner.services.backup.restore import run_restore

    settings = settings_of({"home": home, "store": store})
    with progress(sys.stderr) as say:
        made = run_restore(settings, shared_store(_address(settings, source, options)), name, say)
    where = f" --home {settings.home}" + (f" --store {settings.store}" if settings.store else "")
    click.echo(f"restored backup {made.name} of {made.time}. Next:")
    click.echo(f"  lakerunner fsck --deep{where}")
    click.echo(f"  lakerunner up{where}")


def _address(settings: Settings, place: str, options: tuple[str, ...]) -> StoreAddress:
    """Return the address of a backup: a directory, or a URL as in --store."""
    from lakerunner.objects.open import StoreAddress

    url = place if "://" in place else Path(place).resolve().as_uri()
    pairs: dict[str, str] = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise click.UsageError(f"--option {name!r} has no value: write NAME=VALUE")
        pairs[name] = value
    if not options and url.partition("://")[0] == settings.store_url.partition("://")[0]:
        pairs = settings.store_options
    return StoreAddress(url, tuple(sorted(pairs.items())), settings.store_retries, settings.store_retry_seconds)
