"""Tables that fit the terminal: rows of an answer, and the state of a lake.

They need rich, which is slow to import, so other modules import this one only when they print a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from lakerunner.model.display import escape_controls, plural
from lakerunner.model.tier import TIER_NAMES

if TYPE_CHECKING:
    from lakerunner.services.status import Status

_PAGE_COLUMNS = 200  # width without a terminal
_NARROW = 12  # a column may be folded to this width; if the table still does not fit, rows are shown one by one
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def print_table(columns: Sequence[str], cells: Sequence[list[str]], numeric: Sequence[bool], output: TextIO) -> None:
    """Print rows as a table; `numeric` columns are aligned to the right."""
    console = Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS)
    if _fits(columns, cells, console.width):
        console.print(_row_table(columns, cells, numeric))
    else:
        _show_one_by_one(console, columns, cells)
    console.print(f"{len(cells)} row{'' if len(cells) == 1 else 's'}", highlight=False)


def _row_table(columns: Sequence[str], cells: Iterable[list[str]], numeric: Sequence[bool]) -> Table:
    table = Table()
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(Text(escape_controls(name)), overflow="fold", justify="right" if right else "left")
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
            record.add_row(Text(escape_controls(name), style="bold"), Text(cell))
        console.print(record)


def _fits(columns: Sequence[str], cells: Sequence[list[str]], width: int) -> bool:
    widest = [
        max([len(name), *(len(line) for row in cells for line in row[place].splitlines())])
        for place, name in enumerate(columns)
    ]
    return sum(min(wide, _NARROW) + 3 for wide in widest) < width


def status_view(status: Status) -> Group:
    queues = _titled_table("Queues", "topic", "group", "waiting>", "claimed>", "oldest>")
    for queue in status.queues:
        queues.add_row(
            queue.topic, queue.group or "nobody", *_numbers(queue.waiting, queue.claimed), age(queue.age_seconds)
        )
    lag = _titled_table("To be done", "what", "count>", "oldest>", "the oldest")
    for one in status.lag:
        lag.add_row(one.what, *_numbers(one.count), age(one.age_seconds), Text(escape_controls(one.example)))
    segments = _titled_table("Segments", "signal", "tier", "level>", "segments>", "rows>", "bytes>", "bytes each>")
    for of in status.segments:
        counts = _numbers(of.segments, of.rows)
        segments.add_row(
            of.signal, TIER_NAMES[of.frequency_ms], str(of.level), *counts, size(of.bytes), size(of.bytes / of.segments)
        )
    if status.segments:
        total = [sum(getattr(of, name) for of in status.segments) for name in ("segments", "rows", "bytes")]
        segments.add_row("all", "", "", *_numbers(*total[:2]), size(total[2]), size(total[2] / total[0]), style="bold")
    sweeper = _titled_table("For the sweeper", "what", "segments>", "bytes>")
    for one, bytes_ in zip(status.sweeper, status.swept_bytes, strict=True):
        sweeper.add_row(one.what, *_numbers(one.count), size(bytes_))
    each = ", ".join(f"{signal} {times:.2f}" for signal, times in status.written.items()) or "nothing stored"
    aside = sum(of.aside for of in status.segments)
    lines = [
        f"written per stored byte: {each}",
        *([f"{plural(aside, 'segment')} no longer merged: `lakerunner work` says why"] if aside else []),
    ]
    return Group(queues, lag, segments, sweeper, *map(Text, lines))


def _titled_table(title: str, *columns: str) -> Table:
    """Return an empty table; a column whose name ends in > is aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    return table


def _numbers(*values: int) -> list[str]:
    return [f"{value:,}" for value in values]


def age(seconds: float | None) -> str:
    """Write a duration in its two largest units: 3d 4h, 5m 10s, 7s."""
    if seconds is None:
        return ""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in _UNITS:
        if left >= length or parts:
            parts.append(f"{left // length}{unit}")
            left %= length
    return " ".join(parts[:2]) or "0s"


def size(bytes_: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes_ < 1024:
            return f"{bytes_:.0f} B" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f} TiB"


def fitting(console: Console, tables: RenderableType) -> RenderableType:
    """Cut the tables to the height of the terminal and say how much is left out; rich would cut them silently."""
    lines = console.render_lines(tables, console.options.update(height=None), pad=False)
    room = console.height - 1
    if len(lines) <= console.height:
        return tables
    parts = [part for line in lines[:room] for part in (*line, Segment.line())]
    left = Text(f"no room for {plural(len(lines) - room, 'more line')}: `lakerunner status` shows all", style="bold")
    return Group(Segments(parts), left)
