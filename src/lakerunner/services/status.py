"""`lakerunner status`: how far the lake is behind, and how much there is of what.

Comes in: the index, and Kafka where that is the bus. Goes out: tables, once or again and again, or JSON. Nothing of the
object store is read, so it answers at once whatever the lake holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO
from uuid import UUID

import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from lakerunner.bus.backlog import Backlog, backlog
from lakerunner.index.index import Index
from lakerunner.index.inspect import Ended, FailedWork, Level, Past, SourceCount
from lakerunner.model.errors import Unavailable
from lakerunner.model.retention import name_of, parse_retention
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, next_tier
from lakerunner.services.admin import inspected, organization
from lakerunner.services.checks.queues import STALE_SECONDS
from lakerunner.services.drawn import drawn, for_terminal
from lakerunner.services.ground import now_ns
from lakerunner.settings import Settings

_PAGE_COLUMNS = 160  # where there is no terminal
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class Waiting:
    """Work of one kind that is still to be done: how much, and the age of the oldest."""

    what: str
    count: int
    age_seconds: float | None
    example: str = ""


@dataclass(frozen=True)
class Status:
    """Everything of one moment. `written` is, by signal, about how often a stored byte of raw rows was written: once by
    ingest and once for each level of compaction."""

    queues: tuple[Backlog, ...]
    lag: tuple[Waiting, ...]
    segments: tuple[Level, ...]
    sweeper: tuple[Waiting, ...]
    swept_bytes: tuple[int, ...]
    written: dict[str, float]


def run_status(settings: Settings, org: str | None, watch: float | None, json: bool, output: TextIO) -> int:
    """Once, or until Ctrl-C; the exit code."""
    with inspected(settings) as index:
        whose = organization(index, org).id if org else None
        if watch is None or not output.isatty():
            status = collect(settings, index, whose, now_ns())
            if json:
                output.write(
                    for_terminal(orjson.dumps(document(status), option=orjson.OPT_INDENT_2).decode(), output) + "\n"
                )
            else:
                Console(file=output, width=None if output.isatty() else _PAGE_COLUMNS).print(shown(status))
            return 0
        _watch(settings, index, whose, watch, Console(file=output))
    return 0


def _watch(settings: Settings, index: Index, whose: UUID | None, seconds: float, console: Console) -> None:
    """An index that is away for a while is said to be, below what was known last."""
    try:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            last: Any = Text("")
            while True:
                try:
                    last = shown(collect(settings, index, whose, now_ns()))
                    live.update(fitting(console, last), refresh=True)
                except Unavailable as error:
                    late = Group(Text(f"not up to date: {error}", style="bold red"), last)
                    live.update(fitting(console, late), refresh=True)
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


def fitting(console: Console, tables: RenderableType) -> RenderableType:
    """What a terminal has room for, and how much is left out: it would be cut without a word."""
    lines = console.render_lines(tables, console.options.update(height=None), pad=False)
    room = console.height - 1
    if len(lines) <= console.height:
        return tables
    parts = [part for line in lines[:room] for part in (*line, Segment.line())]
    left = Text(f"{len(lines) - room} more lines do not fit: `lakerunner status` shows them", style="bold")
    return Group(Segments(parts), left)


def collect(settings: Settings, index: Index, whose: UUID | None, at_ns: int) -> Status:
    """Of one organization, or of all; queues are everybody's."""
    inspect = index.inspect
    levels = tuple(inspect.levels(whose))
    sweeper = list(
        _to_sweep(
            inspect.ended(whose, settings.sweep_grace_seconds),
            inspect.past_retention(whose, parse_retention(settings.retention.items()), at_ns),
        )
    )
    return Status(
        queues=(
            *(Backlog(topic, "outbox", count) for topic, count, _ in inspect.outbox()),
            *backlog(settings.bus, index.pool, settings.bus_topic_prefix),
        ),
        lag=(
            *_sources(inspect.sources(whose, STALE_SECONDS)),
            *_unrolled(inspect.unrolled(whose, TIERS[-1])),
            *_unmerged(inspect.unmerged(whose, TIERS[-1], settings.compact_target_bytes)),
            *_failed(inspect.failed_work(whose)),
        ),
        segments=levels,
        sweeper=tuple(one for one, _ in sweeper),
        swept_bytes=tuple(size for _, size in sweeper),
        written=written(levels),
    )


def written(levels: Sequence[Level]) -> dict[str, float]:
    """A segment of level n has been written n + 1 times, as each level is made of the one before it."""
    stored: dict[str, int] = {}
    total: dict[str, int] = {}
    for one in levels:
        if one.frequency_ms == RAW:
            stored[one.signal] = stored.get(one.signal, 0) + one.bytes
            total[one.signal] = total.get(one.signal, 0) + one.bytes * (one.level + 1)
    return {signal: total[signal] / size for signal, size in stored.items()}


def _sources(states: dict[str, SourceCount]) -> Iterator[Waiting]:
    for state, what in (("seen", "raw objects to ingest"), ("failed", "raw objects set aside")):
        found = states.get(state)
        if found is None:
            yield Waiting(what, 0, None)
        else:
            yield Waiting(what, found.count, found.age_seconds, found.oldest or "")
    if (found := states.get("partial")) is not None:
        yield Waiting("raw objects read in part", found.count, found.age_seconds, found.oldest or "")


def _unrolled(tiers: Sequence[tuple[int, int, float]]) -> Iterator[Waiting]:
    known = {frequency: (count, age) for frequency, count, age in tiers}
    for tier in (RAW, *TIERS[:-1]):
        count, age = known.get(tier, (0, None))
        if count or tier == RAW:
            target = next_tier(tier) or tier
            yield Waiting(f"segments to roll up, {TIER_NAMES[tier]} to {TIER_NAMES[target]}", count, age)


def _unmerged(signals: Sequence[tuple[str, int, float]]) -> Iterator[Waiting]:
    if not signals:
        yield Waiting("segments to merge", 0, None)
    for signal, count, age in signals:
        yield Waiting(f"segments to merge, {signal}", count, age)


def _failed(works: Sequence[FailedWork]) -> Iterator[Waiting]:
    for work in works:
        kind = "work set aside" if work.state == "aside" else "work to be tried again"
        yield Waiting(f"{kind}, {work.topic}", work.count, work.age_seconds, work.reason)


def _to_sweep(ended: Sequence[Ended], past: Sequence[Past]) -> Iterator[tuple[Waiting, int]]:
    for one in ended:
        when = "due" if one.due else "in their grace time"
        yield Waiting(f"{one.state} segments, {when}", one.segments, None), one.bytes
    for of in past:
        yield Waiting(f"{name_of(of.signal, of.frequency_ms)} past retention", of.segments, None), of.bytes


def document(status: Status) -> dict[str, Any]:
    """What --json prints."""
    return {
        "queues": [asdict(one) for one in status.queues],
        "lag": [asdict(one) for one in status.lag],
        "segments": [asdict(one) | {"tier": TIER_NAMES[one.frequency_ms]} for one in status.segments],
        "sweeper": [
            {"what": one.what, "segments": one.count, "bytes": size}
            for one, size in zip(status.sweeper, status.swept_bytes, strict=True)
        ],
        "written_per_stored_byte": status.written,
    }


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
        *([f"{aside} segments are excluded from merges: `lakerunner work` shows the reasons"] if aside else []),
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
