"""Answers on the command line: read from a running lake as they come, shown as tables, JSON or NDJSON.

Rows arrive as server-sent events, which end with `done` or `error`: an answer that breaks off is an error, never a
short answer. Progress and warnings go to standard error. Text from telemetry is escaped (model/display.py), so that it
cannot control the terminal. rich is slow to import, so only the functions that need it import it.
"""

from __future__ import annotations

import codecs
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

import orjson

from lakerunner.model.display import escape_controls, for_terminal, plural
from lakerunner.model.errors import Corrupt, LakerunnerError, Unavailable, UserError, error_from_body

TABLE_ROWS = 10_000
_SAY_SECONDS = 10.0  # between two lines of progress without a terminal
_ROW = b'data: {"type":"result","data":'
Row = dict[str, Any]
OnProgress = Callable[[int, int], None]


class ByteOutput(Protocol):
    """A file of bytes."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


@dataclass(frozen=True)
class Query:
    """A SQL query. `partial`: list data that cannot be read as missing instead of failing."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "duckdb"
    partial: bool = False

    def body(self) -> dict[str, Any]:
        """Return the body of the request."""
        fields = {"query": self.text, "engine": self.engine, "partial": self.partial}
        return fields | ({"parameters": dict(self.parameters)} if self.parameters else {})


@dataclass(frozen=True)
class AnswerEnd:
    """The end of an answer: whether it is complete, and its warnings."""

    row_count: int = 0
    complete: bool = True
    missing: tuple[Mapping[str, Any], ...] = ()
    degraded: str | None = None
    warnings: tuple[str, ...] = ()


class SqlAnswer:
    """An answer as it comes: its columns, then its rows, which can be read once. `ended` is set after the last row."""

    def __init__(self, lines: Iterator[bytes], on_progress: OnProgress) -> None:
        self.ended = AnswerEnd()
        self._lines = lines
        self._on_progress = on_progress
        schema = next(self._events(), None)
        if schema is None:
            raise broken_off()
        self.columns: list[str] = schema["columns"]

    def raw(self) -> Iterator[bytes]:
        """Yield rows as JSON, as they were sent; raise if the answer breaks off."""
        for event in self._events():
            if isinstance(event, bytes):
                yield event
            else:
                self.ended = event["ended"]
                return
        raise broken_off()

    def __iter__(self) -> Iterator[Row]:
        """Yield rows as values; a number with a fraction keeps its digits (`ExactNumber`)."""
        for row in self.raw():
            yield json.loads(row, parse_float=ExactNumber)

    def _events(self) -> Iterator[Any]:
        """Yield the schema, rows as bytes, and the end."""
        for line in self._lines:
            if line.startswith(_ROW):
                yield line[len(_ROW) : -1]
            elif line.startswith(b"data: "):
                yield from self._other(orjson.loads(line[6:]))

    def _other(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        match event["type"]:
            case "schema":
                yield {"columns": [column["name"] for column in event["columns"]]}
            case "progress":
                self._on_progress(event["segments_done"], event["segments_total"])
            case "error":
                raise error_from_body(event["error"])
            case "done":
                missing, warnings = tuple(event["missing"]), tuple(event["warnings"])
                yield {"ended": AnswerEnd(event["row_count"], event["complete"], missing, event["degraded"], warnings)}


class ExactNumber(float):
    """A number that keeps the text it was parsed from."""

    def __new__(cls, text: str) -> ExactNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def broken_off() -> Unavailable:
    """Return the error of an answer without a closing event."""
    return Unavailable("the answer ended too early")


def table_rows(answer: SqlAnswer) -> list[Row]:
    """Return all rows; raise UserError if there are too many for a table."""
    rows: list[Row] = []
    for row in answer:
        if len(rows) == TABLE_ROWS:
            raise UserError(f"more than {TABLE_ROWS} rows do not fit in a table: add a LIMIT, or use --format ndjson")
        rows.append(row)
    return rows


def show_rows(columns: Sequence[str], rows: Sequence[Row], output: TextIO) -> None:
    """Print rows as a table."""
    from lakerunner.commands.terminal.tables import print_table

    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in columns]
    print_table(columns, cells, numeric, output)


def show_plan(columns: Sequence[str], rows: Sequence[Row], output: TextIO) -> None:
    """Print the lines of a plan, which are rows of one text column."""
    for row in rows:
        output.write("".join(f"{_cell(row[name])}\n" for name in columns))


def show_json(answer: SqlAnswer, output: ByteOutput) -> None:
    output.write(b"[")
    for number, row in enumerate(answer.raw()):
        output.write((b",\n " if number else b"\n ") + row)
    output.write(b"\n]\n")


def show_ndjson(answer: SqlAnswer, output: ByteOutput) -> None:
    for row in answer.raw():
        output.write(row + b"\n")
        output.flush()


def show_document(value: object, output: TextIO) -> None:
    """Write a value as JSON: exact when redirected, with control characters escaped on a terminal."""
    output.write(for_terminal(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), output) + "\n")


def warn(ended: AnswerEnd, say: Callable[[str], None]) -> None:
    """Report what makes an answer incomplete or out of date."""
    if ended.degraded:
        say(f"warning: this answer may be out of date: {ended.degraded}")
    for warning in ended.warnings:
        say(f"warning: {warning}")
    if not ended.complete:
        say("warning: this answer is NOT COMPLETE. Missing:")
        for one in ended.missing:
            say(f"  {plural(one['segments'], 'segment')} of {one['start']} to {one['end']}: {one['reason']}")


def error_text(error: LakerunnerError, text: str) -> str:
    """Return the message of an error, with the line of the query and a mark below its position, or with advice about a
    segment that cannot be read."""
    message = f"error: {error}"
    if isinstance(error, Corrupt):
        return f"{message}\n  `lakerunner repair` restores lost rows from raw objects; --partial answers without them"
    position = getattr(error, "position", None)
    lines = text.splitlines()
    if position is None or not 1 <= position.line <= len(lines):
        return message
    return f"{message}\n  {lines[position.line - 1]}\n  {' ' * (position.column - 1)}^"


@contextmanager
def progress_bar(shown: bool) -> Iterator[OnProgress]:
    """Show a bar of done segments on standard error; it disappears at the end."""
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
            return escape_controls(value)
        case ExactNumber():
            return value.text
    return escape_controls(json.dumps(value, ensure_ascii=False))


class DrawnOutput:
    """A terminal as a file of bytes, with control characters escaped."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, /) -> int:
        self._terminal.write(escape_controls(self._decoder.decode(data)))
        return len(data)

    def flush(self) -> None:
        self._terminal.flush()


@contextmanager
def progress(errors: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: on a terminal a line that changes, elsewhere a line every _SAY_SECONDS."""
    if errors.isatty():
        from rich.console import Console

        with Console(file=errors).status("") as status:
            yield status.update
        return
    last = time.monotonic()

    def say(sentence: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SAY_SECONDS:
            last = time.monotonic()
            errors.write(f"{sentence}\n")
            errors.flush()

    yield say
