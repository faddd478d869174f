"""One question in SQL, its answer in any of the formats.

Exit codes: 0 for a whole answer, 1 for an error, 3 for an answer that lacks something and says so.
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

from lakerunner.commands.terminal.answers import Ended, Output, Query
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import (
    DrawnOutput,
    error_text,
    progress_bar,
    show_json,
    show_ndjson,
    show_plan,
    show_rows,
    table_rows,
    warn,
)
from lakerunner.model.drawn import drawn
from lakerunner.model.errors import LakerunnerError, UserError

FORMS = ("table", "json", "ndjson", "csv", "arrow", "parquet")
BINARY = ("arrow", "parquet")
_SERVED = ("csv", *BINARY)  # in the server's own bytes; the others are made here, from events
INCOMPLETE = 3


@dataclass(frozen=True)
class Asking:
    """How to ask and where the answer goes; `prefix` is EXPLAIN or EXPLAIN ANALYZE."""

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

    def about(self, text: str) -> Asking:
        return replace(self, query=replace(self.query, text=text))


def ask(client: Client, asking: Asking) -> Ended:
    """Put the question and write its answer; warnings go to standard error."""
    text = f"{asking.prefix} {asking.query.text}" if asking.prefix else asking.query.text
    query = replace(asking.query, text=text)
    ended = _written(client, query, asking)
    warn(ended, _say)
    return ended


def ask_once(client: Client, asking: Asking) -> int:
    """The exit code."""
    try:
        return 0 if ask(client, asking).complete else INCOMPLETE
    except LakerunnerError as error:
        _say(error_text(error, "" if asking.prefix else asking.query.text))
        return 1


def _written(client: Client, query: Query, asking: Asking) -> Ended:
    if asking.form in _SERVED:
        with _opened(asking.output) as output:
            return client.download(query, asking.form, output)
    if asking.form == "table":
        return _tabled(client, query)
    # Rows that are printed as they come leave no place for a bar on the same terminal.
    apart = asking.output is not None or not sys.stdout.isatty()
    show = show_json if asking.form == "json" else show_ndjson
    with (
        _opened(asking.output) as output,
        progress_bar(apart and sys.stderr.isatty()) as on_progress,
        client.sql(query, on_progress) as answer,
    ):
        show(answer, output)
        return answer.ended


def _tabled(client: Client, query: Query) -> Ended:
    """Printed when all rows are there and the bar is gone."""
    with progress_bar(sys.stderr.isatty()) as on_progress, client.sql(query, on_progress) as answer:
        rows = table_rows(answer)
    show = show_plan if query.text.lstrip()[:7].lower() == "explain" else show_rows
    show(answer.columns, rows, sys.stdout)
    return answer.ended


@contextmanager
def _opened(path: Path | None) -> Iterator[Output]:
    """Standard output, or a file that is there only when it is whole. A device or pipe is written to as it is: a file
    must not take the place of /dev/null."""
    if path is None:
        yield DrawnOutput(sys.stdout) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.flush()
        return
    direct = path.exists() and not path.is_file()
    target = path if direct else path.resolve()  # a link stays, the file that it names is replaced
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
    """`name=text` and `name:=json`."""
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


def _say(sentence: str) -> None:
    click.echo(drawn(sentence), err=True)
