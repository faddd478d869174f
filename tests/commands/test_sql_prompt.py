"""`lakerunner sql` on a terminal: a real process on a pseudo-terminal, in front of a real server."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.commands.terminal.prompt import ends_inside, split_statements
from lakerunner.lakeql.tables import SPANS_TABLE
from lakerunner.query.contract.account import Account
from servers.lake import LAKERUNNER, clean_environment
from suites.scripted import Scripted, ScriptedEngine, sql_server

SECONDS = 60
TEXT = pa.schema([("message", pa.string())])


class Terminal:
    """What a person sees, and their keyboard."""

    def __init__(self, arguments: list[str], home: Path) -> None:
        ours, theirs = pty.openpty()
        environment = clean_environment({"HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"})
        environment.pop("XDG_STATE_HOME", None)
        self._descriptor = ours
        self.popen = subprocess.Popen(
            [*LAKERUNNER, "sql", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # the beginning of what is one sign for a terminal, and came in two pieces
        self.seen = ""

    def enter(self, line: str, prompt: str = "sql> ") -> None:
        """At the prompt, not before: what is typed between two lines is not for readline."""
        self.wait_for(prompt)
        self.type(f"{line}\n")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        self.popen.send_signal(signal.SIGINT)

    def empty_line(self) -> None:
        """Python hears of a Ctrl-C that comes while readline works on a key with the next key only: this one.
        Of the prompt after it, readline leaves out the letters that it believes to stand there already."""
        self.type("\n")
        deadline = time.monotonic() + SECONDS
        while self._look(0.5) or not self.seen.endswith("> "):
            assert time.monotonic() < deadline, f"no prompt: {self.seen!r}"

    def wait_for(self, words: str) -> str:
        """Until these words are on the screen; what stood before and with them, which is then forgotten."""
        deadline = time.monotonic() + SECONDS
        while words not in self.seen:
            assert time.monotonic() < deadline, f"{words!r} did not come: {self.seen!r}"
            self._look(0.1)
        at = self.seen.index(words) + len(words)
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def _look(self, seconds: float) -> bool:
        """At what comes next, if something does."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._descriptor, 65536)
        except OSError:
            piece = b""
        assert piece, f"it ended: {self.seen!r}"
        self._show(self._rest + self._decoder.decode(piece))
        return True

    def _show(self, text: str) -> None:
        cut = re.search(r"(\r|\x1b(\[[0-9;?]*)?)?$", text)
        assert cut is not None
        self._rest = text[cut.start() :]
        self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[: cut.start()]).replace("\r\n", "\n")

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(SECONDS)
        os.close(self._descriptor)


@contextmanager
def terminal(*arguments: str, home: Path) -> Iterator[Terminal]:
    opened = Terminal(list(arguments), home)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(
        {
            "select 1": Scripted([1]),
            "select\n\n2": Scripted([2]),
            "endless": Scripted([7, Account(considered=8, read=3), "wait"]),
            "wrong": Scripted(["fail"]),
            "select ';'": Scripted([3]),
            "nasty": Scripted([pa.record_batch([pa.array(["\x1b[2Jgone, \x9b"])], TEXT)], TEXT),
        }
    )


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine) -> Iterator[str]:
    with sql_server(engine) as base:
        yield base


