"""Statements of SQL out of lines as they are typed: each ends with a `;` that stands outside of texts and comments."""

from __future__ import annotations

import re

# What may hold a semicolon that ends nothing, a semicolon that does, or anything else.
_PIECES = re.compile(
    r"""
    (?P<open>'(?:[^']|'')*\Z | "(?:[^"]|"")*\Z | /\*(?:(?!\*/).)*\Z)
    | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    | (?P<end>;)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """The whole statements, without their semicolons, and what is left of the text."""
    whole, began = [], 0
    for piece in _PIECES.finditer(text):
        if piece["end"]:
            statement = text[began : piece.start()].strip()
            if statement:
                whole.append(statement)
            began = piece.end()
    return whole, text[began:]


def ends_inside(text: str) -> bool:
    """Whether a text, a quoted name or a comment goes on at the end."""
    return any(piece["open"] for piece in _PIECES.finditer(text))
