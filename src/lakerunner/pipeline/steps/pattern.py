"""The fingerprint of a message's pattern: equal for messages that differ only in their variable parts.

It depends on the message alone: every worker, release and machine gives the same. The message is read as tokens:

- a word is a run of letters, digits, `_` and bytes beyond ASCII, with single `-`, `.`, `:` or `@` allowed inside it. It
  is variable if it holds a digit, or has eight or more characters that are all hexadecimal or `-`: numbers, times,
  addresses, ids;
- a part in double quotes, or in single quotes that do not follow a word, is variable, quotes included, if the quote is
  closed. Not in a message that begins with `{` or `[`: there quotes stand around every name, and are ordinary signs;
- a run of white space counts as one space, whatever it is and however long; at both ends it does not count;
- every other byte stands for itself.

All variable tokens are alike. The fingerprint is a 64-bit hash of the sequence of tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import AHEAD, PADDING, digest, folded, load, prefetch, tail
from lakerunner.pipeline.read.rows import Numbers, Rows, Texts

_SPACE, _WORD, _DIGIT, _HEX, _JOINT, _QUOTE = 1, 2, 4, 8, 16, 32
_START, _VARIABLE = np.uint64(0xB492B66FBE98F273), np.uint64(0x9AE16A3B2F90404F)
_AFTER_TOKEN, _AFTER_GAP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC3A5C85C97CB3127)


def _classes() -> np.ndarray[Any, np.dtype[np.uint8]]:
    classes = np.zeros(256, np.uint8)
    classes[list(b" \t\n\v\f\r")] = _SPACE
    classes[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")] = _WORD
    classes[128:] = _WORD
    classes[list(b"abcdefABCDEF")] |= _HEX
    classes[list(b"0123456789")] = _WORD | _DIGIT | _HEX
    classes[list(b".:@")] = _JOINT
    classes[ord("-")] = _JOINT | _HEX
    classes[list(b"\"'")] = _QUOTE
    return classes


_CLASS = _classes()


def add_fingerprint(rows: Rows) -> Rows:
    """Adds fingerprint, of the message."""
    message = rows.column("message", Texts)
    return rows.plus(fingerprint=Numbers(_fingerprints(rows.data, message.at, message.size)))


def fingerprint_of(message: str) -> int:
    """The fingerprint of one message."""
    text = message.encode()
    data = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
    return int(_fingerprints(data, np.zeros(1, np.int32), np.full(1, len(text), np.int32))[0])


@njit(cache=True)
def _fingerprints(data: Any, at: Any, size: Any) -> Any:
    out = np.empty(len(at), np.int64)
    for row in range(len(at)):
        prefetch(data, np.int64(at[min(row + AHEAD, len(at) - 1)]))
        out[row] = _fingerprint(data, np.int64(at[row]), np.int64(at[row]) + np.int64(size[row]))
    return out


@njit(cache=True)
def _word(data: Any, at: Any, end: Any) -> Any:
    """(token, position behind it) of the word that starts here."""
    start = at
    some, every = np.uint8(0), np.uint8(255)
    while at < end:
        kind = _CLASS[data[at]]
        if kind & _WORD == 0 and (
            kind & _JOINT == 0 or at + 1 >= end or at == start or _CLASS[data[at + 1]] & _WORD == 0
        ):
            break
        some |= kind
        every &= kind
        at += 1
    if some & _DIGIT or (every & _HEX and at - start >= 8):
        return _VARIABLE, at
    if at - start <= 8:  # no byte of a word is zero, so this is the word itself
        return tail(load(data, start), at - start), at
    return digest(data, start, at - start, np.int32(0)), at


@njit(cache=True)
def _closing(data: Any, at: Any, end: Any) -> Any:
    """The position of the quote that closes the one at `at`, or -1; a search that fails is the last one of its kind."""
    for place in range(at + 1, end):
        if data[place] == data[at]:
            return place
    return np.int64(-1)


@njit(cache=True)
def _fingerprint(data: Any, at: Any, end: Any) -> Any:
    value, gap, after_word = _START, False, False
    while at < end and _CLASS[data[at]] & _SPACE:
        at += 1
    quotes = at < end and data[at] != 123 and data[at] != 91
    while at < end:
        byte = data[at]
        kind = _CLASS[byte]
        if kind & _SPACE:
            gap, after_word = True, False
            at += 1
            continue
        closing = np.int64(-1)
        if kind & _QUOTE and quotes and (byte == 34 or not after_word):
            closing = _closing(data, at, end)
        after_word = False
        if kind & _WORD:
            token, at = _word(data, at, end)
            after_word = True
        elif closing >= 0:
            token, at = _VARIABLE, closing + 1
        else:
            token, at = np.uint64(byte), at + 1
        value = folded(value ^ token, _AFTER_GAP if gap else _AFTER_TOKEN)
        gap = False
    return np.int64(value)
