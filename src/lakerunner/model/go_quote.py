"""Strings and characters in quotes as Go writes them: Prometheus' messages are compared by the letter."""

from __future__ import annotations

_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def quoted(text: str) -> str:
    """Return the text in double quotes, with escapes for what cannot be printed."""
    return '"' + "".join('\\"' if character == '"' else _escaped(character) for character in text) + '"'


def quoted_character(character: str) -> str:
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
        return f"\\x{code - 0xDC00:02x}"  # a byte that is no character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
