"""Windows are compared with what their source gives, and rolled segments have some. The rollup itself is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.segments import CollectorTier
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.signal import METRICS, ROLLUPS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.services.checks.rollup_buckets import Pick
from suites.checked import ORG, START, START_NS, CheckedLake, checked_lake, points_of

TARGET = 10_000
SECOND = 10**9


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedLake]:
    monkeypatch.setattr("lakerunner.services.fsck._OUTBOX_SECONDS", 0.0)
    with checked_lake(embedded_postgres_url, tmp_path) as made:
        stand_in = StandIn(made)
        monkeypatch.setattr("lakerunner.services.fsck.recomputing", lambda _: stand_in)
        yield made


class StandIn:
    """Rolls up one series: count and sum of its values by window."""

    def __init__(self, lake: CheckedLake) -> None:
        self.lake = lake

    def __call__(self, tier: CollectorTier, target: int, segment: Segment, pick: Pick) -> pa.Table:
        assert tier == CollectorTier(segment.organization, segment.collector, "metrics", 0)
        assert target == TARGET
        window = target * 10**6
        first, last = (-(-ns // window) * window for ns in (segment.time.start_ns, segment.time.end_ns - 1))
        sources = pick(TimeRange(first - window + 1, last + 1))
        return self.windows(*sources)

    def windows(self, *sources: Segment) -> pa.Table:
        found: dict[int, list[float]] = {}
        for one in sources:
            rows = pq.read_table(self.lake.path(one.path))
            for time, number in zip(rows["timestamp"].cast(pa.int64()), rows["int_value"], strict=True):
                end = -(-time.as_py() // (TARGET * 10**6)) * TARGET * 10**6
                found.setdefault(end, []).append(float(number.as_py()))
        return table([(end, len(values), sum(values)) for end, values in sorted(found.items())])


def table(windows: list[tuple[int, int, float]], **changes: Any) -> pa.Table:
    rows = [
        {
            "timestamp": end,
            "start_timestamp": end - TARGET * 10**6,
            "metric_name": "load",
            "series": 7,
            "chq_rollup_count": count,
            "chq_rollup_sum": total,
        }
        for end, count, total in windows
    ]
    filled = {"metric_type": "gauge", "service_name": "cart", "flags": 0}
    columns, fields = [], []
    for one in ROLLUPS.schema:
        if one.name in rows[0] or not one.nullable:
            empty: Any = [] if pa.types.is_map(one.type) else 0 if pa.types.is_integer(one.type) else ""
            columns.append(
                pa.array([(row | changes).get(one.name, filled.get(one.name, empty)) for row in rows], one.type)
            )
            fields.append(one)
    return pa.table(columns, pa.schema(fields))


def add_windows(lake: CheckedLake, windows: pa.Table, name: str) -> Segment:
    ends = [value.value for value in windows["timestamp"]]
    segment = Segment(
        segment_id(name),
        ORG.id,
        "edge",
        "metrics",
        TimeRange(min(ends), max(ends) + 1),
        windows.num_rows,
        1,
        ROLLUPS.sort_version,
        tuple(Column(column, "") for column in windows.schema.names),
        frequency_ms=TARGET,
    )
    order = pq.SortingColumn.from_ordering(windows.schema, [(column, "ascending") for column in METRICS.sort_by])
    path = lake.path(segment.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(windows, path, sorting_columns=order)
    segment = replace(segment, bytes=path.stat().st_size)
    lake.index.commit(Commit((segment,), (), ()))
    return segment


def rolled(lake: CheckedLake, *values: float, time: float = START) -> Segment:
    """A committed segment of points that is marked as rolled up."""
    (one,) = lake.make("metrics", points_of(*values, time=time))
    lake.index.commit(Commit((replace(one, rolled=True),), (), ()))
    return one


END = START_NS + 10 * SECOND


def test_windows_that_are_right(lake: CheckedLake) -> None:
    rolled(lake, 1, 2, 3, time=START + 1)
    add_windows(lake, table([(END, 3, 6.0)]), "w")
    code, said = lake.fsck()
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["windows recomputed"] == 1
    assert said["looked_at"]["segments rolled up again"] == 1


def test_a_sum_may_be_rounded_and_no_more(lake: CheckedLake) -> None:
    rolled(lake, 1, 2, 3, time=START + 1)
    add_windows(lake, table([(END, 3, 6.0 * (1 + 5e-13))]), "w")
    assert lake.found() == []
    add_windows(lake, table([(END, 3, 6.0 * (1 + 5e-12))]), "later")
    ((severity, check, what, where),) = lake.found()
    assert (severity, check) == ("error", "rollups")
    assert what == (
        "chq_rollup_sum of 1 of 1 bucket is not what it is made of, load series 7 at 2025-10-09T08:00:10.000000000Z"
    )
    assert where.startswith("edge/10s of db/")


def test_the_later_window_counts(lake: CheckedLake) -> None:
    rolled(lake, 1, 2, time=START + 1)
    add_windows(lake, table([(END, 1, 1.0)]), "early")
    assert [what for _, _, what, _ in lake.found()] == [
        f"{name} of 1 of 1 bucket is not what it is made of, load series 7 at 2025-10-09T08:00:10.000000000Z"
        for name in ("chq_rollup_count", "chq_rollup_sum")
    ]
    add_windows(lake, table([(END, 2, 3.0)]), "late")
    assert lake.found() == []


def test_what_describes_the_series_counts_too(lake: CheckedLake) -> None:
    rolled(lake, 1, time=START + 1)
    add_windows(lake, table([(END, 1, 1.0)], unit="ms"), "w")
    ((_, _, what, _),) = lake.found()
    assert what.startswith("unit of 1 of 1 bucket is not what it is made of")


def test_a_window_that_is_missing(lake: CheckedLake) -> None:
    rolled(lake, *range(15), time=START + 1)
    add_windows(lake, table([(END, 10, 45.0)]), "w")
    ((severity, _, what, _),) = lake.found()
    assert severity == "error"
    assert what == "1 of 2 buckets missing, the first load series 7 at 2025-10-09T08:00:20.000000000Z"


def test_a_rolled_segment_without_any_window(lake: CheckedLake) -> None:
    one = rolled(lake, 1, time=START + 1)
    found = lake.found(sample=0)
    what = "it is marked as rolled up, but there are no buckets of 10s for its time"
    assert found == [("error", "rollups", what, one.path)]
    lake.sql("UPDATE lrdb.segments SET rolled = false")
    assert lake.found() == []


def test_a_segment_of_series_without_samples_has_no_windows(lake: CheckedLake) -> None:
    """As Prometheus sends exemplars: in series of their own."""
    series = b"\x0a\x12\x0a\x08__name__\x12\x06orders" + b"\x1a\x09\x11" + bytes(8)
    message = b"\x0a" + bytes([len(series)]) + series
    data = bytes([len(message)]) + message
    source = SourceObject("local", "otel-raw/1.prw1", "e", len(data), START_NS)
    made = make_segments(METRICS, ORG.id, "edge", [Raw(source, memoryview(data), "prw1")], lake.store.put)
    (one,) = made.segments
    assert (one.rows, one.statistics["metrics"]) == (1, ["orders"])
    lake.index.commit(Commit((replace(one, rolled=True),), (), ()))
    assert lake.found(sample=0) == []


def test_windows_past_their_retention_are_not_missed(lake: CheckedLake) -> None:
    rolled(lake, 1, time=START + 1)
    lake.settings = replace(lake.settings, retention={"metrics.10s": "1d"})
    code, said = lake.fsck()
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["rolled segments not compared: part of them is past its retention"] == 1


def test_windows_on_their_way_are_not_compared(lake: CheckedLake) -> None:
    rolled(lake, 1, time=START + 1)
    add_windows(lake, table([(END, 1, 1.0)]), "w")
    lake.add("metrics", points_of(5, time=START + 2))
    code, said = lake.fsck()
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["rolled segments not compared: other segments of the same time wait to be rolled up"] == 1


def expire(lake: CheckedLake, segment: Segment, keep_ns: int = 3600 * SECOND) -> None:
    """As a sweep does with a retention that may be another one by now."""
    now_ns = segment.time.end_ns + keep_ns
    cutoff = Cutoff("metrics", segment.frequency_ms, segment.time.end_ns, segment.time.end_ns, now_ns, now_ns)
    assert lake.index.sweep.expire(ORG.id, cutoff, [segment.id], now_ns) == {segment.id}


def test_what_expired_while_its_retention_was_shorter_is_not_missed(lake: CheckedLake) -> None:
    gone = rolled(lake, 1, 2, time=START + 1)
    left = rolled(lake, *range(3, 12), time=START + 6)
    windows = add_windows(lake, table([(END, 7, 28.0), (END + 10 * SECOND, 4, 38.0)]), "w")
    expire(lake, gone)
    code, said = lake.fsck()
    assert (code, {one["check"] for one in said["findings"]}) == (0, {"objects"})  # its file waits for the sweeper
    assert said["looked_at"]["rolled segments not compared: part of them is past its retention"] == 1
    expire(lake, windows)
    code, said = lake.fsck()
    assert (code, {one["check"] for one in said["findings"]}) == (0, {"objects"})
    later = rolled(lake, 1, time=START + 61)
    errors = [(check, where) for severity, check, _, where in lake.found(sample=0) if severity == "error"]
    assert errors == [("rollups", later.path)]
    lake.sql("DELETE FROM lrdb.expired")
    errors = [(check, where) for severity, check, _, where in lake.found(sample=0) if severity == "error"]
    assert sorted(errors) == sorted([("rollups", later.path), ("rollups", left.path)])
