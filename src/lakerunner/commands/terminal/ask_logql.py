"""Run a LogQL query by Loki's API and show its answer: lines of a log query, or series of a metric query.

Comes in: the options of the command. Goes out: lines with time and labels, lines alone, or JSON objects; series as a
plot, a table, CSV or JSON objects. What always holds: text of telemetry is escaped where a person reads it; colours are
only on a terminal. Exit codes are those of `lakerunner sql`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click
import orjson

from lakerunner.api.time_range import time_range
from lakerunner.commands.terminal.ask_sql import say
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import error_text
from lakerunner.commands.terminal.show_context import lines_around
from lakerunner.commands.terminal.show_series import (
    Answer,
    Series,
    dot_columns,
    fitting_step,
    iso_ms,
    page_width,
    show_series,
)
from lakerunner.logql.text.amounts import parse_float, parse_prometheus_duration
from lakerunner.model.display import escape_controls, for_terminal, go_quote, plural
from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.model.time import MIN_NS, MS_NS, SECOND_NS, TimeRange, iso_time, read_time

DEFAULT, RAW, JSONL, CSV, PARQUET = FORMS = ("default", "raw", "jsonl", "csv", "parquet")
DEFAULT_LIMIT = 100
LEVEL = "detected_level"
_COLOURS = {
    "critical": "bright_magenta",
    "fatal": "bright_magenta",
    "error": "red",
    "warn": "yellow",
    "info": "green",
    "debug": "blue",
    "trace": "cyan",
}


@dataclass(frozen=True)
class LogqlCommand:
    """The options of the command. `start`, `end` and `at` are times of the native API; `at`: evaluate at this time
    only. `limit` 0: all lines. `before` and `after`: lines around each hit.
    `explain`: show the plan (plan) or the plan and what it took (analyze). `materialized`: metrics that rules make of
    lines may be read in their place."""

    text: str
    start: str = ""
    end: str = ""
    since: str = ""
    at: str = ""
    step: str = ""
    limit: int = DEFAULT_LIMIT
    forward: bool = False
    form: str = DEFAULT
    labels: bool = True
    before: int = 0
    after: int = 0
    explain: str = ""
    materialized: bool = True

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UserError('the query is empty: write LogQL, such as {service_name="cart"}')
        if self.since and self.start:
            raise UserError("--since and --from are both given: give only one of them")
        if self.at and (self.start or self.end or self.since or self.step):
            raise UserError("--at is one time: --from, --to, --since and --step need a range")
        if self.is_whole and (self.at or self.before or self.after):
            raise UserError("an export of all lines (--limit 0, csv, parquet) takes no --at, -A, -B or -C")
        if self.explain and (self.is_whole or self.before or self.after):
            raise UserError("--plan and --analyze explain a query with a limit of lines, without -A, -B and -C")
        if self.form in (CSV, PARQUET) and self.limit not in (0, DEFAULT_LIMIT):
            raise UserError(f"--output {self.form} writes all lines: leave --limit out, or use --output jsonl")

    @property
    def is_whole(self) -> bool:
        """Return whether all lines are exported."""
        return self.limit == 0 or self.form in (CSV, PARQUET)

    def times(self, now_ns: int) -> TimeRange:
        """Return the range of the query; with `at` its end is the time."""
        names = ("--from", "--at" if self.at else "--to")
        time = time_range(dict(zip(names, (self.start, self.at or self.end), strict=True)), now_ns, names)
        if not self.since:
            return time
        return TimeRange(max(MIN_NS, time.end_ns - _duration_ns("--since", self.since)), time.end_ns)


@dataclass(frozen=True)
class ShownEntry:
    """A line of an answer with all its labels."""

    time_ns: int
    line: str
    labels: Mapping[str, str]


def ask_logql(client: Client, command: LogqlCommand, now_ns: int) -> int:
    """Run the query and show its answer, or an error; return the exit code."""
    try:
        _ask(client, command, now_ns)
    except LakerunnerError as error:
        say(error_text(error, command.text))
        return 1
    return 0


def _ask(client: Client, command: LogqlCommand, now_ns: int) -> None:
    if command.is_whole:
        _export(client, command, command.times(now_ns))
        return
    times, width = command.times(now_ns), page_width()
    seconds = fitting_step((times.end_ns - times.start_ns) // MS_NS, dot_columns(width))
    step = command.step or f"{seconds}s"
    step_ms = max(1, _duration_ns("--step", step) // MS_NS)
    asked = {"query": command.text, "limit": str(command.limit)}
    asked |= {"direction": "forward" if command.forward else "backward"}
    asked |= {} if command.materialized else {"materialized": "off"}
    at = {"time": iso_time(times.end_ns)}
    bounds = {"start": iso_time(times.start_ns), "end": iso_time(times.end_ns), "step": step}
    if command.explain:
        endpoint, of = ("query", at) if command.at else ("query_range", bounds)
        sys.stdout.write(for_terminal(client.explain_logql(endpoint, asked | of, command.explain), sys.stdout))
        return
    if command.at:
        answer = client.logql("query", asked | at)
    else:
        around = bool(command.before or command.after)
        answer = client.logql("query_range", asked | bounds, by_kind=around)
        if around and answer["data"]["resultType"] == "streams":
            _show_around(client, command, answer["data"]["result"])
            return
    kind, result = answer["data"]["resultType"], answer["data"]["result"]
    if kind == "streams":
        _show_entries(read_entries(result, forward=command.forward), command)
    elif command.form == JSONL:
        _write_jsonl(result if kind != "scalar" else [{"metric": {}, "value": result}])
    else:
        shown = "csv" if command.form == RAW else "table" if command.at else "plot"
        ends = times.start_ns // MS_NS, times.end_ns // MS_NS
        show_series(Answer(read_series(kind, result), step_ms=step_ms), shown, ends, width)
    for warning in answer.get("warnings", []):
        say(f"warning: {warning}")


def _export(client: Client, command: LogqlCommand, times: TimeRange) -> None:
    """Write all lines as they come."""
    direction = "forward" if command.forward else "backward"
    asked = {"query": command.text, "start": iso_time(times.start_ns), "end": iso_time(times.end_ns)}
    asked["direction"] = direction
    if command.form in (CSV, PARQUET):
        if command.form == PARQUET and sys.stdout.isatty():
            raise UserError("Parquet is not text: write it to a file, with > lines.parquet")
        client.download_lines({**asked, "format": command.form}, sys.stdout.buffer)
        sys.stdout.flush()
        return
    count = 0
    with client.exported_lines(asked) as lines:
        for line in lines:
            count += 1
            labels = {**line["stream"], **line["metadata"], **line["parsed"]}
            sys.stdout.write(_line_text(ShownEntry(_time_ns(line["timestamp"]), line["line"], labels), command))
    if not count:
        say("no lines")


def _time_ns(text: str) -> int:
    found = read_time(text)
    if found is None:
        raise UserError(f"the server sent {text!r}, which is not a time")
    return found[0]


def _show_around(client: Client, command: LogqlCommand, streams: Sequence[Mapping[str, Any]]) -> None:
    """Show the lines around each hit; one more is requested to see which lines follow each other."""
    counts = {"before": str(command.before), "after": str(command.after + 1)}
    shown = lines_around(
        streams,
        command.before,
        command.after,
        lambda stream, time_ns: client.log_context({**counts, "stream": stream, "time": time_ns}),
    )
    count = 0
    for one in shown:
        if count and not one.follows and command.form != JSONL:
            sys.stdout.write("--\n")
        mark = ("> " if one.is_hit else "  ") if command.form == DEFAULT else ""
        entry = ShownEntry(one.time_ns, one.line, one.labels)
        sys.stdout.write(mark + _line_text(entry, command, {"hit": one.is_hit}))
        count += 1
    if not count:
        say("no lines")


def _line_text(entry: ShownEntry, command: LogqlCommand, more: Mapping[str, Any] | None = None) -> str:
    """Return one line of the output; `more` are further members of a JSON object."""
    if command.form == RAW:
        return for_terminal(f"{entry.line}\n", sys.stdout)
    if command.form == JSONL:
        value = {**_object(entry, labels=command.labels), **(more or {})}
        return for_terminal(f"{orjson.dumps(value).decode()}\n", sys.stdout)
    labels = short_labels(entry.labels) if command.labels else ""
    return "".join(_parts(entry, labels, coloured=is_coloured(sys.stdout))) + "\n"


def _duration_ns(option: str, text: str) -> int:
    """Parse a duration, or a number of seconds, as Loki's API does."""
    try:
        found = int(parse_float(text) * SECOND_NS)
    except (ValueError, OverflowError):  # not a number, or infinite
        try:
            found = parse_prometheus_duration(text)
        except ValueError:
            found = 0
    if found <= 0:
        raise UserError(f"{option} {text!r} is not a duration greater than 0: write 30s, 5m, 1h30m or 7d")
    return found


