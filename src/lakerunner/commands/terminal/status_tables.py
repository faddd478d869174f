"""The state of a lake as tables, cut to what a terminal has room for."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from lakerunner.model.drawn import drawn
from lakerunner.model.plural import plural
from lakerunner.model.tier import TIER_NAMES
from lakerunner.services.status import Status

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def shown(status: Status) -> Group:
    queues = _table("Queues", "topic", "group", "waiting>", "claimed>", "oldest>")
    for queue in status.queues:
        queues.add_row(
            queue.topic, queue.group or "nobody", *_numbers(queue.waiting, queue.claimed), age(queue.age_seconds)
        )
    lag = _table("To be done", "what", "count>", "oldest>", "the oldest")
    for one in status.lag:
        lag.add_row(one.what, *_numbers(one.count), age(one.age_seconds), Text(drawn(one.example)))
    segments = _table("Segments", "signal", "tier", "level>", "segments>", "rows>", "bytes>", "bytes each>")
    for of in status.segments:
        counts = _numbers(of.segments, of.rows)
        segments.add_row(
            of.signal, TIER_NAMES[of.frequency_ms], str(of.level), *counts, size(of.bytes), size(of.bytes / of.segments)
        )
    if status.segments:
        total = [sum(getattr(of, name) for of in status.segments) for name in ("segments", "rows", "bytes")]
        segments.add_row("all", "", "", *_numbers(*total[:2]), size(total[2]), size(total[2] / total[0]), style="bold")
    sweeper = _table("For the sweeper", "what", "segments>", "bytes>")
    for one, bytes_ in zip(status.sweeper, status.swept_bytes, strict=True):
        sweeper.add_row(one.what, *_numbers(one.count), size(bytes_))
    each = ", ".join(f"{signal} {times:.2f}" for signal, times in status.written.items()) or "nothing stored"
    aside = sum(of.aside for of in status.segments)
    lines = [
        f"written per stored byte: {each}",
        *([f"{plural(aside, 'segment')} no longer merged: `lakerunner work` says why"] if aside else []),
    ]
    return Group(queues, lag, segments, sweeper, *map(Text, lines))


def _table(title: str, *columns: str) -> Table:
    """A column whose name ends in > is of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    return table


def _numbers(*values: int) -> list[str]:
    return [f"{value:,}" for value in values]


def age(seconds: float | None) -> str:
    """Two units: 3d 4h, 5m 10s, 7s."""
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
    """What a terminal has room for, and how much is left out: it would be cut without a word."""
    lines = console.render_lines(tables, console.options.update(height=None), pad=False)
    room = console.height - 1
    if len(lines) <= console.height:
        return tables
    parts = [part for line in lines[:room] for part in (*line, Segment.line())]
    left = Text(f"no room for {plural(len(lines) - room, 'more line')}: `lakerunner status` shows all", style="bold")
    return Group(Segments(parts), left)
