"""Parse parameters of the Prometheus API as Prometheus does.

Times and durations are returned in ns; an invalid one raises PrometheusError with Prometheus' own message. Unknown
parameters are ignored, because dashboards send some of their own.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from lakerunner.api.body import FormParameters
from lakerunner.api.prometheus.response import BAD_DATA, PrometheusError
from lakerunner.model.time import MAX_NS, MIN_NS

MIN_MS, MAX_MS = -(-MIN_NS // 1_000_000), MAX_NS // 1_000_000
_SECOND_NS, _MS_NS = 1_000_000_000, 1_000_000
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE, _LONGEST = re.compile(r"[+-]?[0-9]+"), 1000
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_UNITS = {"y": 365 * 86_400_000, "w": 7 * 86_400_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(f"(?:([0-9]+){unit})?" for unit in _UNITS))
# How Prometheus writes its minimum and maximum time, whose years have more than four digits.
_EDGES = {"-292273086-05-16T16:47:06Z": MIN_NS, "+292277025-08-18T07:12:54.999999999Z": MAX_NS}
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


class Parameters(FormParameters):
    """The parameters of one request, parsed as Prometheus does."""

    def time(self, name: str, default_ns: int | None = None) -> int:
        """Parse a time; return ns, clamped to 64 bits. Without a default the parameter is required."""
        text = self.text(name)
        if not text and default_ns is not None:
            return default_ns
        found = _time_ns(text)
        if found is None:
            named = "" if default_ns is None else f"invalid time value for '{name}': "
            raise invalid(name, f"{named}cannot parse {_quoted(text)} to a valid timestamp")
        return min(max(found, MIN_NS), MAX_NS)

    def duration(self, name: str) -> int:
        """Parse a duration; return ns."""
        return read_duration(name, self.text(name))

    def count(self, name: str) -> int:
        """Parse a limit; 0 if the parameter is missing."""
        text = self.text(name)
        if not text:
            return 0
        number = whole_number(text)
        if number is None:
            wrong = "value out of range" if _WHOLE.fullmatch(text) else "invalid syntax"
            raise invalid(name, f"strconv.Atoi: parsing {_quoted(text)}: {wrong}")
        if number < 0:
            raise invalid(name, "limit must be non-negative")
        return number

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text and text not in (*_TRUE, *_FALSE):
            raise invalid(name, f"{_quoted(text)} is neither true nor false")
        return text in _TRUE


def invalid(parameter: str, why: str) -> PrometheusError:
    return PrometheusError(BAD_DATA, f"invalid parameter {_quoted(parameter)}: {why}")


def read_duration(name: str, text: str) -> int:
    """Parse a number of seconds, or a duration as in PromQL such as 1h30m; return ns."""
    if _NUMBER.fullmatch(text):
        ns = float(text) * _SECOND_NS
        if not abs(ns) <= 2.0**63:
            raise invalid(name, f"cannot parse {_quoted(text)} to a valid duration. It overflows int64")
        return int(ns)
    found = _DURATION.fullmatch(text)
    ms = sum(int(n) * unit for n, unit in zip(found.groups(), _UNITS.values(), strict=True) if n) if found else 0
    if not text or not found or ms * _MS_NS > MAX_NS:
        raise invalid(name, f"cannot parse {_quoted(text)} to a valid duration")
    return ms * _MS_NS


def whole_number(text: str) -> int | None:
    """Parse an integer; None if it is invalid or has more than 64 bits."""
    found = _WHOLE.fullmatch(text)
    number = int(text) if found and len(text) <= _LONGEST else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def unescaped_label(name: str) -> str:
    """Decode a label name that was escaped for a path: prefix U__, `__` for `_`, `_2e_` for any other character. A
    name that is not escaped like this is returned unchanged."""
    if not name.startswith("U__"):
        return name
    made, at, escaped = [], 0, name[3:]
    for found in re.finditer(r"__|_([0-9a-fA-F]{1,6})_|[^_]+", escaped):
        code = int(found[1], 16) if found[1] else None
        if found.start() != at or (code is not None and (code > 0x10FFFF or 0xD800 <= code <= 0xDFFF)):
            return name
        made.append("_" if found[0] == "__" else found[0] if code is None else chr(code))
        at = found.end()
    return "".join(made) if at == len(escaped) else name


def _time_ns(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        fraction, whole = math.modf(float(text)) if math.isfinite(float(text)) else (0.0, math.nan)
        if math.isnan(whole):
            return None
        ms = math.floor(abs(fraction) * 1000 + 0.5) / 1000  # rounded to ms, halves away from zero, as Go does
        return int(whole) * _SECOND_NS + int(math.copysign(ms, fraction) * _SECOND_NS)
    found = _RFC3339.fullmatch(text)
    if found is None:
        return _EDGES.get(text)
    day, digits, sign, hours, minutes = found.groups()
    try:
        moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:  # for example February 30
        return None
    offset = int(f"{sign or '+'}1") * (int(hours or 0) * 3600 + int(minutes or 0) * 60)
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) - offset
    return seconds * _SECOND_NS + int((digits or "").ljust(9, "0")[:9])


def _quoted(text: str) -> str:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