# ---- series


def read_series(kind: str, result: Any) -> list[Series]:
    """Return the series of a matrix, a vector or a scalar."""
    if kind == "scalar":
        return [_series({}, [result])]
    return [_series(one["metric"], one["values"] if kind == "matrix" else [one["value"]]) for one in result]


def _series(labels: Mapping[str, str], points: Iterable[tuple[float, str]]) -> Series:
    name = ", ".join(f"{name}={go_quote(labels[name])}" for name in sorted(labels))
    return Series(f"{{{name}}}", labels, [(round(time * 1000), float(value)) for time, value in points])


# ---- lines


def read_entries(streams: Iterable[Mapping[str, Any]], *, forward: bool) -> list[ShownEntry]:
    """Return the entries of all streams, newest first, or oldest first. Those of one time keep their order."""
    entries = [ShownEntry(int(time), line, one["stream"]) for one in streams for time, line in one["values"]]
    return sorted(entries, key=lambda entry: entry.time_ns, reverse=not forward)


def write_entries(entries: Sequence[ShownEntry], command: LogqlCommand, *, all_of_them: bool = True) -> None:
    """Write the entries in the form of the command. `all_of_them`: no more follow."""
    match command.form:
        case "raw":
            sys.stdout.write(for_terminal("".join(f"{entry.line}\n" for entry in entries), sys.stdout))
        case "jsonl":
            _write_jsonl(_object(entry, labels=command.labels) for entry in entries)
        case _:
            show_lines(entries, sys.stdout, labels=command.labels, all_of_them=all_of_them)


