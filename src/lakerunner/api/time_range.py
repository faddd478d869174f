"""Parse the time range of a request, `s` and `e`, into a half-open TimeRange; an error says what is allowed.

A number of 9 or 10 digits is seconds, one of 12 or 13 digits milliseconds: both cover March 1973 to 2262, and no number
can be read as the other. `now` is an argument, so that it is the same for the whole request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.model.time import HOUR_NS, MAX_NS, MIN_NS, MINUTE_NS, SECOND_NS, TimeRange, read_time

DEFAULT_NS = HOUR_NS  # length of a range without a start
ALLOWED = (
    "seconds (9 or 10 digits) or milliseconds (12 or 13 digits) since 1970, ISO 8601 as `2024-05-01T12:00:00Z`, `now`, "
    "or `now-1h` with the units s, m, h, d, w"
)
_UNITS = {"s": SECOND_NS, "m": MINUTE_NS, "h": HOUR_NS, "d": 24 * HOUR_NS, "w": 7 * 24 * HOUR_NS}
_RELATIVE = re.compile(r"now(?:([+-])([0-9]{1,9})([smhdw]))?")
_DIGITS = re.compile(r"[0-9]+")
_NS_BY_DIGITS = {9: SECOND_NS, 10: SECOND_NS, 12: 1_000_000, 13: 1_000_000}


def time_range(body: Mapping[str, Any], now_ns: int, names: tuple[str, str] = ("s", "e")) -> TimeRange:
    """Parse the fields `s` and `e`, or those of other `names`. Without `e` the range ends now, without `s` it begins an
    hour before its end."""
    s, e = names
    end = _time(e, body[e], now_ns) if _states(body, e) else now_ns
    start = _time(s, body[s], now_ns) if _states(body, s) else max(end - DEFAULT_NS, MIN_NS)
    if start >= end:
        raise UserError(f"{s} must be before {e}: {s} is {_quote(body.get(s))}, {e} is {_quote(body.get(e) or 'now')}")
    return TimeRange(start, end)


def _states(body: Mapping[str, Any], name: str) -> bool:
    return body.get(name) not in (None, "")


def _time(name: str, value: object, now_ns: int) -> int:
    found = _ns(str(value).strip(), now_ns) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if found is None:
        raise UserError(f"{name} {_quote(value)} is not a time: write {ALLOWED}")
    if not MIN_NS <= found <= MAX_NS:
        raise UserError(f"{name} {_quote(value)} is out of range: times range from 1677-09-21 to 2262-04-11")
    return found


def _ns(text: str, now_ns: int) -> int | None:
    if _DIGITS.fullmatch(text):
        unit = _NS_BY_DIGITS.get(len(text))
        return int(text) * unit if unit else None
    if relative := _RELATIVE.fullmatch(text):
        sign, amount, unit_name = relative.groups()
        return now_ns + int(f"{sign}{amount}") * _UNITS[unit_name] if sign else now_ns
    try:
        time = read_time(text)
    except ValueError:  # for example February 30
        return None
    return time[0] if time else None


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
