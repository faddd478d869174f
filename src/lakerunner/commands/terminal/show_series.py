"""Series of an answer on the command line: a plot, a table or CSV.

Comes in: an `Answer`, whichever language it answers. Goes out: text for people or programs. What always holds: text of
telemetry is escaped wherever a person reads it. rich is slow to import, so only the plot imports it.
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from lakerunner.commands.terminal.show import AnswerEnd, ExactNumber, show_rows
from lakerunner.model.display import escape_controls, for_terminal
from lakerunner.series.numerals import json_number

_PLOT_HEIGHT, _PAGE_COLUMNS = 16, 100
_ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass
class Series:
    """A series of the answer; times in ms."""

    label: str
    tags: Mapping[str, str]
    points: list[tuple[int, float]] = field(default_factory=list)
    histograms: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


@dataclass
class Answer:
    """An answer; `texts` has the result of a query that is a string."""

    series: list[Series] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    step_ms: int = 1
    notes: list[str] = field(default_factory=list)
    ended: AnswerEnd = field(default_factory=AnswerEnd)


def show_series(answer: Answer, form: str, times_ms: tuple[int, int], width: int) -> None:
    """Write the answer to standard output in a form: plot, between these times, csv or table. A text cannot be
    plotted."""
    if form == "csv":
        text = io.StringIO()
        write_csv(answer, text)
        sys.stdout.write(for_terminal(text.getvalue(), sys.stdout))
    elif form == "plot" and not answer.texts:
        _show_plot(answer, times_ms, width)
    else:
        show_table(answer, sys.stdout)


def page_width() -> int:
    """Return the columns of a plot."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE_COLUMNS


def dot_columns(width: int) -> int:
    """Return how many points a plot of this width has room for."""
    return 2 * max(10, width - 10)


def show_table(answer: Answer, output: TextIO) -> None:
    """Print a row for each point: its time, a column for each label, the value last."""
    if answer.texts:
        output.write("".join(f"{escape_controls(text)}\n" for text in answer.texts))
        return
    names = sorted({name for series in answer.series for name in series.tags})
    moments = {time for series in answer.series for time, _ in _values(series)}
    rows = [
        {**series.tags, "time": iso_ms(time), "value": value}
        for series in answer.series
        for time, value in _values(series)
    ]
    columns = [*names, "value"] if len(moments) == 1 else ["time", *names, "value"]
    show_rows(columns, rows, output)


def write_csv(answer: Answer, output: TextIO) -> None:
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["timestamp", "series", "value"])
    for series in answer.series:
        writer.writerows([iso_ms(time), series.label, getattr(value, "text", value)] for time, value in _values(series))
    writer.writerows(["", "", text] for text in answer.texts)


def histogram_line(histogram: Mapping[str, Any]) -> str:
    """Write a histogram in one line: {count:3, sum:4.5, (0.5,1]:2, [-1,1]:1}."""
    brackets = ("(]", "[)", "()", "[]")
    buckets = (
        f"{brackets[n][0]}{low},{high}{brackets[n][1]}:{count}" for n, low, high, count in histogram.get("buckets", [])
    )
    return "{" + ", ".join([f"count:{histogram['count']}", f"sum:{histogram['sum']}", *buckets]) + "}"


def _values(series: Series) -> Iterator[tuple[int, ExactNumber | str]]:
    yield from ((time, ExactNumber(json_number(value))) for time, value in series.points)
    yield from ((time, histogram_line(one)) for time, one in series.histograms)


def _show_plot(answer: Answer, times_ms: tuple[int, int], width: int) -> None:
    from rich.console import Console

    from lakerunner.commands.terminal.plot import Line, plot

    console = Console(file=sys.stdout, width=width)
    lines = [Line(escape_controls(one.label), one.points, answer.step_ms) for one in answer.series if one.points]
    height = min(_PLOT_HEIGHT, max(5, shutil.get_terminal_size().lines - len(lines) - 4))
    if lines or not answer.series:
        for text in plot(lines, *times_ms, width - 5, height):
            console.print(text, overflow="ellipsis", no_wrap=True)
    for one in (one for one in answer.series if one.histograms):
        time, histogram = one.histograms[-1]
        console.print(
            f"{escape_controls(one.label)} at {iso_ms(time)}: {histogram_line(histogram)}",
            markup=False,
            highlight=False,
        )


def fitting_step(range_ms: int, columns: int) -> int:
    """Return the shortest round step, in seconds, that gives at most this many points."""
    least = range_ms / 1000 / columns
    return next((s for s in _ROUND_SECONDS if s >= least), int(least) + 1)


def iso_ms(time_ms: int) -> str:
    """Return ISO 8601 in UTC with three digits of a second."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
