"""`lakerunner orgs`, `keys` and `retention`: organizations, their limits, API keys and how long their data is kept.

docs/formats/keys.md and docs/formats/sweeping.md describe them.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakerunner.commands.options import home_option, settings_of
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Role, Share, parse_roles, role_names
from lakerunner.model.retention_policy import NAMES, duration_text, parse_retention, parse_retention_name

if TYPE_CHECKING:
    from lakerunner.index.api_keys import ApiKey

_org = click.option("--org", default="default", show_default=True, help="Organization, by id or name.")


@click.group()
def orgs() -> None:
    """Manage organizations, the owners of telemetry. The path of a raw object has an id or name: otel-raw/{org}/..."""


@orgs.command("create")
@click.argument("name")
@click.option("--id", "id_", help="UUID of the organization; default: a new one.")
@home_option
def create_org(name: str, id_: str | None, home: Path | None) -> None:
    """Create an organization and print its id."""
    from lakerunner.services.ground import administered, create_organization

    with administered(settings_of({"home": home}), create=True) as index:
        click.echo(create_organization(index, name, id_).id)


@orgs.command("list")
@home_option
def list_orgs(home: Path | None) -> None:
    """List id and name of every organization."""
    from lakerunner.services.ground import inspected

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
    from lakerunner.services.ground import administered, limit_organization, organization

    with administered(settings_of({"home": home})) as index:
        click.echo(share_line(limit_organization(index, organization(index, name), rate, concurrent)))


def share_line(share: Share) -> str:
    """Describe the limits of an organization in one line."""
    rate, concurrent = share.queries_per_second, share.concurrent_queries
    return (
        "queries per second: "
        f"{'as org_queries_per_second says' if rate is None else f'{rate:g}'}; at the same "
        f"time: {'as org_concurrent_queries says' if concurrent is None else concurrent}"
    )


@click.group()
def keys() -> None:
    """Manage API keys. A key gives access to one organization; only its hash is stored. Roles:

    \b
    read    run queries, list raw objects
    write   push telemetry, send notifications, retry failed objects
    admin   all of it, and manage the keys of the organization
    """


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
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home}), create=True) as index:
        click.echo(index.keys.create(organization(index, org).id, name, parse_roles(roles)))


@keys.command("list")
@_org
@home_option
def list_keys(org: str, home: Path | None) -> None:
    """List the keys with their roles and when they were created, rotated and revoked (UTC)."""
    from lakerunner.services.ground import inspected, organization

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
    from lakerunner.api.admin.keys_api import parse_grace
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        click.echo(index.keys.rotate(organization(index, org).id, name, parse_grace(grace)))


@keys.command("revoke")
@click.argument("name")
@_org
@home_option
def revoke_key(name: str, org: str, home: Path | None) -> None:
    """Revoke a key. Requests with it are refused after LAKERUNNER_KEY_CACHE_SECONDS (30 s) at the latest."""
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        index.keys.revoke(organization(index, org).id, name)


def key_line(key: ApiKey, now: datetime) -> str:
    """Describe a key in one line; times are UTC."""
    parts = [key.name, ",".join(role_names(key.roles)), f"made {_minute(key.created_at)}"]
    if key.rotated_at:
        parts.append(f"rotated {_minute(key.rotated_at)}")
    if key.previous_until and not key.revoked_at and now < key.previous_until:
        parts.append(f"old secret works until {_minute(key.previous_until)}")
    if key.revoked_at:
        parts.append(f"revoked {_minute(key.revoked_at)}")
    return "  ".join(parts)


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


@click.group()
def retention() -> None:
    """Manage how long an organization keeps its data. Without a value here, LAKERUNNER_RETENTION applies.

    \b
    logs, traces      their rows
    metrics           points as they were sent
    metrics.10s ...   rollups: 10s, 1m, 5m, 1h, 1d
    all               everything that is not named in the same command
    """


@retention.command("show")
@_org
@home_option
def show_retention(org: str, home: Path | None) -> None:
    """Show how long each signal and tier is kept, and whether the organization or the setting decides it."""
    from lakerunner.commands.terminal.show import show_rows
    from lakerunner.services.ground import inspected, organization

    settings = settings_of({"home": home})
    default = parse_retention(settings.retention.items())
    with inspected(settings) as index:
        own = index.retention.of(organization(index, org).id)
    rows = [
        {
            "signal": name,
            "kept": duration_text(own[kept] if kept in own else default.durations.get(kept)),
            "by": "the organization" if kept in own else "the setting retention" if kept in default.durations else "",
        }
        for name, kept in NAMES.items()
    ]
    show_rows(("signal", "kept", "by"), rows, sys.stdout)


@retention.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=DURATION...")
@_org
@home_option
def set_retention(pairs: tuple[str, ...], org: str, home: Path | None) -> None:
    """Set how long to keep data: 12h, 30d, 4w, 2y or forever.

    \b
    lakerunner retention set logs=30d traces=7d metrics=15d metrics.1h=2y --org acme
    """
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home}), create=True) as index:
        whose = organization(index, org)
        index.retention.set(whose.id, parse_retention(map(_split_pair, pairs)).durations)


@retention.command("clear")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_org
@home_option
def clear_retention(names: tuple[str, ...], org: str, home: Path | None) -> None:
    """Remove the organization's own values, so that LAKERUNNER_RETENTION applies again."""
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        whose = organization(index, org)
        kept = {one for name in names for one in parse_retention_name(name)}
        click.echo(f"{index.retention.clear(whose.id, sorted(kept))} cleared")


def _split_pair(pair: str) -> tuple[str, str]:
    name, separator, text = pair.partition("=")
    if not separator:
        raise UserError(f"{pair!r} is not NAME=DURATION: write logs=30d, metrics.1h=2y or all=forever")
    return name, text
