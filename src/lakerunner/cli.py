"""The command line, and the composition root: settings from here, everything else from services."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import click

from lakerunner.commands.access import keys, orgs
from lakerunner.commands.backup import backup, restore
from lakerunner.commands.cardinality import cardinality
from lakerunner.commands.objects import objects
from lakerunner.commands.operate import fsck, repair, status
from lakerunner.commands.options import EPILOG, settings_to_run, stopped_by_ctrl_c
from lakerunner.commands.options import home as _home
from lakerunner.commands.options import settings_of as _settings
from lakerunner.commands.options import store as _store
from lakerunner.commands.settings import settings
from lakerunner.commands.sweep import retention, sweep
from lakerunner.commands.work import work
from lakerunner.model.errors import LakerunnerError, UserError, in_full
from lakerunner.model.source import SIGNAL_NAMES
from lakerunner.services.drawn import drawn

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk is: nobody's bug

_listen = click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address of the HTTP API; port 0 takes a free one. Default: LAKERUNNER_LISTEN, or 127.0.0.1:7080.",
)


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lakerunner")
def cli() -> None:
    """Lakerunner: a telemetry lake.

    OpenTelemetry logs, metrics and traces land as files in object storage, Spark turns them into sorted
    Parquet segments, PostgreSQL indexes the segments, DuckDB answers queries over them.

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
@stopped_by_ctrl_c()
def up(**options: Any) -> None:
    """Run everything in one process: embedded PostgreSQL, bus, Spark, API.

    Send OTLP to ports 4317 (gRPC) and 4318 (HTTP) or to the API, or put OTLP files into
    STORE/otel-raw/{org}/{collector}/. When everything is up, all addresses are shown, and HOME/address holds the URL of
    the API. Ctrl-C stops everything.
    """
    from lakerunner.services.run import UP, run_parts

    sys.exit(run_parts(settings_to_run(options, UP), UP))


@cli.command(epilog=EPILOG)
@_home
@_listen
@_store
@click.option(
    "--once",
    is_flag=True,
    help="Ingest, ask the example questions, compare the answers with the generated data, exit with 0 if all match.",
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 24 * 60),
    default=60,
    show_default=True,
    help="Minutes of telemetry to generate at the start.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 1000),
    default=5.0,
    show_default=True,
    help="Requests per second that the shop serves.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the random numbers: the same seed generates the same telemetry.",
)
@stopped_by_ctrl_c()
def demo(once: bool, minutes: int, rate: float, seed: int, **options: Any) -> None:
    """Run `up` with generated telemetry of a shop: ten services, one incident, example questions with answers."""
    from lakerunner.services.demo import Demo
    from lakerunner.services.run import UP, run_parts

    shop = Demo(seed=seed, rate=rate, minutes=minutes, once=once)
    sys.exit(run_parts(settings_to_run(options, UP, level="warning"), UP, shop.run))


def _service(name: str, text: str) -> None:
    @_home
    @_listen
    @_store
    @stopped_by_ctrl_c()
    def run(**options: Any) -> None:
        from lakerunner.services.preflight import WORKER
        from lakerunner.services.run import run_parts, run_worker

        chosen = settings_to_run(options, [name])
        sys.exit(run_worker(chosen) if name == WORKER else run_parts(chosen, [name]))

    run.__doc__ = text
    cli.command(name, epilog=EPILOG)(run)


