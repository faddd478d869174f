"""The levels that many lines state: `line_level` as a kernel.

Comes in: lines as an Arrow array of valid UTF-8. Goes out: for each line the number of its level in `LINE_LEVELS`. What
always holds: the answer is that of `line_level`. The kernel hands over the few lines whose letters or escapes need
Python's tables (`_ODD`), so that it has to know ASCII only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.streams.line_level import LEVEL_NAMES, LEVELS, UNKNOWN, line_level

LINE_LEVELS = (*dict.fromkeys(LEVELS.values()), UNKNOWN)
_NUMBER_OF = {level: number for number, level in enumerate(LINE_LEVELS)}
_UNKNOWN = len(LINE_LEVELS) - 1
_ODD = 255  # a line for Python

# What _PAIR of line_level takes for a space, and what bounds a level word.
_CONTROL = 0x20
_QUOTE, _BACKSLASH, _EQUALS, _COLON, _COMMA = b'"\\=:,'
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_DASH, _ZERO, _NINE, _U = b"-09u"


def _flags(text: str) -> Any:
    flags = np.zeros(256, np.bool_)
    flags[list(text.encode())] = True
    return flags


_SPACE = _flags(" \t\n\v\f\r")
_JSON_SPACE = _flags(" \t\n\r")
_BEFORE = _flags(" \t\n[({\"'=")
_BEHIND = _flags(" \t\n[](){}:,!\"'=")
_AFTER_SCALAR = _flags(" \t\n\r,}]")
_ESCAPED = _flags("\"\\/'bfnrt")
_HEX = _flags("0123456789abcdefABCDEF")
_FIRST = _flags("tdfcewiTDFCEWI")  # of level words
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[65:91] += 32


def _table(words: tuple[str, ...]) -> Any:
    """Return the words as rows of bytes, with 0 behind each."""
    table = np.zeros((len(words), max(map(len, words)) + 1), np.uint8)
    for row, word in enumerate(words):
        table[row, : len(word)] = list(word.encode())
    return table


# Words in plain text are fewer than those that a field may hold.
_IN_TEXT = ("trace", "debug", "fatal", "critical", "error", "err", "warning", "warn", "info")
_TEXT_TABLE, _TEXT_LEVELS = _table(_IN_TEXT), np.array([_NUMBER_OF[LEVELS[word]] for word in _IN_TEXT])
_VALUE_TABLE, _VALUE_LEVELS = _table(tuple(LEVELS)), np.array([_NUMBER_OF[level] for level in LEVELS.values()])
_KEY_TABLE = _table(LEVEL_NAMES)
_FOLDED = tuple(dict.fromkeys(name.casefold() for name in LEVEL_NAMES))  # in the order of their ranks
_FOLDED_TABLE = _table(_FOLDED)


def line_levels(lines: pa.Array) -> Any:
    """Return the numbers of the lines' levels as an array of uint8. A null line has the level of an empty one."""
    texts = lines.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    found = np.empty(len(texts), np.uint8)
    _line_levels(np.frombuffer(data or b"", np.uint8), bounds, found)
    for row in np.flatnonzero(found == _ODD).tolist():
        found[row] = _NUMBER_OF[line_level(texts[row].as_py() or "")]
    return found


def warm() -> None:
    """Compile the kernel."""
    line_levels(pa.array(["level=info", '{"level": "info"}']))


@njit(cache=True, nogil=True)
def _line_levels(data: Any, bounds: Any, found: Any) -> Any:
    for row in range(len(found)):
        found[row] = _level(data, bounds[row], bounds[row + 1])


