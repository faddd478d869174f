"""A scan may leave out every row outside its time range, and leaves may be run over any parts of the rows: the query's
answer is the same as with all rows at once."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.tables import LOGS_TABLE
from lakerunner.model.time import ALL_TIME, MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.plan import Plan
from suites.bound import bound_types
from suites.plans import finish_of, leaf_sql

OWN = UUID("12340000-0000-4000-8000-000000000000")
START = 1_704_067_200_000_000_000  # 2024-01-01T00:00:00Z
NOW = START + 3_600_000_000_000 + 999
MINUTE = 60_000_000_000
ROWS = 60
TYPES = bound_types()


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """A row a minute, some a nanosecond to either side of it."""
    connection = duckdb.connect()
    columns = ", ".join(f"CAST(NULL AS {c.type}) AS {c.name}" for c in LOGS_TABLE.columns)
    connection.execute(f"CREATE TABLE base AS SELECT {columns} WHERE false")
    connection.execute(
        f"""INSERT INTO base BY NAME SELECT make_timestamp_ns({START} + range * {MINUTE} + range % 3 - 1) AS timestamp,
        range AS fingerprint, (range % 5)::INTEGER AS severity_number, 'm' || range % 2 AS message FROM range({ROWS})"""
    )
    connection.execute(
        "CREATE MACRO microseconds(t) AS make_timestamp((epoch_ns(t) - (epoch_ns(t) % 1000 + 1000) % 1000) // 1000)"
    )
    return connection


def run(database: duckdb.DuckDBPyConnection, plan: Plan, *, pruned: bool, parts: int) -> Counter[tuple[object, ...]]:
    """Each leaf over so many parts of the rows, then the coordinator's SQL over all that they give."""
    for leaf in plan.leaves:
        scan, time = leaf.scan, leaf.scan.time if pruned else ALL_TIME
        start = f"epoch_ns(timestamp) >= {time.start_ns}" if time.start_ns > MIN_NS else "true"
        end = f"epoch_ns(timestamp) < {time.end_ns}" if time.end_ns < MAX_NS else "true"
        given = []
        for part in range(parts):
            rows = f"SELECT * FROM base WHERE {start} AND {end} AND fingerprint % {parts} = {part}"
            database.execute(f"DROP TABLE IF EXISTS {scan.relation}; CREATE OR REPLACE TEMP VIEW source AS {rows}")
            given.append(
                database.sql(leaf_sql(leaf).replace(f'FROM "{scan.relation}"', "FROM source")).to_arrow_table()
            )
        table = pa.concat_tables(given)
        database.register("given", table)
        database.execute(f"CREATE TEMP TABLE {scan.relation} AS SELECT * FROM given")
    rounds = finish_of(plan).rounds
    limits = rounds if rounds and rounds.limit is not None else None
    return Counter(
        database.execute(f"{finish_of(plan).sql} LIMIT {limits.limit}" if limits else finish_of(plan).sql).fetchall()
    )


WAYS = 15


def literal(at: tuple[int, int]) -> str:
    """A time around the rows, written in one of many ways, not all of them exact."""
    offset_ns, way = at
    seconds, ns = divmod(START + offset_ns, 1_000_000_000)
    minute = offset_ns // MINUTE % 60
    return [
        f"make_timestamp_ns({START + offset_ns})",
        f"to_timestamp({seconds})",
        f"to_timestamp({seconds}.{ns:09}".rstrip("0") + "0)",
        f"epoch_ms({seconds * 1000})",
        f"'2024-01-01 00:{minute:02}:00.{ns:09}'",
        f"'2024-01-01T02:{minute:02}:00.5+02:00'",
        f"TIMESTAMP '2024-01-01 00:{minute:02}:00'",
        f"CAST('2024-01-01T00:{minute:02}:00Z' AS TIMESTAMP_NS)",
        f"now() - INTERVAL '{60 - minute}' MINUTE",
        f"date_trunc('hour', now()) - to_minutes({60 - minute})",
        "current_date",
        "DATE '2024-01-01' + 1",
        "ago(INTERVAL 30 MINUTE)",
        f"make_timestamp(2024, 1, 1, 0, {minute}, 0)",
        f"(SELECT make_timestamp_ns({START + offset_ns}))",
    ][way]


