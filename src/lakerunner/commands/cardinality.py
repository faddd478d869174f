"""`lakerunner cardinality`: how many series metrics have, and which labels make them. (docs/formats/native_api.md)"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lakerunner.commands.options import EPILOG, settings_of
from lakerunner.commands.options import home as home_option


@click.command(epilog=EPILOG)
@click.argument("metric", required=False, default="")
@home_option
@click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
@click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one.")
@click.option("--label", "labels", is_flag=True, help="Show the number of values of each label of METRIC instead.")
@click.option("--start", default="", metavar="TIME", help="Start of the range; default: an hour before --end.")
@click.option("--end", default="", metavar="TIME", help="End of the range; default: now.")
@click.option(
    "--step", default="", metavar="DURATION", help="Width of a window: 10s, 5m, 1h, 1d; default: chosen from the range."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Most metrics to list, largest first.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def cardinality(
    metric: str, home: Path | None, url: str | None, key: str | None, labels: bool, form: str, **asked: Any
) -> None:
    """Count the series of metrics, now and over time, and find the label that causes most of them.

    A series is a metric with one set of labels and resource attributes. Each costs memory and time in every query of
    its metric, so look for metrics that grow, then with --label for the label with too many values: an id, a URL, a
    pod that is new with every rollout. METRIC is the name as it was sent, or Prometheus' name for it. Without one, the
    metrics with the most series are listed.

    \b
    SERIES    different ones that had a sample at any time of the range
    NOW       in the last whole window          MOST      in the window with the most
    BY WINDOW the first to the last; many series come and go where SERIES is far above MOST

    Numbers are estimates (2.3 % standard error, nearly exact below a hundred), from rollups where these are made, else
    from points. --format json says which, for each window. Values of labels are exact up to 10,000.

    \b
    lakerunner cardinality                                         the largest metrics of the last hour
    lakerunner cardinality --start now-7d --step 1d                did one of them grow this week?
    lakerunner cardinality http_requests_total --start now-1d      one, hour by hour
    lakerunner cardinality http_requests_total --label             which label is it?
    lakerunner promql 'topk(5, count by (url) (http_requests_total))' --instant      which values?

    A TIME is now, now-1h (s m h d w), 2026-01-31T12:00:00Z, or seconds since 1970.
    """
    from lakerunner.services.client import Client
    from lakerunner.services.counted import show_cardinality

    if labels and not metric:
        raise click.UsageError("--label needs a METRIC: lakerunner cardinality METRIC --label")
    said = {"metric": metric, "labels": "1" if labels else "", **asked}
    client = Client.find(settings_of({"home": home}), url, key)
    show_cardinality(client.cardinality({name: str(value) for name, value in said.items() if value}), form, sys.stdout)
