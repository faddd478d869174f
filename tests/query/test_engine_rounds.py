"""Rounds give what all at once gives; a limit ends them, and what it does not need is never run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import TooLarge
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.engine import Engine, RowJob
from lakerunner.query.known_segments import KnownSegments, Pick
from lakerunner.query.options import Options
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from query.sample_lake import HOUR, NOW, OWN, START, Lake, Record

MINUTE = HOUR // 60
HOURS = 6
BY_TIME = 'SELECT timestamp, message FROM "scan_1" ORDER BY timestamp {}, message'


class Watched:
    """A real worker, and the units it was given."""

    name = "watched"

    def __init__(self, worker: QueryWorker) -> None:
        self._worker = worker
        self.units: list[Unit] = []

    def run(self, unit: Unit) -> Answer:
        self.units.append(unit)
        return self._worker.run(unit)


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ten records an hour, every six minutes; in the third hour two segments that overlap."""
    lake = Lake(tmp_path_factory.mktemp("hours"))
    for hour in range(HOURS):
        times = [START + hour * HOUR + n * 6 * MINUTE for n in range(10)]
        lake.add([Record(ns, message=f"{hour}.{n}") for n, ns in enumerate(times)])
        if hour == 2:
            lake.add([Record(ns, message=f"again {n}") for n, ns in enumerate(times)], collector="edge")
    return lake


@pytest.fixture(scope="module")
def watched(hours: Lake) -> Watched:
    return Watched(hours.worker())


def engine_of(lake: Lake, watched: Watched, first_bytes: int = 1, max_rows: int = 1_000_000) -> Engine:
    watched.units.clear()
    coordinator = Coordinator(lake.sandboxes(max_rows=max_rows))
    return Engine(KnownSegments(lake), OneWorker(watched), coordinator, first_bytes=first_bytes)


def job_of(lake: Lake, sql: str, rounds: Rounds | None, *, passes: bool = False) -> RowJob:
    (scan,) = compile_sql("SELECT timestamp, message FROM logs", OWN, NOW).scans
    plan = Plan((Leaf(scan, SqlRows('SELECT * FROM "scan_1"')),), SqlFinish(sql, rounds, passes))
    segments = lake.pick(OWN, "logs", scan.time).segments
    considered = Account(considered=len(segments))
    return RowJob(OWN, plan, (Pick(segments, considered),), Options(NOW), before=considered)


def table_of(answer: Answer) -> pa.Table:
    return pa.Table.from_batches(list(answer), schema=answer.schema)


def expected(lake: Lake, descending: bool = False) -> list[str]:
    ordered = sorted(lake.records, key=lambda pair: pair[0].message)
    ordered.sort(key=lambda pair: pair[0].timestamp, reverse=descending)
    return [record.message for record, _ in ordered]


@pytest.mark.parametrize("descending", [False, True])
def test_rows_of_all_rounds_are_those_of_all_at_once(descending: bool, hours: Lake, watched: Watched) -> None:
    engine = engine_of(hours, watched)
    job = job_of(hours, BY_TIME.format("DESC" if descending else ""), Rounds(descending))
    answer = engine.run(job)
    assert table_of(answer)["message"].to_pylist() == expected(hours, descending)
    assert [len(unit.segments) for unit in watched.units] == ([1, 1, 1, 2, 1, 1] if descending else [1, 1, 2, 1, 1, 1])
    assert answer.account.read == answer.account.considered == HOURS + 1
    assert answer.account.rows == 70


def test_a_limit_ends_the_rounds_and_later_units_are_never_run(hours: Lake, watched: Watched) -> None:
    engine = engine_of(hours, watched)
    answer = engine.run(job_of(hours, BY_TIME.format("DESC"), Rounds(descending=True, limit=4)))
    assert table_of(answer)["message"].to_pylist() == ["5.9", "5.8", "5.7", "5.6"]
    assert len(watched.units) == 1
    assert answer.account.read == 1
    assert answer.account.pruned == {"limit": HOURS}
    assert answer.account.done == answer.account.considered


