"""`lakerunner keys`: who may do what in an organization. (docs/formats/keys.md)"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakerunner.commands.options import home_option, settings_of
from lakerunner.model.caller import Role, in_order, roles_named

if TYPE_CHECKING:
    from lakerunner.index.keys import ApiKey


@click.group()
def keys() -> None:
    """Manage API keys. A key gives access to one organization; only its hash is stored. Roles:

    \b
    read    run queries, list raw objects
    write   push telemetry, send notifications, retry failed objects
    admin   all of it, and manage the keys of the organization
    """


_org = click.option("--org", default="default", show_default=True, help="Organization, by id or name.")


@keys.command("create")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice([role.value for role in Role]),
    default=["read", "write"],
    show_default=True,
    help="Role of the key; repeat the option for several.",
)
@_org
@home_option
def create_key(name: str, roles: tuple[str, ...], org: str, home: Path | None) -> None:
    """Create a key and print its secret, which cannot be shown again."""
    from lakerunner.services.admin import administered, organization

    with administered(settings_of({"home": home}), create=True) as index:
        click.echo(index.keys.create(organization(index, org).id, name, roles_named(roles)))


@keys.command("list")
@_org
@home_option
def list_keys(org: str, home: Path | None) -> None:
    """List the keys with their roles and when they were created, rotated and revoked (UTC)."""
    from lakerunner.services.admin import inspected, organization

    with inspected(settings_of({"home": home})) as index:
        keys = index.keys.list(organization(index, org).id)
        for key in keys:
            click.echo(key_line(key, datetime.now(UTC)))
        if not keys:
            click.echo(f"{org} has no keys: create one with `lakerunner keys create NAME`", err=True)


@keys.command("rotate")
@click.argument("name")
@click.option(
    "--grace",
    default="24h",
    show_default=True,
    help="How long the old secret keeps working: 90s, 15m, 24h; 0s: not at all.",
)
@_org
@home_option
def rotate_key(name: str, grace: str, org: str, home: Path | None) -> None:
    """Give a key a new secret and print it; it cannot be shown again.

    The old secret keeps working until --grace is over. If the key is rotated again before that, only the newest of the
    old secrets keeps working.
    """
    from lakerunner.api.admin.keys_api import grace_in
    from lakerunner.services.admin import administered, organization

    with administered(settings_of({"home": home})) as index:
        click.echo(index.keys.rotate(organization(index, org).id, name, grace_in(grace)))


@keys.command("revoke")
@click.argument("name")
@_org
@home_option
def revoke_key(name: str, org: str, home: Path | None) -> None:
    """Revoke a key. Requests with it are refused after LAKERUNNER_KEY_CACHE_SECONDS (30 s) at the latest."""
    from lakerunner.services.admin import administered, organization

    with administered(settings_of({"home": home})) as index:
        index.keys.revoke(organization(index, org).id, name)


def key_line(key: ApiKey, now: datetime) -> str:
    """One key for people; times are UTC."""
    parts = [key.name, ",".join(in_order(key.roles)), f"made {_minute(key.created_at)}"]
    if key.rotated_at:
        parts.append(f"rotated {_minute(key.rotated_at)}")
    if key.previous_until and not key.revoked_at and now < key.previous_until:
        parts.append(f"old secret works until {_minute(key.previous_until)}")
    if key.revoked_at:
        parts.append(f"revoked {_minute(key.revoked_at)}")
    return "  ".join(parts)


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
