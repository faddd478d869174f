"""The command line, and the composition root: settings from here, everything else from services."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import click

from lakerunner.commands.backup import backup, restore
from lakerunner.commands.cardinality import cardinality
from lakerunner.commands.operate import fsck, status
from lakerunner.commands.options import EPILOG
from lakerunner.commands.options import home as _home
from lakerunner.commands.options import settings_of as _settings
from lakerunner.commands.options import store as _store
from lakerunner.commands.sweep import retention, sweep
from lakerunner.commands.work import work
from lakerunner.model.caller import Role, roles_named
from lakerunner.model.errors import LakerunnerError, in_full
from lakerunner.model.source import SIGNAL_NAMES
from lakerunner.services.drawn import drawn
from lakerunner.settings import describe

_listen = click.option("--listen", metavar="HOST:PORT", help="Address of the HTTP API; port 0: a free one.")


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lakerunner")
def cli() -> None:
    """Lakerunner: a telemetry lake.

    OpenTelemetry logs, metrics and traces land as files in object storage, Spark turns them into sorted
    Parquet segments, PostgreSQL indexes them, DuckDB answers.

    \b
    Start here:
      lakerunner demo                 everything, with a demo shop's telemetry
      lakerunner up                   everything, with your telemetry
      lakerunner sql "select service_name, count(*) from logs group by 1"
      lakerunner promql 'sum by (job) (rate(http_requests_total[5m]))'
    """


@cli.command(epilog=EPILOG)
@_home
@_listen
@_store
def up(**options: Any) -> None:
    """Run everything in one process: embedded PostgreSQL, bus, Spark, API.

    Drop OTLP files under STORE/otel-raw/{org}/{collector}/, or send OTLP to the API, or to ports 4317 (gRPC) and
    4318 (HTTP). HOME/address holds the API's base URL once all is up. Ctrl-C stops everything in order.
    """
    from lakerunner.services.run import UP, run_parts

    settings = _settings(options, service=True)
    sys.exit(run_parts(settings, UP, _say))


@cli.command(epilog=EPILOG)
@_home
@_listen
@_store
@click.option("--once", is_flag=True, help="Ingest, ask, compare with the truth, exit 0 if all is right.")
@click.option(
    "--minutes",
    type=click.IntRange(1, 24 * 60),
    default=60,
    show_default=True,
    help="Shop time to begin with.",
)
@click.option(
    "--rate", type=click.FloatRange(0.1, 1000), default=5.0, show_default=True, help="Shop requests a second."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same shop.")
def demo(once: bool, minutes: int, rate: float, seed: int, **options: Any) -> None:
    """`up` with the telemetry of a shop of ten services, an incident included, and example questions."""
    from lakerunner.services.demo import Demo
    from lakerunner.services.run import UP, run_parts

    settings = _settings(options)
    shop = Demo(seed=seed, rate=rate, minutes=minutes, once=once)
    sys.exit(run_parts(settings, UP, _say, shop.run))


def _service(name: str, text: str) -> None:
    @_home
    @_listen
    @_store
    def run(**options: Any) -> None:
        from lakerunner.services.run import run_parts, run_worker

        settings = _settings(options, service=True)
        if name == "query-worker":
            sys.exit(run_worker(settings, _say))
        if not settings.database_url:
            raise click.UsageError(
                "a service that runs alone shares its index with the others: set DATABASE_URL to a PostgreSQL "
                "server. (The embedded one belongs to `lakerunner up`.)"
            )
        sys.exit(run_parts(settings, [name], _say))

    run.__doc__ = text
    cli.command(name, epilog=EPILOG)(run)


_service(
    "pubsub",
    """Doors: find or be told of raw objects, take OTLP, and announce what came on the bus.

    Lists the raw prefixes of STORE (LAKERUNNER_ROUTES adds some), takes notifications on POST
    /api/v1/events/{s3,gcp,azure} and from LAKERUNNER_SQS_QUEUE_URL, _PUBSUB_SUBSCRIPTION, _AZURE_QUEUE_URL, and OTLP
    on /v1/logs, 4317 and 4318.
    """,
)
_service(
    "boxer",
    """Group announced objects, and segments to merge or roll up, into boxes worth a Spark job.

    A box closes by age, size or count: LAKERUNNER_BOX_MAX_SECONDS, _BYTES, _OBJECTS; LAKERUNNER_COMPACT_MAX_SECONDS,
    _TARGET_BYTES, _MAX_SEGMENTS; LAKERUNNER_ROLLUP_MAX_SECONDS.
    """,
)
_service(
    "ingest",
    """Turn boxes of raw objects into committed segments, one Spark job per box.

    LAKERUNNER_SPARK_MASTER chooses where tasks run: local[*], spark://..., k8s://..., yarn.
    """,
)
_service(
    "compact",
    """Merge small segments into large ones, level by level, one Spark task per merge.

    Segments of an hour, later of a day, are merged until they have LAKERUNNER_COMPACT_TARGET_BYTES; rows that were
    delivered twice are dropped. A merge that fails is tried again and then set aside: `lakerunner work` lists it.
    """,
)
_service(
    "rollup",
    """Roll metrics up into windows of 10 s, 1 m, 5 m, 1 h and 1 d, each tier from the one before.

    Late data makes the windows it touches anew, through all tiers. A rollup that fails is tried again and then set
    aside: `lakerunner work` lists it.
    """,
)
_service(
    "sweeper",
    """Delete what is past its time: rows past retention, files of replaced segments, what dead work left behind.

    Every LAKERUNNER_SWEEP_SECONDS; one sweeper works at a time, others wait. `lakerunner sweep --dry-run` tells what
    would go.
    """,
)
_service(
    "query-api",
    """Answer queries over HTTP: POST /api/v1/sql, and Prometheus' API below /prometheus.

    LAKERUNNER_WORKERS names query workers; without it, queries run in this process.
    """,
)
_service(
    "query-worker",
    """Run parts of queries for query-api over cached segments. Needs the object store only.

    Beyond loopback, LAKERUNNER_WORKER_KEY must be the same here and on query-api.
    """,
)


@cli.command(epilog=EPILOG)
@click.argument("query", required=False)
@_home
@click.option("--url", help="Base URL of the API, instead of the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, where the API wants one.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "ndjson", "csv", "arrow", "parquet"]),
    default="table",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, whole or not.")
@click.option("--file", "file", type=click.File("r", encoding="utf-8"), help="Read the query from this file.")
@click.option("--param", multiple=True, metavar="NAME=TEXT", help="Value of $NAME; NAME:=JSON for a typed one.")
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True)
@click.option("--partial", is_flag=True, help="Take what can be read, name what cannot; exit code 3.")
@click.option("--explain", is_flag=True, help="How the query would be answered, instead of the answer.")
@click.option("--analyze", is_flag=True, help="Answer it, and show what that took.")
def sql(home: Path | None, url: str | None, key: str | None, **options: Any) -> None:
    """Ask in SQL and print the answer; without a QUERY, a prompt.

    \b
    lakerunner sql                                              a prompt; \\? helps
    lakerunner sql "select service_name, count(*) from logs group by 1"
    lakerunner sql "select timestamp, message from logs where timestamp > now() - interval 1 hour limit 5"
    lakerunner sql 'select * from logs where service_name = $s' --param s=cart --format ndjson
    lakerunner sql "select * from spans" --format parquet --output spans.parquet
    lakerunner sql --file report.sql --format csv > report.csv
    echo "select 1 as n" | lakerunner sql -
    lakerunner sql --analyze "select count(*) from logs where message like '%timeout%'"

    \b
    Exit codes: 0 whole answer, 1 error, 2 wrong usage, 3 incomplete answer (--partial).
    """
    from lakerunner.services.ask import Asking, ask_once, parameters
    from lakerunner.services.client import Client, Query

    text = _query_text(options["query"], options["file"])
    query = Query(text or "", parameters(options["param"]), options["engine"], options["partial"])
    prefix = "EXPLAIN ANALYZE" if options["analyze"] else "EXPLAIN" if options["explain"] else ""
    asking = Asking(query, options["form"], options["output"], prefix)
    client = Client.find(_settings({"home": home}), url, key)
    if text is not None:
        sys.exit(ask_once(client, asking))
    from lakerunner.services.prompt import Prompt, edited_lines, history_path

    with edited_lines(client, history_path(os.environ)):
        Prompt(client, asking).run()


@cli.command(epilog=EPILOG)
@click.argument("query")
@_home
@click.option("--url", help="Base URL of the API, instead of the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, where the API wants one.")
@click.option("--start", metavar="TIME", help="First step; default: an hour before the end.")
@click.option("--end", metavar="TIME", help="Last step; default: now.")
@click.option("--step", metavar="DURATION", help="Between steps: 15s, 5m, 1h; default: what the plot has room for.")
@click.option("--instant", is_flag=True, help="At one moment, --time or --end or now.")
@click.option("--time", metavar="TIME", help="That moment; means --instant.")
@click.option("--format", "form", type=click.Choice(["plot", "table", "json", "csv"]), help="Default: plot; table.")
@click.option("--partial", is_flag=True, help="Take what can be read, name what cannot; exit code 3.")
@click.option("--raw", is_flag=True, help="Read no rollups, to compare.")
@click.option("--explain", is_flag=True, help="Ask, and say which tiers of rollups were read, where, and why no wider.")
def promql(query: str, home: Path | None, url: str | None, key: str | None, form: str | None, **options: Any) -> None:
    """Ask in PromQL and plot the answer; one moment is a table.

    A TIME is now, now-1h (s m h d w), 2026-01-31T12:00:00Z, or seconds since 1970. QUERY may be - for standard input.

    \b
    lakerunner promql 'sum by (job) (rate(http_requests_total[5m]))'        the last hour
    lakerunner promql 'up' --instant                                        a table, now
    lakerunner promql 'topk(5, process_resident_memory_bytes)' --time now-1d
    lakerunner promql 'histogram_quantile(0.99, sum by (le) (rate(latency_seconds_bucket[5m])))' --start now-1d
    lakerunner promql 'rate(errors_total[1m])' --start now-6h --end now-5h --step 30s --format csv > errors.csv
    lakerunner promql 'count by (__name__) ({job="cart"})' --instant        which metrics a job has

    \b
    Exit codes: 0 whole answer, 1 error, 2 wrong usage, 3 incomplete answer (--partial).
    """
    import time

    from lakerunner.services.client import Client
    from lakerunner.services.promql import ask_promql, question_of

    question = question_of(_query_text(query, None) or "", options)
    client = Client.find(_settings({"home": home}), url, key)
    sys.exit(ask_promql(client, question, form or "", time.time_ns()))


def _query_text(query: str | None, file: TextIO | None) -> str | None:
    """From wherever it is; None: from a prompt."""
    if query is not None and file is not None:
        raise click.UsageError("a QUERY and --file are both there: give one of them")
    if query == "-":
        return sys.stdin.read()
    if file is not None:
        return file.read()
    if query is None and not sys.stdin.isatty():
        raise click.UsageError("give a QUERY, or `-` to read it from standard input, or --file")
    return query


@cli.command(epilog=EPILOG)
@_home
@click.option("--url", help="Base URL of the API, instead of the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, where the API wants one.")
@click.option("--state", type=click.Choice(["seen", "done", "failed"]), help="Only objects in this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--retry", is_flag=True, help="Send all failed objects again.")
def objects(
    home: Path | None, url: str | None, key: str | None, state: str | None, limit: int, form: str, retry: bool
) -> None:
    """What became of raw objects: seen (on its way), done, failed (with the reason)."""
    from lakerunner.services.client import Client
    from lakerunner.services.show import show_objects

    client = Client.find(_settings({"home": home}), url, key)
    if retry:
        click.echo(f"{client.retry()} objects go again")
    else:
        show_objects(client.objects(state, limit), form, sys.stdout)


@cli.command(epilog=EPILOG)
@click.argument("url")
@_home
@_store
@click.option("--since", metavar="TIME", help="Only objects changed then or later: 2026-01-31T12:00:00Z, 6h, 7d.")
@click.option("--until", metavar="TIME", help="Only objects changed before.")
@click.option("--org", help="Whose they are, by id or name, whatever their keys say.")
@click.option("--collector", help="The collector they come from, whatever their keys say.")
@click.option("--signal", type=click.Choice(SIGNAL_NAMES), help="What they carry, whatever their keys say.")
@click.option("--follow", is_flag=True, help="Keep looking for new objects until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Count and announce nothing.")
def backfill(url: str, org: str | None, collector: str | None, signal: str | None, **options: Any) -> None:
    """Announce what already stands below URL: s3://bucket/prefix, or a prefix of the lake's store.

    What the lake knows is not announced again, so a backfill that was cut short is simply run again. Exit code 1 if
    objects had to be set aside; `lakerunner objects --state failed` says why.

    \b
    lakerunner backfill otel-raw/ --since 7d
    lakerunner backfill s3://lake/archive/2025/ --org acme --collector edge --signal logs
    """
    from lakerunner.services.backfill import Asked, Said, run_backfill

    settings = _settings({name: options.pop(name) for name in ("home", "store")})
    asked = Asked(url, Said(org, collector, signal), **options)
    sys.exit(run_backfill(settings, asked, click.echo))


cli.add_command(backup)
cli.add_command(restore)
cli.add_command(cardinality)
cli.add_command(fsck)
cli.add_command(status)
cli.add_command(work)


@cli.group()
def orgs() -> None:
    """Organizations: who owns telemetry. Raw objects name one by id or name: otel-raw/{org}/..."""


@orgs.command("create")
@click.argument("name")
@click.option("--id", "id_", help="Its UUID, where it has one already; else a new one.")
@_home
def create_org(name: str, id_: str | None, home: Path | None) -> None:
    """Make an organization known."""
    from lakerunner.services.admin import administered, create_organization

    with administered(_settings({"home": home})) as index:
        click.echo(create_organization(index, name, id_).id)


@orgs.command("list")
@_home
def list_orgs(home: Path | None) -> None:
    """Id and name of every organization."""
    from lakerunner.services.admin import administered

    with administered(_settings({"home": home})) as index:
        for one in index.organizations.all():
            click.echo(f"{one.id}  {one.name}")


@orgs.command("limit")
@click.argument("name")
@click.option("--queries-per-second", "rate", type=click.FloatRange(0), help="0: as org_queries_per_second says.")
@click.option("--concurrent", type=click.IntRange(0), help="Queries at once. 0: as org_concurrent_queries says.")
@_home
def limit_org(name: str, rate: float | None, concurrent: int | None, home: Path | None) -> None:
    """How much an organization may ask; more is answered with 429. What is not given stays as it is.

    Running services follow within LAKERUNNER_KEY_CACHE_SECONDS.
    """
    from lakerunner.services.admin import administered, limit_organization, organization, share_line

    with administered(_settings({"home": home})) as index:
        click.echo(share_line(limit_organization(index, organization(index, name), rate, concurrent)))


@cli.group()
def keys() -> None:
    """API keys: each opens the API for one organization. Only their hashes are kept.

    \b
    read    ask: queries, what became of raw objects
    write   bring telemetry: every push door, events, retry of failed objects
    admin   everything of the organization, and its keys
    """


_org = click.option("--org", default="default", show_default=True, help="The organization, by id or name.")


@keys.command("create")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice([role.value for role in Role]),
    default=["read", "write"],
    show_default=True,
    help="What it may do; more than once for more than one.",
)
@_org
@_home
def create_key(name: str, roles: tuple[str, ...], org: str, home: Path | None) -> None:
    """Make a key and print it: this is the only time it is shown."""
    from lakerunner.services.admin import administered, organization

    with administered(_settings({"home": home})) as index:
        click.echo(index.keys.create(organization(index, org).id, name, roles_named(roles)))


@keys.command("list")
@_org
@_home
def list_keys(org: str, home: Path | None) -> None:
    """Names and roles of the keys, and when they were made, rotated and revoked (UTC)."""
    from lakerunner.services.admin import administered, key_line, organization

    with administered(_settings({"home": home})) as index:
        for key in index.keys.list(organization(index, org).id):
            click.echo(key_line(key, datetime.now(UTC)))


@keys.command("rotate")
@click.argument("name")
@click.option("--grace", default="24h", show_default=True, help="How long the old secret lives on: 90s, 15m, 24h; 0s.")
@_org
@_home
def rotate_key(name: str, grace: str, org: str, home: Path | None) -> None:
    """Give a key a new secret and print it: this is the only time it is shown.

    The secret until now is good for the grace time. Rotating again within it ends all older ones but the last.
    """
    from lakerunner.api.keys import grace_in
    from lakerunner.services.admin import administered, organization

    with administered(_settings({"home": home})) as index:
        click.echo(index.keys.rotate(organization(index, org).id, name, grace_in(grace)))


@keys.command("revoke")
@click.argument("name")
@_org
@_home
def revoke_key(name: str, org: str, home: Path | None) -> None:
    """End a key. Requests that show it are refused within LAKERUNNER_KEY_CACHE_SECONDS (30 s)."""
    from lakerunner.services.admin import administered, organization

    with administered(_settings({"home": home})) as index:
        index.keys.revoke(organization(index, org).id, name)


cli.add_command(sweep)
cli.add_command(retention)


@cli.command("settings")
def show_settings() -> None:
    """Every setting, its default and its reason. Set them as LAKERUNNER_<NAME> or in LAKERUNNER_CONFIG (TOML)."""
    for name, default, why in describe():
        click.echo(f"{name:24} {default or '-':18} {why}")


def _say(sentence: str) -> None:
    """Progress for people, on standard output."""
    click.echo(f"  {sentence}")


def main() -> None:
    """Errors of ours are one line and exit code 1; only bugs show a trace."""
    os.umask(0o077)  # what we write holds telemetry: it is for its owner alone
    try:
        cli()
    except LakerunnerError as error:
        click.echo(drawn(f"error: {in_full(error)}"), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
