"""Answers on the command line: tables that fit the terminal, JSON, NDJSON; progress and warnings on standard error.

What always holds: text of telemetry is shown and never obeyed (drawn.py). It holds no markup.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lakerunner.model.errors import LakerunnerError, UserError
from lakerunner.services.client import Digits, Ended, OnProgress, Output, Row, Rows
from lakerunner.services.drawn import drawn, for_terminal

TABLE_ROWS = 10_000
_PAGE_COLUMNS = 200  # where there is no terminal
_NARROW = 12  # a column may be folded to this width; when that does not fit either, rows are shown one by one


def table_rows(answer: Rows) -> list[Row]:
    """All of them, for a table; UserError if they are too many for one."""
    rows: list[Row] = []
    for row in answer:
        if len(rows) == TABLE_ROWS:
            raise UserError(f"more than {TABLE_ROWS} rows are no table: add a LIMIT, or use --format ndjson")
        rows.append(row)
    return rows


def show_rows(columns: Sequence[str], rows: Sequence[Row], output: TextIO) -> None:
    console = Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS)
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    if _fits(columns, cells, console.width):
        numeric = [all(_is_number(row.get(name)) for row in rows) for name in columns]
        console.print(_table(columns, cells, numeric))
    else:
        _show_one_by_one(console, columns, cells)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", highlight=False)


def show_plan(columns: Sequence[str], rows: Sequence[Row], output: TextIO) -> None:
    """Rows of one text column, as plain lines."""
    for row in rows:
        output.write("".join(f"{_cell(row[name])}\n" for name in columns))


def show_json(answer: Rows, output: Output) -> None:
    output.write(b"[")
    for number, row in enumerate(answer.raw()):
        output.write((b",\n " if number else b"\n ") + row)
    output.write(b"\n]\n")


def show_ndjson(answer: Rows, output: Output) -> None:
    for row in answer.raw():
        output.write(row + b"\n")
        output.flush()


def show_work(answer: dict[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        output.write(for_terminal(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode(), output) + "\n")
        return
    works = [{**one, "segments": len(one["segments"])} for one in answer["work"]]
    if works:
        shown = ["id", "work", "state", "attempts", "signal", "tier", "collector", "segments", "next_at", "reason"]
        show_rows(shown, works, output)
    if answer["segments"]:
        show_rows(["id", "signal", "tier", "collector", "start", "rows", "reason"], answer["segments"], output)
    waiting = sum(one["state"] == "waiting" for one in works)
    output.write(f"{waiting} waiting, {len(works) - waiting} set aside, {len(answer['segments'])} segments set aside\n")


def warn(ended: Ended, say: Callable[[str], None]) -> None:
    """What a person must know about an answer before they believe it."""
    if ended.degraded:
        say(f"warning: this answer may be out of date: {ended.degraded}")
    for warning in ended.warnings:
        say(f"warning: {warning}")
    if not ended.complete:
        say("warning: this answer is NOT COMPLETE. Missing are:")
        for one in ended.missing:
            say(f"  {one['segments']} segments of {one['start']} to {one['end']}: {one['reason']}")


def error_text(error: LakerunnerError, text: str) -> str:
    """The error, and the line it is about with a mark below."""
    said = f"error: {error}"
    position = getattr(error, "position", None)
    lines = text.splitlines()
    if position is None or not 1 <= position.line <= len(lines):
        return said
    return f"{said}\n  {lines[position.line - 1]}\n  {' ' * (position.column - 1)}^"


@contextmanager
def progress_bar(shown: bool) -> Iterator[OnProgress]:
    """Segments done of all, on standard error, gone when it is over."""
    if not shown:
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("segments", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _table(columns: Sequence[str], cells: Iterable[list[str]], numeric: Sequence[bool]) -> Table:
    table = Table()
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(Text(drawn(name)), overflow="fold", justify="right" if right else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _show_one_by_one(console: Console, columns: Sequence[str], cells: Iterable[list[str]]) -> None:
    for number, row in enumerate(cells, 1):
        console.rule(f"row {number}", align="left")
        record = Table.grid(padding=(0, 2))
        record.add_column(no_wrap=True)
        record.add_column(overflow="fold")
        for name, cell in zip(columns, row, strict=True):
            record.add_row(Text(drawn(name), style="bold"), Text(cell))
        console.print(record)


def _fits(columns: Sequence[str], cells: Sequence[list[str]], width: int) -> bool:
    widest = [
        max([len(name), *(len(line) for row in cells for line in row[place].splitlines())])
        for place, name in enumerate(columns)
    ]
    return sum(min(wide, _NARROW) + 3 for wide in widest) < width


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return drawn(value)
        case Digits():
            return value.text
    return drawn(json.dumps(value, ensure_ascii=False))


class DrawnOutput:
    """A terminal as a file of bytes."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, /) -> int:
        self._terminal.write(drawn(self._decoder.decode(data)))
        return len(data)

    def flush(self) -> None:
        self._terminal.flush()
