"""No row stands in two live segments.

Two questions, and they are not the same:

- Is a segment live together with one that took its place? The index says which segments a merge replaced (`inputs`):
  that such a one is live again would count every row of it twice. An error, for all segments, by their ids.
- Do two live segments hold equal rows? A sender may deliver the same twice, and until compaction has merged both, both
  are there: a note. Logs are compared by (delivery, delivery_row) and their sort key, where they have them; spans and
  points by all of their columns. Windows of rollups are not: a later one is meant to stand beside the one it overrides.

What always holds: rows that are equal inside one segment are rows. Memory is bounded: an hour of many rows is gone
through several times, each time for a share of the digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from uuid import UUID

import numpy as np

from lakerunner.index.inspect import Hour, Tier
from lakerunner.model.errors import Corrupt
from lakerunner.model.plural import plural
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange, hour_of
from lakerunner.services.checks.finding import ERROR, NOTE, Findings, Lake, Scope
from lakerunner.services.checks.identity import identities
from lakerunner.services.checks.row_digest import Digests

CHECK = "rows"
ROWS_AT_ONCE = 20_000_000  # digests of 8 bytes, and as much again to sort them
_TRIES = 3
_MERGED = (
    "nothing, if they can still be merged: the merge drops one. If one is full or of the last level, both rows stay"
)


def check_inputs(lake: Lake, scope: Scope, found: Findings) -> None:
    for id_, collector, signal, old in lake.index.inspect.doubled(scope.organization.id):
        what = f"segment {id_} and segment {old}, which it replaced, are both live: their rows count twice"
        to_do = "set the state of the older one to 'replaced' in lrdb.segments, and report a bug"
        found.add(scope.finding(CHECK, ERROR, what, f"{collector}/{signal}", to_do))


def check_equal_rows(lake: Lake, scope: Scope, found: Findings) -> None:
    hours = lake.index.inspect.crowded(scope.organization.id)
    chosen = hours
    if not scope.deep and len(hours) > scope.sample:
        chosen = sorted(Random(scope.seed).sample(hours, scope.sample))  # noqa: S311 - a sample, no secret
    for place, hour in enumerate(chosen, 1):
        lake.say(f"{scope.organization.name}: equal rows in {place} of {plural(len(chosen), 'hour')}")
        found.looked_at["hours compared"] += 1
        with found.attempt(f"equal rows of {scope.organization.name}"):
            _check_hour(lake, scope, hour, found)
    found.looked_at["hours with overlapping segments"] += len(hours)


def _check_hour(lake: Lake, scope: Scope, hour: Hour, found: Findings) -> None:
    """Looked at again where segments were replaced meanwhile."""
    tier = Tier(scope.organization.id, hour.collector, hour.signal, 0)
    for _ in range(_TRIES):
        segments = lake.index.inspect.tier(tier, hour.time)
        try:
            equal, pair = _equal_rows(lake, segments, hour.time)
        except Corrupt as error:  # or gone: the check of files says so, if it is live
            if _all_live(lake, segments):
                where = f"{hour.collector}/{hour.signal}"
                found.add(
                    scope.finding(CHECK, ERROR, f"cannot read an hour: {error}", where, "see the findings on files")
                )
                return
            continue
        if not equal or _all_live(lake, segments):
            break
    else:
        return
    found.looked_at["rows compared"] += sum(segment.rows for segment in segments)
    if equal and pair is not None:
        what = f"{plural(equal, 'row')} in two live segments or more: delivered twice, and not merged"
        where = f"{hour.collector}/{hour.signal} {hour_of(hour.time.start_ns):%Y-%m-%d %H}h: {pair[0]}, {pair[1]}"
        found.add(scope.finding(CHECK, NOTE, what, where, _MERGED))


def _all_live(lake: Lake, segments: Iterable[Segment]) -> bool:
    ids = {segment.id for segment in segments}
    return lake.index.inspect.still_live(ids) == ids


def _equal_rows(lake: Lake, segments: list[Segment], time: TimeRange) -> tuple[int, tuple[UUID, UUID] | None]:
    """(how many different rows are in more than one of these, the first two segments that share one)."""
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
    """Of the segment's rows in this time; of logs, those that say which delivery brought them."""
    for part in identities(lake.store, segment, time, lake.directory):
        if part.known.any():
            yield part.digests[part.known]