@njit(cache=True, nogil=True)
def _level(data: Any, start: Any, end: Any) -> Any:
    """Return the level of the line in these bytes."""
    has_equals = False
    for at in range(start, end):
        byte = data[at]
        if byte == _EQUALS:
            has_equals = True
        elif byte >= 0x80 and at + 1 < end:
            # The letters that fold to ASCII (long s, dotted capital I), and the sign for unreadable bytes.
            after = data[at + 1]
            if (byte == 0xC5 and after == 0xBF) or (byte == 0xC4 and after == 0xB0) or (byte == 0xEF and after == 0xBF):
                return _ODD
    first, last = start, end - 1
    while first < end and _SPACE[data[first]]:
        first += 1
    while last >= start and _SPACE[data[last]]:
        last -= 1
    if first >= end:
        return _UNKNOWN
    if 0xC2 <= data[first] <= 0xE3:  # a wide space, perhaps
        return _ODD
    level = _UNKNOWN
    if data[first] == _OPEN and data[last] == _CLOSE:
        level = _json_level(data, start, end)
    elif has_equals:
        level = _logfmt_level(data, start, end)
    return level if level != _UNKNOWN else _word_level(data, start, end)


@njit(cache=True, nogil=True)
def _is_word(data: Any, at: Any, size: Any, word: Any) -> bool:
    """Return whether these bytes in lower case are the word."""
    if size >= len(word) or word[size] != 0:
        return False
    for place in range(size):  # noqa: SIM110
        if _LOWER[data[at + place]] != word[place]:
            return False
    return True


@njit(cache=True, nogil=True)
def _value_level(data: Any, at: Any, size: Any) -> Any:
    """Return the level that the value of a level-like field states, UNKNOWN if it is not a known word."""
    for number in range(len(_VALUE_TABLE)):
        if _is_word(data, at, size, _VALUE_TABLE[number]):
            return _VALUE_LEVELS[number]
    return _UNKNOWN


@njit(cache=True, nogil=True)
def _word_level(data: Any, start: Any, end: Any) -> Any:
    """Return the level of the first level word between boundaries."""
    for at in range(start, end):
        if not _FIRST[data[at]] or (at > start and not _BEFORE[data[at - 1]]):
            continue
        size = 0
        while at + size < end and size < 9 and not _BEHIND[data[at + size]]:
            size += 1
        for number in range(len(_TEXT_TABLE)):
            if _is_word(data, at, size, _TEXT_TABLE[number]):
                return _TEXT_LEVELS[number]
    return _UNKNOWN


# ---- logfmt


@njit(cache=True, nogil=True)
def _logfmt_level(data: Any, start: Any, end: Any) -> Any:
    """Return the level of the level-like key of the lowest rank, up to the first fault."""
    level, best, at = _UNKNOWN, len(_FOLDED_TABLE), start
    while True:
        while at < end and data[at] <= _CONTROL:
            at += 1
        key = at
        while at < end and data[at] > _CONTROL and data[at] != _EQUALS and data[at] != _QUOTE:
            at += 1
        key_size, value, value_end = at - key, at, at
        if key_size == 0:
            return level
        if at < end and data[at] == _EQUALS:
            value = at + 1
            if value < end and data[value] == _QUOTE:
                value += 1
                value_end = _quoted_end(data, value, end)
                at = value_end + 1
            else:
                value_end = value
                while value_end < end and data[value_end] > _CONTROL and data[value_end] != _EQUALS:
                    if data[value_end] == _QUOTE:
                        return level
                    value_end += 1
                at = value_end
                if at < end and data[at] > _CONTROL:
                    return level
            if value_end < 0:
                return level
        elif at < end and data[at] > _CONTROL:
            return level
        for rank in range(best):
            if _is_word(data, key, key_size, _FOLDED_TABLE[rank]):
                level, best = _value_level(data, value, value_end - value), rank
                if rank == 0:
                    return level
                break


@njit(cache=True, nogil=True)
def _quoted_end(data: Any, at: Any, end: Any) -> Any:
    """Return where the closing quote of a logfmt value stands, -1 if it has none or an unknown escape."""
    while at < end:
        if data[at] == _QUOTE:
            return at
        if data[at] != _BACKSLASH:
            at += 1
            continue
        if at + 1 >= end:
            return -1
        if _ESCAPED[data[at + 1]]:
            at += 2
        elif data[at + 1] == _U and at + 5 < end:
            for place in range(at + 2, at + 6):
                if not _HEX[data[place]]:
                    return -1
            at += 6
        else:
            return -1
    return -1


# ---- JSON


