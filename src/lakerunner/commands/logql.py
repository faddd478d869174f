"""`lakerunner logql`: run a LogQL query and show its lines, or its series as a plot or a table
(docs/formats/loki_api.md)."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from lakerunner.commands.options import EPILOG, client_of, connection_options, query_text


@click.command(epilog=EPILOG)
@click.argument("query")
@connection_options
@click.option("--since", metavar="DURATION", help="Length of the range before its end: 30m, 6h, 7d; default: 1h.")
@click.option("--from", "start", metavar="TIME", help="Start of the range; default: --since before its end.")
@click.option("--to", "end", metavar="TIME", help="End of the range, which is not included; default: now.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Maximum number of lines, at most 5000; 0: all lines, written as they come.",
)
@click.option("--forward", is_flag=True, help="Oldest lines first; default: newest first.")
@click.option(
    "--output",
    "form",
    type=click.Choice(["default", "raw", "jsonl", "csv", "parquet"]),
    default="default",
    show_default=True,
    help="raw: lines alone, or CSV of series. jsonl: a JSON object for each line or series. csv, parquet: all lines.",
)
@click.option(
    "-A", "after", type=click.IntRange(0, 4999), metavar="N", help="Show N lines after each hit in its stream."
)
@click.option("-B", "before", type=click.IntRange(0, 5000), metavar="N", help="Show N lines before each hit.")
@click.option("-C", "around", type=click.IntRange(0, 4999), metavar="N", help="Show N lines before and after each hit.")
@click.option(
    "--step",
    metavar="DURATION",
    help="Interval between steps of a metric query: 15s, 5m, 1h; default: chosen from the width of the plot.",
)
@click.option("--at", metavar="TIME", help="Evaluate a metric query at this time only, and show a table.")
@click.option("--tail", "follow", is_flag=True, help="Show the last lines, then new ones as they come, until Ctrl-C.")
@click.option("--plan", is_flag=True, help="Show what workers would do and read, without running the query.")
@click.option("--analyze", is_flag=True, help="Run the query and show its plan and what it took.")
@click.option("--raw", is_flag=True, help="Read lines only, not metrics that rules made of them, to compare.")
@click.option("--no-labels", is_flag=True, help="Show lines without their labels.")
def logql(query: str, **options: Any) -> None:
    """Run a LogQL query and show its lines, newest first; a metric query is plotted.

    A TIME is now, now-1h (s m h d w), 2026-01-31T12:00:00Z, or seconds since 1970. QUERY may be - for standard input.

    \b
    lakerunner logql '{service_name="cart"} |= "refused"'                   the last hour, newest first
    lakerunner logql '{service_name="cart"}' --tail --limit 10                the last ten lines, and new ones
    lakerunner logql '{service_name="cart"}' --from now-2d --to now-1d --forward --limit 1000
    lakerunner logql '{service_name=~".+"} | json | status >= 500' --since 6h --output jsonl
    lakerunner logql '{service_name="cart"} |= "panic"' -B 5 -A 2                 with the lines around each hit
    lakerunner logql '{service_name="cart"}' --since 7d --output parquet > cart.parquet         all lines
    lakerunner logql '{service_name="cart"}' --since 7d --limit 0 --output raw | sort | uniq -c
    lakerunner logql 'sum by (detected_level) (count_over_time({service_name="cart"}[5m]))'
    lakerunner logql 'topk(5, sum by (service_name) (rate({service_name=~".+"}[1h])))' --at now

    With -A, -B or -C lines come oldest first, stream after stream; `>` marks hits, and -- stands between lines that do
    not follow each other, as in grep.

    \b
    Exit codes: 0 complete answer, 1 error, 2 wrong usage.
    """
    from lakerunner.commands.terminal.ask_logql import LogqlCommand, ask_logql

    texts = {name: options[name] or "" for name in ("start", "end", "since", "at", "step")}
    command = LogqlCommand(
        query_text(query) or "",
        **texts,
        limit=options["limit"],
        forward=options["forward"],
        form=options["form"],
        labels=not options["no_labels"],
        before=max(options["before"] or 0, options["around"] or 0),
        after=max(options["after"] or 0, options["around"] or 0),
        explain="analyze" if options["analyze"] else "plan" if options["plan"] else "",
        materialized=not options["raw"],
    )
    if options["follow"]:
        from lakerunner.commands.terminal.follow_lines import follow_lines

        sys.exit(follow_lines(client_of(options), command, time.time_ns()))
    sys.exit(ask_logql(client_of(options), command, time.time_ns()))
