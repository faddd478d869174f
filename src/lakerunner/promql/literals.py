"""Evaluate tokens: numbers, durations and strings. Raise UserError if a token only looks like one.

Numbers and durations that mean time are seconds, as a query writes them; ms are integers, truncated from rounded ns.
"""

from __future__ import annotations

import math
import re

from lakerunner.model.display import go_quote
from lakerunner.model.labels import selector
from lakerunner.model.labels.selector import unquoted
from lakerunner.promql.lexer import Token, refusal

_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LARGEST_NS = 1 << 63
LARGEST_SECONDS = _LARGEST_NS / 1e9
_INTEGER = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*")


def number(text: str, token: Token) -> float:
    """Evaluate a number. An integer with a leading 0 is octal, with 0x hexadecimal."""
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
        raise _number_error(text, token, "invalid syntax") from None
    if math.isinf(found) and word.lower() != "inf":
        raise _number_error(text, token, "value out of range")
    return found


def _number_error(text: str, token: Token, reason: str) -> Exception:
    token_text = go_quote(token.text)
    return refusal(text, token.start, f"error parsing number: strconv.ParseFloat: parsing {token_text}: {reason}")


def duration_seconds(text: str, token: Token) -> float:
    """Evaluate 1h30m and the like: units from the largest to the smallest, each once."""
    total = 0  # ms
    last = -1
    order = list(_UNITS)
    invalid = f"not a valid duration string: {go_quote(token.text)}"
    parts = re.findall(r"([0-9]*)([^0-9]+)", token.text)
    for digits, unit in parts:
        if not digits or int(digits) >= 1 << 64:
            raise refusal(text, token.start, invalid)
        if unit not in _UNITS:
            message = f"unknown unit {go_quote(unit)} in duration {go_quote(token.text)}"
            raise refusal(text, token.start, message)
        if order.index(unit) <= last:
            raise refusal(text, token.start, invalid)
        last = order.index(unit)
        total += int(digits) * _UNITS[unit]
        if total * 1_000_000 >= _LARGEST_NS:
            raise refusal(text, token.start, "duration out of range")
    return total // 1000 + total % 1000 * 1_000_000 / 1e9


def milliseconds(seconds: float) -> int:
    """Convert seconds, at most LARGEST_SECONDS, to ms: rounded to ns, then truncated, as Go's time.Duration does."""
    ns = round_half_away(seconds * 1e9)
    return ns // 1_000_000 if ns >= 0 else -(-ns // 1_000_000)


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    whole = math.trunc(value)
    return whole + (int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else 0)


def is_utf8(value: str) -> bool:
    """Return whether the text is valid UTF-8. Escapes may leave bytes that are not; they appear as lone surrogates."""
    return replace_invalid(value) == value


def replace_invalid(value: str) -> str:
    """Replace bytes that are not UTF-8 by the replacement character."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value)


def utf8_string(text: str, token: selector.Token) -> str:
    """Return the content of a string token; raise UserError if its escapes do not give UTF-8."""
    value = unquoted(token.text)
    if not is_utf8(value):
        raise refusal(text, token.start, f"string {token.text} is not UTF-8 once its escapes are read")
    return value
