"""The list of allowed functions: all there in DuckDB, all pure, all documented."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import duckdb
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.functions import FUNCTIONS, FUNCTIONS_BY_KIND, TABLE_FUNCTIONS, TIME_FORMATTED
from lakerunner.lakeql.tables import TABLES

OWN = UUID("12340000-0000-4000-8000-000000000000")
DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "lakeql.md"
# Syntax that looks like a call, and window functions, are not in DuckDB's catalogue.
SYNTAX = {"coalesce", "grouping", "grouping_id", "ifnull", "percentile_cont", "percentile_disc", "try"}
# Fixed by us to the one instant of the query, before DuckDB sees them.
FIXED = {"ago", "get_current_timestamp", "now", "today", "transaction_timestamp"}


@pytest.fixture(scope="module")
def catalogue() -> dict[str, tuple[bool, str | None]]:
    rows = duckdb.connect().execute(
        "SELECT function_name, bool_or(coalesce(has_side_effects, false)), max(stability) FROM duckdb_functions() "
        "WHERE function_type NOT IN ('pragma', 'table_macro') GROUP BY 1"
    )
    return {name: (effects, stability) for name, effects, stability in rows.fetchall()}


def test_every_function_is_one_of_duckdb(catalogue: dict[str, tuple[bool, str | None]]) -> None:
    assert set(FUNCTIONS) - set(catalogue) <= SYNTAX


def test_every_function_is_pure(catalogue: dict[str, tuple[bool, str | None]]) -> None:
    impure = {
        name
        for name in FUNCTIONS - SYNTAX - FIXED
        if catalogue[name][0] or catalogue[name][1] not in (None, "CONSISTENT")
    }
    assert impure == set()


def test_no_name_is_listed_twice() -> None:
    assert len(FUNCTIONS) == sum(len(names) for names in FUNCTIONS_BY_KIND.values())
    assert TABLE_FUNCTIONS <= FUNCTIONS


def test_every_function_can_be_called_in_either_case() -> None:
    bounded = {
        "lpad",
        "rpad",
        "replace",
        "regexp_replace",
        "array_to_string",
        "format",
        "printf",
        "range",
        "generate_series",
        *TIME_FORMATTED,
    }
    for name in sorted(FUNCTIONS - bounded):
        assert compile_sql(f"SELECT {name}(message) AS x FROM logs", OWN, 0).scans
        assert compile_sql(f"SELECT {name.upper()}(message) AS x FROM logs", OWN, 0).scans


def test_the_document_shows_every_function_and_column() -> None:
    text = DOCUMENT.read_text()
    section = text.partition("## Functions")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z0-9_]+)`", section)) >= FUNCTIONS
    for name, table in TABLES.items():
        columns = text.partition(f"he columns of `{name}`")[2].partition("\nThe columns of `")[0].partition("\n## ")[0]
        shown = re.findall(r"^\| (`[^|]+`) \| ([^|]+?) \|", columns, re.M)
        assert {one for names, _ in shown for one in re.findall(r"\w+", names)} == {c.name for c in table.columns}
        alone = {names.strip("`"): kind for names, kind in shown if "," not in names}
        kinds = {column.name: column.type for column in table.columns if "STRUCT" not in column.type}
        assert {one: kind for one, kind in alone.items() if one in kinds} == {
            one: kind for one, kind in kinds.items() if one in alone
        }