_service(
    "pubsub",
    """Receive telemetry: find new raw objects, take pushed OTLP, remote-write and Loki, and announce all on the bus.

    Raw objects are found by listing the raw prefixes of STORE (LAKERUNNER_ROUTES adds prefixes), and by notifications
    on POST /api/v1/events/{s3,gcp,azure}, or from LAKERUNNER_SQS_QUEUE_URL, LAKERUNNER_PUBSUB_SUBSCRIPTION or
    LAKERUNNER_AZURE_QUEUE_URL. OTLP is received on /v1/logs, /v1/metrics and /v1/traces and on ports 4317 and 4318.
    """,
)
_service(
    "boxer",
    """Group raw objects, and segments to merge or roll up, into boxes: the input of one Spark job each.

    A box is closed by age, size or count. Raw objects: LAKERUNNER_BOX_MAX_SECONDS, LAKERUNNER_BOX_MAX_BYTES,
    LAKERUNNER_BOX_MAX_OBJECTS. Merges: LAKERUNNER_COMPACT_MAX_SECONDS, LAKERUNNER_COMPACT_TARGET_BYTES,
    LAKERUNNER_COMPACT_MAX_SEGMENTS. Rollups: LAKERUNNER_ROLLUP_MAX_SECONDS.
    """,
)
_service(
    "ingest",
    """Convert boxes of raw objects to Parquet segments and commit them to the index, one Spark job per box.

    LAKERUNNER_SPARK_MASTER chooses where tasks run: local[*], spark://..., k8s://..., yarn.
    """,
)
_service(
    "compact",
    """Merge small segments into large ones, level by level, one Spark task per merge.

    Segments of one hour, later of one day, are merged until they reach LAKERUNNER_COMPACT_TARGET_BYTES. Rows that were
    delivered twice are dropped. A merge that fails is retried LAKERUNNER_WORK_MAX_ATTEMPTS times, then set aside:
    `lakerunner work` lists it.
    """,
)
_service(
    "rollup",
    """Roll metrics up into windows of 10 s, 1 m, 5 m, 1 h and 1 d, each tier from the one before.

    Late data causes the windows that contain it to be computed again in all tiers. A rollup that fails is retried
    LAKERUNNER_WORK_MAX_ATTEMPTS times, then set aside: `lakerunner work` lists it.
    """,
)
_service(
    "sweeper",
    """Delete expired data: rows past their retention, files of replaced segments, files of work that was aborted.

    It runs every LAKERUNNER_SWEEP_SECONDS. One sweeper works at a time, others wait. `lakerunner sweep --dry-run` lists
    what would be deleted.
    """,
)
_service(
    "query-api",
    """Answer queries over HTTP: POST /api/v1/sql, and Prometheus' API below /prometheus.

    LAKERUNNER_WORKERS lists the query workers to use. If it is empty, queries run in this process.
    """,
)
_service(
    "query-worker",
    """Run parts of queries for query-api. It caches segments and needs no service but the object store.

    To listen on another host than loopback, set LAKERUNNER_WORKER_KEY to the same secret here and on query-api.
    """,
)