def _show_entries(entries: Sequence[ShownEntry], command: LogqlCommand) -> None:
    write_entries(entries, command)
    if not entries:
        say("no lines")
    elif len(entries) == command.limit:
        which = "oldest" if command.forward else "newest"
        say(f"these are the {which} {plural(len(entries), 'line')}: --limit shows more")


def _object(entry: ShownEntry, *, labels: bool) -> dict[str, Any]:
    named = {"labels": entry.labels} if labels else {}
    return {"timestamp": iso_time(entry.time_ns), **named, "line": entry.line}


def _write_jsonl(values: Iterable[Mapping[str, Any]]) -> None:
    sys.stdout.write(for_terminal("".join(f"{orjson.dumps(one).decode()}\n" for one in values), sys.stdout))


def show_lines(entries: Sequence[ShownEntry], output: TextIO, *, labels: bool, all_of_them: bool = True) -> None:
    """Print time, labels and line of each entry. Labels that are the same for all of them are written once, to
    standard error, unless more entries follow."""
    common = _common_labels(entries) if labels and all_of_them else {}
    if common:
        say(f"labels of all lines: {short_labels(common)}")
    coloured = is_coloured(output)
    for entry in entries:
        own = {name: value for name, value in entry.labels.items() if labels and name not in common}
        output.write("".join(_parts(entry, short_labels(own), coloured=coloured)) + "\n")


def is_coloured(output: TextIO) -> bool:
    return output.isatty() and not os.environ.get("NO_COLOR")


def _parts(entry: ShownEntry, labels: str, *, coloured: bool) -> Iterator[str]:
    time, line = iso_ms(entry.time_ns // MS_NS), escape_controls(entry.line.rstrip("\r\n"))
    colour = _COLOURS.get(entry.labels.get(LEVEL, "")) if coloured else None
    yield click.style(time, fg=colour) if colour else time
    if labels:
        yield " " + (click.style(labels, dim=True) if coloured else labels)
    yield " " + (click.style(line, fg=colour) if colour else line)


def _common_labels(entries: Sequence[ShownEntry]) -> dict[str, str]:
    if not entries:
        return {}
    common = set(entries[0].labels.items())
    for entry in entries:
        common &= entry.labels.items()
    return dict(common)


def short_labels(labels: Mapping[str, str]) -> str:
    """Write labels in order of their names, with quotes only where a value needs them: app=cart path="/a b"."""
    return " ".join(f"{escape_controls(name)}={_short_value(labels[name])}" for name in sorted(labels))


def _short_value(value: str) -> str:
    plain = value and value.isprintable() and not any(sign in value for sign in ' "=')
    return value if plain else go_quote(value)
