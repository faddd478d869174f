"""Amounts as text: numbers, durations and sizes, as Go, Prometheus and go-humanize read and write them.

Comes in: a text of a query, of a label or of a line. Goes out: a double, nanoseconds or bytes, and back. What always
holds: a text that is wrong raises ValueError with the words of the Go function, since Loki shows them to its users in
`__error_details__`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from lakerunner.model.display import go_quote

_LARGEST = 1 << 63  # what neither a duration nor a part of it may exceed
_MAX_EXPONENT = 10_000  # Go stops counting there; any double is far from it

# ---- numbers

_DECIMAL = re.compile(r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX](_?[0-9a-fA-F][0-9a-fA-F_]*)?(?:\.([0-9a-fA-F_]*))?[pP]([+-]?[0-9][0-9_]*)", re.ASCII
)
_SPECIAL = re.compile("[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_LONE_UNDERSCORE = re.compile(r"(?<![0-9a-fA-F])_|_(?![0-9a-fA-F])")  # not between two digits
_PREFIX = re.compile("([+-]?)0[xX]_?")


def parse_float(text: str) -> float:
    """Read a number as Go's strconv.ParseFloat does."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text) and not ("_" in text and _misplaced_underscore(text)):
        value = float(text.replace("_", ""))
    elif (found := _HEXADECIMAL.fullmatch(text)) and not _misplaced_underscore(_PREFIX.sub(r"\g<1>0", text, count=1)):
        value = _hexadecimal(found)
    else:
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: invalid syntax")
    if math.isinf(value):
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: value out of range")
    return value


def _misplaced_underscore(text: str) -> bool:
    """Return whether an underscore does not stand between two digits."""
    if "x" not in text.lower() and re.search("[eE]_|_[eE]", text):  # an e is a digit only in hexadecimal
        return True
    return _LONE_UNDERSCORE.search(text) is not None or re.search("_[pP]|[pP]_", text) is not None


def _hexadecimal(found: re.Match[str]) -> float:
    sign, whole, fraction, exponent = (group.replace("_", "") if group else "" for group in found.groups())
    if not whole + fraction:
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(found[0])}: invalid syntax")
    power = max(-_MAX_EXPONENT, min(int(exponent[:8]), _MAX_EXPONENT))
    try:
        return float.fromhex(f"{sign}0x{whole or '0'}.{fraction or '0'}p{power}")
    except OverflowError:
        return math.inf


# ---- durations

