"""The arrays that readers work on, and functions for jitted code that read and write them eight bytes at a time.

Every buffer has at least PADDING bytes behind its last byte of content, so that the last word of a text can be loaded
or stored whole. `copy` writes up to seven bytes past its end: fill an output buffer from its start to its end, never in
another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

from lakerunner.kernel_cache import njit

PADDING = 8
AHEAD = 12  # rows to prefetch

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
# A structured array. Jitted code reads its fields as attributes, which numpy's own types do not know.
Records: TypeAlias = Any
# Texts numbered by their first occurrence (read/names.py).
Names: TypeAlias = Any


def slice_fields(*names: str) -> list[tuple[str, type]]:
    """Return the fields of a record for slices of the input: NAME_at and NAME_size of each."""
    return [(f"{name}_{part}", np.int32) for name in names for part in ("at", "size")]


# numba's own type for it does not know that the compiler passes the first argument.
_intrinsic: Callable[[Any], Any] = extending.intrinsic


def _word(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    place = builder.gep(context.make_array(array_type)(context, builder, array).data, [at])
    return builder.bitcast(place, ir.IntType(64).as_pointer())


@_intrinsic
def load(_: Any, data: Any, at: Any) -> Any:  # noqa: ARG001 - arguments are declared, not used
    """Return the eight bytes at this place as a little-endian uint64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # align=1: texts start at any byte.
        return builder.load(_word(context, builder, signature.args[0], *arguments), align=1)

    return types.uint64(data, types.int64), code


@_intrinsic
def store(_: Any, out: Any, at: Any, word: Any) -> Any:  # noqa: ARG001
    """Store a uint64 at this place, little-endian."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, value = arguments
        builder.store(value, _word(context, builder, signature.args[0], array, place), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.uint64), code


@_intrinsic
def fold_product(_: Any, one: Any, other: Any) -> Any:  # noqa: ARG001
    """Return the two halves of the 128-bit product of two uint64, xored: the mixing step of wyhash."""

    def code(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(number, wide) for number in arguments))
        high = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(builder.xor(product, high), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), code


@_intrinsic
def prefetch(_: Any, data: Any, at: Any) -> Any:  # noqa: ARG001
    """Prefetch the memory at this place, for reads that follow soon at an address the processor cannot predict."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], *arguments)
        kind = ir.FunctionType(ir.VoidType(), [place.type, ir.IntType(32), ir.IntType(32), ir.IntType(32)])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        flags = [ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]  # read, keep in all caches, data
        builder.call(function, [place, *flags])
        return context.get_dummy_value()

    return types.void(data, types.int64), code


@njit(cache=True)
def tail(word: Any, size: Any) -> Any:
    """Return the word with all but its first `size` bytes (1 to 8) zeroed."""
    return word & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size))


@njit(cache=True)
def same(data: Any, one: Any, other: Any, size: Any) -> Any:
    """Return whether the bytes at both places are equal."""
    while size > 8:
        if load(data, one) != load(data, other):
            return False
        one += 8
        other += 8
        size -= 8
    return size == 0 or tail(load(data, one) ^ load(data, other), size) == 0


@njit(cache=True)
def copy(data: Any, start: Any, size: Any, out: Any, at: Any) -> Any:
    """Copy whole words: up to seven bytes behind the copy are overwritten."""
    for place in range(0, size, 8):
        store(out, at + place, load(data, start + place))


@njit(cache=True)
def digest(data: Any, at: Any, size: Any, seed: Any) -> Any:
    """Return a 64-bit hash of these bytes. It must never change: pattern fingerprints are made of it and stored."""
    size_word = np.uint64(size) ^ np.uint64(0xE7037ED1A0B428DB)
    value = fold_product(np.uint64(seed) ^ np.uint64(0x9E3779B97F4A7C15), size_word)
    while size > 8:
        value = fold_product(value ^ load(data, at), np.uint64(0xA0761D6478BD642F))
        at += 8
        size -= 8
    if size > 0:
        value = fold_product(value ^ tail(load(data, at), size), np.uint64(0x8EBC6AF09C88C6E3))
    return value


@njit(cache=True)
def scan(data: Any, at: Any, end: Any) -> Any:
    """Return (whether all bytes are ASCII, the number of control characters). Needs no padding."""
    joined, ones = np.uint64(0), np.uint64(0x0101010101010101)
    controls = np.int64(0)
    while end - at >= 8:
        word = load(data, at)
        joined |= word
        # A byte of 0x20 or more has bit 5, 6 or 7. These bits of all eight bytes end up in the lowest bit of each, and
        # the product with `ones` adds them up in the highest byte.
        others = (word >> np.uint64(5) | word >> np.uint64(6) | word >> np.uint64(7)) & ones
        controls += 8 - np.int64(others * ones >> np.uint64(56))
        at += 8
    while at < end:
        joined |= np.uint64(data[at])
        controls += data[at] < 0x20
        at += 1
    return joined & np.uint64(0x8080808080808080) == 0, controls


@njit(cache=True)
def digest_slices(data: Any, at: Any, size: Any, seed: Any) -> Any:
    """Return the digest of each of these slices."""
    out = np.empty(len(size), np.uint64)
    for place in range(len(size)):
        out[place] = digest(data, np.int64(at[place]), np.int64(size[place]), seed)
    return out


@njit(cache=True)
def mix_into(digests: Any, others: Any, mix: Any) -> Any:
    """Mix one more part into each digest."""
    for row in range(len(digests)):
        digests[row] = fold_product(digests[row] ^ others[row], mix)
