"""Check that no row is in two live segments.

There are two different questions:

- Is a segment live together with one that replaced it? The index knows which segments a merge replaced (`inputs`). If
  one of them is live again, each of its rows counts twice. This is an error, checked for all segments by their ids.
- Do two live segments hold equal rows? A sender may deliver a row twice, and until compaction merges both segments,
  both rows exist. This is a note. Logs are compared by (delivery, delivery_row) and their sort key, if they have them;
  spans and points by all columns. Rollups are not compared: a later bucket may exist beside the one it overrides. Nor
  are points that rules made: they add up.

What always holds: equal rows inside one segment are counted as separate rows. Memory is bounded: an hour with many rows
is read several times, each time for a share of the digests.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from uuid import UUID

import numpy as np

from lakerunner.index.inspect import Hour
from lakerunner.index.segments import CollectorTier
from lakerunner.model.display import plural
from lakerunner.model.errors import Corrupt
from lakerunner.model.organization import is_of_rule
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange, hour_of
from lakerunner.services.checks.finding import ERROR, NOTE, CheckScope, Findings, Lake
from lakerunner.services.checks.row_digest import Digests, identities

CHECK = "rows"
ROWS_AT_ONCE = 20_000_000  # digests of 8 bytes, and as much again to sort them
_TRIES = 3
_MERGED = (
    "nothing, if they can still be merged: the merge drops one. If one is full or of the last level, both rows stay"
)


def check_inputs(lake: Lake, scope: CheckScope, found: Findings) -> None:
    for id_, collector, signal, old in lake.index.inspect.doubled(scope.organization.id):
        what = f"segment {id_} and segment {old}, which it replaced, are both live: their rows count twice"
        to_do = "set the state of the older one to 'replaced' in lrdb.segments, and report a bug"
        found.add(scope.finding(CHECK, ERROR, what, f"{collector}/{signal}", to_do))


def check_equal_rows(lake: Lake, scope: CheckScope, found: Findings) -> None:
    # Parts of equal rows are equal, and both count.
    hours = [hour for hour in lake.index.inspect.crowded(scope.organization.id) if not is_of_rule(hour.collector)]
    chosen = hours
    if not scope.deep and len(hours) > scope.sample:
        chosen = sorted(Random(scope.seed).sample(hours, scope.sample))  # noqa: S311 - a sample, no secret
    for place, hour in enumerate(chosen, 1):
        lake.say(f"{scope.organization.name}: equal rows in {place} of {plural(len(chosen), 'hour')}")
        found.looked_at["hours compared"] += 1
        with found.attempt(f"equal rows of {scope.organization.name}"):
            _check_hour(lake, scope, hour, found)
    found.looked_at["hours with overlapping segments"] += len(hours)


def _check_hour(lake: Lake, scope: CheckScope, hour: Hour, found: Findings) -> None:
    """Check one hour, again if segments were replaced meanwhile."""
    tier = CollectorTier(scope.organization.id, hour.collector, hour.signal, 0)
    for _ in range(_TRIES):
        segments = lake.index.inspect.tier(tier, hour.time)
        try:
            equal, pair = _equal_rows(lake, segments, hour.time)
        except Corrupt as error:  # or missing: the check of files reports it if the segment is live
            if lake.all_live(segments):
                where = f"{hour.collector}/{hour.signal}"
                found.add(
                    scope.finding(CHECK, ERROR, f"cannot read an hour: {error}", where, "see the findings on files")
                )
                return
            continue
        if not equal or lake.all_live(segments):
            break
    else:
        return
    found.looked_at["rows compared"] += sum(segment.rows for segment in segments)
    if equal and pair is not None:
        what = f"{plural(equal, 'row')} in two live segments or more: delivered twice, and not merged"
        where = f"{hour.collector}/{hour.signal} {hour_of(hour.time.start_ns):%Y-%m-%d %H}h: {pair[0]}, {pair[1]}"
        found.add(scope.finding(CHECK, NOTE, what, where, _MERGED))


def _equal_rows(lake: Lake, segments: list[Segment], time: TimeRange) -> tuple[int, tuple[UUID, UUID] | None]:
    """Return how many different rows are in more than one segment, and the first two segments that share one."""
    total = sum(segment.rows for segment in segments)
    passes = -(-total // ROWS_AT_ONCE)
    equal, pair = 0, None
    for share in range(passes):
        kept: list[Digests] = []
        for segment in segments:
            parts = [part[part % np.uint64(passes) == share] for part in _digests(lake, segment, time)]
            kept.append(np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.uint64))
        digests = np.concatenate(kept)
        owners = np.repeat(np.arange(len(kept)), [len(one) for one in kept])
        order = np.argsort(digests, kind="stable")
        same = digests[order][1:] == digests[order][:-1]
        equal += len(np.unique(digests[order][1:][same]))
        if pair is None and same.any():
            first = int(np.argmax(same))
            pair = segments[owners[order[first]]].id, segments[owners[order[first + 1]]].id
    return equal, pair


def _digests(lake: Lake, segment: Segment, time: TimeRange) -> Iterator[Digests]:
    """Yield the digests of the segment's rows in this time; for logs only of rows that name their delivery."""
    for part in identities(lake.store, segment, time, lake.directory):
        if part.known.any():
            yield part.digests[part.known]