def exact(at: tuple[int, int]) -> str:
    return f"make_timestamp_ns({START + at[0]})"


# At a row, a nanosecond beside it, or anywhere.
_near_rows = st.builds(lambda row, by: row * MINUTE + by, st.integers(-1, ROWS), st.integers(-2, 2))
_anywhere = st.integers(-2 * MINUTE, (ROWS + 2) * MINUTE)
offsets = st.tuples(st.one_of(_near_rows, _near_rows, _anywhere), st.sampled_from([0, *range(WAYS)]))


def comparisons(column: str) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM"])
    one = st.builds(lambda op, at: f"{column} {op} {literal(at)}", operators, offsets)
    turned = st.builds(lambda op, at: f"{literal(at)} {op} {column}", operators, offsets)
    between = st.builds(
        lambda a, b, no: f"{column} {no}BETWEEN {literal(a)} AND {literal(b)}",
        offsets,
        offsets,
        st.sampled_from(["", "NOT "]),
    )
    listed = st.builds(
        lambda a, b, no: f"{column} {no}IN ({exact(a)}, {exact(b)})",
        offsets,
        offsets,
        st.sampled_from(["", "NOT "]),
    )
    other = st.sampled_from(
        [f"{column} IS NULL", f"date_trunc('minute', {column}) > '2024-01-01 00:10:00'", f"hour({column}) = 0"]
    )
    return st.one_of(one, one, turned, between, listed, other)


def conditions(*columns: str) -> st.SearchStrategy[str]:
    leaf = st.one_of(*(comparisons(column) for column in columns))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
            st.builds(lambda a: f"NOT {a}", inner),
        ),
        max_leaves=5,
    )


one, two = conditions("timestamp"), conditions("a.timestamp", "b.timestamp")
joins = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
near = "a.fingerprint % 7 = b.fingerprint % 7"

queries = st.one_of(
    st.builds(lambda c: f"SELECT fingerprint FROM logs WHERE {c}", one),
    st.builds(lambda c: f"SELECT count(*), max(timestamp) FROM logs WHERE {c} AND severity_number > 1", one),
    st.builds(lambda c: f"SELECT fingerprint AS timestamp FROM logs WHERE {c}", one),
    st.builds(
        lambda j, on, c: f"SELECT a.fingerprint FROM logs a {j} logs b ON {near} AND {on} WHERE {c}",
        joins,
        two,
        conditions("a.timestamp"),
    ),
    st.builds(
        lambda j, on, c: f"SELECT a.fingerprint, b.fingerprint FROM logs a {j} logs b ON {near} AND {on} WHERE {c}",
        st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]),
        two,
        two,
    ),
    st.builds(lambda c: f"SELECT a.fingerprint FROM logs a, logs b WHERE {near} AND {c}", two),
    st.builds(
        lambda j, c: f"SELECT fingerprint FROM logs a {j} logs b USING (timestamp, fingerprint) WHERE {c}",
        st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN"]),
        one,
    ),
    st.builds(
        lambda c: (
            "SELECT a.fingerprint, b.fingerprint FROM logs a ASOF LEFT JOIN logs b "
            f"ON a.severity_number = b.severity_number AND a.timestamp > b.timestamp WHERE {c}"
        ),
        two,
    ),
    st.builds(lambda c, d: f"SELECT fingerprint FROM (SELECT * FROM logs WHERE {c}) WHERE {d}", one, one),
    st.builds(
        lambda c, d: (
            f"WITH x AS (SELECT timestamp, fingerprint FROM logs WHERE {c}) "
            f"SELECT fingerprint FROM x UNION ALL SELECT fingerprint FROM logs WHERE {d}"
        ),
        one,
        one,
    ),
    st.builds(
        lambda c, d: (
            f"SELECT fingerprint FROM logs a WHERE {c} AND NOT EXISTS (SELECT 1 FROM logs b WHERE {near} AND {d})"
        ),
        conditions("a.timestamp"),
        two,
    ),
    st.builds(lambda c: f"SELECT fingerprint, lag(fingerprint) OVER (ORDER BY timestamp) FROM logs WHERE {c}", one),
    st.builds(
        lambda c, d: f"SELECT count(*) FILTER (WHERE {c}) FROM logs HAVING {d}", one, comparisons("max(timestamp)")
    ),
)