@cli.command(epilog=EPILOG)
@click.argument("query", required=False)
@_home
@click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "ndjson", "csv", "arrow", "parquet"]),
    default="table",
    show_default=True,
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the answer to FILE. If the query fails, no file is left behind.",
)
@click.option("--file", "file", type=click.File("r", encoding="utf-8"), help="Read the query from this file.")
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=TEXT",
    help="Value of the parameter $NAME; NAME:=JSON for a value that is not text.",
)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True)
@click.option(
    "--partial", is_flag=True, help="Answer with the data that can be read, list what cannot be read, and exit with 3."
)
@click.option("--explain", is_flag=True, help="Show the plan of the query instead of running it.")
@click.option("--analyze", is_flag=True, help="Run the query and show what each step took.")
def sql(home: Path | None, url: str | None, key: str | None, **options: Any) -> None:
    """Run a SQL query and print the answer; without QUERY, open a prompt.

    \b
    lakerunner sql                                              a prompt; \\? shows help
    lakerunner sql "select service_name, count(*) from logs group by 1"
    lakerunner sql "select timestamp, message from logs where timestamp > now() - interval 1 hour limit 5"
    lakerunner sql 'select * from logs where service_name = $s' --param s=cart --format ndjson
    lakerunner sql "select * from spans" --format parquet --output spans.parquet
    lakerunner sql --file report.sql --format csv > report.csv
    echo "select 1 as n" | lakerunner sql -
    lakerunner sql --analyze "select count(*) from logs where message like '%timeout%'"

    \b
    Exit codes: 0 complete answer, 1 error, 2 wrong usage, 3 incomplete answer (--partial).
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
@click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one.")
@click.option("--start", metavar="TIME", help="First step; default: an hour before the end.")
@click.option("--end", metavar="TIME", help="Last step; default: now.")
@click.option(
    "--step",
    metavar="DURATION",
    help="Interval between steps: 15s, 5m, 1h; default: chosen from the width of the plot.",
)
@click.option("--instant", is_flag=True, help="Evaluate at one time: --time, or --end, or now.")
@click.option("--time", metavar="TIME", help="The time to evaluate at; implies --instant.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["plot", "table", "json", "csv"]),
    help="Default: plot; with --instant: table.",
)
@click.option(
    "--partial", is_flag=True, help="Answer with the data that can be read, list what cannot be read, and exit with 3."
)
@click.option("--raw", is_flag=True, help="Do not read rollups, to compare with an answer from raw samples.")
@click.option(
    "--explain",
    is_flag=True,
    help="Run the query and show which rollups were read, for which times, and why no coarser ones.",
)
def promql(query: str, home: Path | None, url: str | None, key: str | None, form: str | None, **options: Any) -> None:
    """Run a PromQL query and plot the answer; --instant prints a table.

    A TIME is now, now-1h (s m h d w), 2026-01-31T12:00:00Z, or seconds since 1970. QUERY may be - for standard input.

    \b
    lakerunner promql 'sum by (job) (rate(http_requests_total[5m]))'        the last hour
    lakerunner promql 'up' --instant                                        a table, now
    lakerunner promql 'topk(5, process_resident_memory_bytes)' --time now-1d
    lakerunner promql 'histogram_quantile(0.99, sum by (le) (rate(latency_seconds_bucket[5m])))' --start now-1d
    lakerunner promql 'rate(errors_total[1m])' --start now-6h --end now-5h --step 30s --format csv > errors.csv
    lakerunner promql 'count by (__name__) ({job="cart"})' --instant        the metrics of a job

    \b
    Exit codes: 0 complete answer, 1 error, 2 wrong usage, 3 incomplete answer (--partial).
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
        raise click.UsageError("QUERY and --file are both given: give only one of them")
    if query is None and file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("no query: give QUERY, or `-` to read it from standard input, or --file")
        return None
    try:
        text = file.read() if file is not None else sys.stdin.read() if query == "-" else query or ""
        text.encode()  # what the locale could not decode came as halves of surrogate pairs
    except UnicodeError:
        remedy = "set LC_ALL to a UTF-8 locale such as C.UTF-8, or use --file"
        raise UserError(f"the query is not UTF-8 text: {remedy}") from None
    return text


@cli.command(epilog=EPILOG)
@click.argument("url")
@_home
@_store
@click.option(
    "--since",
    metavar="TIME",
    help="Only objects changed at this time or later: 2026-01-31T12:00:00Z, or an age: 6h, 7d.",
)
@click.option("--until", metavar="TIME", help="Only objects changed before this time.")
@click.option("--org", help="Organization that owns the objects, by id or name; default: read from their paths.")
@click.option("--collector", help="Collector that wrote the objects; default: read from their paths.")
@click.option(
    "--signal", type=click.Choice(SIGNAL_NAMES), help="Signal that the objects contain; default: read from their names."
)
@click.option("--follow", is_flag=True, help="Continue with new objects until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Only count the objects; announce none.")
def backfill(url: str, org: str | None, collector: str | None, signal: str | None, **options: Any) -> None:
    """Ingest objects that are in the store already, below URL: s3://bucket/prefix, or a prefix of the lake's store.

    Objects that are ingested already are skipped, so an interrupted backfill can be run again. Exit code 1 if
    objects were set aside; `lakerunner objects --state failed` shows why.

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
cli.add_command(objects)
cli.add_command(repair)
cli.add_command(status)
cli.add_command(work)
cli.add_command(orgs)
cli.add_command(keys)
cli.add_command(sweep)
cli.add_command(retention)


cli.add_command(settings)


def main() -> None:
    """Errors of ours are one line and exit code 1; only bugs show a trace."""
    os.umask(0o077)  # what we write holds telemetry: it is for its owner alone
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal in Latin-1 has no letters for a table's frame
    try:
        cli()
    except LakerunnerError as error:
        click.echo(drawn(f"error: {in_full(error)}"), err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        place = f" {error.filename}" if error.filename else ""
        click.echo(drawn(f"error: cannot write{place}: {error.strerror}"), err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what standard output still holds cannot be written either
        sys.exit(1)


if __name__ == "__main__":
    main()
