"""Strings and numbers as Go's strconv reads them: literals of templates, and text that functions take for numbers.

Comes in: text. Goes out: a value, None for text that Go refuses. Numbers out of range are refused too.
"""

from __future__ import annotations

import math
import re

from lakerunner.model.templates.go_values import decode_text, encode_text

_INT_LIMIT = 1 << 63
_UINT_LIMIT = 1 << 64
_INTEGER = re.compile("([+-]?)(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[0-9][0-9_]*)")
_DECIMAL = re.compile("[+-]?(?:[0-9][0-9_]*(?:[.][0-9_]*)?|[.][0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?")
_HEXADECIMAL = re.compile("[+-]?0[xX][0-9a-fA-F_]*(?:[.][0-9a-fA-F_]*)?[pP][+-]?[0-9][0-9_]*")
_SPECIAL = re.compile("[+-]?inf(?:inity)?|nan", re.IGNORECASE)
# An underscore must stand between two digits, or between the base and a digit; `e` is a digit in hexadecimal only.
_GOOD_UNDERSCORE = re.compile("(?<=[0-9])_(?=[0-9])")
_GOOD_HEX_UNDERSCORE = re.compile("(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])")
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)", re.DOTALL
)
_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"'}


def _without_underscores(text: str) -> str | None:
    if "_" not in text:
        return text
    based = text.lstrip("+-")[:2].lower() in ("0x", "0b", "0o")
    clean = (_GOOD_HEX_UNDERSCORE if based else _GOOD_UNDERSCORE).sub("", _after_base(text))
    return None if "_" in clean else clean


def _after_base(text: str) -> str:
    """Drop the one underscore that may follow a base: `0x_ff`."""
    return re.sub("^([+-]?0[xXbBoO])_", r"\1", text)


def parse_integer(text: str, *, is_decimal: bool = False) -> int | None:
    """Read an integer of any size with Go's prefixes; a leading 0 is octal. `is_decimal`: digits alone."""
    found = _INTEGER.fullmatch(text)
    if not found or (is_decimal and not found[2].isdecimal()):
        return None
    clean = _without_underscores(text)
    if clean is None:
        return None
    digits = clean.lstrip("+-")
    base = 10 if is_decimal else {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2].lower(), 8 if digits[0] == "0" else 10)
    if base == 8 and not set(digits) <= set("01234567oO"):
        return None
    if len(digits.lstrip("0xXbBoO")) > 64:  # longer than any number in range: Python takes long for such texts
        return (-1 if found[1] == "-" else 1) * _UINT_LIMIT
    value = int(digits, base)
    return -value if found[1] == "-" else value


def parse_int64(text: str) -> int | None:
    value = parse_integer(text)
    return value if value is not None and -_INT_LIMIT <= value < _INT_LIMIT else None


def parse_double(text: str) -> float | None:
    """Read a floating-point number; one that is out of range is None."""
    if _DECIMAL.fullmatch(text):
        clean = _without_underscores(text)
        value = float(clean) if clean is not None else math.inf
        return value if math.isfinite(value) else None
    if _HEXADECIMAL.fullmatch(text):
        return _hexadecimal(text)
    return float(text) if _SPECIAL.fullmatch(text) else None


def _hexadecimal(text: str) -> float | None:
    clean = _without_underscores(text)
    if clean is None or not re.search("0[xX][.]?[0-9a-fA-F]", clean):
        return None
    try:
        return float.fromhex(clean)
    except OverflowError:
        return None


def unquote(text: str) -> str | None:
    """Read a string literal in double or back quotes."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    return unescape(text[1:-1], '"')


def unescape(body: str, quote: str) -> str | None:
    """Resolve the escapes of a literal's body; None if one is wrong. The other kind of quote must not be escaped."""
    if "\\" not in body:
        return body
    data, end = bytearray(), 0
    for found in _ESCAPE.finditer(body):
        if found.start() < end:
            continue
        sign, byte, octal, short, long = found.groups()
        data += encode_text(body[end : found.start()])
        end = found.end()
        if sign:
            if sign in "'\"" and sign != quote:
                return None
            data += _SHORT[sign].encode()
        elif byte or octal:
            number = int(byte, 16) if byte else int(octal, 8)
            if number > 255:
                return None
            data.append(number)
        else:
            code = int(short or long or "-1", 16)
            if not 0 <= code <= 0x10FFFF or 0xD800 <= code < 0xE000:
                return None
            data += chr(code).encode()
    return decode_text(bytes(data + encode_text(body[end:])))
