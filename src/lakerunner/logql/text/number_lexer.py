"""Find the end of a number as Go's text/scanner does: decimal, octal, hexadecimal, with exponent and underscores.

Comes in: a text and where a digit, or a point with a digit, stands in it. Goes out: where the number ends. What always
holds: a number that Go cannot read raises ValueError in the scanner's words; its value is not computed here. A `P` that
begins a unit of bytes ends the number: for Go alone it would be an exponent.
"""

from __future__ import annotations

import re

_PREFIX = re.compile("0(?:[xX]|[oO]|[bB](?=[01_]))")
_DECIMAL = re.compile("[0-9_]*")
_HEXADECIMAL = re.compile("[0-9a-fA-F_]*")
_NAMES = {"": "decimal", "0": "octal", "0o": "octal", "0x": "hexadecimal", "0b": "binary"}
_BASES = {"0": 8, "0o": 8, "0b": 2}
_EXPONENT = re.compile("([eEp]|(?<=[0-9a-fA-F_.])P)([+-]?)([0-9_]*)")
_UNIT = re.compile("P(?:iB|B)?(?![0-9+-])")


def number_end(text: str, start: int) -> int:
    """Return where the number that begins at `start` ends. Raise ValueError."""
    found = _PREFIX.match(text, start)
    prefix = found[0].lower() if found else ""
    at = found.end() if found else start
    if not prefix and text[start] == "0":
        prefix = "0"  # octal, unless a point or an exponent follows
    digits = _HEXADECIMAL if prefix == "0x" else _DECIMAL
    whole, at = _run(digits, text, at)
    fraction, is_float = "", text[at : at + 1] == "."
    if is_float:
        if prefix in ("0o", "0b"):
            raise ValueError(f"invalid radix point in {_NAMES[prefix]} literal")
        fraction, at = _run(digits, text, at + 1)
    if not (whole + fraction).strip("_"):
        raise ValueError(f"{_NAMES[prefix]} literal has no digits")
    end = _exponent_end(text, at, prefix)
    if end == at and prefix == "0x" and is_float:
        raise ValueError("hexadecimal mantissa requires a 'p' exponent")
    if end == at and not is_float:
        _check_digits(whole, prefix)
    _check_separators(text[start:end], prefix)
    return end


def _run(digits: re.Pattern[str], text: str, at: int) -> tuple[str, int]:
    found = digits.match(text, at)
    return (found[0], found.end()) if found else ("", at)


def _exponent_end(text: str, at: int, prefix: str) -> int:
    found = _EXPONENT.match(text, at)
    if not found or (prefix != "0x" and _UNIT.match(text, at)):
        return at
    letter = found[1]
    if letter in "eE" and prefix not in ("", "0"):
        raise ValueError(f"'{letter}' exponent requires decimal mantissa")
    if letter in "pP" and prefix != "0x":
        raise ValueError(f"'{letter}' exponent requires hexadecimal mantissa")
    if not found[3].strip("_"):
        raise ValueError("exponent has no digits")
    return found.end()


def _check_digits(digits: str, prefix: str) -> None:
    base = _BASES.get(prefix, 16)
    for digit in digits:
        if digit != "_" and int(digit, 16) >= base:
            raise ValueError(f"invalid digit '{digit}' in {_NAMES[prefix]} literal")


def _check_separators(number: str, prefix: str) -> None:
    """Refuse an underscore that does not stand between two digits; a prefix counts as one."""
    digits = "[0-9a-fA-F]" if prefix == "0x" else "[0-9]"
    body = "0" + number[2:] if len(prefix) == 2 else number
    if re.search(f"(?<!{digits})_|_(?!{digits})", body):
        raise ValueError("'_' must separate successive digits")
