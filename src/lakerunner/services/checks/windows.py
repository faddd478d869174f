"""Rollups are what their source says.

Comes in: live metric segments that are marked as rolled up. Goes out: an error for one that has no window at all, and,
for a sample of them, errors for windows that are missing or differ from what the source gives when it is rolled up
anew: every column bit for bit, but for sums, which are equal within 1e-12 of their value.

What always holds: windows that may be on their way, or whose source is partly past its retention, are not compared; a
difference is reported if source and windows are still those that were compared.
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
from lakerunner.index.inspect import Tier
from lakerunner.model.errors import Absent, Corrupt
from lakerunner.model.plural import plural
from lakerunner.model.retention import Retention
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ROLLUPS, SCOPES
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, next_tier, window_end
from lakerunner.model.time import MIN_NS, MS_NS, TimeRange, iso_time
from lakerunner.pipeline.rollup.work import JSON
from lakerunner.services.checks.finding import ERROR, Findings, Lake, Scope
from lakerunner.services.checks.reading import batches, opened
from lakerunner.services.checks.row_digest import Digests, attribute_digests, row_digests

CHECK = "rollups"
MOST_ROWS = 5_000_000  # of the source, that are rolled up anew at once
_KEY = ("metric_name", "series", "timestamp")
_SUMS = ("sum", "chq_rollup_sum", "chq_rollup_increase", "chq_rollup_reset_sum")
_ERRORS = {"chq_rollup_sum": "chq_rollup_sum_error"}  # what the sum's rounding lost is a part of it
_CLOSE = 1e-12
_SAMPLES = ("value", "int_value", "count", "float_count", "chq_rollup_count")
_MAPS = tuple(scope.map_column for scope in SCOPES)
_TO_DO = (
    "mark the source segment as not rolled up (lrdb.segments.rolled), so that it is rolled up again, and report a bug"
)

# (tier of the source, the tier to make, the segment to roll up, all live segments of a tier in a time) -> its windows
Pick = Callable[[TimeRange], list[Segment]]
Recompute = Callable[[Tier, int, Segment, Pick], pa.Table]


class Unfit(Exception):
    """These windows cannot be compared now; the reason is for the counts."""


@dataclass(frozen=True)
class Horizon:
    """From when on the rows of a tier are all there, by the retention that holds now. What went by an earlier, shorter
    one, the index knows (`lrdb.expired`)."""

    retention: Retention
    now_ns: int

    def since(self, frequency_ms: int) -> int:
        keep_ns = self.retention.of.get(("metrics", frequency_ms))
        return MIN_NS if keep_ns is None else self.now_ns - keep_ns

    def whole_since(self, index: Index, segment: Segment, target: int) -> int:
        """Of the segment's collector, both what windows of the target are made of, and they themselves."""
        tiers = (segment.frequency_ms, target)
        gone = (index.sweep.expired_before(segment.organization, segment.collector, tier) for tier in tiers)
        return max(*map(self.since, tiers), *gone)


def check_rolled(lake: Lake, scope: Scope, horizon: Horizon, found: Findings) -> None:
    """Every segment that is marked as rolled up has windows."""
    for tier in (RAW, *TIERS[:-1]):
        target = next_tier(tier)
        if target is None:
            continue
        since = max(horizon.since(tier), horizon.since(target))
        ids = lake.index.inspect.without_windows(scope.organization.id, tier, target, since)
        for segment in lake.index.segments.get(scope.organization.id, ids):
            if _has_points(lake, segment) and lake.index.inspect.still_live([segment.id]):
                what = f"it is marked as rolled up, but there are no windows of {TIER_NAMES[target]} for its time"
                found.add(scope.finding(CHECK, ERROR, what, segment.path, _TO_DO))


def _has_points(lake: Lake, segment: Segment) -> bool:
    """A segment of nothing but metadata, or of series without samples, has no windows; one that cannot be read is
    another check's."""
    there = {column.name for column in segment.columns}
    read = [name for name in ("metric_type", "flags", *_SAMPLES) if name in there]
    try:
        with opened(lake.store, segment.path, segment.bytes, lake.directory) as file:
            return any(_is_some_point(batch) for batch in batches(file, segment.path, read))
    except (Absent, Corrupt):
        return False


def _is_some_point(batch: pa.RecordBatch) -> bool:
    """A number, a histogram, a window, or a marker that there is none."""
    held = pc.not_equal(pc.bit_wise_and(batch.column("flags"), 1), 0)
    for name in (name for name in _SAMPLES if name in batch.schema.names):
        held = pc.or_(held, batch.column(name).is_valid())
    return bool(pc.any(pc.and_(held, pc.not_equal(batch.column("metric_type"), "metadata"))).as_py())


def check_windows(lake: Lake, scope: Scope, horizon: Horizon, recompute: Recompute, found: Findings) -> None:
    """A sample of the rolled segments, or all, rolled up anew."""
    limit = None if scope.deep else scope.sample
    ids = lake.index.inspect.rolled(scope.organization.id, TIERS[-1], scope.seed, limit)
    for place, id_ in enumerate(ids, 1):
        lake.say(f"{scope.organization.name}: windows of {place} of {plural(len(ids), 'segment')}")
        with found.attempt(f"rollups of {scope.organization.name}"):
            try:
                _check_segment(lake, scope, horizon, recompute, id_, found)
            except Unfit as reason:
                found.looked_at[f"rolled segments not compared: {reason}"] += 1


