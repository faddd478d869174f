"""Compare the keys of lines with names of labels, as `label_name` and `nested_label_name` make them, in kernels.

What always holds: only ASCII is known here. A key with other characters or escapes is not compared; its row is odd.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit

_UNDERSCORE, _ZERO, _NINE = b"_09"
_BLANK = np.zeros(256, np.bool_)
_BLANK[list(b"\t\n\v\f\r ")] = True  # what Go trims
_IN_NAME = np.full(256, _UNDERSCORE, np.uint8)
for _byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789":
    _IN_NAME[_byte] = _byte


@njit(cache=True, nogil=True)
def is_blank(byte: Any) -> bool:
    return bool(_BLANK[byte])


@njit(cache=True, nogil=True)
def trimmed(data: Any, start: Any, end: Any) -> Any:
    """Return where the key without blanks starts and ends."""
    while start < end and _BLANK[data[start]]:
        start += 1
    while start < end and _BLANK[data[end - 1]]:
        end -= 1
    return start, end


@njit(cache=True, nogil=True)
def reach_of(data: Any, key: Any, key_end: Any, names: Any, number: Any, reach: Any) -> Any:
    """Return how many bytes of a name this key covers together with the keys around it, which cover `reach` bytes; -1
    if the name does not start so. The key is trimmed and not empty."""
    base, end = names.bounds[number], names.bounds[number + 1]
    at = base + reach
    if reach > 0 or _ZERO <= data[key] <= _NINE:  # `_` joins keys, and stands before a digit
        if at >= end or names.data[at] != _UNDERSCORE:
            return -1
        at += 1
    if key_end - key > end - at:
        return -1
    while key < key_end:
        if names.data[at] != _IN_NAME[data[key]]:
            return -1
        key += 1
        at += 1
    return at - base