def test_workers_run_ahead_of_a_limit_only_after_a_round_that_did_not_reach_it(hours: Lake, watched: Watched) -> None:
    answer = engine_of(hours, watched).run(job_of(hours, BY_TIME.format(""), Rounds(limit=15)))
    assert table_of(answer).num_rows == 15
    assert len(watched.units) <= 3
    assert answer.account.done == HOURS + 1


def test_the_schema_is_there_though_no_row_is_wanted(hours: Lake, watched: Watched) -> None:
    answer = engine_of(hours, watched).run(job_of(hours, BY_TIME.format(""), Rounds(limit=0)))
    table = table_of(answer)
    assert (table.num_rows, table.column_names) == (0, ["timestamp", "message"])
    assert len(watched.units) <= 1


def test_no_segments_give_no_rows_and_a_schema(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    answer = engine_of(lake, Watched(lake.worker())).run(job_of(lake, BY_TIME.format(""), Rounds()))
    table = table_of(answer)
    assert (table.num_rows, table.column_names) == (0, ["timestamp", "message"])


def test_the_row_limit_counts_over_all_rounds_and_only_rows_of_the_answer(hours: Lake, watched: Watched) -> None:
    engine = engine_of(hours, watched, max_rows=20)
    window = job_of(hours, BY_TIME.format(""), Rounds(offset=45, limit=20))
    assert table_of(engine.run(window))["message"].to_pylist() == expected(hours)[45:65]
    with pytest.raises(TooLarge, match="more than 20 rows"):
        table_of(engine.run(job_of(hours, BY_TIME.format(""), Rounds(offset=45, limit=21))))


def test_rows_as_they_are_need_no_coordinator(hours: Lake, watched: Watched) -> None:
    engine = engine_of(hours, watched)
    job = job_of(hours, "this is no SQL", Rounds(), passes=True)
    ordered = replace(job.plan.leaves[0], operator=SqlRows('SELECT timestamp, message FROM "scan_1" ORDER BY 1, 2'))
    answer = engine.run(replace(job, plan=replace(job.plan, leaves=(ordered,))))
    assert table_of(answer)["message"].to_pylist() == expected(hours)
    assert answer.account.read == HOURS + 1
    all_at_once = Plan((ordered,), SqlFinish("this is no SQL", passes=True))
    assert sorted(table_of(engine.run(replace(job, plan=all_at_once)))["message"].to_pylist()) == sorted(
        expected(hours)
    )


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bucket=st.sampled_from([6, 20, 60, 95, 180]),
    origin=st.integers(0, 200),
    window=st.tuples(st.integers(0, 30), st.none() | st.integers(0, 40)),
    descending=st.booleans(),
    first_bytes=st.sampled_from([1, 700_000, 2_000_000]),
)
def test_buckets_in_any_rounds_are_those_of_all_at_once(
    hours: Lake,
    watched: Watched,
    bucket: int,
    origin: int,
    window: tuple[int, int | None],
    descending: bool,
    first_bytes: int,
) -> None:
    offset, limit = window
    step = f"INTERVAL '{bucket} minutes', timestamp, TIMESTAMP '2024-01-01' + INTERVAL '{origin} minutes'"
    sql = f"""SELECT time_bucket({step}) AS t, count(*) AS n, min(message) AS first, max(message) AS last
        FROM "scan_1" GROUP BY t ORDER BY t {"DESC" if descending else ""}"""
    rounds = Rounds(descending, bucket * MINUTE, START + origin * MINUTE, limit, offset)
    engine = engine_of(hours, watched, first_bytes)
    whole = table_of(engine.run(job_of(hours, sql, None)))
    assert len(watched.units) == 1
    end = whole.num_rows if limit is None else offset + limit
    assert table_of(engine.run(job_of(hours, sql, rounds))).equals(whole.slice(offset, max(0, end - offset)))
