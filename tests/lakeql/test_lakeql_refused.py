"""What a query may not be: refused.txt holds each statement with its error, where it stands, and what is said.

It is a table to read, not one to rewrite by machine: what a refusal says was looked at by someone. A comment at the
statement's end holds its parameters.
"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import duckdb
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.shorthands import MAX_TERMS
from lakerunner.lakeql.source import MAX_CHARACTERS, MAX_VALUES
from lakerunner.model.errors import TooLarge, UserError
from lakerunner.query.sandbox.guard import check_sql
from suites.bound import syntax
from suites.plans import finish_of, leaf_sql

OWN = UUID("12340000-0000-4000-8000-000000000000")
NOW = 1_700_000_000_123_456_789
LINES = (Path(__file__).parent / "refused.txt").read_text().splitlines()
CASES = list(zip(LINES[::2], LINES[1::2], strict=True))


def test_the_table_is_long() -> None:
    assert len(CASES) >= 180


@pytest.mark.parametrize(("sql", "expected"), CASES)
def test_is_refused(sql: str, expected: str) -> None:
    with pytest.raises(UserError) as refused:
        compile_sql(sql, OWN, NOW, parameters=json.loads(sql.partition(" -- ")[2] or "{}"))
    error = refused.value
    where = f"{error.position.line}:{error.position.column}" if error.position else "nowhere"
    assert f"    {type(error).__name__} {where} {error.message}" == expected


def test_positions_count_lines() -> None:
    with pytest.raises(UserError) as refused:
        compile_sql("SELECT message\nFROM logs\n  WHERE getenv('HOME') = 'é'", OWN, NOW)
    assert str(refused.value) == "function getenv is not available (line 3, column 9)"


def test_a_query_of_the_longest_length_is_read() -> None:
    sql = "SELECT 1" + " " * 92
    assert finish_of(compile_sql(sql, OWN, NOW, max_length=100)).sql == "SELECT 1"
    with pytest.raises(TooLarge, match="101 characters, more than the 100 allowed"):
        compile_sql(sql + " ", OWN, NOW, max_length=100)


@pytest.mark.parametrize("sql", ["SELECT " + "(" * 2000 + "1" + ")" * 2000, "SELECT " + "- " * 3000 + "1"])
def test_deep_nesting_is_refused_and_not_fatal(sql: str) -> None:
    with pytest.raises(UserError, match="nested too deeply"):
        compile_sql(sql, OWN, NOW)


@pytest.mark.parametrize(
    ("sql", "fits"),
    [
        ("SELECT " + " + ".join(["1"] * 240), True),
        ("SELECT " + " + ".join(["1"] * 260), False),
        ("SELECT 1 FROM logs WHERE " + " || ".join(["'a'"] * 260) + " = message", False),
        ("SELECT 1 FROM logs WHERE " + " OR ".join(["message = 'a'"] * 500), True),
        ("SELECT 1 FROM logs a" + "".join(f" JOIN logs b{n} ON true" for n in range(99)), True),
    ],
)
def test_what_duckdb_parses_as_a_deep_tree_is_bounded(sql: str, fits: bool) -> None:
    """Whatever is compiled can be checked a second time, in DuckDB's own tree."""
    if not fits:
        with pytest.raises(UserError, match="inside each other"):
            compile_sql(sql, OWN, NOW)
        return
    plan = compile_sql(sql, OWN, NOW)
    syntax().check(OWN, sql)
    with duckdb.connect() as connection:
        for made in (finish_of(plan).sql, *(leaf_sql(leaf) for leaf in plan.leaves)):
            check_sql(connection, made, {leaf.scan.relation for leaf in plan.leaves})


def test_a_query_of_too_many_words_is_refused() -> None:
    assert compile_sql("SELECT " + ",".join(["1"] * 10_000), OWN, NOW).scans == ()
    with pytest.raises(TooLarge, match="20002 words and signs, more than the 20000 allowed"):
        compile_sql("SELECT " + ",".join(["1"] * 10_001), OWN, NOW)


