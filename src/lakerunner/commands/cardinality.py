"""`lakerunner cardinality`: count the series of metrics and the values of their labels (docs/formats/native_api.md)."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click

from lakerunner.commands.options import EPILOG, client_of, connection_options, format_option
from lakerunner.model.display import escape_controls

_BARS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 48


@click.command(epilog=EPILOG)
@click.argument("metric", required=False, default="")
@connection_options
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
@format_option
def cardinality(metric: str, labels: bool, form: str, **options: Any) -> None:
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
    if labels and not metric:
        raise click.UsageError("--label needs a METRIC: lakerunner cardinality METRIC --label")
    given = {"metric": metric, "labels": "1" if labels else ""}
    given |= {name: str(options[name]) for name in ("start", "end", "step", "limit")}
    answer = client_of(options).cardinality({name: value for name, value in given.items() if value})
    show_cardinality(answer, form, sys.stdout)


def show_cardinality(answer: dict[str, Any], form: str, output: TextIO) -> None:
    from lakerunner.commands.terminal.show import show_document, show_rows

    if form == "json":
        show_document(answer, output)
        return
    if "labels" in answer:
        rows = [{**one, "values": one["values"] if one["exact"] else f"~{one['values']}"} for one in answer["labels"]]
        show_rows(("label", "of", "values"), rows, output)
    else:
        rows = [{**one, "by window": bars(one["by_window"])} for one in answer["metrics"]]
        show_rows(("metric", "series", "now", "most", "by window"), rows, output)
    if answer["truncated"]:
        output.write("more metrics exist: raise --limit\n")
    if answer["windows"]:
        first, last = answer["windows"][0]["end"], answer["windows"][-1]["end"]
        output.write(f"windows of {_width(answer['step'])}, ends {first[:19]}Z to {last[:19]}Z; {_tiers(answer)}\n")
        if not answer["windows"][-1]["over"]:
            output.write("the last window is not complete yet; `now` is the one before it\n")
    for warning in answer["warnings"]:
        output.write(f"warning: {escape_controls(warning)}\n")
    if answer["degraded"]:
        output.write(f"{escape_controls(answer['degraded'])}\n")


def bars(numbers: list[int]) -> str:
    """Draw a bar for each number, relative to the largest; only the last _MOST_BARS are drawn."""
    most = max(numbers, default=0)
    return "".join(_BARS[-(-8 * number // most)] if most else " " for number in numbers[-_MOST_BARS:])


def _tiers(answer: dict[str, Any]) -> str:
    """Say which tiers the counts come from."""
    found = dict.fromkeys(tier for window in answer["windows"] for tier in window["tiers"])
    return "counted from " + ", ".join("points" if tier == "raw" else f"{tier} rollups" for tier in found)


def _width(step_ms: int) -> str:
    for unit, ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if step_ms % ms == 0:
            return f"{step_ms // ms}{unit}"
    return f"{step_ms // 1000}s"
