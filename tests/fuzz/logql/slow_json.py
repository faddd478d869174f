"""JSON as Loki's library reads it, one character after the other, for tests: only as far as it is needed.

What follows the closing brace is not looked at. A number is any word that starts with a digit or `-`. An object or
array ends at the bracket that closes it; only strings inside are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BLANK = " \n\r\t"
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class Fault(Exception):
    """The text cannot be read from here on."""


@dataclass(frozen=True)
class Member:
    """`raw` is the value as it is written, without the quotes of a string."""

    key: str
    kind: str  # string, number, object, array, boolean, null
    raw: str
    end: int

    @property
    def text(self) -> str | None:
        """Return the text of a string without escapes, None if one is wrong."""
        return unescaped(self.raw)


def skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def quote_end(text: str, at: int) -> int:
    """Return the place of the quote that ends the string which begins at `at`, behind its opening quote."""
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == '"':
            return at
        at += 1
    raise Fault("string")


def closing(text: str, at: int) -> int:
    """Return the place behind the bracket that closes the one here."""
    opening, close = text[at], {"{": "}", "[": "]"}[text[at]]
    depth = 0
    while at < len(text):
        if text[at] == '"':
            at = quote_end(text, at + 1)
        elif text[at] == opening:
            depth += 1
        elif text[at] == close:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    raise Fault("block")


def read_value(text: str, at: int, key: str = "") -> Member:
    at = skip_blank(text, at)
    if at == len(text):
        raise Fault("nothing")
    first = text[at]
    if first == '"':
        end = quote_end(text, at + 1)
        return Member(key, "string", text[at + 1 : end], end + 1)
    if first in "{[":
        end = closing(text, at)
        return Member(key, "object" if first == "{" else "array", text[at:end], end)
    end = at
    while end < len(text) and text[end] not in _BLANK + ",}]":
        end += 1
    word = text[at:end]
    if first in "-0123456789":
        return Member(key, "number", word, end)
    kind = {"true": "boolean", "false": "boolean", "null": "null"}.get(word)
    if kind is None:
        raise Fault("word")
    return Member(key, kind, word, end)


def read_members(text: str) -> Iterator[Member]:
    at = skip_blank(text, 0)
    if text[at : at + 1] != "{":
        raise Fault("no object")
    at = skip_blank(text, at + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        if text[at : at + 1] != '"':
            raise Fault("no key")
        end = quote_end(text, at + 1)
        key = unescaped(text[at + 1 : end])
        at = skip_blank(text, end + 1)
        if key is None or text[at : at + 1] != ":":
            raise Fault("key")
        member = read_value(text, at + 1, key)
        yield member
        at = skip_blank(text, member.end)
        sign = text[at : at + 1]
        if sign == "}":
            return
        if sign != ",":
            raise Fault("no comma")
        at = skip_blank(text, at + 1)
        if text[at : at + 1] == "}":  # a comma before the end is allowed
            return


def unescaped(text: str) -> str | None:
    found, at = [], 0
    while at < len(text):
        if text[at] != "\\":
            found.append(text[at])
            at += 1
            continue
        sign = text[at + 1 : at + 2]
        if sign in _SIMPLE:
            found.append(_SIMPLE[sign])
            at += 2
            continue
        code = _code(text, at)
        if code is None:
            return None
        at += 6
        if 0xD800 <= code <= 0xDFFF:
            low = _digits(text[at + 2 : at + 6])  # whatever the two signs before the digits are
            if low is None or low < 0xDC00:
                return None
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            code = code if code <= 0x10FFFF else 0xFFFD
            at += 6
        found.append(chr(code))
    return "".join(found)


def _code(text: str, at: int) -> int | None:
    return _digits(text[at + 2 : at + 6]) if text[at + 1 : at + 2] == "u" else None


def _digits(text: str) -> int | None:
    return int(text, 16) if len(text) == 4 and all(sign in "0123456789abcdefABCDEF" for sign in text) else None
