"""Evaluate constant times, intervals and numbers of a query as DuckDB would.

Comes in: an expression and the one `now` of the query. Goes out: its value, exact to the nanosecond, or None if
it is not a constant that is understood here; then DuckDB evaluates it, and nothing is pruned by it.
A time written without a zone is UTC.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.model.time import HOUR_NS, MINUTE_NS, SECOND_NS, read_time

_DAY_NS = 24 * HOUR_NS
_EPOCH = date(1970, 1, 1).toordinal()
_AMOUNT = re.compile(r"\s*([+-]?\d+)\s*([a-zA-Z]+)\s*")
_WHOLE = re.compile(r"[+-]?\d+")

_NOW = ("now", "get_current_timestamp", "transaction_timestamp")
_TIMESTAMPS = {DType.TIMESTAMP, DType.TIMESTAMPNTZ, DType.TIMESTAMPTZ, DType.TIMESTAMP_NS}
_EPOCH_UNITS = {"make_timestamp_ns": 1, "make_timestamp": 1_000, "make_timestamp_ms": 1_000_000, "epoch_ms": 1_000_000}


@dataclass(frozen=True)
class Interval:
    """An interval as DuckDB keeps it: the three parts are added to a time one after the other."""

    months: int = 0
    days: int = 0
    ns: int = 0

    def __mul__(self, factor: int) -> Interval:
        return Interval(self.months * factor, self.days * factor, self.ns * factor)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.months + other.months, self.days + other.days, self.ns + other.ns)


_UNITS = {
    "microsecond": Interval(ns=1_000),
    "millisecond": Interval(ns=1_000_000),
    "second": Interval(ns=SECOND_NS),
    "minute": Interval(ns=MINUTE_NS),
    "hour": Interval(ns=HOUR_NS),
    "day": Interval(days=1),
    "week": Interval(days=7),
    "month": Interval(months=1),
    "quarter": Interval(months=3),
    "year": Interval(months=12),
}


@dataclass(frozen=True)
class Time:
    """A time in ns since the epoch, unbounded. Integers of days can be added to a date, not to a timestamp. A zoned
    time is moved by DuckDB's calendar, which takes the parts of an interval in another order."""

    ns: int
    is_date: bool = False
    is_zoned: bool = False

    def plus(self, interval: Interval) -> Time | None:
        if self.is_zoned and interval.months and (interval.days or interval.ns):
            return None
        days, rest = divmod(self.ns, _DAY_NS)
        if interval.months:
            days = _plus_months(days, interval.months)
        return Time((days + interval.days) * _DAY_NS + rest + interval.ns, is_zoned=self.is_zoned)


