"""What the lake answers is what DuckDB answers over a plain table of the same records: exact.sql, one query a line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import SqlQueries
from query.sample_lake import Lake, answer_of, plain_map

QUERIES = (Path(__file__).parent / "exact.sql").read_text().splitlines()


def in_order(table: pa.Table) -> list[bytes]:
    return [row for batch in table.to_batches() for row in json_rows(batch)]


def rows_of(table: pa.Table) -> Counter[bytes]:
    return Counter(in_order(table))


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_like_plain_duckdb(sql: str, engine: SqlQueries, plain: duckdb.DuckDBPyConnection) -> None:
    answer = answer_of(engine, sql)
    expected = plain.sql(sql).to_arrow_table()
    names = ["count(*)" if name == "count_star()" else name for name in expected.column_names]  # as it is written
    if len(set(names)) == len(names):
        assert answer.column_names == names
    assert [str(kind) for kind in answer.schema.types] == [str(kind) for kind in expected.schema.types]
    expected = expected.rename_columns(names)
    assert rows_of(answer.rename_columns(names)) == rows_of(expected)
    if "ORDER BY" in sql.rpartition(")")[2]:
        assert in_order(answer) == in_order(expected)


def test_whole_maps_are_rebuilt_exactly(engine: SqlQueries, lake: Lake) -> None:
    answer = answer_of(engine, "SELECT fingerprint, attributes, resource_attrs FROM logs")
    found: dict[int, Any] = {row["fingerprint"]: row for row in answer.to_pylist()}
    for record, _ in lake.records:
        assert found[record.fingerprint]["attributes"] == list(plain_map(record.attributes).items()) or (
            record.fingerprint == 0
        )
        assert found[record.fingerprint]["resource_attrs"] == list(plain_map(record.resource).items())
