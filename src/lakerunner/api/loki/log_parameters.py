"""Parse parameters of the Loki API as Loki does.

Comes in: a query string and a form. Goes out: times and durations in ns, counts, directions. What always holds: an
invalid parameter raises LokiError with Loki's own message; unknown parameters are ignored, because dashboards send some
of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal

from lakerunner.api.body import FormParameters
from lakerunner.api.loki.loki_errors import LokiError
from lakerunner.logql.text.amounts import parse_float, parse_prometheus_duration
from lakerunner.model.display import go_quote
from lakerunner.model.time import DAY_NS, HOUR_NS, MAX_NS, MIN_NS, SECOND_NS, read_time
from lakerunner.plan.explain import Explain

Direction = Literal["backward", "forward"]
DEFAULT_LIMIT = 100
DEFAULT_SINCE_NS = HOUR_NS
MAX_POINTS = 11_000
DEFAULT_POINTS = 250  # of a range query without a step
_END_BEFORE_START = "end timestamp must not be before or equal to start time"
_NO_STEP = "zero or negative query resolution step widths are not accepted. Try a positive integer"
_MANY_STEPS = (
    "exceeded maximum resolution of 11,000 points per time series. Try increasing the value of the step parameter"
)
_MARGIN_NS = 100 * 365 * DAY_NS  # for ranges and offsets of the query, which are subtracted from times
LATEST_NS = MAX_NS - _MARGIN_NS
_WHOLE, _SECONDS_DIGITS = re.compile(r"[+-]?[0-9]{1,1000}"), 10
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[^ ]*(?:Z|[+-][0-9]{2}:[0-9]{2})")


class LogParameters(FormParameters):
    """The parameters of one request, parsed as Loki does."""

    def time(self, name: str, default_ns: int) -> int:
        text = self.text(name)
        return _within(_time_ns(text)) if text else default_ns

    def bounds(self, now_ns: int) -> tuple[int, int]:
        """Parse `start`, `end` and `since`. Without a start, it is `since` before the end, or before now if the end is
        in the future."""
        since = DEFAULT_SINCE_NS
        if text := self.text("since"):
            since = _named("since", lambda: parse_prometheus_duration(text))
        end = _named("end", lambda: self.time("end", now_ns))
        start = _named("start", lambda: self.time("start", min(end, now_ns) - since))
        return start, end

    def ordered_bounds(self, now_ns: int) -> tuple[int, int]:
        """Parse the bounds, and refuse an end before the start."""
        start, end = self.bounds(now_ns)
        if end < start:
            raise LokiError(_END_BEFORE_START)
        return start, end

    def limit(self, *, zero: int | None = None) -> int:
        """Parse the limit; 100 if it is missing. 0 is refused unless `zero` says what it means."""
        number = self.whole("limit", DEFAULT_LIMIT)
        if number == 0 and zero is not None:
            return zero
        if number <= 0:
            raise LokiError("limit must be a positive value")
        return number

    def count(self, name: str, default: int) -> int:
        """Parse a number of things, at least one; `default` if it is missing or 0."""
        number = self.whole(name, default) or default
        if number < 0:
            raise LokiError("limit must be a positive value")
        return number

    def number(self, name: str, default: int, most: int) -> int:
        """Parse a number from 0 to `most`."""
        number = self.whole(name, default)
        if not 0 <= number <= most:
            raise LokiError(f"{name} must be between 0 and {most}")
        return number

    def direction(self) -> Direction:
        text = self.text("direction")
        match text.lower():
            case "" | "backward":
                return "backward"
            case "forward":
                return "forward"
        raise LokiError(f"invalid direction '{text}'")

    def step(self, start: int, end: int) -> int:
        """Parse the step; a range without one has about 250 of them, of whole seconds."""
        text = self.text("step")
        default = max(1, (end - start) // (DEFAULT_POINTS * SECOND_NS)) * SECOND_NS
        step = _seconds_or_duration(text) if text else default
        if step <= 0:
            raise LokiError(_NO_STEP)
        if (end - start) // step > MAX_POINTS:
            raise LokiError(_MANY_STEPS)
        return step

    def interval(self) -> int:
        text = self.text("interval")
        found = _seconds_or_duration(text) if text else 0
        if found < 0:
            raise LokiError("interval must be >= 0")
        return found

    def materialized(self) -> bool:
        """Parse whether points of rules may stand for lines: yes, unless it is off."""
        text = self.text("materialized")
        if text not in ("", "on", "off"):
            raise LokiError(f"invalid materialized '{text}': use on or off")
        return text != "off"

    def explain(self) -> Explain:
        """Parse what is wanted: the answer, its plan, or its plan and what it took."""
        text = self.text("explain")
        if text not in ("", *(one.value for one in Explain)):
            raise LokiError(f"invalid explain '{text}': use plan or analyze")
        return Explain(text or "no")

    def texts(self, name: str) -> tuple[str, ...]:
        """Parse a list with commas."""
        text = self.text(name)
        return tuple(text.split(",")) if text else ()

    def whole(self, name: str, default: int) -> int:
        """Parse a whole number."""
        text = self.text(name)
        if not text:
            return default
        number = _integer(text)
        if number is None:
            raise LokiError(f"strconv.Atoi: parsing {go_quote(text)}: {_wrong_number(text)}")
        return number


def _named(name: str, read: Callable[[], int]) -> int:
    """Read a bound; an error names it."""
    try:
        return read()
    except ValueError as error:
        raise LokiError(f"could not parse '{name}' parameter: {error}") from None
    except LokiError as error:
        raise LokiError(f"could not parse '{name}' parameter: {error.message}") from None


def _time_ns(text: str) -> int:
    """Parse seconds with a fraction, seconds of up to 10 digits, more digits as ns, or RFC 3339."""
    if "." in text and (seconds := _float(text)) is not None and math.isfinite(seconds):
        fraction, whole = math.modf(seconds)
        ms = math.floor(abs(fraction) * 1000 + 0.5) / 1000  # rounded to ms, halves away from zero, as Go does
        return int(whole) * SECOND_NS + int(math.copysign(ms, fraction) * SECOND_NS)
    number = _integer(text)
    if number is not None:
        return number * SECOND_NS if len(text) <= _SECONDS_DIGITS else number
    try:
        found = read_time(text) if _RFC3339.fullmatch(text) else None
    except ValueError:  # for example February 30
        found = None
    if found is None:
        raise LokiError(f"strconv.ParseInt: parsing {go_quote(text)}: {_wrong_number(text)}")
    return found[0]


def _within(time_ns: int) -> int:
    return min(max(time_ns, MIN_NS + _MARGIN_NS), LATEST_NS)


def _integer(text: str) -> int | None:
    """Parse an integer of 64 bits."""
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and MIN_NS <= number <= MAX_NS else None


def _wrong_number(text: str) -> str:
    return "value out of range" if _WHOLE.fullmatch(text) else "invalid syntax"


def _float(text: str) -> float | None:
    try:
        return parse_float(text)
    except ValueError:
        return None


def _seconds_or_duration(text: str) -> int:
    seconds = _float(text)
    if seconds is not None:
        ns = seconds * SECOND_NS
        if not abs(ns) <= 2.0**63:
            raise LokiError(f"cannot parse {go_quote(text)} to a valid duration. It overflows int64")
        return int(ns)
    try:
        return parse_prometheus_duration(text)
    except ValueError:
        raise LokiError(f"cannot parse {go_quote(text)} to a valid duration") from None
