"""Eight bytes at a time, in jitted code.

Every buffer these work on has at least PADDING bytes behind the last one that counts, so that the last word of a text may be
read or written whole. A copy writes up to seven bytes past its end: fill a buffer from its start to its end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

PADDING = 8


def _word(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    place = builder.gep(context.make_array(array_type)(context, builder, array).data, [at])
    return builder.bitcast(place, ir.IntType(64).as_pointer())


@intrinsic
def load(_: Any, data: Any, at: Any) -> Any:
    """The eight bytes at this place as a little-endian uint64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_word(context, builder, signature.args[0], *arguments), align=1)

    return types.uint64(data, types.int64), code


@intrinsic
def store(_: Any, out: Any, at: Any, word: Any) -> Any:
    """Put a uint64 at this place, little-endian."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, value = arguments
        builder.store(value, _word(context, builder, signature.args[0], array, place), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.uint64), code


@njit(cache=True)
def tail(word: Any, size: Any) -> Any:
    """The first `size` bytes of a word, 1 to 8, the others zero."""
    return word & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size))


@njit(cache=True)
def same(data: Any, one: Any, other: Any, size: Any) -> Any:
    """Whether the bytes at both places are equal."""
    while size > 8:
        if load(data, one) != load(data, other):
            return False
        one += 8
        other += 8
        size -= 8
    return size == 0 or tail(load(data, one) ^ load(data, other), size) == 0


@njit(cache=True)
def copy(data: Any, start: Any, size: Any, out: Any, at: Any) -> Any:
    for place in range(0, size, 8):
        store(out, at + place, load(data, start + place))


@njit(cache=True)
def digest(data: Any, at: Any, size: Any) -> Any:
    """A 64-bit hash of these bytes, for tables that live as long as this process."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    value = np.uint64(size) * factor
    while size > 8:
        value = (value ^ load(data, at)) * factor
        value ^= value >> np.uint64(32)
        at += 8
        size -= 8
    if size > 0:
        value = (value ^ tail(load(data, at), size)) * factor
    return value ^ (value >> np.uint64(29))


@njit(cache=True)
def is_ascii(data: Any, at: Any, end: Any) -> Any:
    """Whether no byte is beyond ASCII. Needs no padding."""
    joined = np.uint64(0)
    while end - at >= 8:
        joined |= load(data, at)
        at += 8
    while at < end:
        joined |= np.uint64(data[at])
        at += 1
    return joined & np.uint64(0x8080808080808080) == 0
