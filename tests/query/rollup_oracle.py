"""Rollups as a few loops make them: what docs/formats/rollups.md says of numbers, in plain Python, one sample after the
other. With it segments of tiers that hold some windows and not others."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Unavailable
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column, Segment, SegmentPick, TierPick, segment_id
from lakerunner.model.signal import ROLLUPS
from lakerunner.model.tier import NOTHING_EXPIRED, Expiry, Interval, tile, window_end
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import fingerprint_groups, may_hold
from lakerunner.promql.selection.staleness import STALE_BITS
from query.metric_lake import NS, MetricLake
from suites.no_points import NoPoints
from suites.sketch_oracle import sketch

Source = tuple[str, int]  # collector, stored series
_DESCRIBING = [name for name in ROLLUPS.schema.names if not name.startswith("chq_") and name != "timestamp"]


@dataclass(frozen=True)
class Point:
    """`value` None: a stale marker. `count` None: a histogram."""

    time: int  # ms
    value: float | None
    is_number: bool = True


@dataclass
class Points:
    """All points of some raw segments: by collector and stored series, each ms once; and what describes a series."""

    of: dict[Source, dict[int, Point]]
    described: dict[Source, dict[str, Any]]
    series: dict[Source, pa.Table]


def points_of(lake: MetricLake, segments: Iterable[Segment]) -> Points:
    found = Points({}, {}, {})
    rows: list[tuple[tuple[int, int, int], Source, Point]] = []
    for segment in sorted(segments, key=lambda one: one.ingested):
        table = _read(lake, segment.path)
        beside = _read(lake, segment.side_path(SERIES_TABLE))
        for n, digest in enumerate(beside.column("series").to_pylist()):
            found.series.setdefault((segment.collector, digest), beside.slice(n, 1))
        times = table.column("timestamp").cast(pa.int64()).to_pylist()
        described = [name for name in _DESCRIBING if name in table.column_names]
        plain = table.select([name for name in described if name != "exemplars"]).to_pylist()
        values, ints = (_column(table, name) for name in ("value", "int_value"))
        counts = _column(table, "count")
        for row, about in enumerate(plain):
            source = segment.collector, about["series"]
            number = values[row] if values[row] is not None else ints[row]
            stale = bool(about["flags"] & 1) or (number is not None and _is_stale(float(number)))
            value = None if stale else float(number or 0)
            point = Point(times[row] // NS, value, number is not None or counts[row] is None or stale)
            rows.append(((times[row], segment.ingested, row), source, point))
            found.described[source] = about
    for _, source, point in sorted(rows, key=lambda one: one[0]):
        found.of.setdefault(source, {})[point.time] = point
    return found


def rolled_up(
    points: Points, tier: int, wanted: Callable[[Source, int], bool]
) -> dict[tuple[Source, int], dict[str, Any]]:
    """The windows by source and end, of all points that are wanted."""
    windows: dict[tuple[Source, int], list[Point]] = {}
    for source, by_time in points.of.items():
        for time in sorted(by_time):
            if wanted(source, time):
                windows.setdefault((source, window_end(time, tier)), []).append(by_time[time])
    return {key: _window(own) for key, own in windows.items()}


def _window(points: Sequence[Point]) -> dict[str, Any]:
    stale = [point.time for point in points if point.value is None]
    made: dict[str, Any] = {"chq_rollup_stale_timestamp": max(stale) * NS if stale else None}
    if not all(point.is_number for point in points):
        return made
    numbers = [(point.time, point.value) for point in points if point.value is not None]
    made["chq_rollup_count"] = len(numbers)
    if not numbers:
        return made
    values = [value for _, value in numbers]
    real = [value for value in values if not math.isnan(value)]
    pairs = list(zip(values[1:], values, strict=False))
    resets = [before for value, before in pairs if value < before]
    total, error = _sum(values)
    return made | {
        "chq_rollup_sum": total,
        "chq_rollup_sum_error": error,
        "chq_rollup_min": min(real, default=math.nan),
        "chq_rollup_max": max(real, default=math.nan),
        "chq_rollup_first": values[0],
        "chq_rollup_first_timestamp": numbers[0][0] * NS,
        "chq_rollup_last": values[-1],
        "chq_rollup_last_timestamp": numbers[-1][0] * NS,
        "chq_rollup_reset_sum": math.fsum(resets) if all(map(math.isfinite, resets)) else sum(resets),
        "chq_rollup_resets": len(resets),
        "chq_rollup_changes": sum(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs),
        **sketch(values),
        "scale": 6,
    }


def _sum(values: Sequence[float]) -> tuple[float, float]:
    """As near as doubles come, and what is left."""
    if not all(map(math.isfinite, values)):
        return sum(values), 0.0
    exact = sum(map(Fraction, values), Fraction(0))
    total = float(exact)
    return total, float(exact - Fraction(total))


class RollupLake(NoPoints):
    """The segments of a lake with rollups beside them; an index (query/known_segments.py) of all."""

    def __init__(self, lake: MetricLake) -> None:
        self.lake = lake
        self.all: list[Segment] = list(lake.segments)
        self.away = False
        self.expired: dict[int, int] = {}  # by frequency, ns

    @property
    def segments(self) -> RollupLake:
        return self

    def add(self, tier: int, points: Points, rows: dict[tuple[Source, int], dict[str, Any]]) -> list[Segment]:
        """One segment for each collector of these windows."""
        made = []
        for collector in sorted({source[0] for source, _ in rows}):
            keys = [key for key in rows if key[0][0] == collector]
            keys.sort(key=lambda key: (points.described[key[0]]["metric_name"], key[0][1], key[1]))
            made.append(self._write(tier, collector, points, [(key, rows[key]) for key in keys]))
        return made

    def _write(self, tier: int, collector: str, points: Points, rows: Sequence[tuple[Any, dict[str, Any]]]) -> Segment:
        described = [
            points.described[source] | {"timestamp": end * NS, "start_timestamp": (end - tier) * NS} | window
            for (source, end), window in rows
        ]
        columns = []
        fields = []
        for field in ROLLUPS.schema:
            values = [one.get(field.name) for one in described]
            if not field.nullable or any(value is not None for value in values):
                columns.append(pa.array(values, field.type))
                fields.append(field)
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        data = io.BytesIO()
        pq.write_table(table, data, row_group_size=500, write_page_checksum=True)
        sources = [source for (source, _), _ in rows]
        beside = []
        for source in dict.fromkeys(sources):
            own = points.series[source]
            first, count = sources.index(source), sources.count(source)
            for name, number in (("first_row", first), ("rows", count)):
                place = own.schema.get_field_index(name)
                own = own.set_column(place, own.schema.field(name), pa.array([number], own.schema.field(name).type))
            beside.append(own)
        side = io.BytesIO()
        pq.write_table(pa.concat_tables(beside), side)
        ends = [end for (_, end), _ in rows]
        segment = Segment(
            segment_id("rollup", len(self.all)),
            self.lake.segments[0].organization,
            collector,
            "metrics",
            TimeRange(min(ends) * NS, max(ends) * NS + 1),
            len(rows),
            len(data.getvalue()),
            ROLLUPS.sort_version,
            tuple(Column(field.name, "") for field in fields),
            frequency_ms=tier,
            statistics={"side_bytes": {SERIES_TABLE: len(side.getvalue())}},
            fingerprints=tuple({one for segment in self.lake.segments for one in segment.fingerprints}),
            ingested=len(self.all) + 1,
        )
        self.lake.store.put(segment.path, memoryview(data.getvalue()))
        self.lake.store.put(segment.side_path(SERIES_TABLE), memoryview(side.getvalue()))
        self.all.append(segment)
        return segment

    def roll(self, ids: Iterable[UUID]) -> None:
        """These are in the windows of the next tier."""
        rolled = set(ids)
        self.all = [replace(one, rolled=True) if one.id in rolled else one for one in self.all]

    def expire(self, frequency: int, before_ns: int) -> None:
        """What ends by then."""
        self.all = [one for one in self.all if one.frequency_ms != frequency or one.time.end_ns > before_ns]
        self.expired[frequency] = before_ns

    def pick(self, organization: UUID, signal: str, time: TimeRange, *, conditions: Any = ()) -> Any:
        return SegmentPick(
            *self._picked(organization, conditions, 0, time), self._expiry(organization, conditions, [time])
        )

    def pick_tiers(self, organization: UUID, reach: Interval, tier: int, *, conditions: Any = ()) -> TierPick:
        unrolled: dict[int, list[Interval]] = {}
        for one in self._picked(organization, conditions, None, _time(reach))[0]:
            if not one.rolled:
                late = one.time.start_ns // NS, (one.time.end_ns - 1) // NS
                unrolled.setdefault(one.frequency_ms, []).append(late)
        tiles = tile(reach, tier, unrolled, {one: (ns - 1) // NS for one, ns in self.expired.items()})
        found: dict[UUID, Segment] = {}
        for frequency, times in tiles.items():
            for interval in times:
                own, _ = self._picked(organization, conditions, frequency, _time(interval))
                found |= {one.id: one for one in own}
        raw = [_time(one) for one in tiles.get(0, ())]
        return TierPick(tiles, tuple(found.values()), len(found), self._expiry(organization, conditions, raw))

    def _expiry(self, organization: UUID, conditions: Any, raw: list[TimeRange]) -> Expiry:
        before = self.expired.get(0, 0)
        gone = [TimeRange(one.start_ns, min(before, one.end_ns)) for one in raw if one.start_ns < before]
        left = {one.frequency_ms for time in gone for one in self._picked(organization, conditions, None, time)[0]}
        return Expiry(self.expired, tuple(sorted(left - {0}))) if gone else NOTHING_EXPIRED

    def _picked(
        self, organization: UUID, conditions: Any, frequency: int | None, time: TimeRange
    ) -> tuple[tuple[Segment, ...], int]:
        if self.away:
            raise Unavailable("the index is away")
        own = [
            one
            for one in self.all
            if one.organization == organization and frequency in (None, one.frequency_ms) and one.time.overlaps(time)
        ]
        groups = fingerprint_groups("metrics", conditions)
        return tuple(one for one in own if may_hold(one.fingerprints, groups)), len(own)


def _time(interval: Interval) -> TimeRange:
    return TimeRange((interval[0] + 1) * NS, (interval[1] + 1) * NS)


def _read(lake: MetricLake, path: str) -> pa.Table:
    return pq.read_table(lake.directory / "store" / path)


def _column(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist() if name in table.column_names else [None] * table.num_rows


def _is_stale(value: float) -> bool:
    return struct.unpack("<Q", struct.pack("<d", value))[0] == STALE_BITS
