"""Times, and their calendar fields in UTC.

Times are seconds since 1970. The calendar is the proleptic Gregorian one, for any time that fits an int64 of seconds; a
number that does not (NaN, infinite, too large) becomes the most negative one, as the conversion does on amd64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lakerunner.model.labels import NO_LABELS
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.expression import Call, Expression, Selector, bare
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import SCALAR, VECTOR, map_numbers, never_steady, sample_times, vector_of
from lakerunner.series.values import Scalar, Vector

_DAY = 86_400
_ERA = 146_097  # days in 400 years, after which the calendar repeats
_NO_TIME = np.int64(-(1 << 63))
_FIRST_TIME = np.int64(
    -9_223_372_028_741_760_000
)  # Go's time wraps around before it: Prometheus sees 2^64 seconds later
_WRAP_DAYS, _WRAP_SECONDS = divmod(1 << 64, _DAY)


class Moments(NamedTuple):
    """Days since 1970, and seconds of the day."""

    days: Ints
    seconds: Ints


def _timestamp(invocation: Invocation) -> Vector:
    """Return the times of a selector's samples; for anything else the time of the step."""
    if not invocation.arguments:
        return sample_times(invocation, invocation.call.arguments[0], lambda samples: samples.times)
    vector = vector_of(invocation)
    values = np.broadcast_to(invocation.steps.times / 1000, vector.values.shape)
    return Vector(vector.labels, values, vector.present, drop_name=vector.drop_name)


def _start_timestamp(invocation: Invocation) -> Vector:
    """Return the start times of a selector's samples; for anything else nothing."""
    if not invocation.arguments:
        return sample_times(invocation, invocation.call.arguments[0], lambda samples: samples.starts)
    vector = vector_of(invocation)
    return Vector(vector.labels, vector.values, np.zeros(vector.present.shape, bool), drop_name=vector.drop_name)


def _steady_timestamp(call: Call, steady: Callable[[Expression], bool]) -> bool:
    """Return whether the selector is steady; for anything else the value is the time of the step."""
    (of,) = call.arguments
    return isinstance(bare(of), Selector) and steady(of)


def _calendar(name: str, field: Callable[[Moments], Ints]) -> Function:
    def evaluate(invocation: Invocation) -> Vector:
        if not invocation.arguments:
            steps = field(moments(np.trunc(invocation.steps.times / 1000)))
            return Vector([NO_LABELS], steps[None, :].astype(np.float64), np.ones((1, len(steps)), bool))
        return map_numbers(vector_of(invocation), lambda values: field(moments(values)).astype(np.float64))

    return Function(name, (VECTOR,), VECTOR, evaluate, optional=1, steady=never_steady)


def moments(values: Floats) -> Moments:
    """Split times in seconds, truncated, into days and seconds."""
    fits = (values >= -(2.0**63)) & (values < 2.0**63)
    whole = np.where(fits, np.where(fits, values, 0.0).astype(np.int64), _NO_TIME)
    wraps = whole < _FIRST_TIME
    seconds = whole % _DAY + np.where(wraps, _WRAP_SECONDS, 0)
    return Moments(whole // _DAY + np.where(wraps, _WRAP_DAYS, 0) + seconds // _DAY, seconds % _DAY)


def _civil(moments: Moments) -> tuple[Ints, Ints, Ints]:
    """Return year, month (from 1) and day of the month (from 1).

    Counts in years that begin in March, so that the leap day is the last day of its year: then months of 31 30 31 30 31
    days repeat, and 153 days are always five of them."""
    days = moments.days + 719_468  # days since 1 March of the year 0
    era, day = days // _ERA, days % _ERA
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day = day - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153
    day_of_month = day - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return year + 400 * era + (month <= 2), month, day_of_month


def _day_of_year(moments: Moments) -> Ints:
    year, month, day = _civil(moments)
    before = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])[month - 1]
    found: Ints = before + day + ((month > 2) & _is_leap(year))
    return found


def _days_in_month(moments: Moments) -> Ints:
    year, month, _ = _civil(moments)
    days = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month - 1]
    found: Ints = days + ((month == 2) & _is_leap(year))
    return found


def _is_leap(year: Ints) -> Ints:
    leap: Ints = ((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))).astype(np.int64)
    return leap


def _replaced(invocation: Invocation) -> Scalar:
    """Refuse to evaluate start(), end(), range() and step(): they mean the query, even inside a subquery, and
    promql/resolve.py has replaced them by numbers."""
    raise TypeError(f"{invocation.call.function}() is not resolved")


CLOCK = (
    Function("time", (), SCALAR, lambda call: Scalar(call.steps.times / 1000), per_series=False, steady=never_steady),
    Function("timestamp", (VECTOR,), VECTOR, _timestamp, of_sample=True, steady=_steady_timestamp),
    Function("start_timestamp", (VECTOR,), VECTOR, _start_timestamp, experimental=True, of_sample=True),
    _calendar("year", lambda moments: _civil(moments)[0]),
    _calendar("month", lambda moments: _civil(moments)[1]),
    _calendar("day_of_month", lambda moments: _civil(moments)[2]),
    _calendar("day_of_week", lambda moments: (moments.days + 4) % 7),  # Sunday is 0; 1970 began on a Thursday
    _calendar("day_of_year", _day_of_year),
    _calendar("days_in_month", _days_in_month),
    _calendar("hour", lambda moments: moments.seconds // 3600),
    _calendar("minute", lambda moments: moments.seconds % 3600 // 60),
    *(
        Function(name, (), SCALAR, _replaced, per_series=False, experimental=True)
        for name in ("start", "end", "range", "step")
    ),
)