def test_a_session(url: str, engine: ScriptedEngine, tmp_path: Path) -> None:
    with terminal("--url", url, home=tmp_path) as screen:
        screen.enter("select 1;")
        assert "│ 1 │" in screen.wait_for("1 row\n")
        screen.enter("select")
        screen.enter("", "...> ")
        screen.enter("2;", "...> ")
        assert "│ 2 │" in screen.wait_for("1 row\n")
        screen.enter("\\d")
        shown = screen.wait_for("3 rows\n")
        assert all(name in shown for name in ("logs", "metrics", "one row for each span of a trace"))
        screen.enter("\\dt")
        assert "one row for each data point" in screen.wait_for("3 rows\n")
        screen.enter("\\d spans")
        shown = screen.wait_for(f"{len(SPANS_TABLE.columns)} rows\n")
        assert "parent_span_id" in shown
        assert "0 unset, 1 ok, 2 error" in shown
        screen.enter("\\d lgos")
        screen.wait_for("error: unknown table 'lgos': did you mean logs?")
        screen.enter("\\format json")
        screen.enter("\\timing")
        screen.enter("select ';';")
        assert '{"n":3}\n]' in screen.wait_for(" s\n")
        screen.enter("\\format arrow")
        screen.wait_for("error: unknown format 'arrow': use one of table, json, ndjson, csv")
        screen.enter("\\format csv")
        screen.enter("nasty;")
        screen.wait_for('"␛[2Jgone, �"')
        screen.enter("\\nope")
        screen.wait_for("error: unknown command \\nope")
        screen.enter("wrong;")
        screen.wait_for("error: more rows than query_max_rows: add a LIMIT")
        screen.enter("\\q")
        assert screen.popen.wait(SECONDS) == 0
    history = tmp_path / ".local" / "state" / "lakerunner" / "sql_history"
    assert history.read_text().splitlines()[:3] == ["select 1;", "select", "2;"]
    assert history.stat().st_mode & 0o777 == 0o600
    with terminal("--url", url, home=tmp_path) as screen:
        screen.enter("\x1b[A\x1b[A")  # up, up: the line before \q
        screen.wait_for("error: more rows than query_max_rows")
        screen.wait_for("sql> ")
        screen.type("\x04")
        assert screen.popen.wait(SECONDS) == 0


def test_ctrl_c_stops_the_query_and_stays(url: str, engine: ScriptedEngine, tmp_path: Path) -> None:
    with terminal("--url", url, home=tmp_path) as screen:
        screen.enter("endless;")
        screen.wait_for("3/8")  # the bar
        assert not engine.answers["endless"].closed.is_set()
        screen.interrupt()
        screen.wait_for("stopped\n")
        assert engine.answers["endless"].closed.wait(SECONDS)
        screen.wait_for("sql> ")
        screen.type("select")
        screen.wait_for("select")
        screen.interrupt()
        screen.empty_line()
        screen.type("select 1;\n")
        assert "│ 1 │" in screen.wait_for("1 row\n")


def test_ctrl_c_however_often_never_ends_the_prompt(url: str, tmp_path: Path) -> None:
    with terminal("--url", url, home=tmp_path) as screen:
        screen.wait_for("sql> ")
        for number in range(200):  # at all moments: in a line, and between two
            screen.interrupt()
            time.sleep(number % 7 * 0.0005)
        screen.empty_line()
        screen.type("select 1;\n")
        assert "│ 1 │" in screen.wait_for("1 row\n")


def test_a_command_between_the_lines_of_a_statement(url: str, tmp_path: Path) -> None:
    with terminal("--url", url, home=tmp_path) as screen:
        screen.enter("select")
        screen.enter("\\format csv", "...> ")
        screen.wait_for("answers are shown as csv")
        screen.enter("", "...> ")
        screen.enter("2;", "...> ")
        screen.wait_for("n\n2\n")
        screen.enter("select 1")
        screen.enter("\\q", "...> ")
        assert screen.popen.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("typed", "inside"),
    [
        ("select", False),
        ("select 'a", True),
        ("select 'it''s'", False),
        ('"x', True),
        ("/* \n", True),
        ("-- '\n", False),
    ],
)
def test_what_goes_on_at_the_end(typed: str, inside: bool) -> None:
    assert ends_inside(typed) is inside


def test_bytes_are_not_written_to_a_terminal(url: str, tmp_path: Path) -> None:
    with terminal("--url", url, "--format", "parquet", "select 1", home=tmp_path) as screen:
        screen.wait_for("error: parquet output cannot be written to a terminal: name a file with --output, or pipe it")
        assert screen.popen.wait(SECONDS) == 1


@pytest.mark.parametrize(
    ("typed", "whole", "rest"),
    [
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2; select", ["select 1", "select 2"], " select"),
        ("select ';' ;", ["select ';'"], ""),
        ("select 'it''s; ' ;", ["select 'it''s; '"], ""),
        ("select ';", [], "select ';"),
        ('select ";', [], 'select ";'),
        ("select 1 -- ;\n", [], "select 1 -- ;\n"),
        ("select 1 -- ;\n;", ["select 1 -- ;"], ""),
        ("select /* ; */ 1;", ["select /* ; */ 1"], ""),
        ("select /* ; ", [], "select /* ; "),
        (";;", [], ""),
        ("", [], ""),
    ],
)
def test_statements_end_with_a_semicolon(typed: str, whole: list[str], rest: str) -> None:
    assert split_statements(typed) == (whole, rest)
