"""Instants as Go's package time has them, and their text by layouts such as `2006-01-02 15:04:05`.

Comes in: seconds and nanoseconds since the epoch with a zone, and a layout. Goes out: text. What always holds: any year
can be shown, and the local zone is UTC, so that an answer does not depend on the machine. go_time_parse.py reads text
by the same layouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC as PYTHON_UTC
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SECOND_NS = 1_000_000_000
DAY_SECONDS = 86_400
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
STRING_LAYOUT = "2006-01-02 15:04:05.999999999 -0700 MST"
# The first that matches at a place counts. An `_` before 2006 is text; Jan and Mon are no parts of longer words.
LAYOUT_PART = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|0[1-6]|002|15|1|2006|2|_2(?!006)|__2|3|4|5|PM|pm"
    r"|[-Z]07(?:00(?:00)?|:00(?::00)?)?|[.,](?:0+|9+)(?![0-9])"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=PYTHON_UTC)
_FIRST = -62_135_596_800  # seconds of 0001-01-01, which is also Go's zero time
_LAST = 253_402_214_400  # of 9999-12-31, as far as Python's zones reach


@dataclass(frozen=True, slots=True)
class TimeZone:
    """A fixed offset in seconds with its name, or the rules of a region."""

    name: str = "UTC"
    offset: int = 0
    rules: ZoneInfo | None = None

    def at(self, seconds: int) -> tuple[str, int]:
        """Return abbreviation and offset at an instant."""
        if self.rules is None:
            return self.name, self.offset
        instant = _EPOCH + timedelta(seconds=min(max(seconds, _FIRST + DAY_SECONDS), _LAST - DAY_SECONDS))
        local = instant.astimezone(self.rules)
        offset = local.utcoffset() or timedelta()
        return local.tzname() or "", int(offset.total_seconds())


UTC_ZONE = TimeZone()


@lru_cache(maxsize=64)
def load_zone(name: str) -> TimeZone:
    """Return a zone by the name of its region; UTC for an unknown name."""
    if name in ("", "UTC", "Local"):
        return UTC_ZONE
    try:
        return TimeZone(rules=ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC_ZONE


@dataclass(frozen=True, slots=True)
class GoTime:
    """An instant with its zone; `nanos` is below a second."""

    seconds: int = _FIRST
    nanos: int = 0
    zone: TimeZone = UTC_ZONE

    @classmethod
    def from_ns(cls, ns: int) -> GoTime:
        return cls(*divmod(ns, SECOND_NS))

    @property
    def ns(self) -> int:
        return self.seconds * SECOND_NS + self.nanos

    def local(self) -> LocalTime:
        name, offset = self.zone.at(self.seconds)
        days, rest = divmod(self.seconds + offset, DAY_SECONDS)
        return LocalTime(*civil_from_days(days), days, rest, self.nanos, name, offset)

    def __str__(self) -> str:
        return format_time(self, STRING_LAYOUT)


class LocalTime(NamedTuple):
    """The calendar and the clock of an instant in its zone. `days` since the epoch, `rest` in seconds of the day."""

    year: int
    month: int
    day: int
    days: int
    rest: int
    nanos: int
    zone: str
    offset: int

    @property
    def hour(self) -> int:
        return self.rest // 3600

    @property
    def minute(self) -> int:
        return self.rest // 60 % 60

    @property
    def second(self) -> int:
        return self.rest % 60

    @property
    def weekday(self) -> int:
        return (self.days + 4) % 7

    @property
    def year_day(self) -> int:
        return self.days - days_from_civil(self.year, 1, 1) + 1


ShowPart = Callable[[LocalTime], str]


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since the epoch, in the Gregorian calendar without bounds.

    Years are counted from March, so that the leap day is the last of its year; 146,097 days are 400 years.
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march = (5 * of_year + 2) // 153
    month = march + 3 if march < 10 else march - 9
    return era * 400 + year_of_era + (month <= 2), month, of_year - (153 * march + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since the epoch. The day may lie outside of its month."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468


def format_time(time: GoTime, layout: str) -> str:
    """Write an instant as the layout writes Monday, January 2 2006, 15:04:05 in zone MST, -0700."""
    local = time.local()
    return "".join([piece if isinstance(piece, str) else piece(local) for piece in _pieces(layout)])


@lru_cache(maxsize=256)
def _pieces(layout: str) -> tuple[str | ShowPart, ...]:
    """Cut a layout into text and what writes its parts."""
    pieces: list[str | ShowPart] = []
    end = 0
    for found in LAYOUT_PART.finditer(layout):
        if found.start() > end:
            pieces.append(layout[end : found.start()])
        pieces.append(_part(found[0]))
        end = found.end()
    return (*pieces, layout[end:])


def _part(part: str) -> ShowPart:
    if part[0] in ".,":
        return lambda local: _fraction(part, local.nanos)
    if part[0] == "Z":
        return lambda local: _offset(part, local.offset) if local.offset else "Z"
    if part[0] == "-":
        return lambda local: _offset(part, local.offset)
    return _PARTS[part]


def _padded(year: int) -> str:
    return f"{year:04}" if year >= 0 else f"-{-year:04}"


_PARTS: dict[str, ShowPart] = {
    "2006": lambda local: _padded(local.year),
    "06": lambda local: f"{abs(local.year) % 100:02}",
    "January": lambda local: MONTHS[local.month - 1],
    "Jan": lambda local: MONTHS[local.month - 1][:3],
    "1": lambda local: str(local.month),
    "01": lambda local: f"{local.month:02}",
    "Monday": lambda local: WEEKDAYS[local.weekday],
    "Mon": lambda local: WEEKDAYS[local.weekday][:3],
    "2": lambda local: str(local.day),
    "_2": lambda local: f"{local.day:2}",
    "02": lambda local: f"{local.day:02}",
    "__2": lambda local: f"{local.year_day:3}",
    "002": lambda local: f"{local.year_day:03}",
    "MST": lambda local: local.zone or _offset("-0700", local.offset),
    "15": lambda local: f"{local.hour:02}",
    "3": lambda local: str(local.hour % 12 or 12),
    "03": lambda local: f"{local.hour % 12 or 12:02}",
    "4": lambda local: str(local.minute),
    "04": lambda local: f"{local.minute:02}",
    "5": lambda local: str(local.second),
    "05": lambda local: f"{local.second:02}",
    "PM": lambda local: "PM" if local.hour >= 12 else "AM",
    "pm": lambda local: "pm" if local.hour >= 12 else "am",
}


def _fraction(part: str, nanos: int) -> str:
    digits = f"{nanos:09}"[: len(part) - 1]
    if part[1] == "0":
        return part[0] + digits
    digits = digits.rstrip("0")
    return part[0] + digits if digits else ""


def _offset(part: str, offset: int) -> str:
    sign, size = "-" if offset <= -60 else "+", abs(offset)  # Go looks at whole minutes for the sign
    colon = ":" if ":" in part else ""
    text = f"{sign}{size // 3600:02}"
    if len(part) > 3:
        text += f"{colon}{size // 60 % 60:02}"
    if len(part) > 6:
        text += f"{colon}{size % 60:02}"
    return text
