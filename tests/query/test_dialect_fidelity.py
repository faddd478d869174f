"""What goes through sqlglot comes out as DuckDB would have read it: the two parsers' trees are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lakerunner.lakeql.dialect import DIALECT
from query.test_query_exact import QUERIES

HERE = Path(__file__).parent
EXPRESSIONS = (HERE / "fidelity_expressions.txt").read_text().splitlines()
STATEMENTS = (HERE / "fidelity_statements.sql").read_text().splitlines()

SAME = {
    "int": "integer",
    "text": "varchar",
    "int128": "hugeint",
    "^@": "starts_with",
    "**": "power",
    "position": "strpos",
}


@pytest.fixture(scope="module")
def parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def tree(parser: duckdb.DuckDBPyConnection, sql: str) -> Any:
    (text,) = parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchone() or ("",)
    parsed = json.loads(text)
    assert not parsed["error"], (sql, parsed)
    return plain(parsed)


def plain(node: Any) -> Any:
    """Without places and spelling: case of names of types, operators written as calls, NULLS LAST said or not."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, dict):
        return SAME.get(node.lower(), node.lower()) if isinstance(node, str) else node
    left_out = ("query_location", "query_location_length", "is_operator")
    kept = {key: plain(value) for key, value in node.items() if key not in left_out}
    if kept.get("null_order") == "nulls last":
        kept["null_order"] = "order_default"
    if kept.get("type") == "order_ascending":
        kept["type"] = "order_default"
    return kept


# A table function after a comma is written as a join ON TRUE, which is the same.
PLAIN_QUERIES = [sql for sql in QUERIES if ", unnest(" not in sql]


@pytest.mark.parametrize("sql", [*(f"SELECT {e} FROM logs" for e in EXPRESSIONS), *STATEMENTS, *PLAIN_QUERIES])
def test_duckdb_reads_what_the_user_wrote(sql: str, parser: duckdb.DuckDBPyConnection) -> None:
    (parsed,) = DIALECT.parse(sql)
    assert parsed is not None
    written = parsed.sql(DIALECT, identify=True, normalize_functions=False, comments=False)
    assert tree(parser, written) == tree(parser, sql), written
