"""What DuckDB refuses is refused at its place in the user's text, in words that name nothing of ours."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import UserError
from lakerunner.query.contract.failures import EngineError
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.sql_errors import locate_error
from query.sample_lake import NOW, OWN, START, Lake, Record


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SqlQueries:
    lake = Lake(tmp_path_factory.mktemp("small"))
    lake.add([Record(START, message="é", attributes=(("n", "1"), ("k.k", "2")), trace_id=b"1" * 16), Record(START + 1)])
    return lake.engine()


ERRORS = {
    "SELECT count(count(*)) FROM logs": "aggregate function calls cannot be nested (line 1, column 14)",
    'SELECT count(*) AS "n", count("n") FROM logs': "aggregate function calls cannot be nested (line 1, column 8)",
    "SELECT 'é',\n sum(message) FROM logs": "sum does not take VARCHAR: cast its arguments (line 2, column 2)",
    "SELECT message + 1 FROM logs": "+ does not take VARCHAR, INTEGER: cast its arguments (line 1, column 16)",
    "SELECT 1 FROM logs WHERE severity = 'INFO' AND lower(message, 2) = ''": (
        "lower does not take VARCHAR, INTEGER: cast its arguments (line 1, column 48)"
    ),
    "SELECT count(*), 'é'\nFROM logs WHERE message::INT > 1": (
        "Could not convert string 'é' to INT32 when casting from source column message (line 2, column 17)"
    ),
    "SELECT message, count(*) FROM logs": (
        "message must be in GROUP BY or in an aggregate, such as any_value(message) (line 1, column 8)"
    ),
    'SELECT "k.k", count(*) FROM logs': (
        "attributes['k.k'] must be in GROUP BY or in an aggregate, such as any_value(attributes['k.k']) "
        "(line 1, column 8)"
    ),
    'SELECT count(*) AS n FROM logs GROUP BY severity ORDER BY "n"': (
        "attributes['n'] must be in GROUP BY or in an aggregate, such as any_value(attributes['n']). "
        "For the name that AS gives, write n without quotes (line 1, column 59)"
    ),
    "SELECT count(*) FROM logs WHERE count(*) > 1": "WHERE clause cannot contain aggregates! (line 1, column 33)",
    "SELECT severity_number = 'x' FROM logs": "Could not convert string 'x' to INT32 (line 1, column 26)",
    "SELECT timestamp IN (SELECT message FROM logs) FROM logs": (
        "TIMESTAMP_NS and VARCHAR cannot be compared: cast one of them (line 1, column 22)"
    ),
    'SELECT 1 FROM logs WHERE "k.k" >= 9007199254740993': (
        "VARCHAR and INTEGER cannot be compared: attributes are text, cast them as in "
        "try_cast(attributes['key'] AS DOUBLE) (line 1, column 26)"
    ),
    'SELECT 1 FROM logs WHERE lower("k.k") BETWEEN 500 AND 599': (
        "VARCHAR and INTEGER cannot be compared: attributes are text, cast them as in "
        "try_cast(attributes['key'] AS DOUBLE) (line 1, column 39)"
    ),
    "SELECT 1 FROM logs WHERE timestamp > 1794916800": (
        "TIMESTAMP_NS and INTEGER cannot be compared: write the number as a time, with to_timestamp(seconds), "
        "epoch_ms(ms) or make_timestamp_ns(ns) (line 1, column 26)"
    ),
    "SELECT 1 FROM logs WHERE timestamp > TIMESTAMP '2026-11-17' AT TIME ZONE 'Europe/Berlin'": (
        "TIMESTAMP_NS and TIMESTAMP WITH TIME ZONE cannot be compared: times are UTC without a zone, cast the other "
        "one to TIMESTAMP (line 1, column 36)"
    ),
    "SELECT 7 % severity_number FROM (SELECT 0 AS severity_number)": (
        "Division by zero in expression (7 % severity_number): divide by nullif(divisor, 0), or write TRY(...) around "
        "it, to get NULL"
    ),
    "SELECT severity, count(*), sum(count(*)) OVER (PARTITION BY severity) FROM logs GROUP BY ALL": (
        "Cannot mix aggregates with non-aggregated columns: write the columns in GROUP BY instead of ALL"
    ),
    "SELECT 1 FROM spans WHERE duration > INTERVAL 1 SECOND": (
        "BIGINT and INTERVAL cannot be compared: duration is in nanoseconds, a second is 1e9 (line 1, column 27)"
    ),
    "SELECT regexp_matches(message, '(') FROM logs": "missing ): (",
}


@pytest.mark.parametrize("sql", ERRORS)
def test_errors_of_the_engine(sql: str, small: SqlQueries) -> None:
    with pytest.raises(UserError) as refused:
        list(small.sql(OWN, Question(sql, NOW)))
    assert str(refused.value) == ERRORS[sql]
    assert type(refused.value) is UserError


def test_a_name_of_ours_is_never_shown() -> None:
    message = 'column "scan_1.trace_id.bytes" and scan_2.group0 of "scan_12" and "scan_1.scope_attributes[\\A\'b]"'
    shown = locate_error(EngineError(message), "SELECT 1")
    assert str(shown) == "column trace_id and this expression of this expression and scope_attrs['A'b']"


@pytest.mark.parametrize(
    ("word", "sql", "expected"),
    [
        ("error", "SELECT 1 FROM spans WHERE status_code = 'error'", ". status_code is 0 unset, 1 ok, 2 error"),
        (
            "Server",
            "SELECT kind = 'Server' FROM spans",
            ". kind is 1 internal, 2 server, 3 client, 4 producer, 5 consumer",
        ),
        ("error", "SELECT kind = 'error' FROM spans", ""),
        ("x", "SELECT status_code = 'x' FROM spans", ""),
    ],
)
def test_a_word_for_a_number_names_the_numbers(word: str, sql: str, expected: str) -> None:
    message = f"Could not convert string '{word}' to INT32"
    assert str(locate_error(EngineError(message), sql)) == message + expected
