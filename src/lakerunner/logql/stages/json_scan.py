"""JSON as Loki reads it: as much as is needed of a text that need not be valid as a whole.

Comes in: a line. Goes out: its members one by one, and values as they are written. What always holds: what follows the
closing brace is not looked at; a number is any word that starts with a digit or `-`, kept as it is written; an object
or array reaches to the bracket that closes it, whatever stands inside. So members in front of a fault are found, and
the fault has the words of the library that Loki uses (jsonparser).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_SPACE = re.compile(r"[ \n\r\t]*")
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WORD = re.compile(r"[^ \n\r\t,}\]]*")
_BRACES = re.compile(r'"(?:[^"\\]++|\\.)*+"|["{}]', re.DOTALL)
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|["\[\]]', re.DOTALL)
# Half a surrogate pair needs another: jsonparser looks at its four digits only, not at the two signs before them.
_ESCAPE = re.compile(r"\\(?:u([dD][89a-fA-F][0-9a-fA-F]{2})(?:..([0-9a-fA-F]{4}))?|u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NUMBER_STARTS = frozenset("0123456789-")

MALFORMED = "Malformed JSON error"
NO_STRING_END = "Value is string, but can't find closing '\"' symbol"
NO_ARRAY_END = "Value is array, but can't find closing ']' symbol"
NO_OBJECT_END = "Value looks like object, but can't find closing '}' symbol"
UNKNOWN_VALUE = "Unknown value type"
BAD_ESCAPE = "Encountered an invalid escape sequence in a string"


class JsonFault(ValueError):
    """The text cannot be read from here on; the message is that of jsonparser."""


class JsonKind(Enum):
    STRING = 1
    NUMBER = 2
    OBJECT = 3
    ARRAY = 4
    BOOLEAN = 5
    NULL = 6


_WORDS = {"true": JsonKind.BOOLEAN, "false": JsonKind.BOOLEAN, "null": JsonKind.NULL}


class ObjectEnds:
    """Where the objects of a text end, found in one pass however deep they are nested."""

    __slots__ = ("_ends", "_text", "is_exact")

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends: dict[int, int] | None = None
        # A word that is no string but has a quote in it: from there on the pass may take texts for strings.
        self.is_exact = True

    def __call__(self, at: int, end: int) -> int:
        """Return the place behind the brace that closes the one that stands here, -1 if none before the end does."""
        if not self.is_exact:
            return block_end(self._text, at, end)
        if self._ends is None:
            self._ends = self._find()
        found = self._ends.get(at, -1)
        return found if found <= end else -1

    def _find(self) -> dict[int, int]:
        ends, opened = {}, []
        for found in _BRACES.finditer(self._text):
            sign = found[0]
            if sign == "{":
                opened.append(found.start())
            elif sign == "}":
                if opened:
                    ends[opened.pop()] = found.end()
            elif sign == '"':  # a string that does not end
                break
        return ends


def next_token(text: str, at: int, end: int = sys.maxsize) -> int:
    """Return the place of the next character before the end that is no space, -1 if there is none."""
    place = _SPACE.match(text, at, end).end()  # type: ignore[union-attr]  # it matches everywhere
    return place if place < end and place < len(text) else -1


def string_end(text: str, at: int, end: int = sys.maxsize) -> int:
    """Return the place behind the quote that closes the string whose first character is here; -1 if none does."""
    found = _STRING_REST.match(text, at, end)
    return found.end() if found else -1


def block_end(text: str, at: int, end: int = sys.maxsize) -> int:
    """Return the place behind the bracket that closes the one that stands here, -1 if none does."""
    opening = text[at]
    level = 0
    for found in (_BRACES if opening == "{" else _BRACKETS).finditer(text, at, end):
        sign = found[0]
        if sign == opening:
            level += 1
        elif sign == '"':  # a string that does not end
            return -1
        elif sign[0] != '"':
            level -= 1
            if not level:
                return found.end()
    return -1


class JsonValue(NamedTuple):
    """A value between two places of a text; the quotes of a string are outside. `behind` is the place after all."""

    kind: JsonKind
    start: int
    end: int
    behind: int


def value_at(text: str, at: int, end: int = sys.maxsize, ends: ObjectEnds | None = None) -> JsonValue:
    """Return the next value. `ends` knows the ends of objects."""
    start = next_token(text, at, end)
    if start < 0:
        raise JsonFault(MALFORMED)
    first = text[start]
    if first == '"':
        behind = string_end(text, start + 1, end)
        if behind < 0:
            raise JsonFault(NO_STRING_END)
        return JsonValue(JsonKind.STRING, start + 1, behind - 1, behind)
    if first in "[{":
        behind = ends(start, end) if ends is not None and first == "{" else block_end(text, start, end)
        if behind < 0:
            raise JsonFault(NO_OBJECT_END if first == "{" else NO_ARRAY_END)
        return JsonValue(JsonKind.OBJECT if first == "{" else JsonKind.ARRAY, start, behind, behind)
    word = _WORD.match(text, start, end)[0]  # type: ignore[index]  # it matches everywhere
    kind = JsonKind.NUMBER if first in _NUMBER_STARTS else _WORDS.get(word)
    if kind is None:
        raise JsonFault(UNKNOWN_VALUE)
    if ends is not None and '"' in word:
        ends.is_exact = False
    return JsonValue(kind, start, start + len(word), start + len(word))


def members(text: str, start: int, end: int, ends: ObjectEnds) -> Iterator[tuple[str, JsonValue]]:
    """Yield key and value of each member of the object between two places. Raise JsonFault at the first fault."""
    at = next_token(text, start, end)
    if at < 0 or text[at] != "{":
        raise JsonFault(NO_OBJECT_END)
    at = next_token(text, at + 1, end)
    if at < 0:
        raise JsonFault(MALFORMED)
    while text[at] != "}":
        key, at = _key(text, at, end)
        value = value_at(text, at, end, ends)
        yield key, value
        at = next_token(text, value.behind, end)
        if at < 0:
            raise JsonFault(NO_ARRAY_END)
        if text[at] == "}":
            return
        if text[at] != ",":
            raise JsonFault(NO_OBJECT_END)
        at = next_token(text, at + 1, end)
        if at < 0:
            raise JsonFault(NO_ARRAY_END)


def _key(text: str, at: int, end: int) -> tuple[str, int]:
    """Return a member's key and the place behind its colon."""
    if text[at] != '"':
        raise JsonFault(NO_OBJECT_END)
    behind = string_end(text, at + 1, end)
    if behind < 0:
        raise JsonFault(MALFORMED)
    key = text[at + 1 : behind - 1]
    if "\\" in key:
        unescaped = unescape(key)
        if unescaped is None:
            raise JsonFault(BAD_ESCAPE)
        key = unescaped
    colon = next_token(text, behind, end)
    if colon < 0 or text[colon] != ":":
        raise JsonFault(MALFORMED)
    return key, colon + 1


def elements(text: str, at: int) -> Iterator[JsonValue]:
    """Yield each element of the array that stands here. Raise JsonFault at the first fault."""
    at = next_token(text, at + 1)
    if at < 0:
        raise JsonFault(MALFORMED)
    while text[at] != "]":
        value = value_at(text, at)
        yield value
        at = next_token(text, value.behind)
        if at < 0 or text[at] not in ",]":
            raise JsonFault(NO_ARRAY_END)
        if text[at] == "]":
            return
        at += 1
        if next_token(text, at) < 0:
            raise JsonFault(MALFORMED)


def unescape(text: str) -> str | None:
    """Return the text of a string without its escapes, None if one of them is wrong."""
    if "\\" not in text:
        return text
    try:
        return _ESCAPE.sub(_unescaped, text)
    except JsonFault:
        return None


def _unescaped(found: re.Match[str]) -> str:
    high, low, code, sign = found.groups()
    if code is not None:
        return chr(int(code, 16))
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    if high is None or low is None or int(low, 16) < 0xDC00:
        raise JsonFault(BAD_ESCAPE)
    point = 0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00
    return chr(point) if point <= 0x10FFFF else "\ufffd"
