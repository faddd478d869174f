"""Buckets of time are those that DuckDB's own functions give: where rounds are cut, and how workers name them."""

from __future__ import annotations

import random
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.plan.plan import Rounds
from lakerunner.query.sandbox.instance import MACROS
from suites.bound import bound_types
from suites.plans import finish_of, leaf_sql

NOW = 1_700_000_000_000_000_000
UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
WIDTHS = ("13 seconds", "15 seconds", "5 minutes", "7 minutes", "11 minutes", "1 hour", "32 hours", "1 day", "2 days")
KEYS = [f"date_trunc('{unit}', timestamp)" for unit in UNITS] + [
    f"time_bucket(INTERVAL '{width}', timestamp)" for width in (*WIDTHS, "4 days", "3 weeks")
]


@pytest.fixture(scope="module")
def times() -> pa.Table:
    chance = random.Random(1)
    near = [day * 86_400 * 10**9 + by for day in (-3, 0, 4, 10_959, 20_000) for by in (-1_000, -999, -1, 0, 1, 999)]
    far = [chance.randrange(-(2**62), 2**62) for _ in range(2_000)]
    soon = [NOW + chance.randrange(10**15) for _ in range(2_000)]
    return pa.table({"timestamp": pa.array(near + far + soon, pa.timestamp("ns"))})


@pytest.mark.parametrize("key", KEYS)
def test_a_bucket_is_in_one_round(key: str, times: pa.Table) -> None:
    rounds = finish_of(
        compile_sql(f"SELECT {key} AS t, count(*) FROM logs GROUP BY t ORDER BY t", UUID(int=1), NOW)
    ).rounds
    assert isinstance(rounds, Rounds)
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(macro)
        connection.register("times", times)
        cut = key.replace("timestamp)", "microseconds(timestamp))")
        starts = connection.execute(f"SELECT DISTINCT epoch_us({cut}) FROM times").fetchall()
    wrong = [start for (start,) in starts if (start * 1000 - rounds.origin_ns) % rounds.bucket_ns]
    assert wrong == []


@pytest.mark.parametrize("key", KEYS)
def test_workers_name_them_as_duckdb_does(key: str, times: pa.Table) -> None:
    text = f"SELECT {key} AS t, count(*) AS n FROM logs GROUP BY t"
    (leaf,) = compile_sql(text, UUID(int=1), NOW, types=bound_types()).leaves
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(macro)
        connection.register(leaf.scan.relation, times)
        found = connection.execute(leaf_sql(leaf)).fetchall()
        cut = key.replace("timestamp)", "microseconds(timestamp))")
        expected = connection.execute(f"SELECT {cut} AS t, count(*) FROM {leaf.scan.relation} GROUP BY t").fetchall()
    assert sorted(found) == sorted(expected)
