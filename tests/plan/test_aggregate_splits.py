"""Folding the partials of any split of the rows is the aggregate of all rows: bit for bit, floating sums rounded
once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.lakeql import compile_sql
from lakerunner.plan.aggregate import SPLITTING, split_of
from lakerunner.plan.plan import Plan
from lakerunner.query.sandbox.instance import KERNELS, MACROS
from suites.bound import bound_types
from suites.plans import finish_of, leaf_sql

OWN = UUID("12340000-0000-4000-8000-000000000000")
TYPES = bound_types()
SCHEMA = pa.schema(
    [
        ("timestamp", pa.timestamp("ns")),
        ("service_name", pa.string()),
        ("value", pa.float64()),
        ("int_value", pa.int64()),
        ("monotonic", pa.bool_()),
        ("part", pa.int64()),
    ]
)
ASKED = {
    "n": "count(*)",
    "numbers": "count(value)",
    "some": "count(*) FILTER (WHERE int_value > 0)",
    "truths": "count_if(monotonic)",
    "total": "sum(value)",
    "mean": "avg(value)",
    "of_some": "sum(value) FILTER (WHERE int_value > 0)",
    "int_total": "sum(int_value)",
    "int_mean": "avg(int_value)",
    "least": "min(value)",
    "most": "max(value)",
    "first": "min(epoch_ns(timestamp))",
    "name": "max(service_name)",
    "different": "count(DISTINCT int_value)",
    "about": "approx_count_distinct(int_value)",
    "all_true": "bool_and(monotonic)",
    "some_true": "bool_or(monotonic)",
    "bits": "bit_xor(int_value)",
    "latest": "arg_max(int_value, timestamp)",
    "latest_untrue": "arg_max(NOT monotonic, timestamp)",
    "first_of_both": "arg_min(monotonic AND int_value > 0, timestamp)",
    "latest_of_either": "max_by(monotonic OR int_value > 0, timestamp)",
}
SQL = f"SELECT service_name AS service, {', '.join(f'{sql} AS {name}' for name, sql in ASKED.items())} FROM metrics"

wide = st.floats(allow_nan=False, allow_infinity=False)
near = st.floats(-1e6, 1e6)
rows = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.sampled_from(["a", "b", "é"]),
        st.none() | wide | near | st.sampled_from([0.1, -0.1, 1e100, -1e100, 5e-324]),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
        st.integers(0, 4),
    ),
    max_size=40,
    unique_by=lambda row: row[0],
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for macro in MACROS:
        connection.execute(macro)
    for kernel in KERNELS:
        kernel.create(connection)
    yield connection
    connection.close()


def answer(database: duckdb.DuckDBPyConnection, plan: Plan, table: pa.Table, parts: int) -> list[dict[str, object]]:
    (leaf,) = plan.leaves
    given = []
    database.register("base", table)
    for part in range(parts):
        database.execute(f"CREATE OR REPLACE TEMP VIEW source AS SELECT * FROM base WHERE part % {parts} = {part}")
        given.append(
            database.sql(leaf_sql(leaf).replace(f'FROM "{leaf.scan.relation}"', "FROM source")).to_arrow_table()
        )
    database.register(leaf.scan.relation, pa.concat_tables(given))
    answered: list[dict[str, object]] = database.sql(finish_of(plan).sql).to_arrow_table().to_pylist()
    return sorted(answered, key=lambda row: str(row["service"]))


def table_of(given: list[tuple[object, ...]]) -> pa.Table:
    columns = zip(*given, strict=True) if given else [[]] * len(SCHEMA)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def rounded(numbers: list[float], by: int = 1) -> float | None:
    if not numbers:
        return None
    total = sum(map(Fraction, numbers)) / by
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@settings(max_examples=40, deadline=None)
@given(given=rows)
def test_any_split_folds_to_the_same_bits(given: list[tuple[object, ...]], database: duckdb.DuckDBPyConnection) -> None:
    plan = compile_sql(f"{SQL} GROUP BY 1", OWN, 0, types=TYPES)
    table = table_of(given)
    whole = answer(database, plan, table, 1)
    for parts in (2, 5):
        assert answer(database, plan, table, parts) == whole
    for row in whole:
        mine = [one for one in given if one[1] == row["service"]]
        numbers = [one[2] for one in mine if one[2] is not None]
        integers = [one[3] for one in mine if one[3] is not None]
        assert row["n"] == len(mine)
        assert row["total"] == rounded(numbers)  # type: ignore[arg-type]
        assert row["mean"] == rounded(numbers, len(numbers))  # type: ignore[arg-type]
        assert row["of_some"] == rounded([one[2] for one in mine if one[2] is not None and (one[3] or 0) > 0])  # type: ignore[operator, misc]
        assert row["int_total"] == (sum(integers) if integers else None)  # type: ignore[arg-type]
        assert row["int_mean"] == (float(Fraction(sum(integers), len(integers))) if integers else None)  # type: ignore[arg-type]
        assert row["different"] == len(set(integers))


def test_no_rows_and_no_groups(database: duckdb.DuckDBPyConnection) -> None:
    plan = compile_sql(
        SQL.replace("service_name AS service", "any_value(service_name) AS service"), OWN, 0, types=TYPES
    )
    (row,) = answer(database, plan, table_of([]), 3)
    counts = {"n", "numbers", "some", "truths", "different", "about"}
    assert row == {name: 0 if name in counts else None for name in ["service", *ASKED]}


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e308, 1e308], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([0.1] * 10, 1.0),
        ([1e100, 1.0, -1e100], 1.0),
        ([-0.0], 0.0),
        ([5e-324] * 3, 1.5e-323),
    ],
)
def test_odd_sums(numbers: list[float], total: float, database: duckdb.DuckDBPyConnection) -> None:
    given = [(n, "a", number, None, None, n) for n, number in enumerate(numbers)]
    plan = compile_sql(
        "SELECT service_name AS service, sum(value) AS total FROM metrics GROUP BY 1", OWN, 0, types=TYPES
    )
    for parts in (1, 3):
        (row,) = answer(database, plan, table_of(given), parts)  # type: ignore[arg-type]
        assert str(row["total"]) == str(total)


def test_what_does_not_split_says_so() -> None:
    assert split_of("median", ("DOUBLE",)) is None
    assert split_of("sum", ("INTERVAL",)) is None
    assert split_of("sum", ("DOUBLE",), distinct=True) is None
    assert split_of("min", ("DOUBLE", "INTEGER")) is None
    assert split_of("max", ("DOUBLE[]",)) is None
    assert all(
        split_of(name, ("BIGINT",)) or split_of(name, ("BOOLEAN",)) or split_of(name, ("BIGINT", "BIGINT"))
        for name in SPLITTING
    )
