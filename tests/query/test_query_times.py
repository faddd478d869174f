"""Times are exact to the nanosecond, also where DuckDB alone would round them; ids are bytes; `now` is one instant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from lakerunner.lakeql.functions import FUNCTIONS, MICROSECOND_FUNCTIONS
from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import SqlQueries
from query.sample_lake import HOUR, NOW, START, Lake, Record, answer_of

LAST_OF_DAY = START + 24 * HOUR - 1  # 2024-01-01T23:59:59.999999999Z
BEFORE_1970 = -1


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> SqlQueries:
    """A lake of two records: one at the last nanosecond of a day, one a nanosecond before 1970."""
    lake = Lake(tmp_path_factory.mktemp("two"))
    lake.add([Record(LAST_OF_DAY, message="late", trace_id=bytes.fromhex("aB" * 16), span_id=b"\x01" * 8)])
    lake.add([Record(BEFORE_1970, message="early")])
    return lake.engine()


def values(engine: SqlQueries, sql: str) -> list[Any]:
    """The first column, as JSON shows it."""
    table = answer_of(engine, sql)
    rows = [row for batch in table.to_batches() for row in json_rows(batch)]
    return [row.decode().partition(":")[2][:-1] for row in rows]


@pytest.mark.parametrize(
    ("expression", "late", "early"),
    [
        ("timestamp", '"2024-01-01T23:59:59.999999999Z"', '"1969-12-31T23:59:59.999999999Z"'),
        ("timestamp::DATE", '"2024-01-01"', '"1969-12-31"'),
        ("date_trunc('day', timestamp)", '"2024-01-01T00:00:00.000000000Z"', '"1969-12-31T00:00:00.000000000Z"'),
        (
            "date_trunc('second', max(timestamp))",
            '"2024-01-01T23:59:59.000000000Z"',
            '"1969-12-31T23:59:59.000000000Z"',
        ),
        (
            "time_bucket(INTERVAL 1 HOUR, timestamp)",
            '"2024-01-01T23:00:00.000000000Z"',
            '"1969-12-31T23:00:00.000000000Z"',
        ),
        # 23:59:59 in Berlin is 22:59:59 UTC; 23:59:59 UTC is 05:29:59 of the next day in Kolkata.
        (
            "date_trunc('minute', timestamp AT TIME ZONE 'Europe/Berlin')",
            '"2024-01-01T22:59:00.000000000Z"',
            '"1969-12-31T22:59:00.000000000Z"',
        ),
        (
            "date_trunc('second', timezone('Asia/Kolkata', timestamp AT TIME ZONE 'UTC'))",
            '"2024-01-02T05:29:59.000000000Z"',
            '"1970-01-01T05:29:59.000000000Z"',
        ),
        ("(timestamp AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York')::DATE", '"2024-01-01"', '"1969-12-31"'),
        ("hour(timestamp)", "23", "23"),
        ("EXTRACT(day FROM timestamp)", "1", "31"),
        ("date_part('year', timestamp)", "2024", "1969"),
        ("epoch_ns(timestamp)", str(LAST_OF_DAY), "-1"),
        ("epoch_us(timestamp)", str(LAST_OF_DAY // 1000), "-1"),
        ("epoch_ms(timestamp)", str(LAST_OF_DAY // 1_000_000), "-1"),
        ("timestamp::TIMESTAMP_S", '"2024-01-01T23:59:59.000000000Z"', '"1969-12-31T23:59:59.000000000Z"'),
        ("timestamp::TIMESTAMP_MS", '"2024-01-01T23:59:59.999000000Z"', '"1969-12-31T23:59:59.999000000Z"'),
        ("timestamp + INTERVAL 1 DAY", '"2024-01-02T23:59:59.999999000Z"', '"1970-01-01T23:59:59.999999000Z"'),
        ("(timestamp - INTERVAL 1 DAY)::DATE", '"2023-12-31"', '"1969-12-30"'),
        ("date_diff('day', timestamp, '2024-01-02'::TIMESTAMP)", "1", "19725"),
        ("dayname(timestamp)", '"Monday"', '"Wednesday"'),
        (
            "strftime(timestamp, '%Y-%m-%d %H:%M:%S.%n')",
            '"2024-01-01 23:59:59.999999999"',
            '"1969-12-31 23:59:59.999999999"',
        ),
        ("timestamp::VARCHAR", '"2024-01-01 23:59:59.999999999"', '"1969-12-31 23:59:59.999999999"'),
        ("hour(coalesce(observed_timestamp, timestamp))", "23", "23"),
        ("day(CASE WHEN true THEN timestamp END)", "1", "31"),
        ("(SELECT day(t) FROM (SELECT l.timestamp AS t))", "1", "31"),
    ],
)
def test_times_are_cut_and_not_rounded(expression: str, late: str, early: str, two: SqlQueries) -> None:
    sql = f"SELECT {expression} AS x FROM logs l GROUP BY ALL, timestamp, observed_timestamp ORDER BY timestamp DESC"
    if "max(" not in expression:
        sql = f"SELECT {expression} AS x FROM logs l ORDER BY timestamp DESC"
    else:
        sql = f"SELECT {expression} AS x FROM logs l GROUP BY message ORDER BY message DESC"
    assert values(two, sql) == [late, early]


@pytest.mark.parametrize(
    ("condition", "messages"),
    [
        ("timestamp = '2024-01-01 23:59:59.999999999'", ["late"]),
        ("timestamp > '2024-01-01 23:59:59.999999999'", []),
        ("timestamp > '2024-01-01 23:59:59.999999998'", ["late"]),
        ("timestamp < '2024-01-02'", ["early", "late"]),
        ("timestamp >= '2024-01-02'", []),
        ("timestamp < '2024-01-02T00:59:59.999999999+01:00'", ["early"]),
        ("timestamp <= '2024-01-02T00:59:59.999999999+01:00'", ["early", "late"]),
        ("timestamp < TIMESTAMP '1970-01-01'", ["early"]),
        ("timestamp BETWEEN to_timestamp(-1) AND to_timestamp(0)", ["early"]),
        ("timestamp IN ('1969-12-31 23:59:59.999999999Z', '2024-01-02')", ["early"]),
        ("timestamp NOT IN ('1969-12-31 23:59:59.999999999Z')", ["late"]),
        ("timestamp > now() - INTERVAL 1 DAY AND timestamp <= now()", ["late"]),
        ("timestamp > '9999-12-31' OR timestamp < '0001-01-01'", []),
        ("timestamp < '9999-12-31' AND timestamp > '0001-01-01'", ["early", "late"]),
        ("date_trunc('day', timestamp) = '2024-01-01'", ["late"]),
        ("timestamp::DATE = DATE '1969-12-31'", ["early"]),
        ("max_t = '2024-01-01 23:59:59.999999999'", ["late"]),
        ("trace_id = 'abababababababababababababababab'", ["late"]),
        ("trace_id = 'ABABABABABABABABABABABABABABABAB'", ["late"]),
        ("trace_id <> 'ABABABABABABABABABABABABABABABAB'", []),
        ("trace_id IN ('00', 'ABABABABABABABABABABABABABABABAB')", ["late"]),
        ("trace_id NOT IN ('00', 'zz')", ["late"]),
        ("trace_id = 'zz' OR trace_id = 'a'", []),
        ("trace_id LIKE 'abab%' AND span_id = '0101010101010101'", ["late"]),
        ("trace_id IS NULL", ["early"]),
        ("length(trace_id) = 32 AND trace_id = lower(trace_id)", ["late"]),
    ],
)
def test_conditions(condition: str, messages: list[str], two: SqlQueries) -> None:
    source = "(SELECT message, max(timestamp) AS max_t FROM logs GROUP BY 1)" if "max_t" in condition else "logs"
    answer = answer_of(two, f"SELECT message FROM {source} WHERE {condition} ORDER BY message")
    assert answer.column("message").to_pylist() == messages


def test_now_is_one_instant_for_the_whole_query(two: SqlQueries) -> None:
    sql = (
        "SELECT now() = current_timestamp, now() = (SELECT get_current_timestamp()), epoch_us(now()), today()::VARCHAR"
    )
    (row,) = answer_of(two, sql, NOW).rename_columns(["a", "b", "us", "day"]).to_pylist()
    assert row == {"a": True, "b": True, "us": NOW // 1000, "day": "2024-01-02"}


def test_every_function_that_would_round_is_known() -> None:
    """DuckDB's catalogue: an allowed function with a TIMESTAMP overload and no TIMESTAMP_NS one gets a cut value.
    Those that choose by any type keep it whole."""
    catalogue = duckdb.connect().execute(
        "SELECT function_name, bool_or(list_contains(parameter_types, 'TIMESTAMP')), "
        "bool_or(list_contains(parameter_types, 'TIMESTAMP_NS')) FROM duckdb_functions() GROUP BY 1"
    )
    rounding = {name for name, takes, exact in catalogue.fetchall() if takes and not exact} & FUNCTIONS
    choosing = {"arg_max", "arg_max_null", "arg_min", "arg_min_null", "argmax", "argmin", "max_by", "min_by"}
    assert rounding - choosing - {"range", "generate_series"} <= MICROSECOND_FUNCTIONS


def test_choosing_by_time_is_exact_within_a_microsecond(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add([Record(START + n, message=str(n)) for n in (3, 1, 2)])
    sql = "SELECT arg_max(message, timestamp), arg_min(message, timestamp), first(message ORDER BY timestamp) FROM logs"
    assert answer_of(lake.engine(), sql).rename_columns(list("abc")).to_pylist() == [{"a": "3", "b": "1", "c": "1"}]
