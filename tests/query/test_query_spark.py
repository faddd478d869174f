"""engine=spark: what Spark answers is what DuckDB answers, names and types too (spark.sql, one query a line); what it
does not have is refused by name and place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sample_lake import NOW, OTHER, OWN, Lake, answer_of

from lakerunner.model.errors import UserError
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask.run import AskLimits, SparkQueries
from lakerunner.query.engine import Engine, Question
from lakerunner.query.outgrown import Outgrown
from servers.spark import spark_session

QUERIES = (Path(__file__).parent / "spark.sql").read_text().splitlines()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as opened:
        yield opened


def spark_engine(lake: Lake, session: SparkSession, seconds: float = 60.0, max_rows: int = 100_000) -> Engine:
    address = StoreAddress((lake.directory / "store").as_uri())
    queries = SparkQueries(lambda: session, address, AskLimits(seconds, max_rows))
    instances = lake.instances()
    return lake.engine(outgrown=Outgrown(queries, instances))


@pytest.fixture(scope="module")
def both(lake: Lake, session: SparkSession) -> Engine:
    return spark_engine(lake, session)


def by_spark(engine: Engine, sql: str) -> pa.Table:
    answer = engine.sql(OWN, Question(sql, NOW, engine="spark"))
    return pa.Table.from_batches(list(answer), schema=answer.schema)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """As Python values; nanoseconds as numbers."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def rounded(value: Any) -> Any:
    """Doubles to twelve digits, so that rows can be brought into one order; NaN equals itself."""
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else float(f"{value:.12g}")
    return value


def comparable(table: pa.Table, *, ordered: bool) -> list[Any]:
    rows = [tuple(rounded(value) for value in row) for row in rows_of(table)]
    return rows if ordered else sorted(rows, key=repr)


@pytest.mark.parametrize("sql", QUERIES)
def test_spark_answers_as_duckdb_does(both: Engine, sql: str) -> None:
    expected, found = answer_of(both, sql), by_spark(both, sql)
    assert found.schema == expected.schema
    ordered = "ORDER BY" in sql.rpartition(")")[2]
    assert comparable(found, ordered=ordered) == comparable(expected, ordered=ordered)
