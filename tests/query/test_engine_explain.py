"""EXPLAIN shows plan and segments and runs nothing; EXPLAIN ANALYZE runs and shows what it took."""

from __future__ import annotations

import re

import pytest

from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.time import TimeRange
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.explain_answer import account_lines
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.unit import Unit
from query.sample_lake import HOUR, NOW, OTHER, OWN, START, Lake, answer_of

SQL = "SELECT count(*) AS n FROM logs WHERE timestamp < '2024-01-01T02:00:00Z' AND timestamp >= '2024-01-01'"


def lines_of(engine: SqlQueries, sql: str) -> list[str]:
    table = answer_of(engine, sql)
    assert table.column_names == ["plan"]
    lines: list[str] = table["plan"].to_pylist()
    return lines


def test_explain_runs_nothing(lake: Lake) -> None:
    class Idle:
        name = "idle"

        def run(self, unit: Unit) -> Answer:
            raise AssertionError("EXPLAIN ran a unit")

    lines = lines_of(lake.engine(Idle()), f"EXPLAIN {SQL}")
    assert lines[0] == "coordinator"
    assert "    scan logs [2024-01-01 00:00:00 .. 2024-01-01 02:00:00)" in lines
    size = sum(one.bytes for one in lake.pick(OWN, "logs", TimeRange(START, START + 2 * HOUR)).segments)
    assert lines[-2:] == ["    segments 3 considered, 3 to read", f"    bytes {size} of whole segments"]


def test_explain_analyze_runs_and_measures(engine: SqlQueries) -> None:
    lines = lines_of(engine, f"EXPLAIN ANALYZE {SQL}")
    measured = lines[lines.index("measured") :]
    assert measured[1:3] == ["  rows 1", "  segments 3 considered, 3 read"]
    assert [line for line in measured if re.fullmatch(r"  bytes \d+ fetched, \d+ from the cache", line)]
    stages = r"  seconds plan [\d.]+, pick [\d.]+, gather [\d.]+, coordinate [\d.]+"
    assert [line for line in measured if re.fullmatch(stages, line)]


def test_positions_are_those_of_the_users_text(engine: SqlQueries) -> None:
    for prefix in ("EXPLAIN ", "explain analyze\n  "):
        with pytest.raises(UserError) as refused:
            engine.sql(OWN, Question(f"{prefix}SELECT nothing FROM logs", NOW))
        place = refused.value.position
        assert place is not None
        assert (place.line, place.column) == ((1, 16) if "\n" not in prefix else (2, 10))
        with pytest.raises(UserError, match=r"near \"WHERE\"") as misread:
            engine.sql(OWN, Question(text := f"{prefix}SELECT 'é' FROM logs a JOIN logs b ON WHERE a.body = ''", NOW))
        assert misread.value.position is not None
        assert misread.value.position.column == text.index("WHERE") - text.rfind("\n")


@pytest.mark.parametrize(
    "text", ["EXPLAIN", "EXPLAIN EXPLAIN SELECT 1", "EXPLAIN DROP TABLE logs", "EXPLAIN (ANALYZE) SELECT 1"]
)
def test_only_a_select_is_explained(text: str, engine: SqlQueries) -> None:
    with pytest.raises(UserError):
        engine.sql(OWN, Question(text, NOW))


def test_nothing_of_another_organization_is_explained(lake: Lake, engine: SqlQueries) -> None:
    with pytest.raises(NotAllowed):
        engine.sql(OWN, Question(f"EXPLAIN SELECT 1 FROM logs WHERE organization_id = '{OTHER}'", NOW))
    answer = engine.sql(OTHER, Question("EXPLAIN SELECT message FROM logs", NOW))
    (batch,) = answer
    assert "    segments 1 considered, 1 to read" in batch["plan"].to_pylist()


def test_a_query_that_fails_fails_when_it_is_measured(engine: SqlQueries) -> None:
    with pytest.raises(UserError, match="Could not convert"):
        lines_of(engine, "EXPLAIN ANALYZE SELECT message::INT FROM logs")


def test_all_of_an_account_is_told() -> None:
    account = Account(
        considered=20,
        pruned={"fingerprints": 8, "text index": 2, "limit": 0},
        read=9,
        row_groups=100,
        row_groups_pruned={"statistics": 60},
        rows=7,
        bytes_fetched=1000,
        bytes_cached=2000,
        seconds={"plan": 0.001, "pick": 0.002, "gather": 1.5, "coordinate": 0.25, "fetch": 2.0},
        workers={"b": 1, "a": 3},
        missing=(Missing(1, TimeRange(START, START + HOUR), "the store is away"),),
        degraded="segments as of then",
        warnings=frozenset({"logs: all of it has expired"}),
    )
    assert list(account_lines(account)) == [
        "rows 7",
        "segments 20 considered, 9 read, 8 left out by fingerprints, 2 left out by text index",
        "row groups 100 considered, 40 read, 60 left out by statistics",
        "bytes 1000 fetched, 2000 from the cache",
        "units 3 on a, 1 on b",
        "missing 1 segment of [2024-01-01 00:00:00 .. 2024-01-01 01:00:00): the store is away",
        "degraded: segments as of then",
        "warning: logs: all of it has expired",
        "seconds plan 0.001, pick 0.002, gather 1.500, coordinate 0.250",
        "seconds of workers, in total: fetch 2.000",
    ]
