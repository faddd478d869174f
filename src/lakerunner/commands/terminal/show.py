"""Answers on the command line: tables that fit the terminal, JSON, NDJSON; progress and warnings on standard error.

What always holds: text of telemetry is shown and never obeyed (drawn.py). It holds no markup.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import orjson

from lakerunner.commands.terminal.answers import Digits, Ended, OnProgress, Output, Row, Rows
from lakerunner.model.drawn import drawn, for_terminal
from lakerunner.model.errors import Corrupt, LakerunnerError, UserError
from lakerunner.model.plural import plural

TABLE_ROWS = 10_000


def table_rows(answer: Rows) -> list[Row]:
    """All of them, for a table; UserError if they are too many for one."""
    rows: list[Row] = []
    for row in answer:
        if len(rows) == TABLE_ROWS:
            raise UserError(f"more than {TABLE_ROWS} rows do not fit in a table: add a LIMIT, or use --format ndjson")
        rows.append(row)
    return rows


def show_rows(columns: Sequence[str], rows: Sequence[Row], output: TextIO) -> None:
    from lakerunner.commands.terminal.tables import print_table

    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in columns]
    print_table(columns, cells, numeric, output)


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


def show_document(value: object, output: TextIO) -> None:
    """Write a value as JSON: exact where it is redirected, drawn where a person reads it."""
    output.write(for_terminal(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), output) + "\n")


def warn(ended: Ended, say: Callable[[str], None]) -> None:
    """What a person must know about an answer before they believe it."""
    if ended.degraded:
        say(f"warning: this answer may be out of date: {ended.degraded}")
    for warning in ended.warnings:
        say(f"warning: {warning}")
    if not ended.complete:
        say("warning: this answer is NOT COMPLETE. Missing:")
        for one in ended.missing:
            say(f"  {plural(one['segments'], 'segment')} of {one['start']} to {one['end']}: {one['reason']}")


def error_text(error: LakerunnerError, text: str) -> str:
    """The error, and the line it is about with a mark below; what to do about a segment that cannot be read."""
    said = f"error: {error}"
    if isinstance(error, Corrupt):
        return f"{said}\n  `lakerunner repair` restores lost rows from raw objects; --partial answers without them"
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
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("segments", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
