"""Times as people write them, held against Python's own arithmetic of dates and decimals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.pipeline.transcode.times import LAST_NS, UNITS, Instant, duration_ns, parse_instant

NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, Instant(1_700_000_000 * 10**9, "s", True)),
        (1_700_000_000_123, Instant(1_700_000_000_123 * 10**6, "ms", True)),
        (1_700_000_000_123_456, Instant(1_700_000_000_123_456 * 1000, "us", True)),
        (NS, Instant(NS, "ns", True)),
        ("1700000000.123456789", Instant(NS, "s", True)),
        ("1700000000123.456789", Instant(NS, "ms", True)),
        ("1700000000123456.789", Instant(NS, "us", True)),
        ("1700000000123456789", Instant(NS, "ns", True)),
        ("1700000000.1234567891", Instant(NS, "s", False)),
        (" 1.7e9 ", Instant(1_700_000_000 * 10**9, "s", True)),
        (1700000000.5, Instant(1_700_000_000_500_000_000, "s", True)),
        ("2023-11-14T22:13:20.123456789Z", Instant(NS, "", True)),
        ("2023-11-14t22:13:20.123456789z", Instant(NS, "", True)),
        ("2023-11-14 22:13:20,123456789", Instant(NS, "", True)),
        ("2023-11-14 22:13:20.123456789 UTC", Instant(NS, "", True)),
        ("2023-11-15T03:43:20.123456789+05:30", Instant(NS, "", True)),
        ("2023-11-14T14:13:20.123456789-0800", Instant(NS, "", True)),
        ("2023-11-14T22:13:20.1234567890000Z", Instant(NS, "", True)),
        ("2023-11-14T22:13:20.1234567891Z", Instant(NS, "", False)),
        ("2016-12-31T23:59:60Z", Instant(1_483_228_800 * 10**9, "", False)),
        (LAST_NS, Instant(LAST_NS, "ns", True)),
        (10**11 - 1, None),  # seconds, past what a timestamp holds
        (10**11, Instant(10**17, "ms", True)),
        (10**14, Instant(10**17, "us", True)),
        (10**17, Instant(10**17, "ns", True)),
    ],
)
def test_an_instant_is_read_exactly(value: Any, expected: Instant | None) -> None:
    assert parse_instant(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "0", LAST_NS + 1, 2**64, "", "now", True, None, [1], {"a": 1}, b"1700000000"),
        *("2023-11-31", "2023-02-30T00:00:00Z", "2023-11-14T24:00:00Z", "2023-11-14T22:60:00Z", "2023-11-14T22:13:61Z"),
        *("2023-11-14T22:13:20+24:00", "1969-12-31T23:59:59Z", "1e999", "1e-999", "9" * 65, "NaN", "Infinity"),
        *("\u0661\u0667\u0660\u0660", float("nan"), float("inf")),
    ],
)
def test_what_is_no_time_of_otlp_is_none(value: Any) -> None:
    assert parse_instant(value) is None


NOON = 1_794_916_800 * 10**9  # 2026-11-17T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10/Oct/2000:13:55:36 -0700", Instant(971_211_336 * 10**9, "", True)),
        ("17/Nov/2026:12:00:00.5 +0000", Instant(NOON + 500_000_000, "", True)),
        ("Tue, 17 Nov 2026 12:00:00 GMT", Instant(NOON, "", True)),
        ("Tue, 17 Nov 2026 13:30:00 +0130", Instant(NOON, "", True)),
        ("Sun, 1 Nov 2026 12:00:00 GMT", Instant(NOON - 16 * 86_400 * 10**9, "", True)),
        ("Tuesday, 17-Nov-26 12:00:00 GMT", Instant(NOON, "", True)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", Instant(784_111_777 * 10**9, "", True)),
        ("Tue Nov 17 12:00:00 2026", Instant(NOON, "", True)),
        ("Sun Nov  1 12:00:00.000001 2026", Instant(NOON - 16 * 86_400 * 10**9 + 1000, "", True)),
        ("2026-11-17", Instant(NOON - 43_200 * 10**9, "", True)),
        ("2026/11/17 12:00:00", Instant(NOON, "", True)),
        ("2026/11/17 12:00:00.123456", Instant(NOON + 123_456_000, "", True)),
        ("2026-11-17 12:00:00,123", Instant(NOON + 123_000_000, "", True)),
        ("2026-11-17 12:00:00 GMT", Instant(NOON, "", True)),
        ("2026-11-17 13:00:00.5 CET", Instant(NOON + 500_000_000, "", True)),
        ("2026-11-17 14:00:00 CEST", Instant(NOON, "", True)),
        ("Tue, 17 Nov 2026 04:00:00 PST", Instant(NOON, "", True)),
        ("2026-11-17 12:00:00 IST", None),  # of India, Israel and Ireland
        ("2026-11-17 12:00:00 CST", None),  # of Chicago, China and Cuba
        ("2026-11-17T12:00Z", Instant(NOON, "", True)),
        ("2026-11-17 12:00", Instant(NOON, "", True)),
        ("2026-11-17T13:00+01:00", Instant(NOON, "", True)),
        ("20261117T120000Z", Instant(NOON, "", True)),
        ("20261117T130000.25+0100", Instant(NOON + 250_000_000, "", True)),
        ("2026-11-17T24:00Z", None),
        ("20261117T126000Z", None),
        ("2026-11-17 13:00:00.5+01", Instant(NOON + 500_000_000, "", True)),
        ("2026-11-17 13:00:00 +01", None),
        ("Sat, 31 Dec 2016 23:59:60 GMT", Instant(1_483_228_800 * 10**9, "", False)),
        ("2026-11/17 12:00:00", None),
        ("31/Sep/2026:12:00:00 +0000", None),
        ("17/nov/2026:12:00:00 +0000", None),
        ("Tue, 17 Nov 2026 12:00:00 +2500", None),
        ("Nov 17 12:00:00", None),  # no year, and nothing to choose it by
        ("I1117 12:00:00.123456", None),
    ],
)
def test_dates_that_logs_write_are_read_exactly(text: str, expected: Instant | None) -> None:
    assert parse_instant(text) == expected


@pytest.mark.parametrize(
    ("text", "near", "expected"),
    [
        ("Nov 17 12:00:00", "2026-11-17 13:00:00", "2026-11-17 12:00:00"),
        ("Nov  7 12:00:00.25", "2026-11-17 13:00:00", "2026-11-07 12:00:00.25"),
        ("Nov 7 12:00:00", "2026-11-17 13:00:00", "2026-11-07 12:00:00"),
        ("Dec 31 23:59:59", "2027-01-01 00:00:05", "2026-12-31 23:59:59"),
        ("Jan  1 00:00:01", "2026-12-31 23:59:58", "2027-01-01 00:00:01"),
        ("Feb 29 12:00:00", "2026-11-17 00:00:00", "2028-02-29 12:00:00"),
        ("Feb 29 12:00:00", "2026-01-17 00:00:00", "2024-02-29 12:00:00"),
        ("Feb 29 12:00:00", "2100-01-01 00:00:00", "2096-02-29 12:00:00"),
        ("I1117 12:00:00.123456", "2026-11-17 13:00:00", "2026-11-17 12:00:00.123456"),
        ("E0101 00:00:00.000001", "2026-12-31 13:00:00", "2027-01-01 00:00:00.000001"),
    ],
)
def test_a_date_without_a_year_lies_nearest_to_its_reference(text: str, near: str, expected: str) -> None:
    reference = parse_instant(near)
    assert reference is not None
    assert parse_instant(text, "", reference.ns) == parse_instant(expected)


@pytest.mark.parametrize("text", ["Nov 31 12:00:00", "Foo 17 12:00:00", "I1332 12:00:00.1", "Nov 17 24:00:00"])
def test_a_day_that_no_year_has_is_no_time(text: str) -> None:
    assert parse_instant(text, "", NOON) is None


@given(st.integers(1, LAST_NS), st.sampled_from(sorted(UNITS)))
def test_a_number_in_a_stated_unit_is_the_same_as_decimal_text(ns: int, unit: str) -> None:
    text = format(Decimal(ns) / UNITS[unit], "f") if unit != "ns" else str(ns)
    found = parse_instant(text, unit)
    assert found is not None
    assert found.ns == ns
    assert found.exact


@given(
    st.datetimes(datetime(1970, 1, 2, 2), datetime(2261, 1, 1)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.integers(0, 999),
)
def test_any_offset_is_the_same_instant(when: datetime, offset: int, nanos: int) -> None:
    seconds = (when.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    local = when.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=offset)))
    text = f"{local:%Y-%m-%dT%H:%M:%S.%f}{nanos:03}{local:%z}"
    assert parse_instant(text) == Instant(seconds * 1000 + nanos, "", True)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (5, "ms", 5_000_000),
        ("1.5", "s", 1_500_000_000),
        (0.25, "us", 250),
        ("1.5ms", "", 1_500_000),
        ("20 µs", "s", 20_000),
        ("2h", "", 7_200_000_000_000),
        (0, "s", 0),
        (5, "", None),
        (-5, "ms", None),
        ("0.1ns", "", None),
        (True, "s", None),
        ("soon", "s", None),
        (2**63, "s", None),
    ],
)
def test_a_duration_is_whole_nanoseconds_or_none(value: Any, unit: str, expected: int | None) -> None:
    assert duration_ns(value, unit) == expected
