"""An answer of the engine: errors as they were raised, stopped from any thread, its account at any time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import LakerunnerError, TooLarge, Unavailable, UserError
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, SqlFinish
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.engine import RowJob
from lakerunner.query.known_segments import Pick
from lakerunner.query.options import Options
from lakerunner.query.sql import Question
from lakerunner.query.unit import Unit
from lakerunner.query.workers import OneWorker
from query.sample_lake import NOW, OWN, START, Lake, Record, answer_of
from suites.queries import sql_queries

SORTED = "SELECT message FROM logs ORDER BY message"


@pytest.fixture
def small(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.add([Record(START + n, message=f"m{n:02}") for n in range(100)])
    return lake


class Stumbling:
    """A worker that gives the first rows of a real one, and then does what it is told."""

    name = "stumbling"

    def __init__(self, lake: Lake, error: Exception | None) -> None:
        self._worker = lake.worker()
        self._error = error
        self.waiting = threading.Event()
        self.stopped = threading.Event()

    def run(self, unit: Unit) -> Answer:
        return _Stumbles(self._worker.run(unit), self)

    def go_on(self) -> None:
        if self._error:
            raise self._error
        self.waiting.set()
        assert self.stopped.wait(240)
        raise UserError("the query was cancelled")


class _Stumbles:
    def __init__(self, answer: Answer, worker: Stumbling) -> None:
        self._answer = answer
        self._worker = worker

    @property
    def schema(self) -> pa.Schema:
        return self._answer.schema

    @property
    def account(self) -> Account:
        return self._answer.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield next(iter(self._answer)).slice(0, 10)
        self._worker.go_on()

    def close(self) -> None:
        self._worker.stopped.set()
        self._answer.close()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Unavailable, "s3://lake does not answer"),
        (TooLarge, "the unit needs more than 1 GB\n\nand a second paragraph"),
        (UserError, "Could not convert string 'x' to INT32"),
    ],
)
@pytest.mark.parametrize("sql", [SORTED, "SELECT a.message FROM logs a JOIN logs b USING (message)"])
def test_what_a_worker_raises_comes_out_as_it_was_raised(
    sql: str, kind: type[LakerunnerError], said: str, small: Lake
) -> None:
    engine = small.engine(Stumbling(small, kind(said)))
    with pytest.raises(LakerunnerError) as raised:
        answer_of(engine, sql)
    assert (type(raised.value), str(raised.value)) == (kind, said)


def test_a_query_that_waits_for_its_workers_is_stopped_from_another_thread(small: Lake) -> None:
    worker = Stumbling(small, None)
    answer = small.engine(worker).sql(OWN, Question(SORTED, NOW))
    raised: list[BaseException] = []

    def read() -> None:
        try:
            list(answer)
        except BaseException as error:
            raised.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    assert worker.waiting.wait(60)
    assert answer.account.considered == 1
    began = time.monotonic()
    answer.close()
    reading.join(120)
    assert not reading.is_alive()
    assert time.monotonic() - began < 60
    assert [str(error) for error in raised] == ["the query was cancelled"]
    assert not any(names for _, _, names in os.walk(small.directory / "spill"))
    answer.close()


def test_an_answer_that_is_closed_before_it_is_read_runs_nothing(small: Lake) -> None:
    answer = small.engine().sql(OWN, Question(SORTED, NOW))
    answer.close()
    with pytest.raises(UserError, match="the query was cancelled"):
        list(answer)


def test_the_schema_is_known_before_any_row_is(small: Lake) -> None:
    worker = Stumbling(small, None)
    answer = small.engine(worker).sql(OWN, Question("SELECT message, count(*) AS n FROM logs GROUP BY message", NOW))
    assert answer.schema == pa.schema([("message", pa.string()), ("n", pa.int64())])
    answer.close()


def test_the_account_has_all_stages(small: Lake) -> None:
    answer = small.engine().sql(OWN, Question(SORTED, NOW))
    before = answer.account
    assert (before.considered, before.read, before.rows) == (1, 0, 0)
    assert sum(batch.num_rows for batch in answer) == 100
    account = answer.account
    assert (account.considered, account.read, account.rows, account.complete) == (1, 1, 100, True)
    assert {"plan", "pick", "gather", "coordinate"} <= set(account.seconds)
    assert all(taken >= 0 for taken in account.seconds.values())


def test_a_query_is_stopped_after_its_seconds_though_each_round_is_short(small: Lake) -> None:
    ticks = iter(range(0, 10_000, 20))
    engine = sql_queries(small, OneWorker(small.worker()), small.sandboxes(seconds=30.0), clock=lambda: next(ticks))
    with pytest.raises(UserError, match="stopped after 30 s: limit query_seconds"):
        answer_of(engine, SORTED)


def test_a_plan_may_call_kernels_and_a_user_may_not(small: Lake) -> None:
    engine = small.engine()
    plan = Plan((), SqlFinish("SELECT exact_ratio(x, 4) AS y FROM range(3) t(x)"))
    answer = engine.engine.run(RowJob(OWN, plan, (), Options(NOW)))
    assert pa.Table.from_batches(list(answer)).to_pydict() == {"y": [0.0, 0.25, 0.5]}
    with pytest.raises(UserError, match="exact_ratio"):
        engine.sql(OWN, Question("SELECT exact_ratio(1, 2)", NOW))


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT * FROM scan_1) SELECT a.message FROM x a JOIN x b USING (message)",
        "SELECT message FROM scan_1 WHERE message >= (SELECT min(message) FROM scan_1)",
        "SELECT message FROM scan_1 UNION SELECT message FROM scan_1",
    ],
)
def test_a_relation_that_is_read_twice_gives_all_its_rows_each_time(sql: str, small: Lake) -> None:
    (scan,) = compile_sql("SELECT message FROM logs", OWN, NOW).scans
    plan = Plan((Leaf(scan, SqlRows("SELECT message FROM scan_1")),), SqlFinish(sql))
    picks = (Pick(tuple(small.all), Account(considered=1)),)
    answer = small.engine().engine.run(RowJob(OWN, plan, picks, Options(NOW)))
    assert sum(batch.num_rows for batch in answer) == 100
