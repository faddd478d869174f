"""`lakerunner up` runs everything in one process; `lakerunner pubsub`, `lakerunner ingest` and others, one service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import click

from lakerunner.commands.options import EPILOG, home_option, store_option
from lakerunner.settings import Settings, read_settings

listen_option = click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address of the HTTP API; port 0 takes a free one. Default: LAKERUNNER_LISTEN, or 127.0.0.1:7080.",
)


def process_options(run: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every process to a command, and let Ctrl-C end its start."""
    return home_option(listen_option(store_option(stopped_by_ctrl_c()(run))))


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Exit cleanly on Ctrl-C until the process handles signals itself: importing its parts takes seconds."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("stopped")
        sys.exit(0)


def settings_to_run(options: dict[str, Any], parts: Collection[str], *, level: str = "info") -> Settings:
    """Return the settings of a process of these parts; raise WrongSettings, with all problems, before anything is
    started or created. `level` is the default log level."""
    from lakerunner.services.logs import configure_logs
    from lakerunner.services.preflight import check_settings

    reading = read_settings(os.environ, options)
    configure_logs(reading.settings.log_level if "log_level" in reading.sources else level)
    check_settings(reading, parts)
    return reading.settings


@click.command(epilog=EPILOG)
@process_options
def up(**options: Any) -> None:
    """Run everything in one process: embedded PostgreSQL, bus, Spark, API.

    Send OTLP to ports 4317 (gRPC) and 4318 (HTTP) or to the API, or put OTLP files into
    STORE/otel-raw/{org}/{collector}/. When everything is up, all addresses are shown, and HOME/address holds the URL of
    the API. Ctrl-C stops everything.
    """
    from lakerunner.commands.terminal.screen import TerminalScreen
    from lakerunner.services.run import UP, run_parts

    sys.exit(run_parts(settings_to_run(options, UP), UP, TerminalScreen(sys.stdout)))


def _service(name: str, text: str) -> click.Command:
    @process_options
    def run(**options: Any) -> None:
        from lakerunner.commands.terminal.screen import TerminalScreen
        from lakerunner.services.preflight import WORKER
        from lakerunner.services.run import run_parts, run_worker

        chosen, screen = settings_to_run(options, [name]), TerminalScreen(sys.stdout)
        sys.exit(run_worker(chosen, screen) if name == WORKER else run_parts(chosen, [name], screen))

    run.__doc__ = text
    return click.command(name, epilog=EPILOG)(run)


pubsub = _service(
    "pubsub",
    """Receive telemetry: find new raw objects, take pushed OTLP, remote-write and Loki, and announce all on the bus.

    Raw objects are found by listing the raw prefixes of STORE (LAKERUNNER_ROUTES adds prefixes), and by notifications
    on POST /api/v1/events/{s3,gcp,azure}, or from LAKERUNNER_SQS_QUEUE_URL, LAKERUNNER_PUBSUB_SUBSCRIPTION or
    LAKERUNNER_AZURE_QUEUE_URL. OTLP is received on /v1/logs, /v1/metrics and /v1/traces and on ports 4317 and 4318.
    """,
)
boxer = _service(
    "boxer",
    """Group raw objects, and segments to merge or roll up, into boxes: the input of one Spark job each.

    A box is closed by age, size or count. Raw objects: LAKERUNNER_BOX_MAX_SECONDS, LAKERUNNER_BOX_MAX_BYTES,
    LAKERUNNER_BOX_MAX_OBJECTS. Merges: LAKERUNNER_COMPACT_MAX_SECONDS, LAKERUNNER_COMPACT_TARGET_BYTES,
    LAKERUNNER_COMPACT_MAX_SEGMENTS. Rollups: LAKERUNNER_ROLLUP_MAX_SECONDS.
    """,
)
ingest = _service(
    "ingest",
    """Convert boxes of raw objects to Parquet segments and commit them to the index, one Spark job per box.

    LAKERUNNER_SPARK_MASTER chooses where tasks run: local[*], spark://..., k8s://..., yarn.
    """,
)
compact = _service(
    "compact",
    """Merge small segments into large ones, level by level, one Spark task per merge.

    Segments of one hour, later of one day, are merged until they reach LAKERUNNER_COMPACT_TARGET_BYTES. Rows that were
    delivered twice are dropped. A merge that fails is retried LAKERUNNER_WORK_MAX_ATTEMPTS times, then set aside:
    `lakerunner work` lists it.
    """,
)
rollup = _service(
    "rollup",
    """Roll metrics up into windows of 10 s, 1 m, 5 m, 1 h and 1 d, each tier from the one before.

    Late data causes the windows that contain it to be computed again in all tiers. A rollup that fails is retried
    LAKERUNNER_WORK_MAX_ATTEMPTS times, then set aside: `lakerunner work` lists it.
    """,
)
materialize = _service(
    "materialize",
    """Evaluate rules over stored segments, newest first, one Spark task per segment: the history of rules.

    `lakerunner rules backfill` says which rules have one. LAKERUNNER_MATERIALIZE_ROWS_PER_SECOND limits the rate. A
    segment that cannot be read is set aside: `lakerunner work` lists it.
    """,
)
sweeper = _service(
    "sweeper",
    """Delete expired data: rows past their retention, files of replaced segments, files of work that was aborted.

    It runs every LAKERUNNER_SWEEP_SECONDS. One sweeper works at a time, others wait. `lakerunner sweep --dry-run` lists
    what would be deleted.
    """,
)
query_api = _service(
    "query-api",
    """Answer queries over HTTP: POST /api/v1/sql, and Prometheus' API below /prometheus.

    LAKERUNNER_WORKERS lists the query workers to use. If it is empty, queries run in this process.
    """,
)
query_worker = _service(
    "query-worker",
    """Run parts of queries for query-api. It caches segments and needs no service but the object store.

    To listen on another host than loopback, set LAKERUNNER_WORKER_KEY to the same secret here and on query-api.
    """,
)