@settings(max_examples=200, deadline=None)
@given(sql=queries)
def test_pruned_and_unpruned_answers_are_equal(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    plan = compile_sql(sql, OWN, NOW, types=TYPES)
    assert run(database, plan, pruned=True, parts=3) == run(database, plan, pruned=False, parts=1), plan


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        ("timestamp >= '2024-01-01'", START, MAX_NS),
        ("timestamp > '2024-01-01'", START + 1, MAX_NS),
        ("timestamp < '2024-01-01'", MIN_NS, START),
        ("timestamp <= '2024-01-01'", MIN_NS, START + 1),
        ("timestamp = '2024-01-01'", START, START + 1),
        ("'2024-01-01' <= timestamp", START, MAX_NS),
        ("'2024-01-01' > timestamp", MIN_NS, START),
        ("timestamp BETWEEN '2024-01-01' AND '2024-01-01T00:01:00Z'", START, START + MINUTE + 1),
        ("timestamp IN ('2024-01-01 00:01:00', '2024-01-01')", START, START + MINUTE + 1),
        (
            "(timestamp >= '2024-01-01' AND severity = 'ERROR') AND timestamp < '2024-01-01 00:01'",
            START,
            START + MINUTE,
        ),
        ("timestamp >= now() - INTERVAL 1 HOUR", START, MAX_NS),
        ("timestamp >= current_date", START, MAX_NS),
        ("timestamp < today() + 1", MIN_NS, START + 24 * 60 * MINUTE),
        ("timestamp >= to_timestamp(1704067200.5)", START + 500_000_000, MAX_NS),
        ("timestamp >= '2024-01-01 01:00:00+01:00'", START, MAX_NS),
        ("timestamp >= '2024-01-01' OR true", MIN_NS, MAX_NS),
        ("NOT timestamp < '2024-01-01'", MIN_NS, MAX_NS),
        ("timestamp + INTERVAL 1 HOUR >= '2024-01-01'", MIN_NS, MAX_NS),
        ("observed_timestamp >= '2024-01-01'", MIN_NS, MAX_NS),
        ("timestamp >= '0001-01-01' AND timestamp < '9999-12-31'", MIN_NS, MAX_NS),
        ("timestamp > '9999-01-01'", MAX_NS - 1, MAX_NS),
    ],
)
def test_the_range_of_a_condition(condition: str, start: int, end: int) -> None:
    (scan,) = compile_sql(f"SELECT 1 FROM logs WHERE {condition}", OWN, NOW).scans
    assert scan.time == TimeRange(start, end)


def test_each_table_reference_has_its_own_range() -> None:
    plan = compile_sql(
        "SELECT 1 FROM logs a JOIN logs b ON b.timestamp < '2024-01-02' WHERE a.timestamp >= '2024-01-01' "
        "AND EXISTS (SELECT 1 FROM logs c WHERE a.timestamp < '2024-01-03')",
        OWN,
        NOW,
    )
    day = 24 * 60 * MINUTE
    assert [scan.time for scan in plan.scans] == [
        TimeRange(START, MAX_NS),
        TimeRange(MIN_NS, START + day),
        ALL_TIME,
    ]
