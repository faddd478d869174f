"""What engine=spark does not have is refused by name and place; what it has names nothing of the user's to Spark."""

from __future__ import annotations

from uuid import UUID

import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.spark import compile_spark
from lakerunner.model.errors import NotAllowed, UserError

OWN = UUID("12340000-0000-4000-8000-000000000000")
NOW = 1_704_164_645_123_456_789

REFUSED = {
    "SELECT list(message) FROM logs": "function list is not available with engine=spark (line 1, column 8)",
    "SELECT approx_count_distinct(message) FROM logs": "function approx_count_distinct is not available",
    "SELECT any_value(message) FROM logs": "function any_value is not available",
    "SELECT *\nFROM logs, unnest([1])": "UNNEST in FROM is not available with engine=spark (line 2, column 20)",
    "SELECT * FROM range(3)": "range in FROM is not available",
    "SELECT * FROM (VALUES (1)) v(n)": "VALUES in FROM is not available",
    "SELECT * FROM logs a ASOF JOIN logs b ON a.timestamp >= b.timestamp": "ASOF JOIN is not available",
    "SELECT DISTINCT ON (severity) message FROM logs": "DISTINCT ON is not available",
    "SELECT count(*) FROM logs GROUP BY ROLLUP (severity)": "ROLLUP is not available",
    "SELECT severity FROM logs UNION BY NAME SELECT severity FROM logs": "BY NAME is not available",
    "SELECT severity = 1 FROM logs": "INTEGER and VARCHAR side by side is not available with engine=spark: cast",
    "SELECT flags + 1 FROM logs": "arithmetic with an unsigned integer is not available with engine=spark: cast it",
    "SELECT severity_number ** 2 FROM logs": "** is not available",
    "SELECT message LIKE severity FROM logs": "LIKE without a literal pattern is not available",
    "SELECT message LIKE 'a!%' ESCAPE '!' FROM logs": "ESCAPE is not available",
    "SELECT message ILIKE 'É%' FROM logs": "ILIKE with letters beyond ASCII is not available",
    "SELECT message GLOB 'a*' FROM logs": "GLOB is not available",
    "SELECT substring(message, -2) FROM logs": "substring of VARCHAR, INTEGER as it stands here is not available",
    "SELECT body->>'$.a' FROM logs": "->> is not available",
    "SELECT CAST(1.5::DOUBLE AS VARCHAR)": "a cast from DOUBLE to TEXT is not available",
    "SELECT CAST(message AS TIMESTAMP) FROM logs": "a cast from VARCHAR to TIMESTAMP is not available",
    "SELECT strftime(timestamp, '%H') FROM logs": "function strftime is not available",
    "SELECT time_bucket(INTERVAL 1 MONTH, timestamp) FROM logs": "time_bucket as it stands here is not available",
    "SELECT date_part('century', timestamp) FROM logs": "date_part 'century' of TIMESTAMP is not available",
    "SELECT row_number() OVER () FROM logs": "row_number without ORDER BY is not available",
    "SELECT rank() FROM logs": "function rank without OVER is not available",
    "SELECT median(severity_number) OVER (PARTITION BY severity) FROM logs": "median with OVER is not available",
    "SELECT lag(message IGNORE NULLS) OVER (ORDER BY timestamp) FROM logs": "IGNORENULLS is not available",
    "SELECT sum(severity_number) OVER w FROM logs WINDOW w AS ()": "WINDOW is not available",
    "SELECT attributes FROM logs ORDER BY attributes": "ORDER BY MAP(VARCHAR, VARCHAR) is not available",
    "SELECT attributes, count(*) FROM logs GROUP BY ALL": "GROUP BY MAP(VARCHAR, VARCHAR) is not available",
    "SELECT events[1] FROM spans": "[...] is not available",
    "SELECT message FROM logs WHERE severity_number": "INTEGER as a condition is not available",
    "SELECT (SELECT 1, 2)": "a subquery of several columns here is not available",
    "SELECT message FROM logs LIMIT 1 + 1": "this LIMIT is not available",
    "SELECT nullif(severity) FROM logs": "nullif of 1 arguments is not available",
    "SELECT regexp_matches(message, 'x', 'g') FROM logs": "regexp_matches of VARCHAR, VARCHAR, VARCHAR as it",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_by_name_and_place(sql: str) -> None:
    with pytest.raises(UserError) as caught:
        compile_spark(sql, OWN, NOW)
    assert REFUSED[sql] in str(caught.value)
    assert "with engine=spark" in str(caught.value)
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM elsewhere", "unknown table elsewhere"),
        ("SELECT reflect('java.lang.System', 'exit')", "function reflect is not available"),
        ("SELECT java_method('java.lang.System', 'exit')", "function java_method is not available"),
        ("SELECT lakerunner_lower(message) FROM logs", "function lakerunner_lower is not available"),
        ("DROP TABLE logs", "only SELECT is available"),
    ],
)
def test_what_no_engine_has_is_refused_as_by_the_other_one(sql: str, error: str) -> None:
    for compiled in (compile_sql, compile_spark):
        with pytest.raises(UserError, match=error.replace("(", r"\(")):
            compiled(sql, OWN, NOW)


def test_another_organization_is_refused() -> None:
    with pytest.raises(NotAllowed):
        compile_spark("SELECT 1 FROM logs WHERE organization_id = '99990000-0000-4000-8000-000000000000'", OWN, NOW)


def test_the_same_scans_are_read() -> None:
    sql = (
        "SELECT attributes['k'], trace_id = 'AB' FROM logs WHERE timestamp >= '2024-01-01' AND timestamp < '2024-01-02'"
    )
    assert compile_spark(sql, OWN, NOW).scans == compile_sql(sql, OWN, NOW).scans


def test_names_and_quotes_of_the_user_do_not_reach_spark() -> None:
    sql = 'SELECT l.message AS "a`b", \'it\'\'s \\\' AS c FROM logs AS "x`y", logs l ORDER BY "a`b"'
    assert compile_spark(sql, OWN, NOW).spark_sql == (
        "SELECT r2.c0 AS v3, 'it\\'s \\\\' AS v4 FROM scan_1 AS r1 CROSS JOIN scan_2 AS r2 ORDER BY v3 ASC NULLS LAST"
    )


def test_times_stay_exact() -> None:
    plan = compile_spark("SELECT count(*) FROM logs WHERE timestamp > '2024-01-01T00:00:00.000000001Z'", OWN, NOW)
    assert plan.spark_sql.endswith("WHERE (r1.c0 > 1704067200000000001L)")


def test_ids_and_severities_are_compared_as_they_are_stored() -> None:
    sql = "SELECT 1 FROM logs WHERE trace_id IN (SELECT trace_id FROM spans) AND span_id = 'AB' AND severity = 'error'"
    plan = compile_spark(sql, OWN, NOW)
    logs, spans = plan.scans
    assert (logs.columns, logs.ids, spans.columns) == (("severity", "trace_id"), ("span_id",), ("trace_id",))
    assert "'ERROR'" in plan.spark_sql
    assert "'error'" not in plan.spark_sql
