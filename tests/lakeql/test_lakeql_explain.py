"""EXPLAIN comes off the front of a text, and every other character stays where it was."""

from __future__ import annotations

import pytest

from lakerunner.lakeql.explain import Wanted, read_statement


@pytest.mark.parametrize(
    ("text", "wanted", "query"),
    [
        ("SELECT 1", Wanted.ROWS, "SELECT 1"),
        ("EXPLAIN SELECT 1", Wanted.PLAN, "        SELECT 1"),
        ("explain analyze select 1", Wanted.MEASURED, "                select 1"),
        ("\n-- why?\n/* so\n*/ Explain\n\tAnalyze(SELECT 1)", Wanted.MEASURED, None),
        ("EXPLAIN/**/ANALYZE/**/SELECT 1", Wanted.MEASURED, "       /**/       /**/SELECT 1"),
        ("EXPLAIN -- ANALYZE\nSELECT 1", Wanted.PLAN, "        -- ANALYZE\nSELECT 1"),
        ("EXPLAINS SELECT 1", Wanted.ROWS, "EXPLAINS SELECT 1"),
        ("SELECT 'EXPLAIN'", Wanted.ROWS, "SELECT 'EXPLAIN'"),
        ("EXPLAIN", Wanted.PLAN, "       "),
        ("", Wanted.ROWS, ""),
    ],
)
def test_prefix(text: str, wanted: Wanted, query: str | None) -> None:
    statement = read_statement(text)
    assert statement.wanted == wanted
    assert len(statement.query) == len(text)
    assert statement.query.count("\n") == text.count("\n")
    if query is not None:
        assert statement.query == query
