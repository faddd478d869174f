"""Text of telemetry on a terminal: shown, and never obeyed.

A control character is drawn as its picture (ESC as U+241B), one of 0x80 to 0x9F as U+FFFD. Characters that change the
order of what is read, or begin a line, stand as they are escaped in JSON: `\\u202e`. Line feed and tab are kept.
"""

from __future__ import annotations

from typing import TextIO

_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_HALVES = range(0xD800, 0xE000)  # which no terminal's encoding has
_DRAWN: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **{code: f"\\u{code:04x}" for code in (*_BIDIRECTIONAL, *_LINE_ENDS, *_HALVES)},
}


def drawn(text: str) -> str:
    return text.translate(_DRAWN)


def for_terminal(text: str, output: TextIO) -> str:
    """A machine's format: drawn where a person reads it, exact where it is redirected."""
    return drawn(text) if output.isatty() else text