@njit(cache=True, nogil=True)
def _json_level(data: Any, start: Any, end: Any) -> Any:
    """Return the level of the first level-like key with a string, in the object or in one directly inside it."""
    at = _skip_blank(data, start, end) + 1
    inner_end = -1  # where the inner object that is being read ends; -1 in the outer one
    while True:
        at = _skip_blank(data, at, end)
        key = at + 1
        key_end = _string_end(data, at, end)
        if key_end >= 0:
            at = _skip_blank(data, key_end, end)
            if at >= end or data[at] != _COLON:
                return _UNKNOWN
            at = _skip_blank(data, at + 1, end)
            value_end = _value_end(data, at, end)
            if value_end < 0:
                return _UNKNOWN
            if data[at] == _QUOTE:
                named = _names_level(data, key, key_end - 1)
                if named == _ODD:
                    return _ODD
                if named:
                    return _value_level(data, at + 1, value_end - at - 2)
            elif data[at] == _OPEN and inner_end < 0:
                inner_end = value_end
                at += 1
                continue
            at = _skip_blank(data, value_end, end)
            if at < end and data[at] == _COMMA:
                at += 1
                continue
        if inner_end < 0 or at >= end or data[at] != _CLOSE:
            return _UNKNOWN
        # The inner object has ended without a level: go on behind it.
        at = _skip_blank(data, inner_end, end)
        inner_end = -1
        if at >= end or data[at] != _COMMA:
            return _UNKNOWN
        at += 1


@njit(cache=True, nogil=True)
def _names_level(data: Any, start: Any, end: Any) -> Any:
    """Return 1 if the key is level-like, 0 if not, _ODD if it has escapes."""
    for at in range(start, end):
        if data[at] == _BACKSLASH:
            return _ODD
    size = end - start
    for number in range(len(_KEY_TABLE)):
        word = _KEY_TABLE[number]
        if size < len(word) and word[size] == 0:
            same = True
            for place in range(size):
                same = same and data[start + place] == word[place]
            if same:
                return 1
    return 0


@njit(cache=True, nogil=True)
def _skip_blank(data: Any, at: Any, end: Any) -> Any:
    while at < end and _JSON_SPACE[data[at]]:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _string_end(data: Any, at: Any, end: Any) -> Any:
    """Return the position behind the string that begins here, -1 if there is none or it is not closed."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at += 1
    while at < end:
        if data[at] == _QUOTE:
            return at + 1
        at += 2 if data[at] == _BACKSLASH else 1
    return -1


@njit(cache=True, nogil=True)
def _value_end(data: Any, at: Any, end: Any) -> Any:
    """Return the position behind the value that begins here, -1 if it has no end or is none."""
    if at >= end:
        return -1
    first = data[at]
    if first == _QUOTE:
        return _string_end(data, at, end)
    if first in (_OPEN, _OPEN_LIST):
        return _block_end(data, at, end)
    size = 0
    if first == _DASH or _ZERO <= first <= _NINE:
        size = 1
        while at + size < end and not _AFTER_SCALAR[data[at + size]]:
            size += 1
    elif _is_text(data, at, end, b"true") or _is_text(data, at, end, b"null"):
        size = 4
    elif _is_text(data, at, end, b"false"):
        size = 5
    is_value = size > 0 and at + size < end and _AFTER_SCALAR[data[at + size]]
    return at + size if is_value else -1


@njit(cache=True, nogil=True)
def _is_text(data: Any, at: Any, end: Any, text: Any) -> bool:
    if end - at < len(text):
        return False
    for place in range(len(text)):  # noqa: SIM110
        if data[at + place] != text[place]:
            return False
    return True


@njit(cache=True, nogil=True)
def _block_end(data: Any, at: Any, end: Any) -> Any:
    """Return the position behind the object or array. Only brackets of its own kind count, outside strings."""
    opened = data[at]
    closed = _CLOSE if opened == _OPEN else _CLOSE_LIST
    inside = 0
    while at < end:
        if data[at] == _QUOTE:
            at = _string_end(data, at, end)
            if at < 0:
                return -1
            continue
        if data[at] == opened:
            inside += 1
        elif data[at] == closed:
            inside -= 1
            if inside == 0:
                return at + 1
        at += 1
    return -1
