"""`lakerunner orgs` and `lakerunner keys`: organizations, and who may do what in them. (docs/formats/keys.md)"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from lakerunner.commands.options import home as home_option
from lakerunner.commands.options import settings_of
from lakerunner.model.caller import Role, roles_named


@click.group()
def orgs() -> None:
    """Manage organizations, the owners of telemetry. The path of a raw object has an id or name: otel-raw/{org}/..."""


@orgs.command("create")
@click.argument("name")
@click.option("--id", "id_", help="UUID of the organization; default: a new one.")
@home_option
def create_org(name: str, id_: str | None, home: Path | None) -> None:
    """Create an organization and print its id."""
    from lakerunner.services.admin import administered, create_organization

    with administered(settings_of({"home": home}), create=True) as index:
        click.echo(create_organization(index, name, id_).id)


@orgs.command("list")
@home_option
def list_orgs(home: Path | None) -> None:
    """List id and name of every organization."""
    from lakerunner.services.admin import inspected

    with inspected(settings_of({"home": home})) as index:
        for one in index.organizations.all():
            click.echo(f"{one.id}  {one.name}")


@orgs.command("limit")
@click.argument("name")
@click.option(
    "--queries-per-second",
    "rate",
    type=click.FloatRange(0),
    help="Most queries per second; 0: the setting org_queries_per_second.",
)
@click.option(
    "--concurrent", type=click.IntRange(0), help="Most queries at the same time; 0: the setting org_concurrent_queries."
)
@home_option
def limit_org(name: str, rate: float | None, concurrent: int | None, home: Path | None) -> None:
    """Limit the queries of an organization; more queries get HTTP status 429. A limit that is not given stays.

    Running services apply it within LAKERUNNER_KEY_CACHE_SECONDS.
    """
    from lakerunner.services.admin import administered, limit_organization, organization, share_line

    with administered(settings_of({"home": home})) as index:
        click.echo(share_line(limit_organization(index, organization(index, name), rate, concurrent)))


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
    from lakerunner.services.admin import inspected, key_line, organization

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
    from lakerunner.api.keys import grace_in
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
