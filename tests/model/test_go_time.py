"""Instants by Go's layouts: written, read, and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.templates.go_time import (
    GoTime,
    TimeZone,
    civil_from_days,
    days_from_civil,
    format_time,
    load_zone,
)
from lakerunner.model.templates.go_time_parse import parse_time

NIGHT = GoTime.from_ns(1_709_168_645_067_000_089)  # 2024-02-29 01:04:05.067000089 UTC
STANDARD = "2006-01-02 15:04:05.999999999 -0700 MST"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("2006-01-02T15:04:05Z07:00", "2024-02-29T01:04:05Z"),
        ("2006-01-02T15:04:05.999999999Z07:00", "2024-02-29T01:04:05.067000089Z"),
        ("Mon Jan _2 15:04:05 2006", "Thu Feb 29 01:04:05 2024"),
        ("Monday, 02-Jan-06 15:04:05 MST", "Thursday, 29-Feb-24 01:04:05 UTC"),
        ("January 2 1/2/06", "February 29 2/29/24"),
        ("3:04PM 03:4:5 pm", "1:04AM 01:4:5 am"),
        ("002 __2", "060  60"),
        (".000 .000000 ,000 .9 .99 .999", ".067 .067000 ,067  .06 .067"),
        ("-0700 -07:00 -07 -070000 -07:00:00 Z0700 Z07", "+0000 +00:00 +00 +000000 +00:00:00 Z Z"),
        ("Januar Janet Mondays MSTx _2006 2006x", "Januar Janet Thursdays UTCx _2024 2024x"),
        ("no digits", "no digits"),
    ],
)
def test_format(layout: str, text: str) -> None:
    assert format_time(NIGHT, layout) == text


def test_format_in_a_zone() -> None:
    zone = load_zone("America/New_York")
    assert format_time(GoTime(NIGHT.seconds, 0, zone), STANDARD) == "2024-02-28 20:04:05 -0500 EST"
    assert format_time(GoTime(0, 0, TimeZone("", 3723)), "-0700 -07:00:00 Z07 MST") == "+0102 +01:02:03 +01 +0102"


@pytest.mark.parametrize(
    ("layout", "text", "written"),
    [
        ("2006-01-02", "2021-11-02", "2021-11-02 00:00:00 +0000 UTC"),
        ("2006-01-02T15:04:05Z07:00", "2021-11-02T03:04:05.5+02:00", "2021-11-02 03:04:05.5 +0200 +0200"),
        ("2006-01-02T15:04:05Z07:00", "2021-11-02T03:04:05Z", "2021-11-02 03:04:05 +0000 UTC"),
        ("Jan _2 15:04:05", "nov  2 03:04:05", "0000-11-02 03:04:05 +0000 UTC"),
        ("Monday January 2 2006", "tuesday NOVEMBER 2 2021", "2021-11-02 00:00:00 +0000 UTC"),
        ("02/Jan/2006:15:04:05 -0700", "02/Nov/2021:03:04:05 -0730", "2021-11-02 03:04:05 -0730 -0730"),
        ("06-1-2 3:04PM", "69-1-2 12:30AM", "1969-01-02 00:30:00 +0000 UTC"),
        ("06-1-2 3:04pm", "68-12-31 1:30pm", "2068-12-31 13:30:00 +0000 UTC"),
        ("2006-002", "2024-366", "2024-12-31 00:00:00 +0000 UTC"),
        ("15:04:05.000", "01:02:03.456", "0000-01-01 01:02:03.456 +0000 UTC"),
        ("15:04:05,999", "01:02:03,4", "0000-01-01 01:02:03.4 +0000 UTC"),
        ("15:04:05.99", "01:02:03", "0000-01-01 01:02:03 +0000 UTC"),
        ("2006 MST", "2021 CEST", "2021-01-01 00:00:00 +0000 CEST"),
        ("2006 MST", "2021 GMT+3", "2021-01-01 03:00:00 +0300 GMT+3"),
        ("2006 MST", "2021 UTC", "2021-01-01 00:00:00 +0000 UTC"),
        ("2006-01-02 -07:00:00", "2021-11-02 +01:02:03", "2021-11-02 00:00:00 +0102 +0102"),
        ("2006  x", "2021    x", "2021-01-01 00:00:00 +0000 UTC"),
    ],
)
def test_parse(layout: str, text: str, written: str) -> None:
    found = parse_time(layout, text)
    assert found is not None
    assert format_time(found, STANDARD) == written


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("2006-01-02", "2021-13-01"),
        ("2006-01-02", "2021-02-29"),
        ("2006-01-02", "2021-00-10"),
        ("2006-01-02", "2021-1-10"),
        ("2006-01-02", "2021-01-10 "),
        ("2006-01-02", ""),
        ("15:04", "24:00"),
        ("15:04", "01:60"),
        ("3PM", "13PM"),
        ("3PM", "1XM"),
        ("Jan", "Foo"),
        ("-0700", "+0x00"),
        ("-0700", "*0100"),
        ("-07:00", "+2500"),
        ("MST", "cest"),
        ("MST", "ABCD"),
        ("05.000", "01.5"),
        ("2006-002", "2023-366"),
        ("2006-01-002", "2023-01-060"),
        ("06", "x1"),
        ("٣", "3"),
    ],
)
def test_texts_that_do_not_follow_the_layout(layout: str, text: str) -> None:
    assert parse_time(layout, text) is None


def test_parse_in_a_zone() -> None:
    zone = load_zone("Europe/Zurich")

    def written(layout: str, text: str) -> str:
        found = parse_time(layout, text, zone)
        assert found is not None
        return format_time(found, STANDARD)

    assert written("2006-01-02", "2021-07-01") == "2021-07-01 00:00:00 +0200 CEST"
    assert written("2006-01-02", "2021-12-01") == "2021-12-01 00:00:00 +0100 CET"
    assert written("2006-01-02 15:04", "2021-03-28 02:30") == "2021-03-28 03:30:00 +0200 CEST"  # a gap
    assert written("2006-01-02 MST", "2021-07-01 CET") == "2021-07-01 01:00:00 +0200 CEST"
    assert written("2006-01-02 -0700", "2021-07-01 +0200") == "2021-07-01 00:00:00 +0200 CEST"


def test_unknown_zones_are_utc() -> None:
    names = ("", "UTC", "Local", "No/Where", "../etc/passwd", "/etc/passwd", "Europe")
    assert {load_zone(name) for name in names} == {TimeZone()}


@given(st.integers(-5_000_000, 5_000_000))
def test_the_calendar_goes_both_ways(days: int) -> None:
    assert days_from_civil(*civil_from_days(days)) == days


@given(st.integers(-(2**62), 2**62), st.sampled_from([0, 3600, -16_200, 45_000]))
def test_what_is_written_can_be_read(ns: int, offset: int) -> None:
    layout = "2006-01-02T15:04:05.000000000Z07:00"
    time = GoTime(*divmod(ns, 1_000_000_000), TimeZone("", offset))
    found = parse_time(layout, format_time(time, layout))
    assert found is not None
    assert found.ns == ns
