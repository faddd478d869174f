"""Instants and durations as people write them, as exact nanoseconds.

Comes in: integers, floats, decimal digits, dates in the forms of `dates.py`. Goes out: nanoseconds since the epoch, and
whether they say all that the input said. No float is ever multiplied: digits are moved. What cannot be an OTLP time
(1970-01-01 itself, which means unset there, anything before it, anything past 2262) gives None, as does what cannot be
read at all.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from lakerunner.pipeline.transcode.dates import moment
from lakerunner.pipeline.transcode.values import Written

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
LAST_NS = 2**63 - 2  # the last time that a segment can hold

_MAX_TEXT = 64
_EXACT = Context(prec=2 * _MAX_TEXT)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DURATION = re.compile(r"([+-]?\d+(?:\.\d*)?)\s?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION_NS = {**UNITS, "µs": 10**3, "μs": 10**3, "m": 60 * 10**9, "h": 3600 * 10**9}


class Nanoseconds(int):
    """A number that is known to be nanoseconds since the epoch, and a time that OTLP can hold."""


class Instant(NamedTuple):
    """`unit` is how the number was taken, "" for text that says it all. `exact` is False where digits below a
    nanosecond, or a leap second, could not be kept."""

    ns: int
    unit: str
    exact: bool


def instant(value: Any, unit: str = "", near_ns: int | None = None) -> Instant | None:
    """Return the instant this value names: a number in this unit, or in the one its magnitude suggests; a date without
    a year in the year in which it lies nearest to `near_ns`, None without that."""
    kind = type(value)
    if kind is int:
        return _of_integer(value, unit)
    if kind is str:
        if len(value) > _MAX_TEXT:
            return None
        text = value.strip()
        found = moment(text, near_ns)
        return _placed(found.ns, "", found.exact) if found else _of_number(text, unit)
    if kind is float:
        return _of_number(repr(value), unit)
    if kind is Nanoseconds:
        return Instant(value, "", True)
    if kind is Written:
        return _of_number(value.text, unit) if len(value.text) <= _MAX_TEXT else None
    return None


def guessed_unit(number: int) -> str:
    """The unit in which this many since 1970 lie between 1973 and 5138; what is smaller is seconds."""
    size = abs(number)
    return "s" if size < 10**11 else "ms" if size < 10**14 else "us" if size < 10**17 else "ns"


def duration_ns(value: Any, unit: str) -> int | None:
    """How long; text may carry its own unit, as in `1.5ms`. None if it cannot be read, is negative or not whole
    nanoseconds."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip()) if len(value) <= _MAX_TEXT else None
        if found:
            return _whole(Decimal(found[1]), _DURATION_NS[found[2]])
    if not unit or isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = value.text if isinstance(value, Written) else str(value).strip()
    return _whole(Decimal(text), UNITS[unit]) if len(text) <= _MAX_TEXT and _NUMBER.fullmatch(text) else None


def _whole(number: Decimal, factor: int) -> int | None:
    scaled = _EXACT.multiply(number, Decimal(factor))
    return int(scaled) if scaled == scaled.to_integral_value() and 0 <= scaled <= LAST_NS else None


def _of_integer(number: int, unit: str) -> Instant | None:
    unit = unit or guessed_unit(number)
    return _placed(number * UNITS[unit], unit, True)


def _of_number(text: str, unit: str) -> Instant | None:
    if not _NUMBER.fullmatch(text):
        return None
    if text.isdecimal():
        return _of_integer(int(text), unit)
    try:
        number = Decimal(text)
        unit = unit or guessed_unit(int(number))
        scaled = _EXACT.multiply(number, Decimal(UNITS[unit]))
    except (InvalidOperation, OverflowError):
        return None
    whole = int(scaled)
    return _placed(whole, unit, whole == scaled)


def _placed(ns: int, unit: str, exact: bool) -> Instant | None:
    return Instant(ns, unit, exact) if 0 < ns <= LAST_NS else None
