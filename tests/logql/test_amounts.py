"""Numbers, durations and sizes as Go reads and writes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.logql.text.amounts import (
    bytes_text,
    duration_text,
    parse_bytes,
    parse_duration,
    parse_float,
    parse_prometheus_duration,
    prometheus_duration_text,
)

HOUR, MINUTE, SECOND, MS = 3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1.5e3", -1500),
        (".5", 0.5),
        ("5.", 5),
        ("1_000.5", 1000.5),
        ("0x1p-2", 0.25),
        ("0x.8p1", 1),
        ("0x_1p4", 16),
        ("0xep2", 56),
        ("1e-400", 0),
        ("+Inf", math.inf),
        ("-infinity", -math.inf),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse_float(text) == value


def test_not_a_number_is_one() -> None:
    assert math.isnan(parse_float("NaN"))


def refused(parse: Callable[[str], Any], text: str) -> str:
    with pytest.raises(ValueError) as raised:
        parse(text)
    return str(raised.value)


@pytest.mark.parametrize(
    "text", ["", ".", " 1", "1 ", "0x10", "1__0", "_1", "1_", "1e_5", "1_e5", "0x1_p4", "0xp1", "+nan", "e5", "٣"]
)
def test_texts_that_are_no_numbers(text: str) -> None:
    assert refused(parse_float, text) == f'strconv.ParseFloat: parsing "{text}": invalid syntax'


@pytest.mark.parametrize("text", ["1e400", "-1e400", "0x1p99999"])
def test_numbers_that_are_too_large(text: str) -> None:
    assert refused(parse_float, text) == f'strconv.ParseFloat: parsing "{text}": value out of range'


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("-3s", -3 * SECOND),
        ("+3s", 3 * SECOND),
        (".5s", 500 * MS),
        ("1.s", SECOND),
        ("3µs", 3000),
        ("3μs", 3000),
        ("1m1h", HOUR + MINUTE),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("0.100000000000000000000h", 6 * MINUTE),
    ],
)
def test_durations_of_go(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("+", 'time: invalid duration "+"'),
        (".s", 'time: invalid duration ".s"'),
        ("5", 'time: missing unit in duration "5"'),
        ("1h5", 'time: missing unit in duration "1h5"'),
        ("5d", 'time: unknown unit "d" in duration "5d"'),
        ("1 h", 'time: unknown unit " h" in duration "1 h"'),
        ("5é", 'time: unknown unit "\\xc3\\xa9" in duration "5\\xc3\\xa9"'),
        ('5"', 'time: unknown unit "\\"" in duration "5\\""'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("99999999999999999999h", 'time: invalid duration "99999999999999999999h"'),
        ("2562048h", 'time: invalid duration "2562048h"'),
    ],
)
def test_texts_that_are_no_durations_of_go(text: str, message: str) -> None:
    assert refused(parse_duration, text) == message


@pytest.mark.parametrize(
    ("text", "ns"),
    [("0", 0), ("5m", 5 * MINUTE), ("1d12h", 36 * HOUR), ("1y2w", 379 * 24 * HOUR), ("1s500ms", 1500 * MS)],
)
def test_durations_of_prometheus(text: str, ns: int) -> None:
    assert parse_prometheus_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty duration string"),
        ("5", 'not a valid duration string: "5"'),
        ("m", 'not a valid duration string: "m"'),
        ("1m1h", 'not a valid duration string: "1m1h"'),
        ("1m1m", 'not a valid duration string: "1m1m"'),
        ("5minutes", 'unknown unit "minutes" in duration "5minutes"'),
        ("1.5h", 'unknown unit "." in duration "1.5h"'),
        ("300y", "duration out of range"),
    ],
)
def test_texts_that_are_no_durations_of_prometheus(text: str, message: str) -> None:
    assert refused(parse_prometheus_duration, text) == message


@pytest.mark.parametrize(
    ("ns", "go", "prometheus"),
    [
        (0, "0s", "0s"),
        (1, "1ns", "0s"),
        (1500, "1.5µs", "0s"),
        (250 * MS, "250ms", "250ms"),
        (90 * MINUTE, "1h30m0s", "1h30m"),
        (-5 * MINUTE, "-5m0s", "-5m"),
        (HOUR + 500 * MS, "1h0m0.5s", "1h500ms"),
        (168 * HOUR, "168h0m0s", "1w"),
        (36 * HOUR, "36h0m0s", "36h"),
        (365 * 24 * HOUR, "8760h0m0s", "1y"),
        (-(2**63), "-2562047h47m16.854775808s", "-2562047h47m16s854ms"),
    ],
)
def test_texts_of_durations(ns: int, go: str, prometheus: str) -> None:
    assert duration_text(ns) == go
    assert prometheus_duration_text(ns) == prometheus


@given(st.integers(-(2**63), 2**63 - 1))
def test_durations_read_back(ns: int) -> None:
    assert parse_duration(duration_text(ns)) == ns


@given(st.integers(0, 2**43))
def test_milliseconds_read_back(ms: int) -> None:
    assert parse_prometheus_duration(prometheus_duration_text(ms * MS)) == ms * MS


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5),
        ("1.5KiB", 1536),
        ("1kB", 1000),
        ("1 KB", 1000),
        ("1,000 kb", 1_000_000),
        ("2mi", 2 << 20),
        ("10GB", 10**10),
        ("1PB", 10**15),
        ("1PiB", 1 << 50),
        ("1EB", 10**18),
        ("0.5b", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'strconv.ParseFloat: parsing "": invalid syntax'),
        ("-1B", 'strconv.ParseFloat: parsing "": invalid syntax'),
        ("1.2.3B", 'strconv.ParseFloat: parsing "1.2.3": invalid syntax'),
        ("7Foo", "unhandled size name: foo"),
        ("16EiB", "too large: 16EiB"),
    ],
)
def test_texts_that_are_no_sizes(text: str, message: str) -> None:
    assert refused(parse_bytes, text) == message


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (9, "9B"),
        (10, "10B"),
        (999, "999B"),
        (1536, "1.5kB"),
        (2560, "2.6kB"),
        (10**10, "10GB"),
        (82854982, "83MB"),
    ],
)
def test_texts_of_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text
