"""One lake for all tests that only read it: segments of three layouts, two collectors, another organization."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lakerunner.query.sql import SqlQueries
from query.sample_lake import FULL_SHRED, HOUR, OTHER, START, Lake, Record, Shred, random_records


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    partly = Shred(attributes={"http.status_code": "string", "ok": "bool"}, resource={"pod": "int64"})
    lake.add(random_records(3000, 1, START), shred=FULL_SHRED)
    lake.add(random_records(3000, 2, START + HOUR), shred=FULL_SHRED, collector="edge")
    lake.add(random_records(500, 3, START + 2 * HOUR), shred=partly)
    lake.add(random_records(500, 4, START + 23 * HOUR))
    last = START + 24 * HOUR - 1
    lake.add([Record(last, message="last ns of the day"), Record(-1, message="before 1970")], shred=partly)
    lake.add(random_records(100, 5, START), organization=OTHER, shred=FULL_SHRED)
    return lake


@pytest.fixture(scope="session")
def engine(lake: Lake) -> SqlQueries:
    return lake.engine()


@pytest.fixture(scope="session")
def plain(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same records, asked without any of our code."""
    connection = lake.plain()
    yield connection
    connection.close()
