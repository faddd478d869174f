"""Points of series as text, many at once, in machine code: each double as Prometheus writes it, with what stands around
it.

Comes in: the bits of doubles, which of them are wanted, and what stands around each. Goes out: bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.number_text import Bits, put_go_double

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
_INFINITE = np.uint64(0x7FF << 52)
_QUOTE = 34


class Points(NamedTuple):
    """Rows of doubles, one behind the other: those of row n are `first[n]:last[n]` where `wanted`. The stamp of place i
    in row n is that of number i - n * stride."""

    bits: Bits
    wanted: npt.NDArray[np.bool_]
    first: Ints
    last: Ints
    stride: int


class Around(NamedTuple):
    """What stands around each double: the head of its row, its stamp, `middle`, the double, `tail`. Texts one behind
    the other, with where each ends. `quotes`: of doubles that are no JSON number, NaN and the infinities."""

    heads: Bytes
    head_ends: Ints
    stamps: Bytes
    stamp_ends: Ints
    middle: Bytes
    tail: Bytes
    quotes: bool


@njit(cache=True, nogil=True)
def _put_copy(out: Any, at: Any, source: Any, first: Any, last: Any) -> Any:
    for place in range(first, last):
        out[at + place - first] = source[place]
    return at + last - first


@njit(cache=True, nogil=True)
def write_points(out: Any, ends: Any, points: Any, around: Any) -> None:
    """Each wanted double of each row with what stands around it; `ends` says where in `out` each row ends."""
    at, text_from, text_to, before = 0, 0, 0, ~points.bits[0] if len(points.bits) else np.uint64(0)
    for row in range(len(points.first)):
        head_from = around.head_ends[row - 1] if row else 0
        for place in range(points.first[row], points.last[row]):
            if not points.wanted[place]:
                continue
            bits = points.bits[place]
            stamp = place - row * points.stride
            at = _put_copy(out, at, around.heads, head_from, around.head_ends[row])
            at = _put_copy(
                out, at, around.stamps, around.stamp_ends[stamp - 1] if stamp else 0, around.stamp_ends[stamp]
            )
            at = _put_copy(out, at, around.middle, 0, len(around.middle))
            quoted = around.quotes and (bits & _INFINITE) == _INFINITE
            if quoted:
                out[at] = _QUOTE
                at += 1
            start = at
            at = _put_copy(out, at, out, text_from, text_to) if bits == before else put_go_double(out, at, bits)
            before, text_from, text_to = bits, start, at
            if quoted:
                out[at] = _QUOTE
                at += 1
            at = _put_copy(out, at, around.tail, 0, len(around.tail))
        ends[row] = at
