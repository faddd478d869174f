"""Run one SQL query and write its answer in any format.

Exit codes: 0 for a complete answer, 1 for an error, 3 for an answer that lists missing data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import (
    AnswerEnd,
    ByteOutput,
    DrawnOutput,
    Query,
    error_text,
    progress_bar,
    show_json,
    show_ndjson,
    show_plan,
    show_rows,
    table_rows,
    warn,
)
from lakerunner.model.display import escape_controls
from lakerunner.model.errors import LakerunnerError, UserError

FORMS = ("table", "json", "ndjson", "csv", "arrow", "parquet")
BINARY = ("arrow", "parquet")
_SERVED = ("csv", *BINARY)  # written as the server sends them; the others are made here from events
INCOMPLETE = 3


@dataclass(frozen=True)
class SqlCommand:
    """A query, the format of its answer and where that goes; `prefix` is EXPLAIN or EXPLAIN ANALYZE."""

    query: Query
    form: str = "table"
    output: Path | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.form in BINARY and self.output is None and sys.stdout.isatty():
            raise UserError(
                f"{self.form} output cannot be written to a terminal: name a file with --output, or pipe it"
            )
        if self.form == "table" and self.output is not None:
            raise UserError(f"--output needs a format for programs: one of {', '.join(FORMS[1:])}")
        if self.form in _SERVED and self.query.partial:
            raise UserError(
                f"--partial needs a format that can list missing data: table, json or ndjson, not {self.form}"
            )

    def about(self, text: str) -> SqlCommand:
        """Return the same command for another query."""
        return replace(self, query=replace(self.query, text=text))


def ask(client: Client, command: SqlCommand) -> AnswerEnd:
    """Run the query and write its answer; warnings go to standard error."""
    text = f"{command.prefix} {command.query.text}" if command.prefix else command.query.text
    query = replace(command.query, text=text)
    ended = _write_answer(client, query, command)
    warn(ended, say)
    return ended


def ask_once(client: Client, command: SqlCommand) -> int:
    """Run the query, show an error if it fails, and return the exit code."""
    try:
        return 0 if ask(client, command).complete else INCOMPLETE
    except LakerunnerError as error:
        say(error_text(error, "" if command.prefix else command.query.text))
        return 1


def _write_answer(client: Client, query: Query, command: SqlCommand) -> AnswerEnd:
    if command.form in _SERVED:
        with _open_output(command.output) as output:
            return client.download(query, command.form, output)
    if command.form == "table":
        return _print_table(client, query)
    # Rows that are printed as they come and a progress bar would overwrite each other on the same terminal.
    apart = command.output is not None or not sys.stdout.isatty()
    show = show_json if command.form == "json" else show_ndjson
    with (
        _open_output(command.output) as output,
        progress_bar(apart and sys.stderr.isatty()) as on_progress,
        client.sql(query, on_progress) as answer,
    ):
        show(answer, output)
        return answer.ended


def _print_table(client: Client, query: Query) -> AnswerEnd:
    """Print a table after all rows have come and the progress bar is gone."""
    with progress_bar(sys.stderr.isatty()) as on_progress, client.sql(query, on_progress) as answer:
        rows = table_rows(answer)
    show = show_plan if query.text.lstrip()[:7].lower() == "explain" else show_rows
    show(answer.columns, rows, sys.stdout)
    return answer.ended


@contextmanager
def _open_output(path: Path | None) -> Iterator[ByteOutput]:
    """Open standard output, or a file that appears only when it is complete. A device or pipe is written directly: a
    file must not replace /dev/null."""
    if path is None:
        yield DrawnOutput(sys.stdout) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.flush()
        return
    direct = path.exists() and not path.is_file()
    target = path if direct else path.resolve()  # a symbolic link stays, its target is replaced
    draft = target if direct else target.with_name(f".{target.name}.part")
    try:
        with draft.open("wb") as file:
            yield file
        if not direct:
            draft.replace(target)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if not direct:
            draft.unlink(missing_ok=True)


def parameters(given: tuple[str, ...]) -> dict[str, Any]:
    """Parse `name=text` and `name:=json`."""
    named: dict[str, Any] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator or not name.strip(":"):
            raise UserError(f"--param {one!r}: write name=text, or name:=json")
        if name.endswith(":"):
            named[name[:-1]] = _json(one, value)
        else:
            named[name] = value
    return named


def _json(whole: str, value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise UserError(f"--param {whole!r}: the text after := is not JSON: {error}") from error


def say(sentence: str) -> None:
    """Write a line to standard error."""
    click.echo(escape_controls(sentence), err=True)
