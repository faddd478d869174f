"""The values of tokens: numbers, durations and strings; UserError where a token only looks like one.

Numbers and durations are seconds where they mean time, as a query writes them; ms are whole, cut towards zero from
rounded ns.
"""

from __future__ import annotations

import math
import re

from lakerunner.model.go_quote import quoted
from lakerunner.model.labels import selector
from lakerunner.model.labels.selector import unquoted
from lakerunner.promql.lexer import Token, refusal

_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LARGEST_NS = 1 << 63
LARGEST_SECONDS = _LARGEST_NS / 1e9
_INTEGER = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*")


def number(text: str, token: Token) -> float:
    """A leading 0 makes octal of whole numbers, 0x hexadecimal."""
    word = token.text
    if _INTEGER.fullmatch(word):
        digits = word.replace("_", "").lower()
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] != "x"
        value = int(digits, 8 if octal else 0)
        if value < 1 << 63:
            return float(value)
    try:
        found = float(word)
    except ValueError:
        raise _no_number(text, token, "invalid syntax") from None
    if math.isinf(found) and word.lower() != "inf":
        raise _no_number(text, token, "value out of range")
    return found


def _no_number(text: str, token: Token, reason: str) -> Exception:
    shown = quoted(token.text)
    return refusal(text, token.start, f"error parsing number: strconv.ParseFloat: parsing {shown}: {reason}")


def duration_seconds(text: str, token: Token) -> float:
    """Of 1h30m and the like: units from the largest to the smallest, each once."""
    total = 0  # ms
    last = -1
    order = list(_UNITS)
    invalid = f"not a valid duration string: {quoted(token.text)}"
    parts = re.findall(r"([0-9]*)([^0-9]+)", token.text)
    for digits, unit in parts:
        if not digits or int(digits) >= 1 << 64:
            raise refusal(text, token.start, invalid)
        if unit not in _UNITS:
            message = f"unknown unit {quoted(unit)} in duration {quoted(token.text)}"
            raise refusal(text, token.start, message)
        if order.index(unit) <= last:
            raise refusal(text, token.start, invalid)
        last = order.index(unit)
        total += int(digits) * _UNITS[unit]
        if total * 1_000_000 >= _LARGEST_NS:
            raise refusal(text, token.start, "duration out of range")
    return total // 1000 + total % 1000 * 1_000_000 / 1e9


def milliseconds(seconds: float) -> int:
    """Of a number of seconds that is no more than LARGEST_SECONDS."""
    ns = rounded(seconds * 1e9)
    return ns // 1_000_000 if ns >= 0 else -(-ns // 1_000_000)


def rounded(value: float) -> int:
    """To the nearest whole number, halves away from zero."""
    whole = math.trunc(value)
    return whole + (int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else 0)


def is_utf8(value: str) -> bool:
    """Whether no escape has left bytes that are no character; they stand there as lone surrogates."""
    return shown(value) == value


def shown(value: str) -> str:
    """With the character that stands for none in place of each byte that is none."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value)


def utf8_string(text: str, token: selector.Token) -> str:
    value = unquoted(token.text)
    if not is_utf8(value):
        raise refusal(text, token.start, f"string {token.text} is not UTF-8 once its escapes are read")
    return value