def _check_segment(
    lake: Lake, scope: Scope, horizon: Horizon, recompute: Recompute, id_: UUID, found: Findings
) -> None:
    (segment,) = lake.index.segments.get(scope.organization.id, [id_]) or (None,)
    target = next_tier(segment.frequency_ms) if segment is not None else None
    if segment is None or target is None:
        raise Unfit("replaced meanwhile")
    tier = Tier(segment.organization, segment.collector, segment.signal, segment.frequency_ms)
    ends = _ends(segment, target)
    if ends.start_ns - target * MS_NS < horizon.whole_since(lake.index, segment, target):
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
        stored = lake.index.inspect.tier(Tier(tier.organization, tier.collector, tier.signal, target), ends)
        troubles = compared(expected, [(one, _rows_of(lake, one, ends)) for one in stored])
    except (Absent, Corrupt) as error:
        raise Unfit("a file cannot be read, see the findings on files") from error
    if troubles and not _unchanged(lake, [segment, *used, *stored]):
        raise Unfit("replaced meanwhile")
    found.looked_at["windows recomputed"] += expected.num_rows
    found.looked_at["segments rolled up again"] += 1
    for what in troubles:
        where = f"{segment.collector}/{TIER_NAMES[target]} of {segment.path}"
        found.add(scope.finding(CHECK, ERROR, what, where, _TO_DO))


def _ends(segment: Segment, target: int) -> TimeRange:
    """The windows of the target tier that the segment has rows in, as the times of their rows."""
    first = window_end(segment.time.start_ns // MS_NS, target)
    last = window_end((segment.time.end_ns - 1) // MS_NS, target)
    return TimeRange(first * MS_NS, last * MS_NS + 1)


def _unchanged(lake: Lake, segments: list[Segment]) -> bool:
    ids = {segment.id for segment in segments}
    return lake.index.inspect.still_live(ids) == ids


def _rows_of(lake: Lake, segment: Segment, ends: TimeRange) -> pa.Table:
    kept = []
    with opened(lake.store, segment.path, segment.bytes, lake.directory) as file:
        for batch in batches(file, segment.path):
            times = batch.column("timestamp").cast(pa.int64())
            inside = pc.and_(pc.greater_equal(times, ends.start_ns), pc.less(times, ends.end_ns))
            kept.append(batch.filter(inside))
        return pa.Table.from_batches(kept, file.schema_arrow)


def compared(expected: pa.Table, stored: list[tuple[Segment, pa.Table]]) -> list[str]:
    """What is wrong with the stored windows, those of later segments counting, by column."""
    wanted = expected.combine_chunks().to_batches()[0] if expected.num_rows else None
    if wanted is None:
        return []
    wanted_json = {field.name for field in expected.schema if field.metadata == JSON}
    keys = row_digests(wanted, _KEY)
    order = np.argsort(keys)
    held: npt.NDArray[np.int64] = np.full(len(keys), -1, np.int64)  # of each window, which of `rows` counts
    rows: list[tuple[Segment, pa.RecordBatch, npt.NDArray[np.int64]]] = []
    for segment, table in stored:
        for batch in table.combine_chunks().to_batches():
            place = np.searchsorted(keys, row_digests(batch, _KEY), sorter=order).clip(max=len(keys) - 1)
            windows = order[place]
            known = keys[windows] == row_digests(batch, _KEY)
            held[windows[known]] = len(rows)
            rows.append((segment, batch.filter(pa.array(known)), windows[known]))
    troubles = []
    windows_in_all = plural(len(keys), "window")
    missing = np.flatnonzero(held < 0)
    if len(missing):
        troubles.append(f"{len(missing)} of {windows_in_all} missing, the first {_name(wanted, missing[0])}")
    wrong: dict[str, list[int]] = {}
    for number, (segment, batch, windows) in enumerate(rows):
        counts = _last_of_each(windows) & (held[windows] == number)
        mine, theirs = batch.filter(pa.array(counts)), wanted.take(pa.array(windows[counts]))
        json = {column.name for column in segment.columns if column.type == "json"}
        for name, differs in _differences(mine, theirs, json, wanted_json):
            wrong.setdefault(name, []).extend(windows[counts][differs].tolist())
    for name, windows_wrong in wrong.items():
        if windows_wrong:
            first = _name(wanted, min(windows_wrong))
            troubles.append(f"{name} of {len(windows_wrong)} of {windows_in_all} is not what it is made of, {first}")
    return troubles


def _last_of_each(windows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    last = np.zeros(len(windows), bool)
    _, from_end = np.unique(windows[::-1], return_index=True)
    last[len(windows) - 1 - from_end] = True
    return last


def _differences(
    mine: pa.RecordBatch, theirs: pa.RecordBatch, json: set[str], their_json: set[str]
) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    found = []
    for name in ROLLUPS.schema.names:
        if name in _SUMS:
            found.append((name, _unlike(_sum_of(mine, name), _sum_of(theirs, name))))
        elif name in _MAPS:
            one: Digests = attribute_digests(mine, name, json)
            found.append((name, one != attribute_digests(theirs, name, their_json)))
        elif name not in _ERRORS.values():
            found.append((name, row_digests(mine, (name,)) != row_digests(theirs, (name,))))
    return found


def _sum_of(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """With what its rounding lost; NaN where there is none."""
    total = np.full(batch.num_rows, np.nan)
    if name in batch.schema.names:
        total = batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        if (more := _ERRORS.get(name)) in batch.schema.names:
            lost = batch.column(more).fill_null(0.0).to_numpy(zero_copy_only=False)
            total = np.where(np.isfinite(total), total + lost, total)
    return total


def _unlike(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return ~np.isclose(one, other, rtol=_CLOSE, atol=0.0, equal_nan=True)


def _name(windows: pa.RecordBatch, place: int) -> str:
    row = {name: windows.column(name)[int(place)] for name in _KEY}
    end = iso_time(row["timestamp"].cast(pa.int64()).as_py())
    return f"{row['metric_name'].as_py()} series {row['series'].as_py()} at {end}"
