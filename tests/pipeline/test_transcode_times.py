"""Times as people write them, held against Python's own arithmetic of dates and decimals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.pipeline.transcode.times import LAST_NS, UNITS, Instant, duration_ns, instant

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
    assert instant(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "0", LAST_NS + 1, 2**64, "", "now", True, None, [1], {"a": 1}, b"1700000000"),
        *("2023-11-14", "2023-02-30T00:00:00Z", "2023-11-14T24:00:00Z", "2023-11-14T22:60:00Z", "2023-11-14T22:13:61Z"),
        *("2023-11-14T22:13:20+24:00", "1969-12-31T23:59:59Z", "1e999", "1e-999", "9" * 65, "NaN", "Infinity"),
        *("\u0661\u0667\u0660\u0660", float("nan"), float("inf")),
    ],
)
def test_what_is_no_time_of_otlp_is_none(value: Any) -> None:
    assert instant(value) is None


@given(st.integers(1, LAST_NS), st.sampled_from(sorted(UNITS)))
def test_a_number_in_a_stated_unit_is_the_same_as_decimal_text(ns: int, unit: str) -> None:
    text = format(Decimal(ns) / UNITS[unit], "f") if unit != "ns" else str(ns)
    found = instant(text, unit)
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
    assert instant(text) == Instant(seconds * 1000 + nanos, "", True)


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
