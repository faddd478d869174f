"""Texts that descriptions of plans share. The same value always gives the same text."""

from __future__ import annotations

from lakerunner.model.time import ALL_TIME, HOUR_NS, MAX_NS, MIN_NS, MINUTE_NS, SECOND_NS, TimeRange, time_text

_UNITS = (("d", 24 * HOUR_NS), ("h", HOUR_NS), ("min", MINUTE_NS), ("s", SECOND_NS), ("ms", 1_000_000), ("us", 1_000))


def one_line(text: str) -> str:
    """Escape characters that would break a line."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def quoted(text: str) -> str:
    return "'" + one_line(text).replace("'", "''") + "'"


def duration_text(ns: int) -> str:
    for unit, size in _UNITS:
        if ns % size == 0:
            return f"{ns // size} {unit}"
    return f"{ns} ns"


def time_range_text(time: TimeRange) -> str:
    if time == ALL_TIME:
        return "all time"
    start = time_text(time.start_ns) if time.start_ns > MIN_NS else ""
    end = time_text(time.end_ns) if time.end_ns < MAX_NS else ""
    return f"[{start} .. {end})"
