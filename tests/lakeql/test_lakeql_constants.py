"""Constant times and intervals come out as DuckDB works them out, and texts are read as ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.dialect import DIALECT
from lakerunner.model.time import read_time, time_text

NOW = 1_704_164_645_123_456_789  # 2024-01-02T03:04:05.123456789Z
NOW_US = NOW // 1000 * 1000


def parsed(text: str) -> exp.Expr:
    (tree,) = DIALECT.parse(f"SELECT {text}")
    assert isinstance(tree, exp.Select)
    return tree.expressions[0]


def constant(text: str) -> int | None:
    time = Constants(NOW).time(parsed(text))
    return time.ns if time else None


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


amounts = st.integers(-300, 300)
units = st.sampled_from(
    ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]
)
intervals = st.one_of(
    st.builds(lambda n, u: f"INTERVAL '{n}' {u.upper()}", amounts, units),
    st.builds(lambda n, u: f"INTERVAL '{n} {u}s'", amounts, units),
    st.builds(lambda n, m: f"INTERVAL '{n} months {m} days 3 hours'", amounts, amounts),
    st.builds(lambda n, u: f"to_{u}s({n})", amounts, units.filter(lambda u: u != "quarter")),
    st.builds(lambda n: f"{n} * INTERVAL 5 MINUTE", amounts),
    st.builds(lambda n: f"CAST('{n} hours' AS INTERVAL)", amounts),
    st.builds(lambda n: f"(- INTERVAL {abs(n)} DAY)", amounts),
)
days = st.dates(date(1800, 1, 1), date(2200, 1, 1))
times = st.one_of(
    st.builds(lambda d: f"TIMESTAMP '{d} 23:59:59.999999'", days),
    st.builds(lambda d: f"DATE '{d}'", days),
    st.builds(lambda d: f"CAST('{d} 12:30:00+05:30' AS TIMESTAMPTZ)", days),
    st.builds(lambda n: f"make_timestamp({n})", st.integers(-(10**15), 10**15)),
    st.builds(lambda n: f"epoch_ms({n})", st.integers(-(10**12), 10**12)),
    st.builds(lambda n: f"to_timestamp({n})", st.integers(-(10**9), 10**9)),
)
expressions = st.recursive(
    times,
    lambda inner: st.one_of(
        st.builds(lambda t, i, sign: f"({t} {sign} {i})", inner, intervals, st.sampled_from("+-")),
        st.builds(lambda t, u: f"date_trunc('{u}', {t})", inner, units),
        st.builds(lambda t: f"CAST({t} AS DATE)", inner),
        st.builds(lambda t, n: f"(CAST({t} AS DATE) + {n})", inner, amounts),
        st.builds(lambda t: f"CAST({t} AS TIMESTAMP)", inner),
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(text=expressions)
def test_constants_are_what_duckdb_makes_of_them(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    """Except that a zoned time is not moved by months and days at once: DuckDB has its own order there."""
    ours = constant(text)
    if ours is None:
        assert "months" in text
        return
    (theirs,) = connection.execute(f"SELECT epoch_us(CAST({text} AS TIMESTAMP))").fetchone() or (0,)
    assert ours == theirs * 1000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("now()", NOW_US),
        ("current_timestamp", NOW_US),
        ("get_current_timestamp()", NOW_US),
        ("today()", 1_704_153_600_000_000_000),
        ("current_date - 1", 1_704_067_200_000_000_000),
        ("now() - INTERVAL 1 HOUR", NOW_US - 3_600_000_000_000),
        ("ago(INTERVAL '1 hour')", NOW_US - 3_600_000_000_000),
        ("make_timestamp_ns(7)", 7),
        ("make_timestamp_ns(-7)", -7),
        ("to_timestamp(1.000000001)", 1_000_000_001),
        ("TIMESTAMP_NS '1970-01-01 00:00:00.000000001'", 1),
        ("date_trunc('week', TIMESTAMP '1970-01-01')", -3 * 86_400_000_000_000),
    ],
)
def test_times_that_are_understood(text: str, ns: int) -> None:
    assert constant(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "'2024-01-01'",
        "1",
        "timestamp",
        "now() - INTERVAL '1.5 hours'",
        "now() - INTERVAL x HOUR",
        "now() + 1",
        "date_trunc('day', now()) - 1",
        "strptime('2024', '%Y')",
        "make_timestamp(2024, 1, 1, 0, 0, 0)",
        "to_timestamp(1e9)",
        "TIMESTAMP_S '2024-01-01'",
        "now() - INTERVAL '1 fortnight'",
    ],
)
def test_times_that_are_left_to_duckdb(text: str) -> None:
    assert constant(text) is None


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-01-02", "2024-01-02T00:00:00+00:00"),
        ("2024-01-02 03:04", "2024-01-02T03:04:00+00:00"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05+00:00"),
        ("2024-01-02t03:04:05.5z", "2024-01-02T03:04:05.500000+00:00"),
        (" 2024-01-02 03:04:05.123456 ", "2024-01-02T03:04:05.123456+00:00"),
        ("2024-01-02 03:04:05 +01", "2024-01-02T03:04:05+01:00"),
        ("2024-01-02T03:04:05-0330", "2024-01-02T03:04:05-03:30"),
        ("2024-02-29T23:59:59+05:30", "2024-02-29T23:59:59+05:30"),
    ],
)
def test_texts_that_are_times(text: str, iso: str) -> None:
    time = read_time(text)
    since = datetime.fromisoformat(iso) - datetime(1970, 1, 1, tzinfo=UTC)
    assert time is not None
    assert time[0] == (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def test_a_text_is_exact_to_the_nanosecond() -> None:
    assert read_time("1969-12-31 23:59:59.999999999") == (-1, False)


@pytest.mark.parametrize(
    "text", ["", "now", "2024", "2024-1-2", "2024-01-02 25:00", "2024-01-02 03:04:60", "1704164645"]
)
def test_texts_that_are_no_times(text: str) -> None:
    assert Constants(NOW).time(exp.Literal.string(text), or_text=True) is None


def test_a_day_that_does_not_exist_is_no_time() -> None:
    assert Constants(NOW).time(exp.Literal.string("2023-02-29"), or_text=True) is None


@given(ns=st.integers(-(2**63), 2**63 - 1))
def test_written_times_read_back(ns: int) -> None:
    time = read_time(time_text(ns))
    assert time is not None
    assert time[0] == ns
