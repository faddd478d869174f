"""Points that expire before they are rolled up, and lists of a time that has expired: a real PostgreSQL, the sweeper's
own retention, rollups by the pipeline's own code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.retention_policy import WAIT_NS, parse_retention
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, TIERS, source_of
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metric_answers import CardinalityQuestion
from lakerunner.query.read_lines import read_lines
from lakerunner.query.reads import to_json
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from lakerunner.series.values import Steps, Vector
from lakerunner.services.sweep.segment_chores import PastRetention
from query.metric_lake import NS, MetricLake
from query.sample_lake import OWN
from query.tiered_lake import HOUR, MINUTE, T0, series
from servers.postgres import empty_index
from suites.metrics_lake import metrics_server
from suites.queries import metric_queries

HOURLY = Steps(T0 + HOUR, T0 + 4 * HOUR, HOUR)
UP = "raw points up to 2024-01-01 04:00:00 UTC have expired by retention, those of 2024-01-01 02:00:00 to "
UP += "2024-01-01 02:59:00 UTC before they were rolled up: they are not in this answer"
GONE = "metrics: rows up to 2024-01-01 04:00:00 UTC have expired by retention"


def each_minute(first: int, last: int) -> list[tuple[int, float | None]]:
    return [(T0 + n * MINUTE, float(n)) for n in range(first, last + 1)]


class IndexedLake:
    """Metrics in a store on disk, with the index in PostgreSQL."""

    def __init__(self, directory: Path, index: Index) -> None:
        self.index = index
        self._lake = MetricLake(directory)
        self._live: dict[int, list[Segment]] = {}
        sandboxes = Sandboxes(Limits("500MB", 60.0, 1000), threads=1, spill_directory=directory / "spill")
        worker = QueryWorker(SegmentCache(self._lake.store, directory / "cache-worker", 1 << 30), sandboxes)
        self.engine = metric_queries(index, OneWorker(worker))

    def add(self, *fills: Any) -> list[Segment]:
        made = self._lake.add(*fills)
        self._commit(made, RAW)
        return made

    def _commit(self, made: Sequence[Segment], frequency: int, rolled: Sequence[Segment] = ()) -> None:
        ids = tuple(one.id for one in rolled)
        self.index.commit(Commit(tuple(made), (), (), rolled=ids, rolled_of=OWN if ids else None))
        self._live.setdefault(frequency, []).extend(made)

    def roll(self, touched: Sequence[Segment], tiers: Sequence[int] = TIERS[:4]) -> None:
        address = StoreAddress((self._lake.directory / "store").as_uri())
        for tier in tiers:
            work = RollupWork(OWN, "default", source_of(tier), tier, tuple(touched), tuple(self._live[source_of(tier)]))
            outcome = rollup_work(work, address, CompactLimits(64 << 20, 1 << 30))
            assert outcome.error == ""
            self._commit(outcome.segments, tier, touched)
            touched = outcome.segments

    def sweep(self, **retention: str) -> None:
        """When rollups have been waited for in vain."""
        named = [(name.replace("_", "."), text) for name, text in retention.items()]
        chore, now_ns = PastRetention(self.index, parse_retention(named)), self.index.sweep.now_ns() + 2 * WAIT_NS
        for page in chore.find(now_ns):
            if going := [one for one in page.findings if one.goes]:
                chore.take(going, now_ns)

    def ask(self, text: str, steps: Steps = HOURLY, **how: Any) -> tuple[list[tuple[int, float]], list[str], Any]:
        """Of the one series the points, in minutes since T0; the warnings; the answer."""
        answer = self.engine.promql(OWN, PromqlQuestion(text, steps, len(steps) == 1, T0 * NS, **how))
        found = []
        for group in answer:
            assert isinstance(group.value, Vector)
            for row in range(len(group.value)):
                for step in group.value.present[row].nonzero()[0].tolist():
                    at = group.steps.start + step * group.steps.step
                    found.append(((at - T0) // MINUTE, float(group.value.values[row, step])))
        return found, [note.message for note in answer.notes if note.level == "warning"], answer


@pytest.fixture
def pg_index(embedded_postgres_url: str) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, DEFAULT_ORGANIZATION, connections=4) as opened:
        yield opened


@pytest.fixture
def lake(tmp_path: Path, pg_index: Index) -> IndexedLake:
    """Four hours of `up`, of which the third is not rolled up; `down` has the first two alone."""
    made = IndexedLake(tmp_path / "lake", pg_index)
    fills = [(each_minute(1, 119), each_minute(1, 119)), (each_minute(120, 179), []), (each_minute(180, 240), [])]
    parts = [made.add(series("up", up, False), *([series("down", down, False)] if down else [])) for up, down in fills]
    made.roll([*parts[0], *parts[2]])
    return made


def test_what_no_window_has_is_warned_of(lake: IndexedLake) -> None:
    whole = [(60, 60.0), (120, 60.0), (180, 60.0), (240, 60.0)]
    assert lake.ask("count_over_time(up[1h])")[:2] == (whole, [])  # points are read where windows are not there yet
    lake.sweep(metrics="15d")
    text = "count_over_time(up[1h])"
    found, warnings, answer = lake.ask(text)
    assert found == [(60, 60.0), (120, 59.0), (180, 1.0), (240, 60.0)]
    assert warnings == [f"{text}: {UP}"]
    assert lake.ask(text, streamed=True)[:2] == (found, warnings)
    assert read_lines(to_json(answer.reads)) == [
        text,
        "  Read 1 h rollups or finer: 1 d rollups need a range that is a multiple of 1 d.",
        "  read 1 h rollups after 2024-01-01 00:00:00 to 2024-01-01 04:00:00",
        "  expired without being rolled up after 2024-01-01 01:59:59.999000000 to 2024-01-01 02:59:00",
    ]


def test_only_where_it_is_missing(lake: IndexedLake) -> None:
    lake.sweep(metrics="15d")
    for first, last, warned in [(1, 1, 0), (1, 2, 1), (2, 2, 1), (3, 3, 1), (4, 4, 0)]:
        steps = Steps(T0 + first * HOUR, T0 + last * HOUR, HOUR)
        assert len(lake.ask("max_over_time(up[1h])", steps)[1]) == warned, (first, last)
    assert lake.ask("max_over_time(down[1h])")[:2] == ([(60, 60.0), (120, 119.0)], [])  # another metric has it all
    assert lake.ask("max_over_time(nothing[1h])")[:2] == ([], [])


def test_a_quiet_hour_is_not_warned_of(tmp_path: Path, pg_index: Index) -> None:
    lake = IndexedLake(tmp_path / "lake", pg_index)
    lake.roll(lake.add(series("up", [*each_minute(1, 119), *each_minute(181, 240)], False)))
    lake.sweep(metrics="15d")
    assert lake.ask("count_over_time(up[1h])")[:2] == ([(60, 60.0), (120, 59.0), (240, 60.0)], [])


def test_rollups_that_were_never_made(tmp_path: Path, pg_index: Index) -> None:
    """Whoever keeps them for ever is told of the hours; where none is kept so long, that no rollups are left."""
    lake = IndexedLake(tmp_path / "lake", pg_index)
    lake.add(series("up", [*each_minute(1, 59), *each_minute(180, 240)], False))
    lake.sweep(metrics="15d")
    text = "max_over_time(up[1h])"
    (told,) = lake.ask(text)[1]
    assert told == (
        f"{text}: raw points up to 2024-01-01 04:00:00 UTC have expired by retention, those of 2024-01-01 00:01:00 to "
        "2024-01-01 00:59:00 UTC, of 2024-01-01 03:00:00 to 2024-01-01 04:00:00 UTC before they were rolled up: they "
        "are not in this answer"
    )
    lake.add(series("up", [(T0 + 241 * MINUTE, 241.0)], False))
    lake.sweep(all="15d")
    (told,) = lake.ask(text)[1]
    assert (
        told
        == f"{text}: points up to 2024-01-01 04:01:00 UTC have expired by retention, and no rollups of them are left"
    )


def test_points_that_outlive_their_windows_are_read(lake: IndexedLake) -> None:
    """Windows of 10 s expire before those of a minute are made of them; points are kept for ever."""
    late = lake.add(series("late", each_minute(1, 240), False))
    lake.roll(late, TIERS[:1])
    text = "count_over_time(late[1h])"
    whole = [(60, 60.0), (120, 60.0), (180, 60.0), (240, 60.0)]
    assert lake.ask(text)[:2] == (whole, [])
    lake.sweep(metrics_10s="2h")
    assert lake.ask(text)[:2] == (whole, [])
    lake.sweep(metrics="15d")
    found, (told,), _ = lake.ask(text)
    assert found == []
    assert "2024-01-01 00:01:00 to 2024-01-01 04:00:00 UTC before they were rolled up" in told


def test_series_that_were_not_counted(lake: IndexedLake) -> None:
    def warnings(first: int, last: int) -> list[str]:
        start, end = T0 + first * HOUR, T0 + last * HOUR
        found = lake.engine.cardinality(OWN, CardinalityQuestion("", start, end, HOUR, T0 * NS))
        return sorted(found.account.warnings)

    assert warnings(0, 4) == []
    lake.sweep(metrics="15d")
    assert warnings(0, 4) == [UP]
    assert warnings(0, 1) == []


def test_while_the_index_is_away_it_is_told_still(lake: IndexedLake) -> None:
    lake.sweep(metrics="15d")
    before = lake.ask("max_over_time(up[1h])")[1]
    lake.index.close()
    assert lake.ask("max_over_time(up[1h])", Steps(T0 + 2 * HOUR, T0 + 4 * HOUR, HOUR))[1] == before != []


# Lists


def listed(url: str, what: str, **given: Any) -> tuple[Any, list[str]]:
    answer = httpx.get(f"{url}/prometheus/api/v1/{what}", params=given, timeout=60).json()
    assert answer["status"] == "success", answer
    return answer["data"], answer.get("warnings", [])


@pytest.mark.parametrize(
    ("what", "left"),
    [("series?match[]=up", []), ("labels", []), ("label/__name__/values", []), ("query_exemplars?query=up", [])],
)
def test_lists_say_what_has_expired(lake: IndexedLake, what: str, left: Any) -> None:
    start, end = T0 // 1000, T0 // 1000 + 5 * 3600
    with metrics_server(lake.engine, (T0 + 5 * HOUR) * NS) as url:
        path, _, query = what.partition("?")
        given = dict([query.split("=")]) if query else {}
        assert listed(url, path, start=start, end=end, **given)[1] == []
        lake.sweep(metrics="15d")
        told = f"{GONE}; rollups of them are left, which PromQL reads"
        assert listed(url, path, start=start, end=end, **given) == (left, [told])
        assert listed(url, path, start=start + 4 * 3600 + 1, end=end, **given) == (left, [])
        # Whoever names no beginning asks for what there is: unless nothing of it can be there.
        later = {} if path == "query_exemplars" else {"end": end}
        assert listed(url, path, **later, **given) == (left, [])
        assert listed(url, path, end=start + 3600, **given)[1] == [told]


def test_metadata_of_the_last_day_says_so_too(lake: IndexedLake) -> None:
    lake.sweep(metrics="15d")
    for now, warned in [(T0 + 5 * HOUR, 1), (T0 + 27 * HOUR, 1), (T0 + 29 * HOUR, 0)]:
        with metrics_server(lake.engine, now * NS) as url:
            assert len(listed(url, "metadata")[1]) == warned


def test_the_native_lists_say_it_in_their_own_shape(lake: IndexedLake) -> None:
    lake.sweep(metrics="15d")
    told = [f"{GONE}; rollups of them are left, which PromQL reads"]
    with metrics_server(lake.engine, (T0 + 5 * HOUR) * NS) as base:
        url = f"{base}/api/v1/metrics"
        for body, warned in [({"s": "now-3h"}, {"warnings": told}), ({"s": "now-30m"}, {})]:
            tags = httpx.post(f"{url}/tags", json=body, timeout=60).json()
            assert tags == {"tags": [], "truncated": False} | warned
            metrics = httpx.post(f"{url}/metadata", json=body, timeout=60).json()
            assert metrics == {"metrics": [], "truncated": False} | warned
            values = httpx.post(f"{url}/tagvalues?tagName=job", json=body, timeout=60).text
            done = str({"type": "done", "data": {"status": "ok"} | warned}).replace("'", '"').replace(" ", "")
            assert values.replace(" ", "") == f"data:{done}\n\n".replace(" ", "")
