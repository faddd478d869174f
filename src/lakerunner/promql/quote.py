"""Strings and numbers as Go writes them: what Prometheus prints, and what its messages say, is compared by the
letter."""

from __future__ import annotations

import math
from decimal import Decimal

_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def quoted(text: str) -> str:
    """In double quotes, with escapes for what cannot be printed."""
    return '"' + "".join('\\"' if character == '"' else _escaped(character) for character in text) + '"'


def quoted_character(character: str) -> str:
    """In single quotes; "", the end of a text, is shown as the character that stands for none."""
    shown = "\\'" if character == "'" else _escaped(character or "\ufffd")
    return f"'{shown}'"


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character == " " or character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is no character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain_number(value: float) -> str:
    """The shortest digits that give this number again, never with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return format(Decimal(repr(value).removesuffix(".0")), "f")


def short_number(value: float) -> str:
    """The same with an exponent from a million on, and below a ten-thousandth."""
    if value == 0 or not math.isfinite(value) or 1e-4 <= abs(value) < 1e6:
        return plain_number(value)
    digits = "".join(map(str, Decimal(repr(value)).normalize().as_tuple().digits))
    return f"{value:.{len(digits) - 1}e}"
