"""PromQL over 7 and 30 days from rollups, beside the same questions from raw points: one engine, one run, answers
compared number by number.

    python bench/tiers.py [--lake DIR] [--series 400] [--days 30] [--repeat 3] [--only TEXT]

Points are 15 s apart. Raw segments are of one day; all but the last hour's are rolled up into windows of 5 min, 1 h and
1 d. Files are on the worker's disk and kernels compiled before anything is measured. "first": a worker that has read
nothing of this lake yet, which is what a question about so long a time usually meets. "again": one that has just been
asked the same, and has what it decoded in memory, as far as there is room. Times are the best of several.

Exit code 1 if an answer differs or a ratio is past 0.1, in wall time and in CPU time. Windows of 5 min, which hold 20
points, are there for information.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column, Segment, SegmentPick, TierPick, segment_id
from lakerunner.model.signal import METRICS, ROLLUPS
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import RAW, TIER_NAMES, TIERS, Interval, tile
from lakerunner.model.time import TimeRange
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.contract.failures import Limits
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from lakerunner.series.values import Steps, Vector
from suites.no_points import NoPoints

ORGANIZATION = DEFAULT_ORGANIZATION.id
DAY, HOUR, MINUTE, EVERY = 86_400_000, 3_600_000, 60_000, 15_000
OPENING = 1_767_225_600_000  # 2026-01-01, ms
NS = 1_000_000
TARGET = 0.1
MADE_TIERS = TIERS[2:]
QUESTIONS = [  # text, days, step; those of 1 h and more have to meet the target
    ("sum by (job) (rate(http_requests_total[10m]))", 7, 10 * MINUTE),
    ("sum by (job) (rate(http_requests_total[1h]))", 7, HOUR),
    ("max_over_time(queue_usage[1h])", 7, HOUR),
    ("avg by (job) (queue_usage)", 7, HOUR),
    ("sum by (job) (rate(http_requests_total[1h]))", 30, HOUR),
    ("topk(5, increase(http_requests_total[1d]))", 30, DAY),
    ("avg by (job) (avg_over_time(queue_usage[6h]))", 30, 6 * HOUR),
    ("quantile(0.9, queue_usage)", 30, 6 * HOUR),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lake", type=Path, default=Path("/tmp/lakerunner-tiers-bench"))
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    lake = Lake(given.lake, given.series, given.days)
    counted = {tier: sum(one.rows for one in lake.all if one.frequency_ms == tier) for tier in (RAW, *MADE_TIERS)}
    print(", ".join(f"{rows:,} rows of {TIER_NAMES[tier]}" for tier, rows in counted.items()))
    failed = False
    with tempfile.TemporaryDirectory(dir=given.lake) as cache:
        sandboxes = Sandboxes(Limits("1GB", 600.0, 1000), threads=1, spill_directory=Path(cache) / "spill")
        segments = SegmentCache(lake.store, Path(cache) / "cache", 1 << 34)
        end = OPENING + given.days * DAY
        for text, days, step in QUESTIONS:
            if given.only in text and days <= given.days:
                steps = Steps(end - days * DAY + step, end, step)
                failed |= not measured(Asking(lake, segments, sandboxes), text, days, steps, given.repeat)
    sys.exit(1 if failed else 0)


@dataclass(frozen=True)
class Asking:
    lake: Lake
    cache: SegmentCache
    sandboxes: Sandboxes

    @contextmanager
    def engine(self) -> Iterator[MetricQueries]:
        """Open an engine with a cold worker."""
        metrics = MetricSegments(self.cache)
        worker = QueryWorker(self.cache, self.sandboxes, metrics=metrics)
        yield MetricQueries(Engine(KnownSegments(self.lake), OneWorker(worker)))
        metrics.close()


def measured(asking: Asking, text: str, days: int, steps: Steps, repeat: int) -> bool:
    answers, best, read = {}, {}, ""
    for raw in (True, False):
        with asking.engine() as engine:
            answers[raw], read = ask(engine, text, steps, raw)
        firsts, agains = [], []
        for _ in range(repeat):
            with asking.engine() as engine:
                firsts.append(timed(engine, text, steps, raw))
                agains.append(timed(engine, text, steps, raw))
        best["first", raw], best["again", raw] = np.min(firsts, axis=0), np.min(agains, axis=0)
    same = compared(answers[True], answers[False])
    print(f"{days} d, step {steps.step // MINUTE} min, {text}: from {read}{'' if same else ', ANSWERS DIFFER'}")
    good = same
    for when in ("first", "again"):
        raws, tiers = best[when, True], best[when, False]
        ratios = tiers / raws
        missed = steps.step >= HOUR and min(ratios) > TARGET
        good &= not missed
        print(
            f"  {when}  raw {raws[0]:8.1f} ms, CPU {raws[1]:8.1f}   tiers {tiers[0]:7.1f} ms, CPU {tiers[1]:7.1f}"
            f"   ratio {ratios[0]:.3f}, CPU {ratios[1]:.3f}{'   MISSED' if missed else ''}",
            flush=True,
        )
    return good


def timed(engine: MetricQueries, text: str, steps: Steps, raw: bool) -> tuple[float, float]:
    """Return wall and CPU time in ms."""
    wall, cpu = time.perf_counter(), time.process_time()
    ask(engine, text, steps, raw)
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def ask(engine: MetricQueries, text: str, steps: Steps, raw: bool) -> tuple[Vector, str]:
    answer = engine.promql(ORGANIZATION, PromqlQuestion(text, steps, False, OPENING * NS, raw=raw))
    (group,) = answer
    assert isinstance(group.value, Vector)
    assert group.value.present.any()
    tiers = dict.fromkeys(TIER_NAMES[tier] for read in answer.reads for tier in read.tiles)
    return group.value, " and ".join(tiers)


def compared(one: Vector, other: Vector) -> bool:
    return (
        list(one.labels) == list(other.labels)
        and np.array_equal(one.present, other.present)
        and np.allclose(one.values[one.present], other.values[other.present], rtol=1e-12, atol=0)
    )


# ---- the lake


@dataclass(frozen=True)
class Template:
    """Return one row of each series, in the sort order of segments, and the series table."""

    rows: pa.Table
    series: pa.Table
    segment: Segment


class Lake(NoPoints):
    """Segments on disk, and an index of them that is a list. A second run of the same size takes what is there."""

    def __init__(self, directory: Path, series: int, days: int) -> None:
        (directory / "store").mkdir(parents=True, exist_ok=True)
        self.store = LocalStore(directory / "store")
        self._directory = directory
        marker, size = directory / "made.json", {"series": series, "days": days}
        if marker.exists() and json.loads(marker.read_text()) != size:
            sys.exit(f"{directory} holds another lake: {marker.read_text()}")
        if not marker.exists():
            template = _template(series)
            made = [one for day in range(days) for one in self._day(template, day, day == days - 1)]
            (directory / "segments.pickle").write_bytes(pickle.dumps(made))
            marker.write_text(json.dumps(size))
        loaded = pickle.loads((directory / "segments.pickle").read_bytes())
        sets: dict[Any, Any] = {}
        self.all = [replace(s, columns=sets.setdefault(s.columns, s.columns), ingested=n) for n, s in enumerate(loaded)]

    @property
    def segments(self) -> Lake:
        return self

    def pick(self, _organization: UUID, _signal: str, asked: TimeRange, **_: Any) -> SegmentPick:
        found = tuple(one for one in self.all if one.frequency_ms == RAW and one.time.overlaps(asked))
        return SegmentPick(found, len(found))

    def pick_tiers(self, _organization: UUID, reach: Interval, tier: int, **_: Any) -> TierPick:
        unrolled = {RAW: [(s.time.start_ns // NS, (s.time.end_ns - 1) // NS) for s in self.all if not s.rolled]}
        tiles = tile(reach, tier, {RAW: [one for one in unrolled[RAW] if one[0] <= reach[1] and one[1] > reach[0]]})
        found = tuple(
            one
            for one in self.all
            if any(one.time.overlaps(TimeRange((a + 1) * NS, (b + 1) * NS)) for a, b in tiles.get(one.frequency_ms, ()))
        )
        return TierPick(tiles, found, len(found))

    def _day(self, template: Template, day: int, last: bool) -> list[Segment]:
        """Write the raw points of a day and their buckets; the last hour of the last day is not rolled up."""
        count = template.rows.num_rows
        chance = np.random.default_rng(day)
        points = DAY // EVERY
        offset = np.random.default_rng(1).integers(1, EVERY + 1, count)
        times = OPENING + day * DAY + EVERY * np.arange(points)[None, :] + offset[:, None]
        counters = np.array([name.startswith("http") for name in template.rows.column("metric_name").to_pylist()])
        grown = np.cumsum(chance.integers(0, 50, (count, points)), axis=1).astype(float) + day * 25.0 * points
        grown -= np.where(chance.random((count, 1)) < 0.1, grown[:, points // 2 : points // 2 + 1], 0) * (
            np.arange(points) >= points // 2
        )
        values = np.where(counters[:, None], grown, chance.random((count, points)))
        hour = points - HOUR // EVERY if last else points
        made = [self._write(template, f"{day}-raw", RAW, times[:, :hour], {"value": values[:, :hour]}, rolled=True)]
        if last:
            made.append(self._write(template, f"{day}-late", RAW, times[:, hour:], {"value": values[:, hour:]}))
        for tier in MADE_TIERS:
            whole = hour // (tier // EVERY) * (tier // EVERY)
            if whole:
                ends, facts = _windows(times[:, :whole], values[:, :whole], tier)
                made.append(self._write(template, f"{day}-{tier}", tier, ends, facts, rolled=True))
        return made

    def _write(
        self, template: Template, name: str, tier: int, times: Any, facts: dict[str, Any], *, rolled: bool = False
    ) -> Segment:
        spec = ROLLUPS if tier else METRICS
        count, each = times.shape
        repeated = template.rows.take(pa.array(np.repeat(np.arange(count), each)))
        new = {"timestamp": times.reshape(-1) * NS, **{fact: array.reshape(-1) for fact, array in facts.items()}}
        columns, fields = [], []
        for field in spec.schema:
            if field.name in new:
                columns.append(pa.array(new[field.name]).cast(field.type))
                fields.append(field)
            elif field.name in repeated.column_names and field.name not in ("value", "int_value", "start_timestamp"):
                columns.append(repeated.column(field.name))
                fields.append(field)
        path = self._directory / "new.parquet"
        pq.write_table(
            pa.Table.from_arrays(columns, schema=pa.schema(fields)),
            path,
            row_group_size=spec.row_group_rows,
            compression="zstd",
            use_dictionary=[field.name for field in fields if field.name not in new],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
        )
        series = template.series
        for column, numbers in (("first_row", np.arange(count) * each), ("rows", np.full(count, each))):
            place = series.schema.get_field_index(column)
            series = series.set_column(place, series.schema.field(column), pa.array(numbers, pa.int64()))
        side = pa.BufferOutputStream()
        pq.write_table(series, side)
        data = path.read_bytes()
        segment = replace(
            template.segment,
            id=segment_id("tiers-bench", name),
            time=TimeRange(int(times.min()) * NS, int(times.max()) * NS + 1),
            rows=count * each,
            bytes=len(data),
            columns=tuple(Column(field.name, "") for field in fields),
            frequency_ms=tier,
            statistics={"side_bytes": {SERIES_TABLE: side.tell()}},
            fingerprints=(),
            rolled=rolled,
        )
        self.store.put(segment.path, memoryview(data))
        self.store.put(segment.side_path(SERIES_TABLE), memoryview(side.getvalue()))
        return segment


def _windows(times: Any, values: Any, tier: int) -> tuple[Any, dict[str, Any]]:
    """Build buckets of points, the same number in each."""
    count, points = times.shape
    each = tier // EVERY
    at, of = times.reshape(count, points // each, each), values.reshape(count, points // each, each)
    ends = -(-at[:, :, 0] // tier) * tier
    falls = of[:, :, 1:] < of[:, :, :-1]
    return ends, {
        "chq_rollup_count": np.full(ends.shape, each, np.uint64),
        "chq_rollup_sum": of.sum(axis=2),
        "chq_rollup_sum_error": np.zeros(ends.shape),
        "chq_rollup_min": of.min(axis=2),
        "chq_rollup_max": of.max(axis=2),
        "chq_rollup_first": of[:, :, 0],
        "chq_rollup_first_timestamp": at[:, :, 0] * NS,
        "chq_rollup_last": of[:, :, -1],
        "chq_rollup_last_timestamp": at[:, :, -1] * NS,
        "chq_rollup_reset_sum": np.where(falls, of[:, :, :-1], 0.0).sum(axis=2),
        "chq_rollup_resets": falls.sum(axis=2).astype(np.uint64),
        "chq_rollup_changes": (of[:, :, 1:] != of[:, :, :-1]).sum(axis=2).astype(np.uint64),
    }


def _template(series: int) -> Template:
    request = ExportMetricsServiceRequest()
    for number in range(series // 2):
        metrics = request.resource_metrics.add()
        pairs = (("service.name", f"service-{number % 8}"), ("service.instance.id", f"pod-{number}"))
        for key, value in pairs:
            metrics.resource.attributes.add(key=key).value.string_value = value
        scope = metrics.scope_metrics.add()
        requests = scope.metrics.add(name="http.requests").sum
        requests.aggregation_temporality, requests.is_monotonic = 2, True
        requests.data_points.add(time_unix_nano=OPENING * NS, as_double=0.5)
        scope.metrics.add(name="queue.usage").gauge.data_points.add(time_unix_nano=OPENING * NS, as_double=0.5)
    data = request.SerializeToString()
    raw = Raw(SourceObject("bench", "template", "etag", len(data), OPENING * NS), memoryview(data))
    files: dict[str, bytes] = {}
    made = make_segments(METRICS, ORGANIZATION, "bench", [raw], lambda path, file: files.update({path: bytes(file)}))
    (segment,) = made.segments
    rows, table = (
        pq.read_table(pa.BufferReader(files[path])) for path in (segment.path, segment.side_path(SERIES_TABLE))
    )
    return Template(rows, table, segment)


if __name__ == "__main__":
    main()
