"""`lakerunner orgs`: organizations, and what each may take of the query service. (docs/formats/keys.md)"""

from __future__ import annotations

from pathlib import Path

import click

from lakerunner.commands.options import home_option, settings_of
from lakerunner.model.caller import Share


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
    from lakerunner.services.admin import administered, limit_organization, organization

    with administered(settings_of({"home": home})) as index:
        click.echo(share_line(limit_organization(index, organization(index, name), rate, concurrent)))


def share_line(share: Share) -> str:
    rate, concurrent = share.queries_per_second, share.concurrent_queries
    return (
        "queries per second: "
        f"{'as org_queries_per_second says' if rate is None else f'{rate:g}'}; at the same "
        f"time: {'as org_concurrent_queries says' if concurrent is None else concurrent}"
    )
