"""Rows as a table that fits the terminal.

This part of showing rows needs rich, which is slow to import: show.py imports this module when there is a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakerunner.model.drawn import drawn

_PAGE_COLUMNS = 200  # where there is no terminal
_NARROW = 12  # a column may be folded to this width; when that does not fit either, rows are shown one by one


def print_table(columns: Sequence[str], cells: Sequence[list[str]], numeric: Sequence[bool], output: TextIO) -> None:
    """`numeric`: which columns stand on the right."""
    console = Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS)
    if _fits(columns, cells, console.width):
        console.print(_table(columns, cells, numeric))
    else:
        _show_one_by_one(console, columns, cells)
    console.print(f"{len(cells)} row{'' if len(cells) == 1 else 's'}", highlight=False)


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
