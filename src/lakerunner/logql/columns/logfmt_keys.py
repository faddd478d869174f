"""`| logfmt` for a batch of lines, where only some labels are wanted: a kernel that reads as far as the row stage does.

Comes in: lines, and names of labels. Goes out: a column for each name. What always holds: a pair that cannot be read is
left out, as the row stage does it. Odd are lines with such a pair if the stage is strict, with keys of other characters
than ASCII, and with wanted values whose escapes are unknown or stand for surrogates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.logql.columns.extracted import Extracted, extracted, line_bytes, name_bytes, no_spans, value_size
from lakerunner.logql.columns.key_names import reach_of

_QUOTE, _BACKSLASH, _EQUALS, _LAST_BLANK = b'"\\= '
_WRONG, _ODD = -1, -2
_ESCAPES = np.zeros(256, np.bool_)
_ESCAPES[list(b"\"\\/'bfnrt")] = True
_IN_WORD = np.ones(256, np.bool_)  # of a key, or a value without quotes
_IN_WORD[: _LAST_BLANK + 1] = False
_IN_WORD[list(b'="')] = False


def extract_logfmt(lines: pa.Array, names: Sequence[str], strict: bool, keep_empty: bool) -> Extracted:
    """Return the labels of these names, which are some, that `| logfmt` sets if they are the required ones."""
    if not names:
        raise ValueError("extract_logfmt needs the names of labels")
    names = tuple(dict.fromkeys(names))
    data, bounds = line_bytes(lines)
    spans, odd = no_spans(len(names), len(lines)), np.zeros(len(lines), np.bool_)
    _logfmt_lines(data, bounds, name_bytes(names), spans, odd, strict, keep_empty)
    return extracted(lines, data, names, spans, odd)


def warm() -> None:
    """Compile the kernel."""
    extract_logfmt(pa.array(["level=info"]), ["level"], strict=False, keep_empty=False)


@njit(cache=True, nogil=True)
def _logfmt_lines(data: Any, bounds: Any, names: Any, spans: Any, odd: Any, strict: Any, keep_empty: Any) -> None:
    for row in range(len(odd)):
        odd[row] = not _logfmt_line(data, bounds, row, names, spans, strict, keep_empty)


@njit(cache=True, nogil=True)
def _logfmt_line(data: Any, bounds: Any, row: Any, names: Any, spans: Any, strict: Any, keep_empty: Any) -> bool:
    """Find the values of one line. Return whether that is all the row stage would do."""
    at, end, left = bounds[row], bounds[row + 1], len(names.bounds) - 1
    while True:
        while at < end and data[at] <= _LAST_BLANK:
            at += 1
        if at >= end:
            return True
        key = at
        key_end, start, stop, at = _pair(data, key, end)
        if stop < 0:
            if strict or stop == _ODD:
                return False
            continue
        is_quoted = start > key_end + 1
        if strict and is_quoted and value_size(data, start, stop, _ESCAPES) < 0:
            return False
        if stop == start and not keep_empty:
            continue
        number = _number_of(data, key, key_end, names, spans, row)
        if number < 0:
            continue
        size = value_size(data, start, stop, _ESCAPES) if is_quoted else _plain_size(data, start, stop)
        if size < 0:
            return False
        spans.starts[number, row], spans.ends[number, row], spans.sizes[number, row] = start, stop, size
        left -= 1
        if left == 0:
            return True


@njit(cache=True, nogil=True)
def _pair(data: Any, at: Any, end: Any) -> Any:
    """Return where the key of the pair that starts here ends, where its value starts and ends, and where reading goes
    on. The end of the value is _WRONG for a pair that cannot be read, _ODD for one that the row stage must read."""
    key = at
    while at < end and _IN_WORD[data[at]]:
        if data[at] >= 0x80:
            return at, at, _ODD, at
        at += 1
    key_end = at
    if at >= end or data[at] <= _LAST_BLANK:
        return key_end, at, at, at
    if data[at] == _QUOTE or at == key:
        return key_end, at, _WRONG, _behind(data, at, end)
    at += 1
    start = at
    if at < end and data[at] == _QUOTE:
        stop = _quoted_end(data, start + 1, end)
        return (key_end, start + 1, stop, stop + 1) if stop >= 0 else (key_end, start, _WRONG, end)
    while at < end and _IN_WORD[data[at]]:
        at += 1
    if at < end and data[at] > _LAST_BLANK:
        return key_end, start, _WRONG, _behind(data, at, end)
    return key_end, start, at, at


@njit(cache=True, nogil=True)
def _behind(data: Any, at: Any, end: Any) -> Any:
    while at < end and data[at] > _LAST_BLANK:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _number_of(data: Any, key: Any, key_end: Any, names: Any, spans: Any, row: Any) -> Any:
    """Return the number of the name that this key has, -1 if it is not wanted or has a value."""
    for number in range(len(names.bounds) - 1):
        if spans.starts[number, row] < 0:
            size = names.bounds[number + 1] - names.bounds[number]
            if reach_of(data, key, key_end, names, number, 0) == size:
                return number
    return -1


@njit(cache=True, nogil=True)
def _plain_size(data: Any, start: Any, end: Any) -> Any:
    """Return the size of a value without quotes, -1 if it has the replacement character, for which stages write a
    space."""
    for at in range(start, end - 2):
        if data[at] == 0xEF and data[at + 1] == 0xBF and data[at + 2] == 0xBD:
            return -1
    return end - start


@njit(cache=True, nogil=True)
def _quoted_end(data: Any, at: Any, end: Any) -> Any:
    """Return where the quote stands that closes the value whose first byte is here, -1 if none does."""
    while True:
        # A loop that only ever adds one: a step of one or two, as the byte says, would wait for each byte to be loaded.
        while at < end and data[at] != _QUOTE and data[at] != _BACKSLASH:
            at += 1
        if at >= end:
            return -1
        if data[at] == _QUOTE:
            return at
        at += 2
