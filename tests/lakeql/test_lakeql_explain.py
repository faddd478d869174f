"""EXPLAIN comes off the front of a text, and every other character stays where it was."""

from __future__ import annotations

import pytest

from lakerunner.lakeql.statements import read_statement
from lakerunner.plan.explain import Explain


@pytest.mark.parametrize(
    ("text", "wanted", "query"),
    [
        ("SELECT 1", Explain.NO, "SELECT 1"),
        ("EXPLAIN SELECT 1", Explain.PLAN, "        SELECT 1"),
        ("explain analyze select 1", Explain.ANALYZE, "                select 1"),
        ("\n-- why?\n/* so\n*/ Explain\n\tAnalyze(SELECT 1)", Explain.ANALYZE, None),
        ("EXPLAIN/**/ANALYZE/**/SELECT 1", Explain.ANALYZE, "       /**/       /**/SELECT 1"),
        ("EXPLAIN -- ANALYZE\nSELECT 1", Explain.PLAN, "        -- ANALYZE\nSELECT 1"),
        ("EXPLAINS SELECT 1", Explain.NO, "EXPLAINS SELECT 1"),
        ("SELECT 'EXPLAIN'", Explain.NO, "SELECT 'EXPLAIN'"),
        ("EXPLAIN", Explain.PLAN, "       "),
        ("", Explain.NO, ""),
    ],
)
def test_prefix(text: str, wanted: Explain, query: str | None) -> None:
    statement = read_statement(text)
    assert statement.explain == wanted
    assert len(statement.query) == len(text)
    assert statement.query.count("\n") == text.count("\n")
    if query is not None:
        assert statement.query == query
