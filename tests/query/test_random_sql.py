"""Random data, random SQL: one worker, three workers and plain DuckDB over the same records give the same answer.

One and three workers to the bit; DuckDB's own floating sums, whose last bits depend on the order, to twelve digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import duckdb
import orjson
import pyarrow as pa
import pytest

from lakerunner.query.row_text import json_rows
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.sql import SqlQueries
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import Worker
from query.sample_lake import FULL_SHRED, HOUR, START, Lake, Shred, answer_of, random_records
from suites.random_sql import RandomSql

SEEDS, MANY_SEEDS = range(100), range(100, 1000)


class Several:
    """Workers of this process, each with a cache of its own."""

    def __init__(self, lake: Lake, count: int) -> None:
        self._workers = tuple(_named(lake, f"worker-{n}") for n in range(count))

    def here(self) -> Sequence[Worker]:
        return self._workers


def _named(lake: Lake, name: str) -> QueryWorker:
    worker = QueryWorker(SegmentCache(lake.store, lake.directory / name, 1 << 30), lake.sandboxes())
    worker.name = name
    return worker


@pytest.fixture(scope="module")
def random_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Segments that overlap and segments that do not, of three layouts."""
    lake = Lake(tmp_path_factory.mktemp("random"))
    partly = Shred(attributes={"http.status_code": "string", "ok": "bool"}, resource={"pod": "int64"})
    for seed, shred in enumerate([FULL_SHRED, partly, None] * 3):
        start = START + seed // 2 * HOUR
        collector = "edge" if seed % 2 else "default"
        lake.add(random_records(80, 1000 + seed, start), shred=shred, collector=collector)
    return lake


@pytest.fixture(scope="module")
def engines(random_lake: Lake) -> tuple[SqlQueries, SqlQueries]:
    return random_lake.engine(), random_lake.engine(workers=Several(random_lake, 3))


@pytest.fixture(scope="module")
def plain_logs(random_lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = random_lake.plain()
    for macro in MACROS:
        connection.execute(macro)
    yield connection
    connection.close()


def rows(table: pa.Table) -> list[bytes]:
    return [row for batch in table.to_batches() for row in json_rows(batch)]


def rounded(table: pa.Table) -> list[tuple[object, ...]]:
    """Floating numbers to twelve digits."""
    objects = [orjson.loads(row) for row in rows(table)]
    return [tuple(f"{v:.12g}" if isinstance(v, float) else str(v) for v in one.values()) for one in objects]


def check(seed: int, engines: tuple[SqlQueries, SqlQueries], plain: duckdb.DuckDBPyConnection) -> None:
    sql = RandomSql(seed).query()
    expected = plain.sql(sql.replace("{time}", "microseconds(timestamp)")).to_arrow_table()
    one, three = (answer_of(engine, sql.replace("{time}", "timestamp")) for engine in engines)
    assert one.schema.types == expected.schema.types, sql
    assert Counter(rows(one)) == Counter(rows(three)), sql
    assert Counter(rounded(one)) == Counter(rounded(expected)), sql
    if " ORDER BY " in sql.rpartition("FROM logs")[2]:
        assert rounded(one) == rounded(three) == rounded(expected), sql


@pytest.mark.parametrize("seed", SEEDS)
def test_one_three_and_plain_agree(
    seed: int, engines: tuple[SqlQueries, SqlQueries], plain_logs: duckdb.DuckDBPyConnection
) -> None:
    check(seed, engines, plain_logs)


@pytest.mark.slow
def test_many_more_agree(engines: tuple[SqlQueries, SqlQueries], plain_logs: duckdb.DuckDBPyConnection) -> None:
    for seed in MANY_SEEDS:
        check(seed, engines, plain_logs)
