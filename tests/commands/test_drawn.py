"""What telemetry and errors hold is shown on a terminal, and moves nothing there."""

from __future__ import annotations

import io
import logging

import pytest

from lakerunner import cli
from lakerunner.commands.objects import show_objects, show_rejects
from lakerunner.commands.terminal.show import DrawnOutput, Row, show_rows
from lakerunner.model.display import escape_controls, for_terminal
from lakerunner.model.errors import UserError
from lakerunner.services.logs import Log, configure_logs
from lakerunner.settings import Settings

HOSTILE = "a\x1b[2J\x1b]0;title\x07\u202eexe.txt\u2066\u200f\x9b31m\u2028\x7f"
SHOWN = "a␛[2J␛]0;title␇\\u202eexe.txt\\u2066\\u200f�31m\\u2028␡"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def is_harmless(text: str) -> bool:
    return not any(sign in text for sign in "\x07\x7f\x9b\u202e\u2066\u200f\u2028") and "\x1b]" not in text


def test_every_control_and_bidirectional_character_is_drawn() -> None:
    assert escape_controls(HOSTILE) == SHOWN
    assert escape_controls("\ud800") == "\\ud800"
    kept = "line\n\ttab é 日本 👩\u200d💻 \u05d0"  # a joiner is part of an emoji, Hebrew is text
    assert escape_controls(kept) == kept
    for code in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x61C, *range(0x202A, 0x202F)):
        assert escape_controls(chr(code)) != chr(code)


def test_machine_formats_are_exact_unless_a_person_reads_them() -> None:
    assert for_terminal(HOSTILE, io.StringIO()) == HOSTILE
    assert for_terminal(HOSTILE, Terminal()) == SHOWN
    terminal = Terminal()
    DrawnOutput(terminal).write(HOSTILE.encode())
    assert terminal.getvalue() == SHOWN


@pytest.mark.parametrize("form", ["table", "json"])
def test_objects_on_a_terminal(form: str) -> None:
    answer = {"objects": [{"state": "failed", "key": HOSTILE, "size": 1, "reason": HOSTILE}], "counts": {"failed": 1}}
    terminal, file = Terminal(), io.StringIO()
    show_objects(answer, form, terminal)
    assert is_harmless(terminal.getvalue())
    assert "\\u202e" in terminal.getvalue()
    show_objects(answer, form, file)
    assert ("\u202e" in file.getvalue()) == (form == "json")


def test_rejects_on_a_terminal() -> None:
    reject = {"line": 3, "offset": 70, "reason": HOSTILE, "excerpt": HOSTILE}
    terminal = Terminal()
    show_rejects({"key": HOSTILE, "rejected": 5, "lines": 9, "rejects": [reject]}, "table", terminal)
    show_rejects({"key": HOSTILE, "rejected": 0, "lines": 9, "rejects": []}, "table", terminal)
    assert is_harmless(terminal.getvalue())
    assert "5 of 9 lines rejected; the first 1 are shown" in terminal.getvalue()


OBJECTS = {
    "objects": [
        {
            "state": "partial",
            "key": "otel-raw/default/files/app.jsonl",
            "size": 123456,
            "reason": None,
            "seen_at": "2026-01-31T12:00:00+00:00",
            "ended_at": "2026-01-31T13:00:05+01:00",
            "rows": 1000,
            "rejected": 2,
            "notes": [
                {"kind": "no service", "count": 7, "line": 5, "text": "no column is the service"},
                {"kind": "time in the future", "count": 2, "line": 0, "text": "record 3 has the time 2100-01-01"},
            ],
        },
        {"state": "seen", "key": "otel-raw/default/files/b.csv", "size": 5, "seen_at": "2026-01-31T12:00:00+00:00"},
    ],
    "counts": {"seen": 1, "partial": 1},
}


def test_objects_keep_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal, file = Terminal(), io.StringIO()
    show_objects(OBJECTS, "table", terminal)
    lines = [line for line in terminal.getvalue().splitlines() if "\x1b" not in line]  # all but the header
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("│ partial │ 2026-01-31 12:00 │ 1000 │ 123456 │ otel-raw/") for line in lines)
    assert any(line.startswith("│ seen    │ 2026-01-31 12:00 │      │      5 │ otel-raw/") for line in lines)
    show_objects(OBJECTS, "table", file)
    assert "2 lines rejected: see `lakerunner objects rejects KEY`" in file.getvalue()
    assert "note: no service (7 records, first in line 5): no column is the service" in file.getvalue()
    assert file.getvalue().endswith("1 seen, 1 partial; times are UTC\n")


def test_tables_are_drawn_wherever_they_go() -> None:
    for output in (Terminal(), io.StringIO()):
        rows: list[Row] = [{HOSTILE: HOSTILE}]
        show_rows([HOSTILE], rows, output)
        assert is_harmless(output.getvalue())


def test_lines_of_a_log_on_a_terminal() -> None:
    terminal, before = Terminal(), logging.getLogger().handlers[:]
    try:
        configure_logs("info", terminal)
        Log("test").info("object set aside", key=HOSTILE)
    finally:
        logging.getLogger().handlers[:] = before
    assert is_harmless(terminal.getvalue())
    assert SHOWN in terminal.getvalue()


def test_errors_that_echo_what_was_given(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: object) -> Settings:
        raise UserError(f"no such thing: {HOSTILE}")

    monkeypatch.setattr(cli, "cli", fail)
    monkeypatch.setattr("os.umask", lambda _: 0)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == f"error: no such thing: {SHOWN}\n"
