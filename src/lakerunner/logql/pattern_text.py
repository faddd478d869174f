"""Write the pattern of lines that have one fingerprint: fixed tokens literally, `<_>` where tokens vary.

Comes in: sampled lines, and what all lines of the group are known to begin with. Goes out: the text of a pattern for
`|>`. What always holds: every given line passes the filter `|>` of its pattern. Tokens are those of the fingerprint
(docs/formats/segments.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lakerunner.logql.stages.pattern import filter_pattern

CAPTURE = "<_>"
SPACES = " \t\n\v\f\r"
_WORD_SIGNS = "A-Za-z0-9_\x80-\U0010ffff"
_WORD = f"[{_WORD_SIGNS}]+(?:[-.:@][{_WORD_SIGNS}]+)*"
_GAP = f"[{SPACES}]+"
_QUOTED = rf""""[^"]*"|(?<![{_WORD_SIGNS}])'[^']*'"""
_PLAIN_TOKENS = re.compile(f"({_GAP})|({_WORD})|.", re.DOTALL)
_QUOTED_TOKENS = re.compile(f"({_GAP})|({_WORD})|({_QUOTED})|.", re.DOTALL)
_QUOTED_GROUP = 3
_VARIABLE = re.compile(r"[0-9]|\A[a-fA-F-]{8,}\Z", re.ASCII)
_UNREADABLE = re.compile("[\ufffd\udc80-\udcff]")  # a filter would not find it in the line
_READ_AS_CAPTURE = re.compile("<[A-Za-z_][A-Za-z0-9_]*>")
_CAPTURES = re.compile(f"(?:{CAPTURE})+")
_LETTER = re.compile(r"[^\W\d_]")
Pieces = tuple[str | None, ...]  # literals, and None for what varies


def read_tokens(line: str) -> list[tuple[str, bool]]:
    """Return the tokens of a line, gaps among them, each with whether it varies. Gaps at both ends are left out."""
    tokens = _PLAIN_TOKENS if line.lstrip(SPACES)[:1] in ("{", "[") else _QUOTED_TOKENS
    return [(found[0], _varies(found)) for found in tokens.finditer(line.strip(SPACES))]


def _varies(found: re.Match[str]) -> bool:
    is_quoted = found.lastindex == _QUOTED_GROUP
    return is_quoted or (found[2] is not None and _VARIABLE.search(found[2]) is not None)


def signature(line: str) -> tuple[str, ...]:
    """Return what lines of one fingerprint have in common: the fixed tokens, and where others stand."""
    return tuple(" " if text[0] in SPACES else CAPTURE if varies else text for text, varies in read_tokens(line))


def pattern_of(lines: Sequence[str], prefix: str = "") -> str:
    """Return the pattern of lines that are not empty. `prefix`: all lines of the group begin with it."""
    pieces = _pieces(lines, len(prefix))
    text = _text(pieces)
    if _fits_all(text, lines):
        return text
    # A capture ends at the first place where the next literal stands, which may be inside of a value: what follows
    # cannot be told apart then.
    shorter = (_text((*pieces[:count], None)) for count in range(len(pieces) - 1, 0, -1))
    return next((text for text in shorter if _fits_all(text, lines)), CAPTURE)


def _fits_all(text: str, lines: Iterable[str]) -> bool:
    test = filter_pattern(text).fits
    return all(map(test, lines))


def _pieces(lines: Sequence[str], prefix: int) -> Pieces:
    first, *others = (read_tokens(line) for line in lines)
    ends = [line[: len(line) - len(line.lstrip(SPACES))] for line in lines]
    at, pieces = len(ends[0]), [ends[0] if len(set(ends)) == 1 else None]
    for number, (text, varies) in enumerate(first):
        if any(number >= len(other) or other[number][1] != varies for other in others):
            return (*pieces, None)
        at += len(text)
        known = at < prefix or (at == prefix and number + 1 == len(first))
        same = not varies and all(other[number][0] == text for other in others)
        pieces.append(text if known or same else None)
        if not (varies or same or text[0] in SPACES):  # the lines are not of one fingerprint
            return tuple(pieces)
    if any(len(other) > len(first) for other in others):
        return (*pieces, None)
    tails = {line[len(line.rstrip(SPACES)) :] for line in lines}
    return (*pieces, tails.pop() if len(tails) == 1 else None)


def _text(pieces: Pieces) -> str:
    """Join literals and captures. A literal that a pattern cannot hold becomes a capture."""
    merged: list[str | None] = []
    for piece in pieces:
        literal = None if piece is None or _UNREADABLE.search(piece) else piece
        if literal and merged and merged[-1] is not None:
            merged[-1] += literal
        elif literal != "":
            merged.append(literal)
    written = (CAPTURE if piece is None else _READ_AS_CAPTURE.sub(CAPTURE, piece) for piece in merged)
    return _CAPTURES.sub(CAPTURE, "".join(written))


def common_start(low: str, high: str) -> str:
    """Return what all texts between the least and the greatest of them begin with."""
    differ = (number for number, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return low[: next(differ, min(len(low), len(high)))]


def has_words(pattern: str) -> bool:
    """Return whether the pattern has a letter outside of its captures."""
    return _LETTER.search(pattern.replace(CAPTURE, "")) is not None
