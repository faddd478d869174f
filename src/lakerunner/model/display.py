"""Text for people: counts with their noun, telemetry on a terminal, strings as Go quotes them.

Telemetry may hold anything, so a terminal shows its control characters and never obeys them. A control character
becomes its picture (ESC is U+241B), one of 0x80 to 0x9F becomes U+FFFD. Characters that change the reading order or
start a new line are escaped as in JSON: `\\u202e`. Line feed and tab are kept.
"""

from __future__ import annotations

from typing import TextIO


def plural(count: float, one: str, many: str = "") -> str:
    """Return the number with the word for one thing, or for any other number of them; by default that with an `s`."""
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {one if count == 1 else many or one + 's'}"


_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_HALVES = range(0xD800, 0xE000)  # lone surrogates: no terminal's encoding has them
_VISIBLE: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **{code: f"\\u{code:04x}" for code in (*_BIDIRECTIONAL, *_LINE_ENDS, *_HALVES)},
}


def escape_controls(text: str) -> str:
    """Return the text with control characters made visible."""
    return text.translate(_VISIBLE)


def for_terminal(text: str, output: TextIO) -> str:
    """Return text of a machine's format: escaped where a person reads it, exact where it is redirected."""
    return escape_controls(text) if output.isatty() else text


def one_line(text: str) -> str:
    """Escape characters that would break a line."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def sql_quoted(text: str) -> str:
    """Return the text as a literal of SQL, on one line."""
    return "'" + one_line(text).replace("'", "''") + "'"


_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def go_quote(text: str) -> str:
    """Return the text in double quotes, with escapes for what cannot be printed."""
    return '"' + "".join('\\"' if character == '"' else _escaped(character) for character in text) + '"'


def go_quote_character(character: str) -> str:
    """Return the character in single quotes; "", the end of a text, is shown as U+FFFD."""
    shown = "\\'" if character == "'" else _escaped(character or "\ufffd")
    return f"'{shown}'"


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character == " " or character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
