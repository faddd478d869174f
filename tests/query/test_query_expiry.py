"""SQL that asks for a time past retention is told so, also where its answer was kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.model.time import time_text
from lakerunner.query.contract.account import Account
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from query.sample_lake import HOUR, NOW, OWN, START, Lake, Record
from suites.queries import sql_queries

AN_HOUR = START + HOUR
TOLD = f"logs: rows up to {time_text(AN_HOUR)} UTC have expired by retention"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.add([Record(AN_HOUR + n, message=f"m{n}") for n in range(3)])
    lake.expired_ns["logs"] = AN_HOUR
    return lake


def account(engine: SqlQueries, sql: str) -> Account:
    answer = engine.sql(OWN, Question(sql, NOW))
    list(answer)
    return answer.account


def counted(start: int | None, end: int | None, table: str = "logs") -> str:
    times = [f"timestamp {sign} '{time_text(ns)}'" for sign, ns in ((">=", start), ("<", end)) if ns is not None]
    return f"SELECT count(*) FROM {table}" + (f" WHERE {' AND '.join(times)}" if times else "")


@pytest.mark.parametrize(
    ("start", "end", "is_told"),
    [
        (START, AN_HOUR + HOUR, True),
        (AN_HOUR - 1, None, True),
        (AN_HOUR, AN_HOUR + HOUR, False),
        (None, None, False),  # whatever there is
        (None, AN_HOUR + 1, False),
        (None, AN_HOUR, True),  # nothing of it can be there
    ],
)
def test_where_the_time_begins_before_it(lake: Lake, start: int | None, end: int | None, is_told: bool) -> None:
    assert account(lake.engine(), counted(start, end)).warnings == ({TOLD} if is_told else set())


def test_each_signal_is_told_of_once(lake: Lake) -> None:
    lake.expired_ns["traces"] = AN_HOUR
    both = f"SELECT ({counted(START, NOW)}), ({counted(START, NOW)}), ({counted(START, NOW, 'spans')})"
    assert account(lake.engine(), both).warnings == {TOLD, TOLD.replace("logs", "traces")}
    assert account(lake.engine(), counted(START, NOW, "metrics")).warnings == set()


def test_a_kept_answer_has_the_warning_of_now(lake: Lake) -> None:
    kept = ResultCache(1 << 20, 60.0, lambda: 0.0)
    engine = sql_queries(lake, OneWorker(lake.worker()), lake.sandboxes(), results=kept)
    del lake.expired_ns["logs"]
    first = account(engine, counted(START, NOW))
    lake.expired_ns["logs"] = AN_HOUR
    second = account(engine, counted(START, NOW))
    assert (first.from_cache, first.warnings) == (False, set())
    assert (second.from_cache, second.warnings) == (True, {TOLD})
    third = account(engine, counted(START, NOW))
    assert (third.from_cache, third.warnings) == (True, {TOLD})


def test_an_account_that_travels_keeps_its_warnings() -> None:
    one, other = Account(warnings=frozenset({"b", "a"})), Account(warnings=frozenset({"b"}))
    assert (one + other).warnings == {"a", "b"}
    assert Account.from_json(one.to_json()) == one
    assert one.to_json()["warnings"] == ["a", "b"]
