"""Whatever is ingested, merged and lost: after a repair the lake has the same rows, each as often as before."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.model.segment import Segment
from lakerunner.model.time import ALL_TIME, HOUR_NS
from lakerunner.services.checks.row_digest import identities
from lakerunner.services.repair.choice import RowTable, choose
from suites.checked import START, START_NS, checked_lake, logs_of, points_of, spans_of
from suites.ingested import random_logs, random_metrics, random_spans
from suites.repaired import RawLake

HOURS = st.integers(0, 1)
# An object is (hour, number of its first row, rows); boxes of objects, shared by one or two tasks.
OBJECTS = st.tuples(HOURS, st.integers(0, 3), st.integers(1, 3))
BOXES = st.lists(st.tuples(st.lists(OBJECTS, min_size=1, max_size=3), st.integers(1, 2)), min_size=1, max_size=5)
MERGES = st.lists(st.tuples(st.integers(0, 5), st.integers(2, 4)), max_size=3)
LOSSES = st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True)


def log_object(hour: int, first: int, rows: int, unique: int) -> bytes:
    messages = [f"m{number} {unique}" for number in range(first, first + rows)]
    return logs_of(*messages, time_ns=START_NS + hour * HOUR_NS + first)


def point_object(hour: int, first: int, rows: int, unique: int) -> bytes:
    name = f"load{unique}" if unique else "load"
    return points_of(*range(first, first + rows), name=name, time=START + hour * 3600 + first)


def span_object(hour: int, first: int, rows: int, unique: int) -> bytes:
    names = [f"s{number}" for number in range(first, first + rows)]
    return spans_of(*names, time_ns=START_NS + hour * HOUR_NS + first, unique=str(unique))


MAKERS: dict[str, Callable[..., bytes]] = {"logs": log_object, "metrics": point_object, "traces": span_object}
COLUMNS = {
    "logs": ["timestamp", "message", "delivery", "delivery_row"],
    "metrics": ["timestamp", "metric_name", "series", "int_value"],
    "traces": ["timestamp", "name", "span_id", "service_name"],
}


@pytest.fixture(scope="module")
def lake(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawLake]:
    directory: Path = tmp_path_factory.mktemp("law")
    with checked_lake(embedded_postgres_url, directory) as made:
        yield RawLake(made, directory)


def filled(lake: RawLake, signal: str, boxes: Any, merges: Any, *, twice: bool) -> None:
    """An empty lake, then these boxes and merges of runs of live segments. `twice`: objects may be equal."""
    lake.lake.sql("TRUNCATE lrdb.segments, lrdb.source_objects, lrdb.outbox CASCADE")
    for folder in ("otel-raw", "db"):
        shutil.rmtree(lake.lake.store.root / folder, ignore_errors=True)
    unique = 0
    for objects, tasks in boxes:
        datas = []
        for hour, first, rows in objects:
            unique += not twice
            datas.append(MAKERS[signal](hour, first, rows, unique))
        lake.ingest(signal, *datas, tasks=min(tasks, len(datas)))
    if signal == "metrics":
        lake.lake.sql("UPDATE lrdb.segments SET rolled = true")
    for start, count in merges:
        live = lake.live(signal)
        hour = live[start % len(live)].time.start_ns // HOUR_NS
        run = [one for one in live if one.time.start_ns // HOUR_NS == hour][:count]
        if len(run) > 1:
            lake.merge(run)


def rows_of(lake: RawLake, signal: str) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for one in lake.live(signal):
        table = pq.read_table(lake.lake.path(one.path), columns=COLUMNS[signal])
        times = table.column("timestamp").cast(pa.int64())
        found.update(zip(times.to_pylist(), *(column.to_pylist() for column in table.columns[1:]), strict=True))
    return found


def lose(lake: RawLake, signal: str, losses: Sequence[int]) -> None:
    live = lake.live(signal)
    for number in {loss % len(live) for loss in losses}:
        lake.lose(live[number])


steps = settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("signal", MAKERS)
@given(boxes=BOXES, merges=MERGES, losses=LOSSES)
@steps
def test_all_rows_come_back(lake: RawLake, signal: str, boxes: Any, merges: Any, losses: list[int]) -> None:
    filled(lake, signal, boxes, merges, twice=False)
    before = rows_of(lake, signal)
    lose(lake, signal, losses)
    assert lake.repair()[0] == 0
    assert rows_of(lake, signal) == before
    assert lake.repair() == (0, ["nothing to repair"])


@pytest.mark.parametrize("signal", MAKERS)
@given(boxes=BOXES, merges=MERGES, losses=LOSSES)
@steps
def test_what_came_twice_is_neither_lost_nor_doubled(
    lake: RawLake, signal: str, boxes: Any, merges: Any, losses: list[int]
) -> None:
    """A row that came twice may come back once: as a merge of both would have it. It is never there more often."""
    filled(lake, signal, boxes, merges, twice=True)
    before = rows_of(lake, signal)
    lose(lake, signal, losses)
    lake.repair()
    lost = {one.id for one in lake.live(signal) if not lake.lake.path(one.path).exists()}
    for id_ in lost:
        lake.lake.sql("UPDATE lrdb.segments SET state = 'expired' WHERE id = %s", id_)
    after = rows_of(lake, signal)
    assert after.keys() == before.keys()
    assert after <= before


def digests_of(lake: RawLake, segments: Sequence[Segment]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in segments:
        for part in identities(lake.lake.store, one, ALL_TIME, lake.directory):
            assert part.known.all()
            found.update(part.digests.tolist())
    return found


@pytest.mark.parametrize(
    ("signal", "make"),
    [
        ("logs", lambda chance: random_logs(chance, list("abcdef"))),
        ("metrics", random_metrics),
        ("traces", random_spans),
    ],
)
def test_rows_are_known_by_the_same_digest_wherever_they_stand(lake: RawLake, signal: str, make: Any) -> None:
    """In a segment of one object, of several, and in a merged one, whatever became a column there."""
    filled(lake, signal, [], [], twice=True)
    chance = random.Random(5)
    datas = [make(chance) for _ in range(4)]
    alone = [one for data in datas for one in lake.ingest(signal, data)]
    expected = digests_of(lake, alone)
    assert digests_of(lake, lake.ingest(signal, *datas)) == expected
    assert set(digests_of(lake, lake.merge(alone))) == set(expected)


def chosen(rows: list[tuple[str, int, int, int]], lost: int, *, merged: bool) -> list[int]:
    """The numbers of the rows chosen of (row, held, held beside, object)."""
    names, held, beside, objects = zip(*rows, strict=True)
    digests = np.array([ord(name) for name in names], np.uint64)
    held_counts, beside_counts, numbers = (np.array(some, np.int64) for some in (held, beside, objects))
    table = RowTable(digests, held_counts, beside_counts, numbers, merged)
    return np.flatnonzero(choose(table, lost)).tolist()


def test_rows_that_no_live_segment_holds_are_chosen() -> None:
    rows = [("a", 0, 0, 0), ("b", 1, 0, 0), ("c", 0, 0, 1), ("c", 0, 0, 2)]
    assert chosen(rows, 3, merged=False) == [0, 2, 3]
    assert chosen(rows, 2, merged=True) == [0, 2]


def test_a_raw_object_is_lost_as_a_whole_where_that_gives_the_count() -> None:
    rows = [("a", 0, 0, 0), ("b", 1, 0, 0), ("c", 1, 0, 1)]
    assert chosen(rows, 2, merged=True) == [0, 1]
    assert chosen(rows, 5, merged=True) == [0]


def test_the_commit_without_its_other_segments_is_chosen() -> None:
    rows = [("a", 2, 1, 0), ("a", 2, 1, 1), ("b", 1, 1, 2)]
    assert chosen(rows, 1, merged=False) == [1]


def test_no_more_rows_are_chosen_than_were_lost() -> None:
    rows = [("a", 0, 0, 0), ("b", 0, 0, 1), ("c", 0, 0, 2)]
    assert chosen(rows, 2, merged=True) == [0, 1]
