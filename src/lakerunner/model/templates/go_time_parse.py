"""Read instants by layouts such as `2006-01-02 15:04:05`, as Go's time.ParseInLocation does.

Comes in: a layout, a text, and the zone that counts where the text names none. Goes out: an instant, None for a text
that does not follow the layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.templates.go_time import (
    DAY_SECONDS,
    LAYOUT_PART,
    MONTHS,
    UTC_ZONE,
    WEEKDAYS,
    GoTime,
    TimeZone,
    days_from_civil,
)

_HALF_YEAR = 182 * DAY_SECONDS
_RECENT = (946_684_800, 946_684_800 + _HALF_YEAR)  # a text without a year means year 0, before zones had names
_ZONE_NAME = re.compile(r"ChST|MeST|GMT(?:[+-][0-9]+)?|[+-][0-9]+|[A-Z]+")
_OFFSET = {  # sign, hours, minutes, seconds
    5: re.compile(r"(.)([0-9]{2})([0-9]{2})", re.DOTALL),
    3: re.compile(r"(.)([0-9]{2})", re.DOTALL),
    6: re.compile(r"(.)([0-9]{2}):([0-9]{2})", re.DOTALL),
    7: re.compile(r"(.)([0-9]{2})([0-9]{2})([0-9]{2})", re.DOTALL),
    9: re.compile(r"(.)([0-9]{2}):([0-9]{2}):([0-9]{2})", re.DOTALL),
}
_NUMBERS = {  # part of a layout: field, pattern, lowest and highest value
    "1": ("month", re.compile("[0-9]{1,2}"), 1, 12),
    "01": ("month", re.compile("[0-9]{2}"), 1, 12),
    "2": ("day", re.compile("[0-9]{1,2}"), 0, 99),
    "_2": ("day", re.compile(" ?([0-9]{1,2})"), 0, 99),
    "02": ("day", re.compile("[0-9]{2}"), 0, 99),
    "__2": ("year_day", re.compile(" {0,2}([0-9]{1,3})"), 0, 999),
    "002": ("year_day", re.compile("[0-9]{3}"), 0, 999),
    "15": ("hour", re.compile("[0-9]{1,2}"), 0, 23),
    "3": ("hour", re.compile("[0-9]{1,2}"), 0, 12),
    "03": ("hour", re.compile("[0-9]{2}"), 0, 12),
    "4": ("minute", re.compile("[0-9]{1,2}"), 0, 59),
    "04": ("minute", re.compile("[0-9]{2}"), 0, 59),
    "5": ("second", re.compile("[0-9]{1,2}"), 0, 59),
    "05": ("second", re.compile("[0-9]{2}"), 0, 59),
    "2006": ("year", re.compile("[0-9]{4}"), 0, 9999),
}
_NAMES = {"January": MONTHS, "Jan": MONTHS, "Monday": WEEKDAYS, "Mon": WEEKDAYS}
_DIGITS = re.compile("[.,][0-9]+")


class _Mismatch(ValueError):
    """The text does not follow the layout."""


@dataclass(slots=True)
class _Fields:
    year: int = 0
    month: int = -1
    day: int = -1
    year_day: int = -1
    hour: int = 0
    minute: int = 0
    second: int = 0
    nanos: int = 0
    is_pm: bool | None = None
    zone: TimeZone | None = None
    offset: int | None = None
    zone_name: str = ""


def parse_time(layout: str, text: str, zone: TimeZone = UTC_ZONE) -> GoTime | None:
    """Read an instant; `zone` is that of a text without one."""
    try:
        return _instant(_read(layout, text), zone)
    except _Mismatch:
        return None


def _read(layout: str, text: str) -> _Fields:
    fields, at, end = _Fields(), 0, 0
    for found in LAYOUT_PART.finditer(layout):
        at = _skip(layout[end : found.start()], text, at)
        end = found.end()
        after = LAYOUT_PART.search(layout, end)
        has_fraction = after is not None and after[0][0] in ".,"
        at = _read_part(found[0], text, at, fields)
        if found[0] in ("5", "05") and not has_fraction and (digits := _DIGITS.match(text, at)):
            fields.nanos, at = _nanos(digits[0]), digits.end()  # Go accepts a fraction that the layout lacks
    if _skip(layout[end:], text, at) != len(text):
        raise _Mismatch
    return fields


def _skip(literal: str, text: str, at: int) -> int:
    """Return the place behind a text of the layout. A run of blanks stands for any number of them."""
    place = 0
    while place < len(literal):
        if literal[place] == " ":
            if at < len(text) and text[at] != " ":
                raise _Mismatch
            place += len(literal) - place - len(literal[place:].lstrip(" "))
            at += len(text) - at - len(text[at:].lstrip(" "))
            continue
        if at >= len(text) or text[at] != literal[place]:
            raise _Mismatch
        place, at = place + 1, at + 1
    return at


def _read_part(part: str, text: str, at: int, fields: _Fields) -> int:
    """Read what one part of the layout stands for. Return the place behind it."""
    if part in _NUMBERS:
        name, pattern, low, high = _NUMBERS[part]
        found = _need(pattern.match(text, at))
        value = int(found[found.lastindex or 0])
        if not low <= value <= high:
            raise _Mismatch
        setattr(fields, name, value)
        return found.end()
    if part in _NAMES:
        return _read_name(part, text, at, fields)
    if part[0] in ".,":
        return _read_fraction(part, text, at, fields)
    if part[0] in "-Z":
        return _read_offset(part, text, at, fields)
    if part == "MST":
        return _read_zone_name(text, at, fields)
    return _read_two(part, text, at, fields)


def _need(found: re.Match[str] | None) -> re.Match[str]:
    if found is None:
        raise _Mismatch
    return found


def _read_two(part: str, text: str, at: int, fields: _Fields) -> int:
    """Read the two characters of `06`, `PM` or `pm`."""
    pair = text[at : at + 2]
    if part == "06":
        if not re.fullmatch("[0-9]{2}|[+-][0-9]", pair):  # Go's atoi takes a sign here
            raise _Mismatch
        fields.year = int(pair) + (1900 if int(pair) >= 69 else 2000)
    elif pair in (part, part.replace("P", "A").replace("p", "a")):
        fields.is_pm = pair == part
    else:
        raise _Mismatch
    return at + 2


def _read_name(part: str, text: str, at: int, fields: _Fields) -> int:
    names = _NAMES[part]
    for number, name in enumerate(names, 1):
        shown = name if len(part) > 3 else name[:3]
        if text[at : at + len(shown)].lower() == shown.lower():
            if names is MONTHS:
                fields.month = number
            return at + len(shown)
    raise _Mismatch


def _nanos(digits: str) -> int:
    return int(digits[1:10].ljust(9, "0"))


def _read_fraction(part: str, text: str, at: int, fields: _Fields) -> int:
    digits = _DIGITS.match(text, at)
    if part[1] == "9":
        if digits is None:
            return at
    elif digits is None or len(digits[0]) < len(part):
        raise _Mismatch
    taken = digits[0] if part[1] == "9" else digits[0][: len(part)]
    fields.nanos = _nanos(taken)
    return at + len(taken)


def _read_offset(part: str, text: str, at: int, fields: _Fields) -> int:
    if part[0] == "Z" and text[at : at + 1] == "Z":
        fields.zone = UTC_ZONE
        return at + 1
    found = _need(_OFFSET[len(part)].match(text, at))
    hours, minutes, seconds = (int(group) for group in (*found.groups()[1:], "0", "0")[:3])
    if found[1] not in "+-" or hours > 24 or minutes > 60 or seconds > 60:
        raise _Mismatch
    size = (hours * 60 + minutes) * 60 + seconds
    fields.offset = -size if found[1] == "-" else size
    return found.end()


def _read_zone_name(text: str, at: int, fields: _Fields) -> int:
    if text.startswith("UTC", at):
        fields.zone = UTC_ZONE
        return at + 3
    name = _need(_ZONE_NAME.match(text, at))[0]
    if name.startswith("GMT") or name[0] in "+-":
        sign = re.search("[+-]", name)
        if sign and int(name[sign.start() + 1 :]) > 23:
            name = name[: sign.start()]
        if not name:
            raise _Mismatch
    elif name not in ("ChST", "MeST") and not _is_zone_name(name):
        raise _Mismatch
    fields.zone_name = name
    return at + len(name)


def _is_zone_name(name: str) -> bool:
    """Return whether capitals look like a zone: three of them, or four or five that end in T."""
    return len(name) == 3 or (len(name) in (4, 5) and (name[-1] == "T" or name == "WITA"))


def _instant(fields: _Fields, zone: TimeZone) -> GoTime:
    hour = fields.hour
    if fields.is_pm and hour < 12:
        hour += 12
    elif fields.is_pm is False and hour == 12:
        hour = 0
    seconds = _days(fields) * DAY_SECONDS + hour * 3600 + fields.minute * 60 + fields.second
    if fields.zone is not None:
        return GoTime(seconds, fields.nanos, fields.zone)
    if fields.offset is not None and fields.offset != -1:
        return _with_offset(fields, seconds - fields.offset, zone)
    if fields.zone_name:
        return _with_zone_name(fields, seconds, zone)
    _, offset = zone.at(seconds)
    _, offset = zone.at(seconds - offset)
    return GoTime(seconds - offset, fields.nanos, zone)


def _days(fields: _Fields) -> int:
    year, month, day = fields.year, fields.month, fields.day
    start = days_from_civil(year, 1, 1)
    if fields.year_day >= 0:
        days = start + fields.year_day - 1
        if not start <= days < days_from_civil(year + 1, 1, 1):
            raise _Mismatch
        if month >= 0 and not days_from_civil(year, month, 1) <= days < _next_month(year, month):
            raise _Mismatch
        if day >= 0 and GoTime(days * DAY_SECONDS).local().day != day:
            raise _Mismatch
        return days
    month, day = month if month >= 0 else 1, day if day >= 0 else 1
    days = days_from_civil(year, month, day)
    if day < 1 or days >= _next_month(year, month):
        raise _Mismatch
    return days


def _next_month(year: int, month: int) -> int:
    return days_from_civil(year + month // 12, month % 12 + 1, 1)


def _with_offset(fields: _Fields, seconds: int, zone: TimeZone) -> GoTime:
    offset = fields.offset or 0
    name, own = zone.at(seconds)
    if own == offset and fields.zone_name in ("", name):
        return GoTime(seconds, fields.nanos, zone)
    return GoTime(seconds, fields.nanos, TimeZone(fields.zone_name, offset))


def _with_zone_name(fields: _Fields, seconds: int, zone: TimeZone) -> GoTime:
    """Read a time with an abbreviation: that of the zone in winter or summer, or else one of unknown offset."""
    for other in (seconds, seconds + _HALF_YEAR, seconds - _HALF_YEAR, *_RECENT):
        name, offset = zone.at(other)
        if name == fields.zone_name:
            return GoTime(seconds - offset, fields.nanos, zone)
    named = fields.zone_name
    offset = int(named[3:]) * 3600 if named.startswith("GMT") and len(named) > 3 else 0
    # The time is not shifted: Go keeps the clock of UTC beside the offset of GMT+3, and so do we.
    return GoTime(seconds, fields.nanos, TimeZone(named, offset))
