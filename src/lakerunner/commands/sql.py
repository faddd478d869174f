"""`lakerunner sql`: run one SQL query, or open a prompt (docs/formats/sql_api.md)."""

from __future__ import annotations

import os
import sys
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
@click.argument("query", required=False)
@home_option
@url_option
@key_option
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
    from lakerunner.commands.terminal.ask_sql import SqlCommand, ask_once, parameters
    from lakerunner.commands.terminal.client import Client
    from lakerunner.commands.terminal.show import Query

    text = query_text(options["query"], options["file"])
    query = Query(text or "", parameters(options["param"]), options["engine"], options["partial"])
    prefix = "EXPLAIN ANALYZE" if options["analyze"] else "EXPLAIN" if options["explain"] else ""
    command = SqlCommand(query, options["form"], options["output"], prefix)
    client = Client.find(settings_of({"home": home}), url, key)
    if text is not None:
        sys.exit(ask_once(client, command))
    from lakerunner.commands.terminal.prompt import Prompt, edited_lines, history_path

    with edited_lines(client, history_path(os.environ)):
        Prompt(client, command).run()
