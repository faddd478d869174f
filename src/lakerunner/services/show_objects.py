"""Raw objects on the command line: what became of them, and the lines that were rejected.

On a terminal the columns of fixed form keep their width, and keys and reasons share what is left. Text of telemetry is
shown and never obeyed (drawn.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakerunner.services.drawn import drawn, for_terminal

_PAGE_COLUMNS = 200  # where there is no terminal
_FIXED = ("state", "ended", "rows", "bytes", "line", "offset")
_NUMBERS = ("rows", "bytes", "line", "offset")


def show_objects(answer: Mapping[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        _show_json(answer, output)
        return
    _show_table(("state", "ended", "rows", "bytes", "key", "what"), map(_object_cells, answer["objects"]), output)
    counts = answer["counts"].items()
    output.write(
        ", ".join(f"{count} {state}" for state, count in counts)
        + "; times are UTC; of `seen` objects when they were announced\n"
    )


def show_rejects(answer: Mapping[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        _show_json(answer, output)
        return
    rejects = answer["rejects"]
    if not rejects:
        output.write(drawn(f"{answer['key']} has no rejected lines on record") + "\n")
        return
    rows = ([str(one["line"]), str(one["offset"]), one["reason"], one["excerpt"]] for one in rejects)
    _show_table(("line", "offset", "reason", "begins with"), rows, output)
    output.write(
        f"{len(rejects)} of {answer['rejected']} rejected lines shown; the object has {answer['lines']} lines\n"
    )


def _object_cells(one: Mapping[str, Any]) -> list[str]:
    rows = one.get("rows")
    return [
        one["state"],
        _moment(one.get("ended_at") or one.get("seen_at")),
        "" if rows is None else str(rows),
        str(one["size"]),
        one["key"],
        "\n".join(_remarks(one)),
    ]


def _remarks(one: Mapping[str, Any]) -> Iterable[str]:
    """What a person should know of it."""
    if one.get("reason"):
        yield one["reason"]
    if one.get("rejected"):
        yield f"{one['rejected']} lines rejected: see `lakerunner objects rejects`"
    for note in one.get("notes", ()):
        line = f", first in line {note['line']}" if note["line"] else ""  # 0: the format has no lines
        yield f"note: {note['kind']}, {note['count']} times{line}: {note['text']}"


def _moment(text: str | None) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M}" if text else ""


def _show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], output: TextIO) -> None:
    console = Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS)
    table = Table()
    for name in columns:
        fixed = name in _FIXED
        justify: Any = "right" if name in _NUMBERS else "left"
        table.add_column(name, overflow="fold", no_wrap=fixed, justify=justify, min_width=None if fixed else 12)
    for row in rows:
        table.add_row(*(Text(drawn(cell)) for cell in row))
    console.print(table)


def _show_json(answer: Mapping[str, Any], output: TextIO) -> None:
    output.write(for_terminal(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode(), output) + "\n")
