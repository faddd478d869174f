"""`lakerunner promql`: run a PromQL query and show the answer as a plot, a table, JSON or CSV.

Exit codes are those of `lakerunner sql`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from lakerunner.commands.options import (
    EPILOG,
    engine_option,
    home_option,
    key_option,
    partial_option,
    query_text,
    settings_of,
    url_option,
)


@click.command(epilog=EPILOG)
@click.argument("query")
@home_option
@url_option
@key_option
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
@engine_option
@partial_option
@click.option("--raw", is_flag=True, help="Do not read rollups, to compare with an answer from raw samples.")
@click.option(
    "--explain",
    is_flag=True,
    help="Run the query and show which rollups were read, for which times, and why no coarser ones.",
)
@click.option("--plan", is_flag=True, help="Show what workers would do and read, without running the query.")
@click.option("--analyze", is_flag=True, help="Run the query and show its plan and what it took.")
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
    lakerunner promql 'sum(rate(errors_total[5m]))' --plan                  what would be read

    \b
    Exit codes: 0 complete answer, 1 error, 2 wrong usage, 3 incomplete answer (--partial).
    """
    from lakerunner.commands.terminal.ask_promql import ask_promql, parse_question
    from lakerunner.commands.terminal.client import Client

    question = parse_question(query_text(query) or "", options)
    client = Client.find(settings_of({"home": home}), url, key)
    sys.exit(ask_promql(client, question, form or "", time.time_ns()))
