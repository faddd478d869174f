"""The prompt of `lakerunner sql`: statements end with `;`, commands begin with a backslash, Ctrl-C stops a query.

readline edits lines and keeps their history in a file that only the user can read (mode 0600).
"""

from __future__ import annotations

import os
import re
import readline
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

from lakerunner.commands.terminal.ask_sql import BINARY, FORMS, SqlCommand, ask
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import error_text, show_rows
from lakerunner.model.display import escape_controls
from lakerunner.model.errors import LakerunnerError, UserError

HISTORY_LINES = 2000
HELP = r"""SELECT ...;       run a query; it ends with a semicolon and may have many lines
\d, \dt           list the tables, as SHOW TABLES; does
\d TABLE          list its columns with types and descriptions; DESCRIBE TABLE; also lists its attributes
\format [FORMAT]  format of answers: table, json, ndjson or csv
\timing           show how long each query took, on or off
\?                this help; commands are also taken between the lines of a statement
\q                quit (so does Ctrl-D)

Ctrl-C stops the running query, or clears the input. Tab completes names."""

# A text or comment, whose semicolons end no statement; a semicolon that ends one; or any other character.
_PIECES = re.compile(
    r"""
    (?P<open>'(?:[^']|'')*\Z | "(?:[^"]|"")*\Z | /\*(?:(?!\*/).)*\Z)
    | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    | (?P<end>;)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


class Prompt:
    """Reads statements and commands until the user quits."""

    def __init__(self, client: Client, command: SqlCommand, read: Callable[[str], str] = input) -> None:
        self._client = client
        self._command_line = command
        self._read = read
        self._timing = False
        self._typed = ""
        self._interrupt = Interrupt()
        self._commands: dict[str, Callable[[str], None]] = {
            "d": self._describe,
            "dt": lambda _: self._describe(""),
            "format": self._format,
            "timing": self._time,
            "?": lambda _: _say(HELP),
            "q": self._quit,
        }

    def run(self) -> None:
        """Run until the user quits."""
        _say(rf"Lakerunner at {self._client.url}. \? shows help, \q quits.")
        with self._interrupt.listening(), suppress(EOFError):
            while True:
                self._turn()
        _say("")

    def _turn(self) -> None:
        try:
            self._interrupt.hear()
            self._take(self._line())
            self._interrupt.forget()
        except KeyboardInterrupt:
            self._typed = ""
            _say("")

    def _line(self) -> str:
        try:
            return self._read("...> " if self._typed.strip() else "sql> ")
        except SystemError as error:  # what `input` raises if Ctrl-C is pressed twice at once
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise

    def _take(self, line: str) -> None:
        # No line of SQL begins with a backslash, so a command is recognized even if a semicolon was forgotten.
        if line.lstrip().startswith("\\") and not ends_inside(self._typed):
            self._command(line.strip()[1:])
            return
        statements, self._typed = split_statements(f"{self._typed}{line}\n")
        for text in statements:
            self._ask(text)

    def _ask(self, text: str) -> None:
        began = time.monotonic()
        try:
            self._interrupt.hear()
            ask(self._client, self._command_line.about(text))
        except LakerunnerError as error:
            _say(escape_controls(error_text(error, "" if self._command_line.prefix else text)))
        except KeyboardInterrupt:
            _say("stopped")
        if self._timing:
            _say(f"{time.monotonic() - began:.3f} s")

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        try:
            if name not in self._commands:
                raise UserError(rf"unknown command \{name}: \? lists the commands")
            self._commands[name](argument.strip().rstrip(";"))
        except LakerunnerError as error:
            _say(escape_controls(f"error: {error}"))

    def _describe(self, name: str) -> None:
        tables = {table["name"]: table for table in self._client.tables()}
        if not name:
            show_rows(["name", "description"], list(tables.values()), sys.stdout)
        elif name.lower() in tables:
            show_rows(["name", "type", "description"], tables[name.lower()]["columns"], sys.stdout)
        else:
            near = get_close_matches(name.lower(), tables, n=1)
            hint = f"did you mean {near[0]}?" if near else f"tables are {', '.join(tables)}"
            raise UserError(f"unknown table {name!r}: {hint}")

    def _format(self, form: str) -> None:
        able = [one for one in FORMS if one not in BINARY]
        if form and form not in able:
            raise UserError(f"unknown format {form!r}: use one of {', '.join(able)}")
        self._command_line = replace(self._command_line, form=form or self._command_line.form)
        _say(f"answers are shown as {self._command_line.form}")

    def _time(self, _argument: str) -> None:
        self._timing = not self._timing
        _say(f"timing is {'on' if self._timing else 'off'}")

    def _quit(self, _argument: str) -> None:
        raise EOFError


def split_statements(text: str) -> tuple[list[str], str]:
    """Split typed text into complete statements, without their semicolons, and the rest. A statement ends with a `;`
    outside of texts and comments."""
    whole, began = [], 0
    for piece in _PIECES.finditer(text):
        if piece["end"]:
            statement = text[began : piece.start()].strip()
            if statement:
                whole.append(statement)
            began = piece.end()
    return whole, text[began:]


def ends_inside(text: str) -> bool:
    """Return whether a text, a quoted name or a comment is still open at the end."""
    return any(piece["open"] for piece in _PIECES.finditer(text))


class Interrupt:
    """Ctrl-C raises KeyboardInterrupt once after each `hear`, and is ignored at other times, so that a second Ctrl-C
    while the first is handled does not end the prompt.

    Call `hear` inside the `try` that catches it, and `forget` at its end.
    """

    def __init__(self) -> None:
        self._heard = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGINT for the duration of the block. Call it in the main thread."""
        before = signal.signal(signal.SIGINT, self._pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def hear(self) -> None:
        self._heard = True

    def forget(self) -> None:
        self._heard = False

    def _pressed(self, _signal: int, _frame: FrameType | None) -> None:
        if self._heard:
            self._heard = False
            raise KeyboardInterrupt


def history_path(environment: Mapping[str, str]) -> Path:
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "lakerunner" / "sql_history"


@contextmanager
def edited_lines(client: Client, history: Path) -> Iterator[None]:
    """Enable line editing for `input`: history of earlier sessions, names completed by Tab."""
    readline.set_history_length(HISTORY_LINES)
    readline.set_completer(_Names(client).complete)
    readline.set_completer_delims(" \t\n,;()[]=<>+-*/'\"")
    readline.parse_and_bind("tab: complete")
    with suppress(OSError):  # there is no history yet
        readline.read_history_file(history)
    try:
        yield
    finally:
        _keep(history)


def _keep(history: Path) -> None:
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.write_history_file(history)
        history.chmod(0o600)
    except OSError as error:
        _say(f"cannot write the history to {history}: {error.strerror}")


class _Names:
    """Completes the names of tables and columns."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: list[str] = []

    def complete(self, begun: str, number: int) -> str | None:
        if not self._known:
            with suppress(LakerunnerError):
                tables = self._client.tables()
                columns = {column["name"] for table in tables for column in table["columns"]}
                self._known = sorted({table["name"] for table in tables} | columns)
        fitting = [name for name in self._known if name.startswith(begun.lower())]
        return fitting[number] if number < len(fitting) else None


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()
