"""Answers are kept whole, for their own organization and segments, within bytes and seconds; nothing else is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.time import ALL_TIME
from lakerunner.plan.plan import SqlFinish
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.result_cache import ResultCache, result_key
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from query.sample_lake import NOW, OTHER, OWN, START, Lake, Record
from suites.queries import sql_queries

SQL = "SELECT message, attributes, count(*) AS n FROM logs GROUP BY ALL ORDER BY 1"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rows:
    """An answer of a thousand bytes or so, which may fail at its end."""

    schema = pa.schema([("x", pa.int64())])

    def __init__(self, account: Account | None = None, error: Exception | None = None, rows: int = 100) -> None:
        self.account = account or Account(considered=1, read=1, rows=rows, bytes_fetched=5, seconds={"plan": 1.0})
        self._error = error
        self._rows = rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(range(self._rows))], schema=self.schema)
        if self._error:
            raise self._error

    def close(self) -> None: ...


def keeping(cache: ResultCache, key: bytes, rows: Rows) -> Iterator[pa.RecordBatch]:
    return cache.keep(key, rows.schema, iter(rows), lambda: rows.account)


def kept(cache: ResultCache, key: bytes) -> list[int] | None:
    answer = cache.find(key, Account())
    return None if answer is None else pa.Table.from_batches(list(answer), schema=answer.schema)["x"].to_pylist()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> ResultCache:
    return ResultCache(100_000, 60.0, clock)


def test_a_second_asker_gets_the_same_rows_and_nothing_is_run(cache: ResultCache) -> None:
    assert [batch.num_rows for batch in keeping(cache, b"k", Rows())] == [100]
    assert kept(cache, b"k") == list(range(100))
    assert kept(cache, b"k") == list(range(100))
    assert kept(cache, b"other") is None
    before = Account(seconds={"pick": 0.5}, degraded="as of then", warnings=frozenset({"expired"}))
    answer = cache.find(b"k", before)
    assert answer is not None
    assert answer.account == replace(before, considered=1, read=1, rows=100, from_cache=True)


def test_a_result_is_forgotten_after_its_seconds(cache: ResultCache, clock: Clock) -> None:
    list(keeping(cache, b"k", Rows()))
    clock.now += 59.9
    assert kept(cache, b"k") is not None
    clock.now += 0.1
    assert kept(cache, b"k") is None
    assert cache.size == 0


@pytest.mark.parametrize(
    "account",
    [Account(missing=(Missing(1, ALL_TIME, "the store is away"),)), Account(degraded="segments as of yesterday")],
)
def test_neither_partial_nor_degraded_answers_are_kept(account: Account, cache: ResultCache) -> None:
    list(keeping(cache, b"k", Rows(account)))
    assert kept(cache, b"k") is None


def test_neither_failed_answers_nor_those_half_read_are_kept(cache: ResultCache) -> None:
    with pytest.raises(Unavailable):
        list(keeping(cache, b"k", Rows(error=Unavailable("away"))))
    next(iter(keeping(cache, b"k", Rows())))
    assert kept(cache, b"k") is None
    assert cache.size == 0


def test_all_results_fit_and_the_one_used_longest_ago_goes_first(clock: Clock) -> None:
    (size,) = {size_of(Rows())}
    cache = ResultCache(8 * size, 60.0, clock)
    for n in range(8):
        list(keeping(cache, b"%d" % n, Rows()))
    assert cache.size == 8 * size
    assert kept(cache, b"0") is not None
    list(keeping(cache, b"8", Rows()))
    assert cache.size == 8 * size
    assert kept(cache, b"1") is None
    assert [n for n in (0, 2, 3, 4, 5, 6, 7, 8) if kept(cache, b"%d" % n) is None] == []


def test_one_answer_may_take_an_eighth_and_not_a_byte_more(clock: Clock) -> None:
    size = size_of(Rows())
    for most, is_kept in ((8 * size, True), (8 * size - 1, False), (0, False)):
        cache = ResultCache(most, 60.0, clock)
        assert [batch.num_rows for batch in keeping(cache, b"k", Rows())] == [100]
        assert (kept(cache, b"k") is not None) == is_kept


def size_of(rows: Rows) -> int:
    cache = ResultCache(1 << 20, 60.0, Clock())
    list(keeping(cache, b"k", rows))
    return cache.size


def test_many_threads_keep_and_find(clock: Clock) -> None:
    cache = ResultCache(20_000, 60.0, clock)
    wrong: list[object] = []

    def ask(first: int) -> None:
        for n in range(60):
            key, rows = b"%d" % ((first + n) % 20), (first + n) % 20 + 1
            found = kept(cache, key)
            if found is not None and found != list(range(rows)):
                wrong.append(found)
            list(keeping(cache, key, Rows(rows=rows)))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert 0 < cache.size <= 20_000


def test_the_key_is_of_organization_plan_and_segments(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    one, two = lake.add([Record(START)]), lake.add([Record(START + 1)])
    plan = compile_sql(SQL, OWN, NOW)
    assert isinstance(plan.finish, SqlFinish)
    keys = {
        result_key(OWN, plan, [[one, two]]),
        result_key(OTHER, plan, [[one, two]]),
        result_key(OWN, plan, [[one]]),
        result_key(OWN, plan, [[one], [two]]),
        result_key(OWN, replace(plan, finish=replace(plan.finish, passes=True)), [[one, two]]),
        result_key(OWN, compile_sql(SQL + " LIMIT 1", OWN, NOW), [[one, two]]),
        result_key(OWN, compile_sql(SQL + " LIMIT 2", OWN, NOW), [[one, two]]),
    }
    assert len(keys) == 7
    assert result_key(OWN, compile_sql(SQL, OWN, NOW + 1), [[one, two]]) in keys


class TestEngine:
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Lake:
        lake = Lake(tmp_path)
        lake.add([Record(START + n, message=f"m{n % 3}", attributes=(("a", n % 2),)) for n in range(20)])
        lake.add([Record(START, message="theirs")], organization=OTHER)
        return lake

    @pytest.fixture
    def engine(self, lake: Lake, cache: ResultCache) -> SqlQueries:
        return sql_queries(lake, OneWorker(lake.worker()), lake.sandboxes(), results=cache)

    def ask(self, engine: SqlQueries, sql: str = SQL, organization: object = OWN) -> tuple[pa.Table, Account]:
        answer = engine.sql(organization, Question(sql, NOW))  # type: ignore[arg-type]
        return pa.Table.from_batches(list(answer), schema=answer.schema), answer.account

    def test_the_second_time_nothing_is_fetched(self, engine: SqlQueries) -> None:
        table, first = self.ask(engine)
        again, second = self.ask(engine)
        assert again.equals(table)
        assert table.num_rows == 6
        assert (first.from_cache, second.from_cache) == (False, True)
        assert second.rows == 6
        assert set(second.seconds) == {"plan", "pick"}

    def test_a_new_segment_is_seen_at_once(self, engine: SqlQueries, lake: Lake) -> None:
        self.ask(engine)
        lake.add([Record(START + 100, message="new")])
        table, account = self.ask(engine)
        assert not account.from_cache
        assert "new" in table["message"].to_pylist()

    def test_no_organization_gets_anothers_rows(self, engine: SqlQueries) -> None:
        self.ask(engine)
        table, account = self.ask(engine, organization=OTHER)
        assert not account.from_cache
        assert table["message"].to_pylist() == ["theirs"]

    def test_a_query_that_fails_is_run_again(self, engine: SqlQueries, cache: ResultCache) -> None:
        for _ in range(2):
            with pytest.raises(UserError, match="Could not convert"):
                self.ask(engine, "SELECT message::INT FROM logs")
        assert cache.size == 0

    def test_what_is_measured_is_run(self, engine: SqlQueries) -> None:
        self.ask(engine)
        table, account = self.ask(engine, "EXPLAIN ANALYZE " + SQL)
        assert not account.from_cache
        assert "  rows 6" in table["plan"].to_pylist()
