"""Sets of characters as regular expressions have them: ranges of code points, both ends inclusive."""

from __future__ import annotations

import re
import sys
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]


def _ranges(text: str) -> Ranges:
    """Of "a-z" and the like, one after the other."""
    return tuple((ord(low), ord(high)) for low, high in re.findall("(.)-(.)", text, re.DOTALL))


# All characters that have more than one case are here: half-open.
_CASED: Ranges = ((0x41, 0x600), (0x10A0, 0x1400), (0x1C80, 0x2200), (0x24B0, 0x2E00), (0xA640, 0xABC0))
_CASED += ((0xFB00, 0xFF60), (0x10400, 0x10600), (0x10C80, 0x10D00), (0x118A0, 0x118E0), (0x16E40, 0x16E80))
_CASED += ((0x1E900, 0x1E950),)
ANYTHING: Ranges = ((0, sys.maxunicode),)
NOT_NEWLINE: Ranges = ((0, 9), (11, sys.maxunicode))
WORD = _ranges("0-9A-Z_-_a-z")
PERL_CLASSES = {"d": _ranges("0-9"), "s": _ranges("\t-\n\f-\r - "), "w": WORD}
POSIX_CLASSES = {
    "alnum": _ranges("0-9A-Za-z"),
    "alpha": _ranges("A-Za-z"),
    "ascii": _ranges("\0-\x7f"),
    "blank": _ranges("\t-\t - "),
    "cntrl": _ranges("\0-\x1f\x7f-\x7f"),
    "digit": _ranges("0-9"),
    "graph": _ranges("!-~"),
    "lower": _ranges("a-z"),
    "print": _ranges(" -~"),
    "punct": _ranges("!-/:-@[-`{-~"),
    "space": _ranges("\t-\r - "),
    "upper": _ranges("A-Z"),
    "word": WORD,
    "xdigit": _ranges("0-9A-Fa-f"),
}


def merged(ranges: Ranges) -> Ranges:
    """Sorted, none touching another."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    found = []
    start = 0
    for low, high in merged(ranges):
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, sys.maxunicode)) if start <= sys.maxunicode else tuple(found)


def disjoint(one: Ranges, other: Ranges) -> bool:
    return all(high < start or end < low for low, high in one for start, end in other)


def folded(ranges: Ranges) -> Ranges:
    """With all other cases of its characters (Unicode's simple case folding)."""
    orbits = _orbits()
    added = [
        (other, other)
        for low, high in ranges
        for code in ((low,) if low == high else [code for code in orbits if low <= code <= high])
        for other in orbits.get(code, ())
    ]
    return merged((*ranges, *added))


def class_text(ranges: Ranges) -> str:
    """For Python's `re`."""
    ranges = merged(ranges)
    if ranges == ANYTHING:
        return "(?s:.)"
    if not ranges:
        return "(?!)"  # what no character is in matches nothing
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(chr(ranges[0][0]))
    if ranges[-1][1] == sys.maxunicode:
        return f"[^{_members(complement(ranges))}]"
    return f"[{_members(ranges)}]"


def _members(ranges: Ranges) -> str:
    return "".join(_member(low) + (f"-{_member(high)}" if high > low else "") for low, high in ranges)


def _member(code: int) -> str:
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\U{code:08x}"


@lru_cache(maxsize=1)
def _orbits() -> dict[int, tuple[int, ...]]:
    """Of every character that has other cases: all of them."""
    by_fold: dict[str, list[int]] = {}
    for low, high in _CASED:
        for code in range(low, high):
            by_fold.setdefault(_fold(chr(code)), []).append(code)
    return {code: tuple(codes) for codes in by_fold.values() if len(codes) > 1 for code in codes}


def _fold(character: str) -> str:
    """Simple folding: the full one where it is one character, otherwise lower case where that is one."""
    for found in (character.casefold(), character.lower()):
        if len(found) == 1:
            return found
    return character
