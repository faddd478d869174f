"""`lakerunner sql`: run one SQL query, or open a prompt (docs/formats/sql_api.md). `lakerunner promql`: run a PromQL
query and show the answer as a plot, a table, JSON or CSV. Both have the same exit codes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from lakerunner.commands.options import (
    EPILOG,
    client_of,
    connection_options,
    engine_option,
    partial_option,
    query_text,
)


@click.command(epilog=EPILOG)
@click.argument("query", required=False)
@connection_options
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
@engine_option
@partial_option
@click.option("--explain", is_flag=True, help="Show the plan of the query instead of running it.")
@click.option("--analyze", is_flag=True, help="Run the query and show what each step took.")
def sql(**options: Any) -> None:
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
    from lakerunner.commands.terminal.ask_sql import SqlCommand, ask_once, parameters
    from lakerunner.commands.terminal.show import Query

    text = query_text(options["query"], options["file"])
    query = Query(text or "", parameters(options["param"]), options["engine"], options["partial"])
    prefix = "EXPLAIN ANALYZE" if options["analyze"] else "EXPLAIN" if options["explain"] else ""
    command = SqlCommand(query, options["form"], options["output"], prefix)
    client = client_of(options)
    if text is not None:
        sys.exit(ask_once(client, command))
    from lakerunner.commands.terminal.prompt import Prompt, edited_lines, history_path

    with edited_lines(client, history_path(os.environ)):
        Prompt(client, command).run()


@click.command(epilog=EPILOG)
@click.argument("query")
@connection_options
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
def promql(query: str, form: str | None, **options: Any) -> None:
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

    question = parse_question(query_text(query) or "", options)
    sys.exit(ask_promql(client_of(options), question, form or "", time.time_ns()))
