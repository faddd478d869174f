"""Time as the lake counts it: int64 nanoseconds since the epoch, UTC; ranges are half-open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS
_UNITS_NS = {"s": SECOND_NS, "m": MINUTE_NS, "h": HOUR_NS, "d": DAY_NS, "w": 7 * DAY_NS, "y": 365 * DAY_NS}
_PLAN_UNITS = (("d", DAY_NS), ("h", HOUR_NS), ("min", MINUTE_NS), ("s", SECOND_NS), ("ms", MS_NS), ("us", 1_000))
_EPOCH = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)? ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?\s*"
)
_DURATION = re.compile(r"(\d{1,9})([smhdwy])")
MIN_NS = -(2**63)
MAX_NS = 2**63 - 1


@dataclass(frozen=True, order=True)
class TimeRange:
    """Half-open [start_ns, end_ns). Never empty."""

    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if not MIN_NS <= self.start_ns < self.end_ns <= MAX_NS:
            raise ValueError(f"not a time range: [{self.start_ns}, {self.end_ns})")

    def overlaps(self, other: TimeRange) -> bool:
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


ALL_TIME = TimeRange(MIN_NS, MAX_NS)


def hour_of(time_ns: int) -> datetime:
    """Return the UTC hour that holds this time, for paths."""
    return datetime.fromtimestamp(time_ns // HOUR_NS * 3600, UTC)


def duration_ns(text: str) -> int | None:
    """Return `90s`, `15m`, `24h`, `7d`, `4w` or `2y` in nanoseconds; None for any other text."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS_NS[found[2]] if found else None


def time_text(time_ns: int) -> str:
    """Return ISO 8601 with a blank, as DuckDB writes it; nine digits if there is a fraction."""
    days, rest = divmod(time_ns, DAY_NS)
    seconds, fraction = divmod(rest, SECOND_NS)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    day = date.fromordinal(_EPOCH + days)
    return f"{day} {clock}" + (f".{fraction:09}" if fraction else "")


def interval_text(ns: int) -> str:
    """Return the number of the largest unit that divides it, as descriptions of plans state it: `5 min`."""
    for unit, size in _PLAN_UNITS:
        if ns % size == 0:
            return f"{ns // size} {unit}"
    return f"{ns} ns"


def time_range_text(time: TimeRange) -> str:
    if time == ALL_TIME:
        return "all time"
    start = time_text(time.start_ns) if time.start_ns > MIN_NS else ""
    end = time_text(time.end_ns) if time.end_ns < MAX_NS else ""
    return f"[{start} .. {end})"


def iso_time(time_ns: int) -> str:
    """Return ISO 8601 in UTC with nine digits of a second, as times of rows are shown."""
    seconds, fraction = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09}Z"


def read_time(text: str) -> tuple[int, bool] | None:
    """Parse an ISO 8601 date, or date and time, with up to nine digits of a second and an optional zone. Return its ns,
    unbounded, and whether it is a date; None for any other text. Raise ValueError for a day that its month does not
    have."""
    found = _ISO.fullmatch(text)
    if not found:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    if hour is None:
        return days * DAY_NS, True
    clock = (int(hour), int(minute), int(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    of_day = clock[0] * HOUR_NS + clock[1] * MINUTE_NS + clock[2] * SECOND_NS + int((fraction or "0").ljust(9, "0"))
    return days * DAY_NS + of_day - _zone_ns(zone), False


def _zone_ns(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    size = int(digits[:2]) * HOUR_NS + int(digits[2:]) * MINUTE_NS
    return -size if zone[0] == "-" else size
