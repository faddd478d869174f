"""Check that rollups match the segments that they are computed from.

Comes in: live metric segments that are marked as rolled up. Goes out: an error for a segment without any bucket, and,
for a sample of segments, errors for buckets that are missing or differ from those that a new rollup of the source
gives: every column bit for bit, except sums, which must be equal within 1e-12 of their value.

What always holds: buckets that may be on their way, or whose source is partly past its retention, are not compared. A
difference is reported only if source and buckets are still those that were compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.index.index import Index
from lakerunner.index.segments import CollectorTier
from lakerunner.model.display import plural
from lakerunner.model.errors import Absent, Corrupt
from lakerunner.model.retention_policy import Retention
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ROLLUPS, SCOPES
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, next_tier, window_end
from lakerunner.model.time import MIN_NS, MS_NS, TimeRange, iso_time
from lakerunner.pipeline.rollup_job import JSON
from lakerunner.services.checks.finding import ERROR, CheckScope, Findings, Lake
from lakerunner.services.checks.row_digest import Digests, attribute_digests, is_within, row_digests
from lakerunner.services.checks.segment_reading import batches, opened

CHECK = "rollups"
MOST_ROWS = 5_000_000  # of the source, which are rolled up again in memory
_KEY = ("metric_name", "series", "timestamp")
_SUMS = ("sum", "chq_rollup_sum", "chq_rollup_increase", "chq_rollup_reset_sum")
_ERRORS = {"chq_rollup_sum": "chq_rollup_sum_error"}  # the rounding error of the sum, which belongs to it
_CLOSE = 1e-12
_SAMPLES = ("value", "int_value", "count", "float_count", "chq_rollup_count")
_MAPS = tuple(scope.map_column for scope in SCOPES)
_TO_DO = (
    "mark the source segment as not rolled up (lrdb.segments.rolled), so that it is rolled up again, and report a bug"
)

# (tier of the source, target tier, the segment to roll up, all live segments of a tier in a time) -> its buckets
Pick = Callable[[TimeRange], list[Segment]]
Recompute = Callable[[CollectorTier, int, Segment, Pick], pa.Table]


class Unfit(Exception):
    """Raised if these buckets cannot be compared now; the reason is for the counts."""


@dataclass(frozen=True)
class Horizon:
    """From when on all rows of a tier exist, by the current retention. What expired by an earlier, shorter retention is
    in the index (`lrdb.expired`)."""

    retention: Retention
    now_ns: int

    def since(self, frequency_ms: int) -> int:
        keep_ns = self.retention.durations.get(("metrics", frequency_ms))
        return MIN_NS if keep_ns is None else self.now_ns - keep_ns

    def complete_since(self, index: Index, segment: Segment, target: int) -> int:
        """Return from when on the collector of the segment has all source rows and all buckets of the target tier."""
        tiers = (segment.frequency_ms, target)
        gone = (index.sweep.expired_before(segment.organization, segment.collector, tier) for tier in tiers)
        return max(*map(self.since, tiers), *gone)


def check_rolled(lake: Lake, scope: CheckScope, horizon: Horizon, found: Findings) -> None:
    """Report segments that are marked as rolled up and have no buckets."""
    for tier in (RAW, *TIERS[:-1]):
        target = next_tier(tier)
        if target is None:
            continue
        since = max(horizon.since(tier), horizon.since(target))
        ids = lake.index.inspect.without_windows(scope.organization.id, tier, target, since)
        for segment in lake.index.segments.get(scope.organization.id, ids):
            if _has_points(lake, segment) and lake.index.inspect.still_live([segment.id]):
                what = f"it is marked as rolled up, but there are no buckets of {TIER_NAMES[target]} for its time"
                found.add(scope.finding(CHECK, ERROR, what, segment.path, _TO_DO))


def _has_points(lake: Lake, segment: Segment) -> bool:
    """Return whether the segment must have buckets: one with metadata only, or series without samples, has none. A
    segment that cannot be read is reported by the check of files."""
    there = {column.name for column in segment.columns}
    read = [name for name in ("metric_type", "flags", *_SAMPLES) if name in there]
    try:
        with opened(lake.store, segment.path, segment.bytes, lake.directory) as file:
            return any(_is_some_point(batch) for batch in batches(file, segment.path, read))
    except (Absent, Corrupt):
        return False


def _is_some_point(batch: pa.RecordBatch) -> bool:
    """Return whether a row is a number, a histogram, a bucket, or a staleness marker."""
    held = pc.not_equal(pc.bit_wise_and(batch.column("flags"), 1), 0)
    for name in (name for name in _SAMPLES if name in batch.schema.names):
        held = pc.or_(held, batch.column(name).is_valid())
    return bool(pc.any(pc.and_(held, pc.not_equal(batch.column("metric_type"), "metadata"))).as_py())


def check_buckets(lake: Lake, scope: CheckScope, horizon: Horizon, recompute: Recompute, found: Findings) -> None:
    """Roll up a sample of the rolled segments, or all of them, again and compare."""
    limit = None if scope.deep else scope.sample
    ids = lake.index.inspect.rolled(scope.organization.id, TIERS[-1], scope.seed, limit)
    for place, id_ in enumerate(ids, 1):
        lake.say(f"{scope.organization.name}: buckets of {place} of {plural(len(ids), 'segment')}")
        with found.attempt(f"rollups of {scope.organization.name}"):
            try:
                _check_segment(lake, scope, horizon, recompute, id_, found)
            except Unfit as reason:
                found.looked_at[f"rolled segments not compared: {reason}"] += 1


def _check_segment(
    lake: Lake, scope: CheckScope, horizon: Horizon, recompute: Recompute, id_: UUID, found: Findings
) -> None:
    (segment,) = lake.index.segments.get(scope.organization.id, [id_]) or (None,)
    target = next_tier(segment.frequency_ms) if segment is not None else None
    if segment is None or target is None:
        raise Unfit("replaced meanwhile")
    tier = CollectorTier(segment.organization, segment.collector, segment.signal, segment.frequency_ms)
    ends = _ends(segment, target)
    if ends.start_ns - target * MS_NS < horizon.complete_since(lake.index, segment, target):
        raise Unfit("part of them is past its retention")
    used: list[Segment] = []

    def pick(time: TimeRange) -> list[Segment]:
        used[:] = lake.index.inspect.tier(tier, time)
        if segment.id not in {one.id for one in used}:
            raise Unfit("replaced meanwhile")
        if any(not one.rolled for one in used):
            raise Unfit("other segments of the same time wait to be rolled up")
        if sum(one.rows for one in used) > MOST_ROWS:
            raise Unfit(f"the source has more than {MOST_ROWS} rows")
        return used

    try:
        expected = recompute(tier, target, segment, pick)
        stored = lake.index.inspect.tier(CollectorTier(tier.organization, tier.collector, tier.signal, target), ends)
        troubles = compare_buckets(expected, [(one, _rows_of(lake, one, ends)) for one in stored])
    except (Absent, Corrupt) as error:
        raise Unfit("a file cannot be read, see the findings on files") from error
    if troubles and not lake.all_live([segment, *used, *stored]):
        raise Unfit("replaced meanwhile")
    found.looked_at["windows recomputed"] += expected.num_rows
    found.looked_at["segments rolled up again"] += 1
    for what in troubles:
        where = f"{segment.collector}/{TIER_NAMES[target]} of {segment.path}"
        found.add(scope.finding(CHECK, ERROR, what, where, _TO_DO))


def _ends(segment: Segment, target: int) -> TimeRange:
    """Return the range of timestamps of the buckets of the target tier that the segment has rows in."""
    first = window_end(segment.time.start_ns // MS_NS, target)
    last = window_end((segment.time.end_ns - 1) // MS_NS, target)
    return TimeRange(first * MS_NS, last * MS_NS + 1)


def _rows_of(lake: Lake, segment: Segment, ends: TimeRange) -> pa.Table:
    kept = []
    with opened(lake.store, segment.path, segment.bytes, lake.directory) as file:
        for batch in batches(file, segment.path):
            kept.append(batch.filter(is_within(batch, ends)))
        return pa.Table.from_batches(kept, file.schema_arrow)


def compare_buckets(expected: pa.Table, stored: list[tuple[Segment, pa.Table]]) -> list[str]:
    """Return what is wrong with the stored buckets, by column. Of equal buckets that of the latest segment counts."""
    wanted = expected.combine_chunks().to_batches()[0] if expected.num_rows else None
    if wanted is None:
        return []
    wanted_json = {field.name for field in expected.schema if field.metadata == JSON}
    keys = row_digests(wanted, _KEY)
    order = np.argsort(keys)
    held: npt.NDArray[np.int64] = np.full(len(keys), -1, np.int64)  # for each bucket, which of `rows` counts
    rows: list[tuple[Segment, pa.RecordBatch, npt.NDArray[np.int64]]] = []
    for segment, table in stored:
        for batch in table.combine_chunks().to_batches():
            place = np.searchsorted(keys, row_digests(batch, _KEY), sorter=order).clip(max=len(keys) - 1)
            buckets = order[place]
            known = keys[buckets] == row_digests(batch, _KEY)
            held[buckets[known]] = len(rows)
            rows.append((segment, batch.filter(pa.array(known)), buckets[known]))
    troubles = []
    buckets_in_all = plural(len(keys), "bucket")
    missing = np.flatnonzero(held < 0)
    if len(missing):
        troubles.append(f"{len(missing)} of {buckets_in_all} missing, the first {_name(wanted, missing[0])}")
    wrong: dict[str, list[int]] = {}
    for number, (segment, batch, buckets) in enumerate(rows):
        counts = _last_of_each(buckets) & (held[buckets] == number)
        mine, theirs = batch.filter(pa.array(counts)), wanted.take(pa.array(buckets[counts]))
        json = {column.name for column in segment.columns if column.type == "json"}
        for name, differs in _differences(mine, theirs, json, wanted_json):
            wrong.setdefault(name, []).extend(buckets[counts][differs].tolist())
    for name, wrong_buckets in wrong.items():
        if wrong_buckets:
            first = _name(wanted, min(wrong_buckets))
            troubles.append(f"{name} of {len(wrong_buckets)} of {buckets_in_all} is not what it is made of, {first}")
    return troubles


def _last_of_each(buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    last = np.zeros(len(buckets), bool)
    _, from_end = np.unique(buckets[::-1], return_index=True)
    last[len(buckets) - 1 - from_end] = True
    return last


def _differences(
    mine: pa.RecordBatch, theirs: pa.RecordBatch, json: set[str], their_json: set[str]
) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    found = []
    for name in ROLLUPS.schema.names:
        if name in _SUMS:
            sums = _full_sum(mine, name), _full_sum(theirs, name)
            found.append((name, ~np.isclose(*sums, rtol=_CLOSE, atol=0.0, equal_nan=True)))
        elif name in _MAPS:
            one: Digests = attribute_digests(mine, name, json)
            found.append((name, one != attribute_digests(theirs, name, their_json)))
        elif name not in _ERRORS.values():
            found.append((name, row_digests(mine, (name,)) != row_digests(theirs, (name,))))
    return found


def _full_sum(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """Return a sum with its rounding error added; NaN where there is no sum."""
    total = np.full(batch.num_rows, np.nan)
    if name in batch.schema.names:
        total = batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        if (more := _ERRORS.get(name)) in batch.schema.names:
            lost = batch.column(more).fill_null(0.0).to_numpy(zero_copy_only=False)
            total = np.where(np.isfinite(total), total + lost, total)
    return total


def _name(buckets: pa.RecordBatch, place: int) -> str:
    row = {name: buckets.column(name)[int(place)] for name in _KEY}
    end = iso_time(row["timestamp"].cast(pa.int64()).as_py())
    return f"{row['metric_name'].as_py()} series {row['series'].as_py()} at {end}"