_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PROMETHEUS_UNITS = {  # from the largest to the smallest: the order in which they may be written
    "y": 365 * 86_400_000_000_000,
    "w": 7 * 86_400_000_000_000,
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
_UNIT_ORDER = list(_PROMETHEUS_UNITS)
_GO_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_PROMETHEUS_PART = re.compile(r"([0-9]+)([^0-9]+)")


def parse_duration(text: str) -> int:
    """Read a duration as Go's time.ParseDuration does. Return ns."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    total = at = 0
    while True:
        found = _GO_PART.match(body, at)
        if not found or not (found[1] or found[3]):
            raise _invalid_duration(text)
        total += _part_ns(found, text)
        if total > _LARGEST:
            raise _invalid_duration(text)
        at = found.end()
        if at == len(body):
            break
    if text[0] == "-":
        return -total
    if total == _LARGEST:
        raise _invalid_duration(text)
    return total


def _part_ns(found: re.Match[str], text: str) -> int:
    whole, _, fraction, unit = found.groups()
    if len(whole.lstrip("0")) > 19 or int(whole or "0") > _LARGEST:
        raise _invalid_duration(text)
    if not unit:
        raise ValueError(f"time: missing unit in duration {_time_quote(text)}")
    if unit not in _GO_UNITS:
        raise ValueError(f"time: unknown unit {_time_quote(unit)} in duration {_time_quote(text)}")
    size = _GO_UNITS[unit]
    ns = int(whole or "0") * size
    if ns > _LARGEST:
        raise _invalid_duration(text)
    digits, scale = _fraction(fraction or "")
    if digits:
        ns += int(float(digits) * (size / scale))
    if ns > _LARGEST:
        raise _invalid_duration(text)
    return ns


def _fraction(digits: str) -> tuple[int, float]:
    """Return the digits behind a point as an integer, and its power of ten. Digits beyond an int64 are dropped."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (_LARGEST - 1) // 10 or (larger := value * 10 + int(digit)) > _LARGEST:
            break
        value, scale = larger, scale * 10
    return value, scale


def _invalid_duration(text: str) -> ValueError:
    return ValueError(f"time: invalid duration {_time_quote(text)}")


def _time_quote(text: str) -> str:
    """Quote as Go's package time does: bytes beyond ASCII as `\\x`, quotes and backslashes escaped."""
    shown = []
    for byte in text.encode("utf-8", "surrogateescape"):
        if byte < 0x20 or byte >= 0x80:
            shown.append(f"\\x{byte:02x}")
        else:
            shown.append(f"\\{chr(byte)}" if chr(byte) in '"\\' else chr(byte))
    return f'"{"".join(shown)}"'


def parse_prometheus_duration(text: str) -> int:
    """Read a duration as Prometheus does: whole numbers with units from y to ms, each at most once, the largest
    first. Return ns."""
    if text == "0":
        return 0
    if not text:
        raise ValueError("empty duration string")
    invalid = f"not a valid duration string: {go_quote(text)}"
    total, at, last = 0, 0, -1
    while at < len(text):
        found = _PROMETHEUS_PART.match(text, at)
        if not found or len(found[1].lstrip("0")) > 20 or int(found[1]) >= 1 << 64:
            raise ValueError(invalid)
        if found[2] not in _PROMETHEUS_UNITS:
            raise ValueError(f"unknown unit {go_quote(found[2])} in duration {go_quote(text)}")
        if _UNIT_ORDER.index(found[2]) <= last:
            raise ValueError(invalid)
        last = _UNIT_ORDER.index(found[2])
        total += int(found[1]) * _PROMETHEUS_UNITS[found[2]]
        if total >= _LARGEST:
            raise ValueError("duration out of range")
        at = found.end()
    return total


def duration_text(ns: int) -> str:
    """Write a duration as Go's Duration.String does: `1h0m0.5s`, `250ms`."""
    if not ns:
        return "0s"
    sign, size = "-" if ns < 0 else "", abs(ns)
    for unit, scale in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if size < scale * 1000:
            return f"{sign}{_scaled(size, scale)}{unit}"
    minutes, rest = divmod(size, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_scaled(rest, 1_000_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def prometheus_duration_text(ns: int) -> str:
    """Write a duration as Prometheus does, in ms: `1h30m`. Years, weeks and days only where nothing is left over."""
    ms = abs(ns) // 1_000_000
    if not ms:
        return "0s"
    text = "-" if ns < 0 else ""
    for unit, size_ns in _PROMETHEUS_UNITS.items():
        size = size_ns // 1_000_000
        if ms >= size and not (unit in "ywd" and ms % size):
            text += f"{ms // size}{unit}"
            ms %= size
    return text


def _scaled(size: int, scale: int) -> str:
    whole, rest = divmod(size, scale)
    digits = len(str(scale)) - 1
    return f"{whole}.{rest:0{digits}}".rstrip("0") if rest else str(whole)


# ---- sizes

_SIZES = {"b": 1, "": 1}
for _power, _letter in enumerate("kmgtpe", start=1):
    _SIZES |= {_letter: 1000**_power, f"{_letter}b": 1000**_power}
    _SIZES |= {f"{_letter}i": 1024**_power, f"{_letter}ib": 1024**_power}
_SIZE = re.compile(r"[0-9.,]*")
_LARGEST_SIZE = float(1 << 64)


def parse_bytes(text: str) -> int:
    """Read a size as go-humanize's ParseBytes does: `1.5KiB`, `1,000 kb`; a number alone is bytes."""
    digits = _SIZE.match(text)
    end = digits.end() if digits else 0
    value = parse_float(text[:end].replace(",", ""))
    unit = text[end:].strip().lower()
    if unit not in _SIZES:
        raise ValueError(f"unhandled size name: {unit}")
    value *= float(_SIZES[unit])
    if value >= _LARGEST_SIZE:
        raise ValueError(f"too large: {text}")
    return int(value)


def bytes_text(size: int) -> str:
    """Write a size as Loki prints a label filter: powers of 1000, one digit behind the point below ten units."""
    if size < 10:
        return f"{size}B"
    # Go computes the power by logarithms too: both are wrong in the same way just below a power of 1000.
    power = math.floor(math.log(float(size)) / math.log(1000))
    value = math.floor(float(size) / math.pow(1000, power) * 10 + 0.5) / 10
    unit = ("B", "kB", "MB", "GB", "TB", "PB", "EB")[power]
    return f"{value:.1f}{unit}" if value < 10 else f"{Decimal(value):.0f}{unit}"