class Constants:
    """Evaluate expressions with the one `now` of the query."""

    def __init__(self, now_ns: int) -> None:
        self.now = Time(now_ns // 1_000 * 1_000)  # DuckDB's now() has microseconds
        self.today = _midnight(self.now)

    def time(self, node: exp.Expr, *, or_text: bool = False) -> Time | None:
        """Return the time of an expression, or None. `or_text`: a bare string is a time too, as in a comparison with
        one."""
        try:
            return self._time(node, or_text)
        except (ValueError, OverflowError):
            return None

    def _time(self, node: exp.Expr, or_text: bool) -> Time | None:
        match node:
            case exp.Paren():
                return self._time(node.this, or_text)
            case exp.Literal() if or_text and node.is_string:
                found = read_time(node.name)
                return None if found is None else Time(*found)
            case exp.CurrentTimestamp() | exp.Localtimestamp():
                return self.now
            case exp.CurrentDate():
                return self.today
            case exp.Cast():
                return self._cast(node)
            case exp.Anonymous():
                return self._called(node.name.lower(), node.expressions)
            case exp.Add() | exp.Sub():
                return self._moved(node)
        return None

    def _cast(self, node: exp.Cast) -> Time | None:
        value = self._time(node.this, or_text=True)
        if value is None:
            return None
        if node.to.this in _TIMESTAMPS:
            return Time(value.ns, is_zoned=node.to.this == DType.TIMESTAMPTZ)
        return _midnight(value) if node.to.this == DType.DATE else None

    def _called(self, name: str, arguments: list[exp.Expr]) -> Time | None:
        if not arguments:
            return self.now if name in _NOW else self.today if name == "today" else None
        first = arguments[0]
        if name == "ago" and (interval := self.interval(first)):
            return self.now.plus(interval * -1)
        if name in ("date_trunc", "datetrunc") and len(arguments) == 2 and first.is_string:
            value = self._time(arguments[1], or_text=False)
            return value and _truncate(value, first.name.lower())
        if len(arguments) > 1:
            return None
        if name == "to_timestamp" and (seconds := _read_number(first)) is not None:
            exact = seconds * SECOND_NS % 1 == 0
            return Time(int(seconds * SECOND_NS), is_zoned=True) if exact else None
        unit, whole = _EPOCH_UNITS.get(name), read_integer(first)
        return Time(whole * unit) if unit is not None and whole is not None else None

    def _moved(self, node: exp.Binary) -> Time | None:
        left, right, sign = node.left, node.right, -1 if isinstance(node, exp.Sub) else 1
        value = self._time(left, or_text=False)
        if value is None and sign == 1:
            value, right = self._time(right, or_text=False), left
        if value is None:
            return None
        days = read_integer(right)
        if value.is_date and days is not None:
            return Time(value.ns + sign * days * _DAY_NS, is_date=True)
        interval = self.interval(right)
        return value.plus(interval * sign) if interval else None

    def interval(self, node: exp.Expr) -> Interval | None:
        match node:
            case exp.Paren():
                return self.interval(node.this)
            case exp.Neg():
                inner = self.interval(node.this)
                return inner * -1 if inner else None
            case exp.Interval():
                return _read_interval(node.this, node.args.get("unit"))
            case exp.Cast() if node.to.this == DType.INTERVAL and node.this.is_string:
                return _read_interval(node.this, None)
            case exp.Mul():
                left, right = self.interval(node.left), self.interval(node.right)
                factor = read_integer(node.right) if left else read_integer(node.left)
                scaled = left or right
                return scaled * factor if scaled and factor is not None else None
            case exp.Anonymous() if node.name.lower().startswith("to_") and len(node.expressions) == 1:
                unit, whole = _unit(node.name.lower().removeprefix("to_")), read_integer(node.expressions[0])
                return unit * whole if unit and whole is not None else None
        return None

    def series_length(self, arguments: list[exp.Expr], *, with_stop: bool) -> int | None:
        """Return how many values range(...) or, with its stop, generate_series(...) makes; None if that is not
        constant. A month counts as 28 days, so the series may be shorter."""
        bounds = [exp.Literal.number(0), *arguments] if len(arguments) == 1 else arguments
        if not 2 <= len(bounds) <= 3:
            return None
        numbers = [read_integer(bound) for bound in bounds]
        start, stop = numbers[:2]
        if start is not None and stop is not None:
            step = numbers[2] if len(numbers) == 3 else 1
        else:
            first, last = (self.time(bound, or_text=True) for bound in bounds[:2])
            each = self.interval(bounds[2]) if len(bounds) == 3 else None
            if first is None or last is None or each is None:
                return None
            start, stop, step = first.ns, last.ns, each.months * 28 * _DAY_NS + each.days * _DAY_NS + each.ns
        if not step:
            return None
        return max(0, (stop - start) // step + 1 if with_stop else -((start - stop) // step))


def read_integer(node: exp.Expr) -> int | None:
    number = _read_number(node)
    return int(number) if number is not None and number.as_tuple().exponent == 0 else None


def _read_number(node: exp.Expr) -> Decimal | None:
    if isinstance(node, exp.Paren):
        return _read_number(node.this)
    if isinstance(node, exp.Neg):
        inner = _read_number(node.this)
        return None if inner is None else -inner
    is_number = isinstance(node, exp.Literal) and not node.is_string and "e" not in node.name.lower()
    return Decimal(node.name) if is_number else None


def _read_interval(amount: exp.Expr | None, unit: exp.Expr | None) -> Interval | None:
    amount = amount.this if isinstance(amount, exp.Paren) else amount
    if not isinstance(amount, exp.Literal):
        return None
    if unit is not None:
        one = _unit(unit.name.lower())
        return one * int(amount.name) if one and _WHOLE.fullmatch(amount.name) else None
    total, at = Interval(), 0
    while found := _AMOUNT.match(amount.name, at):
        one, at = _unit(found[2].lower()), found.end()
        if one is None:
            return None
        total += one * int(found[1])
    return total if at and at == len(amount.name) else None


def _unit(name: str) -> Interval | None:
    return _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))


def _plus_months(days: int, months: int) -> int:
    """Return the same day of another month, or its last day if it has no such day."""
    of = date.fromordinal(days + _EPOCH)
    year, month = divmod(of.year * 12 + of.month - 1 + months, 12)
    return date(year, month + 1, min(of.day, monthrange(year, month + 1)[1])).toordinal() - _EPOCH


def _midnight(time: Time) -> Time:
    return Time(time.ns // _DAY_NS * _DAY_NS, is_date=True)


def _truncate(time: Time, unit: str) -> Time | None:
    size = _unit(unit)
    if size is None:
        return None
    if size.ns:
        return Time(time.ns // size.ns * size.ns, is_zoned=time.is_zoned)
    days = time.ns // _DAY_NS
    if size.days == 7:
        days -= (days + 3) % 7  # day 0 was a Thursday; weeks begin on Monday
    elif size.months:
        of = date.fromordinal(days + _EPOCH)
        days = date(of.year, (of.month - 1) // size.months * size.months + 1, 1).toordinal() - _EPOCH
    return Time(days * _DAY_NS, is_zoned=time.is_zoned)
