"""Which segments are merged with which: the levels of compaction, and runs of segments that one merge may take.

A merge of level n takes segments of level n, and stragglers of lower ones, and makes a segment of level n + 1: so a
row is rewritten once per level at most, whatever comes late.

What always holds: a run is contiguous in `ingested` among the live segments that share its time. The merged segment
stands in the place of its last input, and no segment that stood between the inputs changes places with any of them:
which of several samples of one time counts is the same before and after. Its segments have one rule set, so the merged
one is covered by the same rules (docs/decisions/0030).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from lakerunner.model.segment import Segment
from lakerunner.model.tier import next_tier
from lakerunner.model.time import DAY_NS, HOUR_NS


@dataclass(frozen=True)
class Level:
    """Segments that start in the same period are merged; they wait for each other `patience` times as long as those of
    level 0."""

    period_ns: int
    patience: int


LEVELS = (
    Level(HOUR_NS, 1),
    Level(HOUR_NS, 10),
    Level(DAY_NS, 60),
)  # segments of the level after the last stay as they are


@dataclass(frozen=True)
class MergeLimits:
    """`target_bytes`: a segment of this size is not merged any more. A merge takes segments until they reach it, so it
    never has twice as much."""

    max_segments: int
    target_bytes: int


def period_of(start_ns: int, level: int) -> int:
    """Return the hour or day, counted from the epoch, in which segments of this level are merged with each other."""
    return start_ns // LEVELS[level].period_ns


def is_mergeable(segment: Segment, target_bytes: int) -> bool:
    """Whether a segment is merged at all. Metrics wait until the next tier has their rows: a rollup names the segments
    that it was made of, and they must not disappear meanwhile."""
    waits = segment.signal == "metrics" and next_tier(segment.frequency_ms) is not None and not segment.rolled
    return segment.level < len(LEVELS) and segment.bytes < target_bytes and not waits


def find_runs(
    segments: Iterable[Segment], level: int, limits: MergeLimits, aside: Collection[UUID] = ()
) -> list[tuple[Segment, ...]]:
    """Return the merges of this level to make of these: all live segments of one collector, signal and frequency that
    share a range of time and lie in a range of `ingested`. A segment that cannot be merged, or is set aside, ends a
    run; a run has at least two segments."""
    found: list[tuple[Segment, ...]] = []
    run: list[Segment] = []
    in_order = sorted(segments, key=lambda one: (one.ingested, one.id))
    for _, group in groupby(in_order, key=lambda one: one.ingested):
        parts = list(group)
        fit = [
            one
            for one in parts
            if one.level <= level and one.id not in aside and is_mergeable(one, limits.target_bytes)
        ]
        # The parts of a merge that was cut share one place, and no sort key. Alone they may begin a run; after other
        # segments they are taken only together, because those would end up beside the part that is left.
        if run and not (len(fit) == len(parts) and all(_share(run[0], one, level) for one in fit)):
            found.append(tuple(run))
            run = []
        run += [one for one in fit if _share((run or fit)[0], one, level)]
        if len(run) >= limits.max_segments or sum(one.bytes for one in run) >= limits.target_bytes:
            found.append(tuple(run))
            run = []
    return [made for made in (*found, tuple(run)) if len(made) > 1]


def _share(first: Segment, other: Segment, level: int) -> bool:
    return (
        first.sort_version == other.sort_version
        and first.rolled == other.rolled
        and first.rule_set == other.rule_set
        and period_of(first.time.start_ns, level) == period_of(other.time.start_ns, level)
    )
