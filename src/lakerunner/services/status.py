"""Collect the status of the lake: how far it is behind, and what it holds.

Comes in: the index, and Kafka if that is the bus. Goes out: a value. The object store is not read, so the answer takes
a moment however large the lake is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.bus.backlog import Backlog, backlog
from lakerunner.index.index import Index
from lakerunner.index.inspect import EndedTotals, FailedWork, Level, PastTotals, SourceCount
from lakerunner.model.retention_policy import parse_retention, retention_name
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, next_tier
from lakerunner.services.checks.queues import STALE_SECONDS
from lakerunner.settings import Settings


@dataclass(frozen=True)
class Waiting:
    """Work of one kind that is still to be done: how much, and the age of the oldest."""

    what: str
    count: int
    age_seconds: float | None
    example: str = ""


@dataclass(frozen=True)
class Status:
    """The status at one moment. `written` is, by signal, about how often a stored byte of raw rows was written: once by
    ingest and once for each level of compaction."""

    queues: tuple[Backlog, ...]
    lag: tuple[Waiting, ...]
    segments: tuple[Level, ...]
    sweeper: tuple[Waiting, ...]
    swept_bytes: tuple[int, ...]
    written: dict[str, float]


def collect(settings: Settings, index: Index, whose: UUID | None, at_ns: int) -> Status:
    """Return the status of one organization or of all. Queues are shared by all organizations."""
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
        written=write_amplification(levels),
    )


def write_amplification(levels: Sequence[Level]) -> dict[str, float]:
    """Return the write amplification by signal. A segment of level n has been written n + 1 times."""
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


def _to_sweep(ended: Sequence[EndedTotals], past: Sequence[PastTotals]) -> Iterator[tuple[Waiting, int]]:
    for one in ended:
        when = "due" if one.due else "in their grace time"
        yield Waiting(f"{one.state} segments, {when}", one.segments, None), one.bytes
    for of in past:
        yield Waiting(f"{retention_name(of.signal, of.frequency_ms)} past retention", of.segments, None), of.bytes
