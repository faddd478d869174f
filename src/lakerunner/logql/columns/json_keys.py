"""`| json` for a batch of lines, where only some labels are wanted: a kernel that reads as far as the row stage does.

Comes in: lines, and names of labels. Goes out: a column for each name. What always holds: a line that is read to the
end of its object, or to the last wanted label, has the labels that the row stage gives it. Odd are lines with a fault,
keys with escapes or other characters than ASCII, wanted values with escapes of surrogates, and brackets that do not
match: for those the row stage looks at more than one place of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.logql.columns.extracted import Extracted, extracted, line_bytes, name_bytes, no_spans, value_size
from lakerunner.logql.columns.key_names import is_blank, reach_of, trimmed

_QUOTE, _BACKSLASH, _COLON, _COMMA, _DASH, _ZERO, _NINE, _N = b'"\\:,-09n'
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_DEPTH = 16  # nobody queries a deeper name


def _flags(text: bytes) -> Any:
    flags = np.zeros(256, np.bool_)
    flags[list(text)] = True
    return flags


_BLANK = _flags(b" \n\r\t")
_AFTER_WORD = _flags(b" \n\r\t,}]")
_IN_BLOCK = _flags(b'"{}[]')
_IS_SCALAR = ~_flags(b"{[n")  # of the first byte of a value: no object, array or null
_ENDS_RUN = _flags(b'"\\')
_ESCAPES = _flags(b'"\\/bfnrt')


def extract_json(lines: pa.Array, names: Sequence[str]) -> Extracted:
    """Return the labels of these names, which are some, that `| json` sets if they are the required ones."""
    if not names:
        raise ValueError("extract_json needs the names of labels")
    names = tuple(dict.fromkeys(names))
    data, bounds = line_bytes(lines)
    spans, odd = no_spans(len(names), len(lines)), np.zeros(len(lines), np.bool_)
    _json_lines(data, bounds, name_bytes(names), spans, odd)
    return extracted(lines, data, names, spans, odd)


def warm() -> None:
    """Compile the kernel."""
    extract_json(pa.array(['{"level": "info"}']), ["level"])


class Scratch(NamedTuple):
    """What a kernel keeps from line to line.

    - `reaches`: for each open object and each name, how much of the name the keys that lead to the object cover, -1 if
      the name cannot be inside.
    - `firsts`: the first bytes of keys that may be wanted. Most keys are not, and cost one look here.
    - `marks`: the places of quotes and backslashes in the line, and twice its end. A loop to the end of each string
      would be slower by a twentieth to a fifth, since a processor cannot foresee where it ends."""

    reaches: Any
    firsts: Any
    marks: Any


@njit(cache=True, nogil=True)
def _json_lines(data: Any, bounds: Any, names: Any, spans: Any, odd: Any) -> None:
    count, longest = len(names.bounds) - 1, 0
    firsts = np.zeros(256, np.bool_)
    byte = np.zeros(1, np.uint8)
    for first in range(256):
        byte[0] = first
        firsts[first] = first >= 0x80 or first == _QUOTE or is_blank(first)  # such keys need a closer look
        for number in range(count):
            firsts[first] |= reach_of(byte, 0, 1, names, number, 0) >= 0
    for row in range(len(odd)):
        longest = max(longest, bounds[row + 1] - bounds[row])
    scratch = Scratch(np.zeros((_DEPTH + 2, count), np.int64), firsts, np.empty(longest + 2, np.int64))
    for row in range(len(odd)):
        odd[row] = not _json_line(data, bounds, row, names, spans, scratch)


@njit(cache=True, nogil=True)
def _json_line(data: Any, bounds: Any, row: Any, names: Any, spans: Any, scratch: Any) -> bool:
    """Find the values of one line. Return whether that is all the row stage would do."""
    reaches, firsts, marks = scratch
    end = bounds[row + 1]
    at = _skip_blank(data, bounds[row], end)
    if at >= end or data[at] != _OPEN:
        return False
    _mark(data, at, end, marks)
    at, mark, depth, left = at + 1, 0, 0, reaches.shape[1]  # `mark` is the first one that is not in front of `at`
    while True:
        at = _skip_blank(data, at, end)
        if at >= end:
            return False
        if data[at] == _CLOSE:  # a comma may stand in front of the brace
            if depth == 0:
                return True
            at, depth = at + 1, depth - 1
        else:
            key, key_end, value = at + 1, marks[mark + 1], _value_start(data, marks, mark, at, end)
            if value < 0:
                return False
            at, mark = value, mark + 2
            is_candidate = depth > 0 or firsts[data[key]]
            if is_candidate:
                key, key_end = trimmed(data, key, key_end)
                if key == key_end or not _is_ascii(data, key, key_end):
                    return False
                if data[at] == _OPEN and _leads_to_names(data, key, key_end, names, reaches, depth):
                    at, depth = at + 1, depth + 1
                    if depth > _DEPTH:
                        return False
                    continue
            if data[at] == _QUOTE:
                mark = _closing(data, marks, mark + 1, end) + 1
                at = marks[mark - 1] + 1
            else:
                at = _word_end(data, at, end) if _IS_SCALAR[data[at]] or data[at] == _N else _block_end(data, at, end)
                while marks[mark] < at:
                    mark += 1
            if at < 0 or at > end:
                return False
            if is_candidate and _IS_SCALAR[data[value]]:
                number = _number_of(data, key, key_end, names, reaches[depth])
                if number >= 0 and spans.starts[number, row] < 0:
                    if not _set(data, value, at, spans, number, row):
                        return False
                    left -= 1
                    if left == 0:
                        return depth == 0 or _closes(data, at, end, depth)
        at = _skip_blank(data, at, end)
        if at >= end or (data[at] != _COMMA and data[at] != _CLOSE):
            return False
        if data[at] == _COMMA:
            at += 1


@njit(cache=True, nogil=True)
def _mark(data: Any, at: Any, end: Any, marks: Any) -> None:
    """Note the places of quotes and backslashes, without a branch."""
    count = 0
    for place in range(at, end):
        marks[count] = place
        count += (data[place] == _QUOTE) | (data[place] == _BACKSLASH)
    marks[count] = marks[count + 1] = end


@njit(cache=True, nogil=True)
def _value_start(data: Any, marks: Any, mark: Any, at: Any, end: Any) -> Any:
    """Return where the value of the member that starts here does, -1 for the row stage, which also reads escapes."""
    behind = marks[mark + 1]
    if data[at] != _QUOTE or behind >= end or data[behind] != _QUOTE:
        return -1
    at = _skip_blank(data, behind + 1, end)
    if at >= end or data[at] != _COLON:
        return -1
    at = _skip_blank(data, at + 1, end)
    return at if at < end else -1


@njit(cache=True, nogil=True)
def _closing(data: Any, marks: Any, mark: Any, end: Any) -> Any:
    """Return the number of the mark that closes a string, whose first mark is given; one of the end if none does."""
    while marks[mark] < end and data[marks[mark]] == _BACKSLASH:
        mark += 2 if marks[mark + 1] == marks[mark] + 1 else 1
    return mark


@njit(cache=True, nogil=True)
def _is_ascii(data: Any, at: Any, end: Any) -> Any:
    while at < end and data[at] < 0x80:
        at += 1
    return at == end


@njit(cache=True, nogil=True)
def _leads_to_names(data: Any, key: Any, key_end: Any, names: Any, reaches: Any, depth: Any) -> bool:
    """Return whether the object of this key may have wanted members, and note how much of each name leads to it."""
    is_wanted = False
    for number in range(reaches.shape[1]):
        reach = reaches[depth, number]
        if reach >= 0:
            reach = reach_of(data, key, key_end, names, number, reach)
        reaches[depth + 1, number] = reach
        is_wanted = is_wanted or reach >= 0
    return is_wanted


@njit(cache=True, nogil=True)
def _number_of(data: Any, key: Any, key_end: Any, names: Any, reaches: Any) -> Any:
    """Return the number of the name that this key completes, -1 if it is none of them."""
    for number in range(len(reaches)):
        if reaches[number] >= 0:
            size = names.bounds[number + 1] - names.bounds[number]
            if reach_of(data, key, key_end, names, number, reaches[number]) == size:
                return number
    return -1


@njit(cache=True, nogil=True)
def _set(data: Any, start: Any, end: Any, spans: Any, number: Any, row: Any) -> Any:
    """Note the place of a value. Return whether its escapes are known."""
    size = end - start
    if data[start] == _QUOTE:
        start, end = start + 1, end - 1
        size = value_size(data, start, end, _ESCAPES)
    spans.starts[number, row], spans.ends[number, row], spans.sizes[number, row] = start, end, size
    return size >= 0


@njit(cache=True, nogil=True)
def _skip_blank(data: Any, at: Any, end: Any) -> Any:
    while at < end and _BLANK[data[at]]:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _string_end(data: Any, at: Any, end: Any) -> Any:
    """Return the place behind the quote that closes the string whose first byte is here, -1 if none does."""
    while True:
        # A loop that only ever adds one: a step of one or two, as the byte says, would wait for each byte to be loaded.
        while at < end and not _ENDS_RUN[data[at]]:
            at += 1
        if at >= end:
            return -1
        if data[at] == _QUOTE:
            return at + 1
        at += 2


@njit(cache=True, nogil=True)
def _word_end(data: Any, at: Any, end: Any) -> Any:
    """Return the place behind a number, true, false or null; -1 if it is none, or a number with brackets or quotes in
    it, at which the row stage may see the end of an object elsewhere."""
    start = at
    while at < end and not _AFTER_WORD[data[at]]:
        if _IN_BLOCK[data[at]]:
            return -1
        at += 1
    first = data[start]
    if first == _DASH or _ZERO <= first <= _NINE:
        return at
    is_word = _is_text(data, start, at, b"true") or _is_text(data, start, at, b"false")
    return at if is_word or _is_text(data, start, at, b"null") else -1


@njit(cache=True, nogil=True)
def _is_text(data: Any, at: Any, end: Any, text: Any) -> bool:
    if end - at != len(text):
        return False
    for place in range(len(text)):  # noqa: SIM110
        if data[at + place] != text[place]:
            return False
    return True


@njit(cache=True, nogil=True)
def _block_end(data: Any, at: Any, end: Any) -> Any:
    """Return the place behind the object or array that starts here; -1 if it has no end or if brackets of the other
    kind in it do not match: the row stage counts the one kind only."""
    braces, brackets = 0, 0
    is_object = data[at] == _OPEN
    while at < end:
        byte = data[at]
        at += 1
        if not _IN_BLOCK[byte]:
            continue
        if byte == _QUOTE:
            at = _string_end(data, at, end)
            if at < 0:
                return -1
        elif byte == _OPEN:
            braces += 1
        elif byte == _CLOSE:
            braces -= 1
            if is_object and braces == 0:
                return at
            if braces < 0:
                return -1
        elif not is_object:
            brackets += 1 if byte == _OPEN_LIST else -1
            if brackets == 0:
                return at if braces == 0 else -1
    return -1


@njit(cache=True, nogil=True)
def _closes(data: Any, at: Any, end: Any, depth: Any) -> bool:
    """Return whether the open objects end, but for the outermost: the row stage finds ends before it reads."""
    while at < end:
        byte = data[at]
        at += 1
        if byte == _QUOTE:
            at = _string_end(data, at, end)
            if at < 0:
                return False
        elif byte == _OPEN:
            depth += 1
        elif byte == _CLOSE:
            depth -= 1
            if depth == 0:
                return True
    return False
