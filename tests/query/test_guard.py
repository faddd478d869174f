"""The second check: DuckDB's own parse tree, of statements that never went through the compiler."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lakerunner.model.errors import UserError
from lakerunner.query.sandbox.guard import check_sql


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE scan_1 (t TIMESTAMP, m VARCHAR)")
        connection.execute("CREATE TABLE secret AS SELECT 'leaked' AS x")
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        # A name is a CTE of another query, and here the catalog's table.
        "SELECT * FROM secret, (WITH secret AS (SELECT 1) SELECT * FROM secret) AS t",
        "SELECT * FROM (WITH secret AS (SELECT 1) SELECT * FROM secret) AS t JOIN secret ON true",
        "SELECT x FROM secret UNION ALL (WITH secret AS (SELECT 1 AS x) SELECT x FROM secret)",
        "(WITH secret AS (SELECT 1 AS x) SELECT x FROM secret) UNION ALL SELECT x FROM secret",
        "SELECT (WITH secret AS (SELECT 1) SELECT 1 FROM secret), x FROM secret",
        "SELECT x FROM secret WHERE EXISTS (WITH secret AS (SELECT 1) SELECT 1 FROM secret)",
        "SELECT x FROM secret ORDER BY (WITH secret AS (SELECT 1) SELECT 1 FROM secret)",
        "SELECT x FROM secret LIMIT (WITH secret AS (SELECT 1) SELECT 1 FROM secret)",
        "WITH a AS (WITH secret AS (SELECT 1) SELECT * FROM secret) SELECT * FROM a, secret",
        # A CTE does not see itself, nor what is defined after it.
        "WITH secret AS (SELECT * FROM secret) SELECT * FROM secret",
        "WITH a AS (SELECT * FROM secret), secret AS (SELECT 1) SELECT * FROM a",
        "WITH SECRET AS (FROM Secret) FROM secret",
        "WITH a AS (SELECT (SELECT x FROM secret)), secret AS (SELECT 1) SELECT * FROM a",
        "WITH secret AS MATERIALIZED (SELECT * FROM secret) SELECT * FROM secret",
        "SELECT * FROM scan_1, LATERAL (SELECT * FROM secret) WHERE 1 = (WITH secret AS (SELECT 1) FROM secret)",
        "WITH duckdb_settings AS (SELECT 1) SELECT * FROM main.duckdb_settings",
        "SELECT list_transform([1], lambda y: (FROM secret)), (WITH secret AS (FROM scan_1) FROM secret)",
    ],
)
def test_a_cte_gives_no_access_outside_its_scope(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UserError, match=r"table \w+ is not available"):
        check_sql(connection, sql, {"scan_1"})


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a) SELECT b.x FROM b, A", [(2,)]),
        ("WITH a AS (SELECT 1 AS x) SELECT (SELECT max(x) FROM a) FROM (SELECT * FROM a) AS t", [(1,)]),
        ("WITH a AS (SELECT 1 AS x) SELECT 2 UNION ALL SELECT x FROM a ORDER BY 1", [(1,), (2,)]),
        ("WITH a AS (SELECT 1 AS x) SELECT (WITH a AS (SELECT x + 1 AS x FROM a) SELECT x FROM a)", [(2,)]),
        ("WITH a AS (SELECT 1 AS x) SELECT 1 ORDER BY (SELECT x FROM a) LIMIT (SELECT x FROM a)", [(1,)]),
        ("WITH scan_1 AS (SELECT 1 AS x FROM SCAN_1) SELECT * FROM scan_1", []),
    ],
)
def test_a_cte_is_visible_in_its_query_and_below(
    sql: str, rows: list[tuple[int, ...]], connection: duckdb.DuckDBPyConnection
) -> None:
    check_sql(connection, sql, {"scan_1"})
    assert connection.execute(sql).fetchall() == rows if "scan_1" not in sql else rows == []


@pytest.mark.parametrize(
    "call",
    [
        "strftime(t, '%n%n%n%n')",
        "strftime('%n%n', t)",
        "STRFTIME(t, '%n|')",
        "(t).strftime('%n%n')",
        "strftime(t, '%n' || '%n')",
        "strftime(t, concat('%n', '%n'))",
        "strftime(t, m)",
        "strftime(m, '2024-01-01')",
        "strftime('2024-01-01', CAST('%n%n' AS JSON))",
        "strftime(t, ['%n%n'][1])",
        "strftime(t, ['%Y'])",
        "strftime(t, CAST('%Y' AS VARCHAR))",
        "strftime(t, (SELECT '%n%n'))",
        "strftime(t, CASE WHEN true THEN '%n%n' END)",
        "strftime(t, format := m)",
        "list_transform(['%n%n'], lambda f: strftime(t, f))",
        "strftime(t, '%Q')",
        "strftime(t, '%')",
        "strftime(t, '%-n')",
        f"strftime(t, '%Y{'x' * 100}')",
        "strftime(t)",
        "strptime(m, m)",
        "strptime(m, ['%Y', m])",
        "try_strptime(m, '%Q')",
        "try_strptime(m, ['%Y', '%Q'])",
    ],
)
def test_formats_of_times_are_known_literals(call: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UserError, match=r"the query cannot be run: (try_)?str[fp]time: "):
        check_sql(connection, f"SELECT {call} FROM scan_1", {"scan_1"})


@pytest.mark.parametrize(
    "call",
    [
        "strftime(t, '%Y-%m-%dT%H:%M:%S.%n')",
        "strftime('%d.%m.%Y', t)",
        "strptime(m, '%d/%m/%Y %n x')",
        "try_strptime(m, ['%d/%m/%Y', '%Y'])",
        "strftime(strptime(m, '%Y'), '%%n %j')",
    ],
)
def test_formats_of_times_that_may_be_used(call: str, connection: duckdb.DuckDBPyConnection) -> None:
    check_sql(connection, f"SELECT {call} FROM scan_1", {"scan_1"})
    assert connection.execute(f"SELECT {call} FROM scan_1").fetchall() == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT " + " + ".join(["1"] * 900), "nested too deeply"),
        ("SELECT 1 FROM scan_1 a0" + "".join(f" JOIN scan_1 a{n} ON true" for n in range(3000)), "nested too deeply"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "Max expression depth"),
        ("FROM " + "(FROM " * 100_000 + "scan_1" + ")" * 100_000, "more than 20000 parentheses"),
    ],
)
def test_what_is_nested_without_end_is_refused(sql: str, said: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UserError, match=said):
        check_sql(connection, sql, {"scan_1"})
