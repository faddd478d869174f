"""Instants and durations in all forms of logs and files, as exact nanoseconds.

Comes in: integers, floats, decimal digits, dates in the forms of FORMS. Goes out: nanoseconds since the epoch, and
whether they hold everything that the input stated. No float is ever multiplied: decimal digits are shifted. What cannot
be an OTLP time (1970-01-01 itself, which means unset there, anything before it, anything past 2262) is None, as is what
cannot be parsed.

A time without a zone is UTC; one without a year gets the year in which it is nearest to a reference that the caller
passes, never to the clock. docs/formats/inputs.md shows the forms to users.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

from lakerunner.pipeline.transcode.any_values import Written

# ---- dates. The pattern of each form has three groups: the text down to the second, the digits behind the second, the
# zone. Results for the first and the last are cached, because neighbouring lines share them.

_EPOCH = date(1970, 1, 1).toordinal()
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_MONTH = f"(?:{'|'.join(_MONTH_NAMES)})"
_CLOCK = r"\d\d:\d\d:\d\d"
_FRACTION = r"(?:[.,](\d+))?"
# Hours ahead of UTC for the names that mean one offset only: those of Europe, Japan, and RFC 2822 except CST.
_NAMED = {"UTC": 0, "GMT": 0, "WET": 0, "CET": 1, "EET": 2, "WEST": 1, "CEST": 2, "EEST": 3, "JST": 9}
_NAMED |= {"EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
# Hours alone, as PostgreSQL writes them, follow without a space.
_ZONE = rf"\s?([Zz]|(?:{'|'.join(_NAMED)})\b|[+-]\d\d:?\d\d|(?<=\d)[+-]\d\d)?"
# Names that mean several offsets, as CST those of Chicago and China, or that are not in the table above.
_UNKNOWN = "ACST ADT AEDT AEST AKST AST AWST BRT BST CST HKT HST IST KST MSK NZDT NZST PHT PKT SAST SGT WIB"
UNKNOWN_ZONE = rf" (?:{_UNKNOWN.replace(' ', '|')})\b"
_DAY_NAME = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY_NAME = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_YEARS_AROUND = 8  # February 29th is missing for up to seven years (1897 to 1903, 2097 to 2103)


class Instant(NamedTuple):
    """Nanoseconds since the epoch, and the unit in which a number was read, "" for a date. `exact` is False if digits
    below a nanosecond, or a leap second, could not be kept."""

    ns: int
    unit: str
    exact: bool


class Form(NamedTuple):
    """`seconds` returns the seconds of the first group, as if it were UTC; None if there is no such date. Its second
    argument is the reference in ns, for forms without a year. `year_last`: the third group is a year, not a zone."""

    pattern: str
    seconds: Callable[[str, int | None], int | None]
    year_last: bool = False

    def moment(
        self, down_to_second: str, fraction: str | None, zone: str | None, near_ns: int | None
    ) -> Instant | None:
        """Return the time of these parts of a match; None if there is no such time."""
        exact = down_to_second[-2:] != "60"
        if self.year_last:
            down_to_second, zone = f"{down_to_second} {zone}", ""
        seconds = _cached_seconds(self.seconds, down_to_second, near_ns)
        offset = _offset(zone or "")
        if seconds is None or offset is None:
            return None
        ns = (seconds - offset) * 10**9
        if not fraction:
            return Instant(ns, "", exact)
        return Instant(ns + int(fraction[:9].ljust(9, "0")), "", exact and not fraction[9:].strip("0"))


@lru_cache(maxsize=4096)
def _cached_seconds(seconds: Callable[[str, int | None], int | None], text: str, near_ns: int | None) -> int | None:
    return seconds(text, near_ns)


@lru_cache(maxsize=512)
def _offset(zone: str) -> int | None:
    """Return the seconds that this zone is ahead of UTC; None if there is no such zone."""
    if zone[:1] not in ("+", "-"):
        return _NAMED.get(zone, 0) * 3600
    hours, minutes = zone[1:3], zone[3:].lstrip(":") or "00"
    if hours > "23" or minutes > "59":
        return None
    offset = int(hours) * 3600 + int(minutes) * 60
    return offset if zone[0] == "+" else -offset


def _at(year: int, month: int, day: int, clock: str) -> int | None:
    """Return the seconds from the epoch to this day and time, `12:00:00`; a leap second is taken as the next second."""
    hour, minute, second = clock[:2], clock[3:5], clock[6:8]
    if hour > "23" or minute > "59" or second > "60":
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None
    return days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)


def _iso(text: str, _: int | None) -> int | None:
    return _at(int(text[:4]), int(text[5:7]), int(text[8:10]), text[11:])


def _rfc850(text: str, _: int | None) -> int | None:
    year = int(text[7:9])
    return _at(year + (1900 if year >= 70 else 2000), _MONTHS[text[3:6]], int(text[:2]), text[10:])


def _nearest(month: int, day: int, clock: str, near_ns: int | None) -> int | None:
    """Return the time of this day in the year in which it is nearest to the reference."""
    if near_ns is None:
        return None
    near = near_ns // 10**9
    year = date.fromordinal(_EPOCH + near // 86_400).year
    found = (_at(one, month, day, clock) for one in range(year - _YEARS_AROUND, year + _YEARS_AROUND + 1))
    return min((one for one in found if one is not None), key=lambda one: abs(one - near), default=None)


ISO = Form(rf"(\d{{4}}-\d\d-\d\d[Tt ]{_CLOCK}){_FRACTION}{_ZONE}", _iso)
SLASHES = Form(rf"(\d{{4}}/\d\d/\d\d[T ]{_CLOCK}){_FRACTION}{_ZONE}", _iso)
ACCESS_LOG = Form(
    rf"(\d\d/{_MONTH}/\d{{4}}:{_CLOCK}){_FRACTION}{_ZONE}",
    lambda text, _: _at(int(text[7:11]), _MONTHS[text[3:6]], int(text[:2]), text[12:]),
)
HTTP = Form(
    rf"{_DAY_NAME}, (\d\d? {_MONTH} \d{{4}} {_CLOCK}){_FRACTION}{_ZONE}",
    lambda text, _: _at(int(text[-13:-9]), _MONTHS[text[-17:-14]], int(text[:-18]), text[-8:]),
)
RFC850 = Form(rf"{_LONG_DAY_NAME}, (\d\d-{_MONTH}-\d\d {_CLOCK}){_FRACTION}{_ZONE}", _rfc850)
ASCTIME = Form(
    rf"{_DAY_NAME} ({_MONTH} [ \d]?\d {_CLOCK}){_FRACTION} (\d{{4}})",
    lambda text, _: _at(int(text[-4:]), _MONTHS[text[:3]], int(text[4:-14]), text[-13:-5]),
    year_last=True,
)
SYSLOG = Form(
    rf"({_MONTH} [ \d]?\d {_CLOCK}){_FRACTION}()",
    lambda text, near_ns: _nearest(_MONTHS[text[:3]], int(text[4:-9]), text[-8:], near_ns),
)
KLOG = Form(
    rf"[IWEF](\d{{4}} {_CLOCK}){_FRACTION}()",
    lambda text, near_ns: _nearest(int(text[:2]), int(text[2:4]), text[5:], near_ns),
)
MINUTE = Form(rf"(\d{{4}}-\d\d-\d\d[Tt ]\d\d:\d\d)(){_ZONE}", lambda text, _: _iso(f"{text}:00", None))
BASIC = Form(
    rf"(\d{{8}}T\d{{6}}){_FRACTION}{_ZONE}",
    lambda text, _: _at(int(text[:4]), int(text[4:6]), int(text[6:8]), f"{text[9:11]}:{text[11:13]}:{text[13:]}"),
)
DAY = Form(r"(\d{4}-\d\d-\d\d)()()", lambda text, _: _iso(f"{text} 00:00:00", None))

FORMS = (ISO, SLASHES, ACCESS_LOG, HTTP, RFC850, ASCTIME, SYSLOG, KLOG, MINUTE, BASIC, DAY)
_WHOLE = tuple((form, re.compile(form.pattern, re.ASCII)) for form in FORMS)


def parse_date(text: str, near_ns: int | None = None) -> Instant | None:
    """Parse a text that is a date in one of the forms; None if it is not."""
    for form, pattern in _WHOLE:
        found = pattern.fullmatch(text)
        if found:
            return form.moment(found[1], found[2], found[3], near_ns)
    return None


# ---- instants and durations

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
LAST_NS = 2**63 - 2  # the last time that a segment can hold

_MAX_TEXT = 64
_EXACT = Context(prec=2 * _MAX_TEXT)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DURATION = re.compile(r"([+-]?\d+(?:\.\d*)?)\s?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION_NS = {**UNITS, "µs": 10**3, "μs": 10**3, "m": 60 * 10**9, "h": 3600 * 10**9}


class Nanoseconds(int):
    """A number that is known to be nanoseconds since the epoch, and a time that OTLP can hold."""


def parse_instant(value: Any, unit: str = "", near_ns: int | None = None) -> Instant | None:
    """Parse a number in this unit, or in the one that its magnitude suggests, or a date; a date without a year is in
    the year in which it is nearest to `near_ns`, and None without that."""
    kind = type(value)
    if kind is int:
        return _from_integer(value, unit)
    if kind is str:
        if len(value) > _MAX_TEXT:
            return None
        text = value.strip()
        found = parse_date(text, near_ns)
        return _in_range(*found) if found else _from_text(text, unit)
    if kind is float:
        return _from_text(repr(value), unit)
    if kind is Nanoseconds:
        return Instant(value, "", True)
    if kind is Written:
        return _from_text(value.text, unit) if len(value.text) <= _MAX_TEXT else None
    return None


def guessed_unit(number: int) -> str:
    """Return the unit in which this number since 1970 is between 1973 and 5138; smaller numbers are seconds."""
    size = abs(number)
    return "s" if size < 10**11 else "ms" if size < 10**14 else "us" if size < 10**17 else "ns"


def duration_ns(value: Any, unit: str) -> int | None:
    """Parse a duration; text may have its own unit, as in `1.5ms`. None if it cannot be parsed, is negative or not a
    whole number of nanoseconds."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip()) if len(value) <= _MAX_TEXT else None
        if found:
            return _whole_ns(Decimal(found[1]), _DURATION_NS[found[2]])
    if not unit or isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = value.text if isinstance(value, Written) else str(value).strip()
    return _whole_ns(Decimal(text), UNITS[unit]) if len(text) <= _MAX_TEXT and _NUMBER.fullmatch(text) else None


def _whole_ns(number: Decimal, factor: int) -> int | None:
    scaled = _EXACT.multiply(number, Decimal(factor))
    return int(scaled) if scaled == scaled.to_integral_value() and 0 <= scaled <= LAST_NS else None


def _from_integer(number: int, unit: str) -> Instant | None:
    unit = unit or guessed_unit(number)
    return _in_range(number * UNITS[unit], unit, True)


def _from_text(text: str, unit: str) -> Instant | None:
    if not _NUMBER.fullmatch(text):
        return None
    if text.isdecimal():
        return _from_integer(int(text), unit)
    try:
        number = Decimal(text)
        unit = unit or guessed_unit(int(number))
        scaled = _EXACT.multiply(number, Decimal(UNITS[unit]))
    except (InvalidOperation, OverflowError):
        return None
    whole = int(scaled)
    return _in_range(whole, unit, whole == scaled)


def _in_range(ns: int, unit: str, exact: bool) -> Instant | None:
    return Instant(ns, unit, exact) if 0 < ns <= LAST_NS else None