def doubled(depth: int, kind: str) -> str:
    """Names that each read the one before them twice."""
    names = [f"c{n} AS {kind} (SELECT a.x FROM c{n - 1} a, c{n - 1} b)" for n in range(1, depth + 1)]
    return f"WITH c0 AS {kind} (SELECT 1 AS x), {', '.join(names)} SELECT * FROM c{depth}"


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT 1 FROM range(2) a0" + "".join(f", range(2) a{n}" for n in range(1, 100)), None),
        ("SELECT 1 FROM range(2) a0" + "".join(f", range(2) a{n}" for n in range(1, 101)), 101),
        ("SELECT 1 FROM logs a0" + "".join(f", logs a{n}" for n in range(1, 1000)), 1000),
        (doubled(40, ""), None),
        (doubled(40, "MATERIALIZED"), None),
        (doubled(4, "NOT MATERIALIZED"), None),
        (doubled(20, "NOT MATERIALIZED"), 3_145_726),
    ],
)
def test_a_query_of_too_many_relations_is_refused(sql: str, count: int | None) -> None:
    """Their planning cannot be interrupted; a name that is planned wherever it stands counts each time."""
    if count is None:
        assert finish_of(compile_sql(sql, OWN, NOW)).sql
    else:
        with pytest.raises(TooLarge, match=f"reads {count} relations, more than the 100 allowed"):
            compile_sql(sql, OWN, NOW)


def test_parameters_hold_no_more_than_a_text_could() -> None:
    sql = "SELECT 1 FROM logs WHERE severity_number IN $1 AND message <> $2"
    given = {"1": list(range(MAX_VALUES - 1)), "2": "x" * MAX_CHARACTERS}
    assert compile_sql(sql, OWN, NOW, parameters=given).scans
    with pytest.raises(TooLarge, match="10001 values, more than the 10000 allowed"):
        compile_sql(sql, OWN, NOW, parameters=given | {"1": list(range(MAX_VALUES))})
    with pytest.raises(TooLarge, match="65537 characters, more than the 65536 allowed"):
        compile_sql(sql, OWN, NOW, parameters=given | {"2": "x" * (MAX_CHARACTERS + 1)})


def test_as_many_words_as_allowed_are_searched_for() -> None:
    words = " ".join(map(str, range(MAX_TERMS)))
    (leaf,) = compile_sql(f"SELECT 1 FROM logs WHERE search('{words}')", OWN, NOW).leaves
    assert leaf_sql(leaf).count("contains(") == MAX_TERMS


@pytest.mark.parametrize(
    ("sql", "fits"),
    [
        ("SELECT * FROM range(1000000)", True),
        ("SELECT * FROM range(1000001)", False),
        ("SELECT * FROM range(-5, 2999985, 3)", True),
        ("SELECT * FROM generate_series(1, 1000000)", True),
        ("SELECT * FROM generate_series(0, 1000000)", False),
        ("SELECT * FROM generate_series(10, 1, -1)", True),
        ("SELECT * FROM range(TIMESTAMP '2024-01-01', now(), INTERVAL 1 HOUR)", True),
        ("SELECT * FROM range(0, 10, 0)", False),
        ("SELECT range(1000)", True),
        ("SELECT range(1001)", False),
        ("SELECT lpad('x', 1000, 'y')", True),
        ("SELECT lpad('x', 1001, 'y')", False),
        (f"SELECT replace('x', 'x', '{'y' * 100}')", True),
        (f"SELECT replace('x', 'x', '{'y' * 101}')", False),
        ("SELECT replace(replace('x', 'ab', 'c'), 'd', '')", True),
        ("SELECT replace(replace('x', 'a', 'bc'), 'd', 'ef')", False),
        ("SELECT format('{:999d}', 1), printf('%.2f', 1.5)", True),
        ("SELECT format('{:1000d}', 1)", False),
    ],
)
def test_bounds_are_exact(sql: str, fits: bool) -> None:
    if fits:
        assert finish_of(compile_sql(sql, OWN, NOW)).sql
    else:
        with pytest.raises(UserError):
            compile_sql(sql, OWN, NOW)


def test_nul_is_refused() -> None:
    with pytest.raises(UserError, match="NUL"):
        compile_sql("SELECT '\0'", OWN, NOW)


def test_the_own_organization_may_be_named_in_any_spelling() -> None:
    plan = compile_sql("SELECT 1 FROM logs WHERE organization_id = '1234000000004000-8000000000000000'", OWN, NOW)
    assert f"= '{OWN}'" in leaf_sql(plan.leaves[0])
